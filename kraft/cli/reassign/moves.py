"""Moves of partitions for `kraft reassign`: where partitions are, which are under way, and how a move ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kraft.cli.shared.admin_client import CHANGE_TIMEOUT_MS, AdminClient, raise_for
from kraft.cluster_problems import ids_text
from kraft.network.client import ConnectionLostError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.metadata import MetadataResponseTopic
from kraft.protocol.schemas.offsets import DEBUGGING_REPLICA_ID
from kraft.protocol.schemas.reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
)
from kraft.user_error import EXIT_UNDECIDED, UserError
from partitions.topic_partition import TopicPartition

LIST_VERSION = 0
LOOK_EVERY_S = 0.5
LOOK_AGAIN_WITHIN_S = 5.0
"""The longest pause after looks that have failed."""
ANSWER_WITHIN_S = 10.0
"""A broker that takes longer to say how moves are is left for the next bootstrap server."""
HEARD_OF_WITHIN_S = 10.0
"""How long the broker that is asked for replicas may be behind the controller, which says what has ended."""


class Ongoing(NamedTuple):
    """A reassignment that is under way, and how far its new replicas are."""

    key: TopicPartition
    state: OngoingPartitionReassignment
    log_ends: Mapping[int, int]
    """By broker, of those that answer."""

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.key.topic,
            "partition": self.key.partition,
            "replicas": self.state.replicas,
            "adding": self.state.adding_replicas,
            "removing": self.state.removing_replicas,
            "leo": {str(broker): offset for broker, offset in self.log_ends.items()},
        }


async def replicas_of(admin: AdminClient, keys: Iterable[TopicPartition]) -> dict[TopicPartition, list[int]]:
    """Where partitions are now. Raises UserError for one that is not there."""
    topics = (await admin.metadata(dict.fromkeys(key.topic for key in keys))).topics
    for topic in topics:
        raise_for(topic.error_code, None, f"topic {topic.name}")
    found = _replicas_in(topics)
    for key in keys:
        if key not in found:
            raise UserError(f"topic {key.topic} has no partition {key.partition}")
    return found


async def ongoing(admin: AdminClient, topic: str | None) -> list[Ongoing]:
    wanted = None
    if topic is not None:
        numbers = [number for _, number in await partitions_of(admin, topic, None)]
        wanted = [ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)]
    request = ListPartitionReassignmentsRequest(timeout_ms=CHANGE_TIMEOUT_MS, topics=wanted)
    answer: Any = await admin.request(request, version=LIST_VERSION)
    raise_for(answer.error_code, answer.error_message, "reassignments cannot be listed")
    found = [
        Ongoing(TopicPartition(one.name, state.partition_index), state, {})
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
    """Why a partition is not where it was sent."""

    error: ErrorCode
    message: str
    has_ended: bool = True
    """False for a move that goes on, or of which it cannot be told."""


class _Moves:
    """Moves that are waited for, and what was last seen of them."""

    def __init__(self, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
        self.waiting = dict(targets)
        self.not_done: dict[TopicPartition, NotDone] = {}
        self._listed: dict[TopicPartition, list[int]] = {}
        """The replicas of a move when it was last said to be under way."""
        self._ended: dict[TopicPartition, tuple[float, list[int] | None]] = {}
        """Since when it is not, and where the partition is since, if it is there. (None: the topic is gone.)"""

    async def look(self, admin: AdminClient) -> None:
        """Asks once how they are. Cancelled or failed, it has changed nothing. Raises ConnectionLostError and
        UserError."""
        states = {one.key: one.state for one in await ongoing(admin, None)}
        there = await _known_replicas(admin, [key for key in self.waiting if key not in states])
        now_s = asyncio.get_running_loop().time()
        for key, wanted in list(self.waiting.items()):
            state = states.get(key)
            if state is None:
                replicas = there.get(key)
                since_s, _ = self._ended.get(key, (now_s, None))
                self._ended[key] = since_s, replicas
                if replicas == wanted:
                    del self.waiting[key]
                elif now_s - since_s > HEARD_OF_WITHIN_S:
                    self._end(key, _ended_elsewhere(replicas))
                continue
            self._ended.pop(key, None)
            self._listed[key] = state.replicas
            target = [broker for broker in state.replicas if broker not in state.removing_replicas]
            if sorted(target) != sorted(wanted):
                text = f"another reassignment took its place, to brokers {ids_text(target)}"
                self._end(key, NotDone(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, text))

    def give_up(self, trouble: str | None) -> None:
        """Judges those that are still waited for by what was last seen; `trouble` is why the last looks failed."""
        for key in list(self.waiting):
            self._end(key, self._last_known(key, trouble))

    def _end(self, key: TopicPartition, reason: NotDone) -> None:
        self.not_done[key] = reason
        del self.waiting[key]

    def _last_known(self, key: TopicPartition, trouble: str | None) -> NotDone:
        listed = self._listed.get(key)
        if key in self._ended:
            _, replicas = self._ended[key]
            if replicas is None or replicas != listed:
                reason = _ended_elsewhere(replicas)
                return reason._replace(
                    message=f"{reason.message}, as far as the broker that was asked has heard"
                )
            text = "it is no longer under way, but the broker that was asked has not heard yet where it ended"
            return NotDone(ErrorCode.REQUEST_TIMED_OUT, text, has_ended=False)
        if listed is not None and trouble is None:
            text = f"it is still under way, on brokers {ids_text(listed)}"
            return NotDone(ErrorCode.REASSIGNMENT_IN_PROGRESS, text, has_ended=False)
        known = "nothing has been heard of it" if listed is None else "it was under way when last heard of"
        text = f"{known}: {trouble or 'no answer came in time'}"
        return NotDone(ErrorCode.REQUEST_TIMED_OUT, text, has_ended=False)


async def await_end(
    admin: AdminClient, targets: Mapping[TopicPartition, Sequence[int]], timeout_s: float
) -> dict[TopicPartition, NotDone]:
    """Waits until none of these moves is under way, `timeout_s` at most. Returns those that are not where they
    were to go, also those that go on.

    The moves do not depend on the broker that is asked: if it does not answer, or does not reach the controller,
    the next bootstrap server is. Raises UserError if reassignments cannot be listed at all.
    """
    moves = _Moves(targets)
    trouble: str | None = None
    pause_s = LOOK_EVERY_S
    try:
        async with asyncio.timeout(timeout_s):
            while moves.waiting:
                try:
                    if trouble is not None:
                        await admin.turn_to_next()
                    await _look(moves, admin)
                except ConnectionLostError as error:
                    trouble, pause_s = str(error), min(2 * pause_s, LOOK_AGAIN_WITHIN_S)
                else:
                    trouble, pause_s = None, LOOK_EVERY_S
                if moves.waiting:
                    # The controller tells nobody when it is done, so it is asked now and then.
                    await asyncio.sleep(pause_s)
    except TimeoutError:
        moves.give_up(trouble)
    return moves.not_done


async def _look(moves: _Moves, admin: AdminClient) -> None:
    """Raises ConnectionLostError, too, for a broker that takes long, or that reaches no controller."""
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            await moves.look(admin)
    except TimeoutError as error:
        raise ConnectionLostError(f"the broker did not answer within {ANSWER_WITHIN_S:g} s") from error
    except UserError as error:
        if error.exit_code != EXIT_UNDECIDED:
            raise
        raise ConnectionLostError(str(error)) from error


def _ended_elsewhere(replicas: Sequence[int] | None) -> NotDone:
    if replicas is None:
        return NotDone(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it was deleted meanwhile")
    return NotDone(
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        f"it was cancelled, or another reassignment took its place: it is on brokers {ids_text(replicas)}",
    )


async def _known_replicas(
    admin: AdminClient, keys: Sequence[TopicPartition]
) -> dict[TopicPartition, list[int]]:
    """Of those partitions that are there."""
    if not keys:
        return {}
    return _replicas_in((await admin.metadata(dict.fromkeys(key.topic for key in keys))).topics)


def _replicas_in(topics: Iterable[MetadataResponseTopic]) -> dict[TopicPartition, list[int]]:
    return {
        TopicPartition(topic.name or "", state.partition_index): state.replica_nodes
        for topic in topics
        for state in topic.partitions
    }


async def partitions_of(admin: AdminClient, name: str, wanted: list[int] | None) -> list[TopicPartition]:
    topic = (await admin.metadata([name])).topics[0]
    raise_for(topic.error_code, None, f"topic {name}")
    return [
        TopicPartition(name, number)
        for number in wanted or sorted(p.partition_index for p in topic.partitions)
    ]
