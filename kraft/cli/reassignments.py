"""Where partitions are, which of them are on their way, and what became of a move: for `kraft reassign`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kraft.cli.admin import AdminClient, raise_for
from kraft.cli.errors import EXIT_UNDECIDED, UserError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.offsets import DEBUGGING_REPLICA_ID
from kraft.protocol.schemas.reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
)

TIMEOUT_MS = 30_000
LIST_VERSION = 0
LOOK_EVERY_S = 0.5
HEARD_OF_WITHIN_S = 10.0
"""How long the broker that is asked for replicas may be behind the controller, which says what has ended."""

PartitionKey = tuple[str, int]


class Ongoing(NamedTuple):
    """A reassignment that is under way, and how far its new replicas are."""

    key: PartitionKey
    state: OngoingPartitionReassignment
    log_ends: Mapping[int, int]
    """By broker, of those that answer."""

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.key[0],
            "partition": self.key[1],
            "replicas": self.state.replicas,
            "adding": self.state.adding_replicas,
            "removing": self.state.removing_replicas,
            "leo": {str(broker): offset for broker, offset in self.log_ends.items()},
        }


async def replicas_of(admin: AdminClient, keys: Iterable[PartitionKey]) -> dict[PartitionKey, list[int]]:
    """Where partitions are now. Raises UserError for one that is not there."""
    found = {}
    for topic in (await admin.metadata(dict.fromkeys(name for name, _ in keys))).topics:
        raise_for(topic.error_code, None, f"topic {topic.name}")
        for state in topic.partitions:
            found[topic.name or "", state.partition_index] = state.replica_nodes
    for name, number in keys:
        if (name, number) not in found:
            raise UserError(f"topic {name} has no partition {number}")
    return found


async def ongoing(admin: AdminClient, topic: str | None) -> list[Ongoing]:
    wanted = None
    if topic is not None:
        numbers = [number for _, number in await partitions_of(admin, topic, None)]
        wanted = [ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)]
    request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=wanted)
    answer: Any = await admin.request(request, version=LIST_VERSION)
    raise_for(answer.error_code, answer.error_message, "reassignments cannot be listed")
    found = [
        Ongoing((one.name, state.partition_index), state, {})
        for one in answer.topics
        for state in one.partitions
    ]
    return sorted(found, key=lambda one: one.key)


async def log_ends_of(admin: AdminClient, one: Ongoing) -> dict[int, int]:
    name, number = one.key
    await admin.metadata([name])
    ends: dict[int, int] = {}
    for broker in one.state.replicas:
        known = await admin.end_offsets(broker, name, [number], DEBUGGING_REPLICA_ID)
        if number in known:
            ends[broker] = known[number]
    return ends


class NotDone(NamedTuple):
    """Why a partition did not get to where it was sent."""

    error: ErrorCode
    message: str


async def await_end(
    admin: AdminClient, targets: Mapping[PartitionKey, Sequence[int]], timeout_s: float
) -> dict[PartitionKey, NotDone]:
    """Waits until none of these moves is under way. Returns those that did not end where they were to.

    Raises UserError if some are still under way after `timeout_s`.
    """
    waiting, not_done = dict(targets), dict[PartitionKey, NotDone]()
    ended_s: dict[PartitionKey, float] = {}
    now_s = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                states = {one.key: one.state for one in await ongoing(admin, None)}
                for key in [key for key in waiting if key in states]:
                    ended_s.pop(key, None)
                    state = states[key]
                    target = [broker for broker in state.replicas if broker not in state.removing_replicas]
                    if sorted(target) != sorted(waiting[key]):
                        text = f"another reassignment took its place, to brokers {ids(target)}"
                        not_done[key] = NotDone(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, text)
                        del waiting[key]
                ended = [key for key in waiting if key not in states]
                there = await _known_replicas(admin, ended)
                for key in ended:
                    replicas = there.get(key)
                    if replicas == waiting[key]:
                        del waiting[key]
                    elif now_s() - ended_s.setdefault(key, now_s()) > HEARD_OF_WITHIN_S:
                        not_done[key] = _ended_elsewhere(replicas)
                        del waiting[key]
                if not waiting:
                    return not_done
                # The controller tells nobody when it is done, so it is asked now and then.
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError as error:
        raise UserError(
            f"not all have moved within {timeout_s:g} s; they go on: kraft reassign list", EXIT_UNDECIDED
        ) from error


def _ended_elsewhere(replicas: Sequence[int] | None) -> NotDone:
    if replicas is None:
        return NotDone(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it was deleted meanwhile")
    return NotDone(
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        f"it was cancelled, or another reassignment took its place: it is on brokers {ids(replicas)}",
    )


async def _known_replicas(admin: AdminClient, keys: Sequence[PartitionKey]) -> dict[PartitionKey, list[int]]:
    """Of those partitions that are there."""
    if not keys:
        return {}
    topics = (await admin.metadata(dict.fromkeys(name for name, _ in keys))).topics
    return {
        (topic.name or "", state.partition_index): state.replica_nodes
        for topic in topics
        for state in topic.partitions
    }


async def partitions_of(admin: AdminClient, name: str, wanted: list[int] | None) -> list[PartitionKey]:
    topic = (await admin.metadata([name])).topics[0]
    raise_for(topic.error_code, None, f"topic {name}")
    return [(name, number) for number in wanted or sorted(p.partition_index for p in topic.partitions)]


def ids(brokers: Iterable[int]) -> str:
    """For people."""
    return ",".join(map(str, brokers))
