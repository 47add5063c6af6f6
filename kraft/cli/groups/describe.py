"""`kraft groups describe`: a group's members, what they have, and how far the group has come in each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraft.cli.groups.group_client import Committed, Group, GroupClient, Member
from kraft.cli.groups.log_positions import Ends, LogPositions, Offsets
from kraft.cli.shared.admin_client import AdminClient
from kraft.cli.shared.documents import Document
from kraft.cli.shared.output import show_rows
from partitions.topic_partition import TopicPartition


class Described(NamedTuple):
    """A group, and a row of `offset_rows` for each partition that it has offsets of, or that a member has."""

    group: Group
    offsets: list[Document]


async def described(admin: AdminClient, group_id: str, now_ms: int) -> Described:
    """Raises UserError, failed, for a group that is not there."""
    client = GroupClient(admin)
    group = await client.described(group_id)
    committed = await client.committed(group_id)
    assigned = {key for member in group.members for key in member.partitions}
    keys = sorted(committed.keys() | assigned)
    logs = await LogPositions.of(admin, {key.topic for key in keys})
    ends = await logs.ends(keys)
    times = await logs.batch_times(oldest_unread(committed, ends))
    return Described(group, offset_rows(keys, committed, ends.end, times, now_ms))


def oldest_unread(committed: Mapping[TopicPartition, Committed], ends: Ends) -> Offsets:
    """The offset of the oldest record that is there and not read yet, of partitions that are not read to their end."""
    return {
        key: max(stored.offset, ends.start[key])
        for key, stored in sorted(committed.items())
        if key in ends.start and max(stored.offset, ends.start[key]) < ends.end.get(key, 0)
    }


def offset_rows(
    keys: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
    log_ends: Offsets,
    times_ms: Offsets,
    now_ms: int,
) -> list[Document]:
    """{topic, partition, current, log_end, lag, lag_s, metadata} of each partition.

    `log_end` is the high watermark, `lag` the offsets between, 0 at least; `lag_s` the age of the oldest unread record,
    by its batch's header (`LogPositions.batch_times`), None at the end. What is not known is None: `current` where
    nothing was committed, `log_end` where no leader tells.
    """
    rows = []
    for key in keys:
        stored, end = committed.get(key), log_ends.get(key)
        current = None if stored is None else stored.offset
        lag = None if current is None or end is None else max(end - current, 0)
        age_s = max(now_ms - times_ms[key], 0) / 1000 if key in times_ms else None
        rows.append(
            {
                **key._asdict(),
                "current": current,
                "log_end": end,
                "lag": lag,
                "lag_s": age_s,
                "metadata": None if stored is None else stored.metadata,
            }
        )
    return rows


def document(described: Described) -> Document:
    """What --json prints."""
    group = described.group
    return {
        **group._asdict(),
        "members": [
            {**member._asdict(), "partitions": [key._asdict() for key in member.partitions]}
            for member in group.members
        ],
        "offsets": described.offsets,
    }


def show_offsets(described: Described) -> None:
    """With the client that has each partition."""
    clients = {key: member.client_id for member in described.group.members for key in member.partitions}
    show_rows(
        ["topic", "partition", "current", "log end", "lag", "lag s", "client", "metadata"],
        [
            [
                row["topic"],
                row["partition"],
                row["current"],
                row["log_end"],
                row["lag"],
                None if row["lag_s"] is None else f"{row['lag_s']:.1f}",
                clients.get(TopicPartition(row["topic"], row["partition"])),
                row["metadata"],
            ]
            for row in described.offsets
        ],
    )


def show_members(described: Described) -> None:
    show_rows(
        ["member", "instance", "client", "host", "partitions"],
        [
            [member.member_id, member.instance_id, member.client_id, member.host, partitions_text(member)]
            for member in described.group.members
        ],
    )


def show_state(described: Described) -> None:
    group = described.group
    show_rows(
        ["group", "type", "state", "coordinator", "assignor", "members"],
        [[group.group, group.type, group.state, group.coordinator, group.assignor, len(group.members)]],
    )


def partitions_text(member: Member) -> str:
    """As --topic takes them: orders:0,1;payments:2 in one word."""
    numbers: dict[str, list[int]] = {}
    for topic, number in member.partitions:
        numbers.setdefault(topic, []).append(number)
    return ";".join(f"{topic}:{','.join(map(str, some))}" for topic, some in numbers.items())
