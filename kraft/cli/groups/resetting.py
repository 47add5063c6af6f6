"""`kraft groups reset-offsets`: which partitions are meant, what is known of them, and the commit of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraft.cli.groups.group_client import Committed, Group, GroupClient
from kraft.cli.groups.log_positions import LogPositions
from kraft.cli.groups.reset import Change, Known, Target, To, plan
from kraft.cli.shared.admin_client import AdminClient
from kraft.cli.shared.coordinators import Failure
from kraft.cli.shared.scope import Scope, is_in
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED, UserError
from partitions.topic_partition import TopicPartition

_WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})


class Reset(NamedTuple):
    """What changes, and which partitions refused to."""

    changes: list[Change]
    failures: dict[TopicPartition, Failure]


async def reset(
    admin: AdminClient, group_id: str, scope: Scope | None, target: Target, *, execute: bool
) -> Reset:
    """Plans, and with `execute` commits. `scope` None means all partitions with offsets. Raises UserError, also where
    the group has members: those would commit over it."""
    client = GroupClient(admin)
    _refuse_members(await client.described(group_id))
    committed = await client.committed(group_id)
    known = await _known(admin, group_id, scope, target, committed)
    changes = plan(known, target)
    failures: dict[TopicPartition, Failure] = {}
    if execute:
        failures = await client.commit(
            group_id, {TopicPartition(change.topic, change.partition): change.to for change in changes}
        )
    return Reset(changes, failures)


def _refuse_members(group: Group) -> None:
    if group.members or group.state not in _WITHOUT_MEMBERS:
        count = len(group.members)
        raise UserError(
            f"group {group.group} has {count} member{'s' * (count != 1)} and is {group.state}:"
            " stop them, or wait until their sessions have ended, then reset its offsets"
        )


async def _known(
    admin: AdminClient,
    group_id: str,
    scope: Scope | None,
    target: Target,
    committed: Mapping[TopicPartition, Committed],
) -> dict[TopicPartition, Known]:
    topics = {key.topic for key in (target.offsets if target.kind is To.FILE else committed)}
    logs = await LogPositions.of(admin, topics if scope is None else scope)
    partitions = chosen_partitions(scope, target, committed, logs.leaders)
    if not partitions:
        raise UserError(f"group {group_id} has no offsets there: name topics with --topic")
    existing = {key.topic for key in logs.leaders}
    for key in partitions:
        if key.topic not in existing:
            raise UserError(f"topic {key.topic} does not exist")
    _require(partitions, logs.leaders, "does not exist", EXIT_FAILED)
    start, end = await logs.ends(partitions)
    at_time = await logs.at(partitions, target.number) if target.kind is To.TIME else {}
    for told in (start, end, at_time) if target.kind is To.TIME else (start, end):
        _require(partitions, told, "cannot be looked up: its leader does not tell", EXIT_UNDECIDED)
    return {
        key: Known(
            start[key],
            end[key],
            committed[key].offset if key in committed else None,
            None if at_time.get(key, -1) < 0 else at_time[key],
        )
        for key in partitions
    }


def chosen_partitions(
    scope: Scope | None,
    target: Target,
    committed: Iterable[TopicPartition],
    existing: Iterable[TopicPartition],
) -> list[TopicPartition]:
    """The partitions that are meant, whether they exist or not: of a file its own, those in the scope if there is one;
    else those of the scope, all of a topic where it names none; else all with offsets."""
    if target.kind is To.FILE:
        return sorted(key for key in target.offsets if scope is None or is_in(scope, *key))
    if scope is None:
        return sorted(committed)
    named = {TopicPartition(topic, number) for topic, numbers in scope.items() for number in numbers or ()}
    whole = {key for key in existing if is_in(scope, *key)}
    missing = {topic for topic, numbers in scope.items() if numbers is None} - {key.topic for key in whole}
    return sorted(named | whole | {TopicPartition(topic, 0) for topic in missing})


def _require(
    partitions: Iterable[TopicPartition], told: Mapping[TopicPartition, int], what: str, exit_code: int
) -> None:
    for key in partitions:
        if key not in told:
            raise UserError(f"partition {key.partition} of topic {key.topic} {what}", exit_code)
