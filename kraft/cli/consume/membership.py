"""`kraft consume --group`: the command as a member of a consumer group, of either protocol.

At least once: an offset is stored when its record has been written to standard output and flushed, and only stored
offsets are committed: from time to time (auto.commit.interval.ms), before partitions go to another member, and at the
end. Partitions without a committed offset begin where the command says.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from enum import StrEnum
from typing import Any, NamedTuple

from kraft.cli.consume.positions import METADATA_TIMEOUT_S, From, Start, TopicPartition, start_offsets
from kraft.cli.shared.options import require_text
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError

STRATEGY = "partition.assignment.strategy"


class GroupProtocol(StrEnum):
    """Who assigns partitions: a member, or the coordinator (KIP-848)."""

    classic = "classic"
    consumer = "consumer"


class Membership(NamedTuple):
    """Which group is joined, and as what."""

    group: str
    protocol: GroupProtocol
    instance_id: str | None

    def properties(self, start: Start) -> dict[str, Any]:
        """librdkafka's. `auto.offset.reset` also stands for committed offsets that the log does not have any more."""
        static = {} if self.instance_id is None else {"group.instance.id": self.instance_id}
        return {
            **static,
            "group.id": self.group,
            "group.protocol": self.protocol.value,
            "enable.auto.commit": True,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest" if start.kind is From.LATEST else "earliest",
        }


def membership(
    group: str | None, protocol: GroupProtocol | None, instance_id: str | None
) -> Membership | None:
    """What the options say; None where no group is named. Raises UserError, wrong usage."""
    if group is None:
        if protocol is not None or instance_id is not None:
            raise UserError(
                "--group-protocol and --instance-id say how to join a group: name it with --group", EXIT_USAGE
            )
        return None
    if not group or instance_id == "":
        raise UserError("--group and --instance-id are names, and not empty", EXIT_USAGE)
    require_text(group, "--group")
    require_text(instance_id or "", "--instance-id")
    return Membership(group, protocol or GroupProtocol.classic, instance_id)


class Member:
    """A consumer that has joined."""

    def __init__(self, consumer: Any, note: Callable[[Any], None]) -> None:
        """`note` is told of errors of librdkafka that do not end the command."""
        self._consumer = consumer
        self.note = note

    def join(self, topics: Iterable[str], start: Start, *, is_incremental: bool) -> None:
        """Subscribes. `is_incremental`: partitions are given and taken one by one, as cooperative assignors do and the
        protocol of KIP-848 does."""
        names = list(dict.fromkeys(topics))
        if start.kind in (From.EARLIEST, From.LATEST):
            self._consumer.subscribe(names)
            return

        def on_assign(consumer: Any, partitions: list[Any]) -> None:
            placed = _placed(consumer, partitions, start)
            (consumer.incremental_assign if is_incremental else consumer.assign)(placed)

        self._consumer.subscribe(names, on_assign=on_assign)

    def is_at_end(self, unread: Container[tuple[str, int]]) -> bool:
        """Whether this member has partitions, and none of them is unread."""
        assigned = self._consumer.assignment()
        return bool(assigned) and all((one.topic, one.partition) not in unread for one in assigned)

    def written(self, last: Iterable[Any]) -> None:
        """Stores the offset behind each of these messages, the last written of their partitions."""
        from confluent_kafka import KafkaError, KafkaException

        for message in last:
            try:
                self._consumer.store_offsets(message=message)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:
                    raise
                # The partition went to another member while its records were written: that one reads them again.

    def leave(self) -> None:
        """Commits what is stored and leaves. Raises UserError if it cannot be committed: others read it again."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise UserError(
                    f"the last offsets were not committed, their records will be read again: {error.args[0].str()}"
                ) from error


def is_incremental(membership: Membership, strategy: str) -> bool:
    """Of the membership, with librdkafka's property `STRATEGY`."""
    return membership.protocol is GroupProtocol.consumer or "cooperative" in strategy


def _placed(consumer: Any, partitions: list[Any], start: Start) -> list[Any]:
    """The partitions, with the offsets to begin at. Raises UserError."""
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as Assigned

    try:
        committed = consumer.committed(partitions, METADATA_TIMEOUT_S)
    except KafkaException as error:
        raise UserError(f"the committed offsets: {error.args[0].str()}", EXIT_UNDECIDED) from error
    for one in committed:
        if one.error is not None:
            raise UserError(
                f"the committed offset of {one.topic}-{one.partition}: {one.error.str()}", EXIT_FAILED
            )
    new = [TopicPartition(one.topic, one.partition) for one in committed if one.offset < 0]
    starts = start_offsets(consumer, new, start) if new else {}
    return [
        Assigned(one.topic, one.partition, starts.get(TopicPartition(one.topic, one.partition), one.offset))
        for one in committed
    ]
