"""Members of raw protocol: what a consumer says to its coordinator, and nothing else, thousands in one process.

A member joins, heartbeats at its interval, joins anew or takes what it is given when it is told to, and finds its
coordinator again when that is gone. It remembers when it last settled, and in which generation or epoch.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol

from bench.errors import BenchError
from bench.groups.link import RETRY_S, Address, Link, coordinator_of, is_passing
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kraft.protocol.schemas.consumer_groups import (
    JOIN_GROUP_MEMBER_EPOCH,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from kraft.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

CLASSIC_INTERVAL_S: Final = 3.0
"""heartbeat.interval.ms of clients; in KIP-848 the broker says it."""
SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 60_000
SETTLE_S: Final = 90.0
COMMIT_BY_NAME: Final = 9


class Member(Protocol):
    """What the benchmark asks of either kind."""

    generation: int
    """Or member epoch, in which it last came to own what it is to own."""
    settled_s: float
    """When it did (loop time)."""
    beat_s: float
    """When a heartbeat was last answered well."""
    committed_s: float
    """When it first committed, since somebody set this below 0."""
    joins: int

    @property
    def owned(self) -> bool:
        """Whether it has partitions."""

    async def run(self) -> None:
        """For ever, until it is cancelled. Raises BenchError for an answer that no member should get."""


class _Member:
    """What both have: a coordinator, a link to it, commits."""

    def __init__(self, group: str, topic: str, brokers: list[Address], rng: random.Random) -> None:
        self.group = group
        self._topic = topic
        self._brokers = brokers
        self._rng = rng
        self._link: Link | None = None
        self.member_id = ""
        self.generation = -1
        self.settled_s = self.beat_s = self.committed_s = -1.0
        self.joins = 0
        self.commits = False
        """Whether it commits an offset after each heartbeat."""

    async def _call(self, make: Callable[[], Any], version: int, code: Callable[[Any], int]) -> Any:
        """An answer that is not about the coordinator: a member looks for that one as long as it takes."""
        while True:
            try:
                if self._link is None:
                    self._link = await Link.open(await coordinator_of(self.group, self._brokers))
                answer = await self._link.send(make(), version)
            except (OSError, TimeoutError):
                await self.close()
                await asyncio.sleep(RETRY_S)
                continue
            if not is_passing(code(answer)):
                return answer
            if code(answer) == ErrorCode.NOT_COORDINATOR:
                await self.close()
            await asyncio.sleep(RETRY_S)

    async def _commit(self) -> None:
        partition = OffsetCommitRequestPartition(0, 1, committed_metadata="")
        request = OffsetCommitRequest(
            self.group,
            self.generation,
            self.member_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=[partition])],
        )
        answer = await self._call(
            lambda: request, COMMIT_BY_NAME, lambda told: told.topics[0].partitions[0].error_code
        )
        _require(answer.topics[0].partitions[0].error_code, "OffsetCommit")
        if self.committed_s < 0:
            self.committed_s = _now_s()

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()
            self._link = None


class ClassicMember(_Member):
    """Of the classic protocol; the leader deals the partitions out."""

    def __init__(
        self, group: str, topic: str, partitions: int, brokers: list[Address], rng: random.Random
    ) -> None:
        super().__init__(group, topic, brokers, rng)
        self._partitions = partitions
        self.owned = False

    async def run(self) -> None:
        await self.join()
        await asyncio.sleep(self._rng.uniform(0, CLASSIC_INTERVAL_S))  # clients did not start all at once
        while True:
            answer = await self._call(
                lambda: HeartbeatRequest(self.group, self.generation, self.member_id), 4, _error
            )
            if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                await self.join()
            else:
                _require(answer.error_code, "Heartbeat")
                self.beat_s = _now_s()
                if self.commits:
                    await self._commit()
            await asyncio.sleep(CLASSIC_INTERVAL_S)

    async def join(self) -> None:
        """Until it is in a generation and has its part."""
        while True:
            joined = await self._call(self._join_request, 9, _error)
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                continue
            _require(joined.error_code, "JoinGroup")
            self.member_id, generation = joined.member_id, joined.generation_id
            ids = sorted(member.member_id for member in joined.members)
            parts = [
                SyncGroupRequestAssignment(one, self._assignment(number, len(ids)))
                for number, one in enumerate(ids)
            ]
            synced = await self._call(
                lambda parts=parts, generation=generation: SyncGroupRequest(
                    self.group,
                    generation,
                    self.member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=parts,
                ),
                5,
                _error,
            )
            if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            _require(synced.error_code, "SyncGroup")
            self.joins += 1
            self.owned = bool(synced.assignment)
            self.generation, self.settled_s = generation, _now_s()
            return

    def _join_request(self) -> JoinGroupRequest:
        name = self._topic.encode()
        subscription = b"\x00\x00" + _array([_text(name)]) + b"\xff\xff\xff\xff"
        return JoinGroupRequest(
            self.group,
            SESSION_MS,
            REBALANCE_MS,
            self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", subscription)],
        )

    def _assignment(self, number: int, members: int) -> bytes:
        mine = [p.to_bytes(4, "big") for p in range(number, self._partitions, members)]
        return b"\x00\x00" + _array([_text(self._topic.encode()) + _array(mine)]) + b"\xff\xff\xff\xff"


class ConsumerMember(_Member):
    """Of KIP-848; it gives up at once what it is to give up."""

    def __init__(
        self, group: str, topic: str, _partitions: int, brokers: list[Address], rng: random.Random
    ) -> None:
        super().__init__(group, topic, brokers, rng)
        self.member_id = str(uuid.UUID(int=rng.getrandbits(128)))
        self.generation = JOIN_GROUP_MEMBER_EPOCH
        self._owned: list[HeartbeatTopicPartitions] = []

    @property
    def owned(self) -> bool:
        return bool(self._owned)

    async def run(self) -> None:
        answer = await self._beat(is_full=True)
        self.joins += 1
        await asyncio.sleep(self._rng.uniform(0, answer.heartbeat_interval_ms / 1000))
        while True:
            answer = await self._beat(is_full=False)
            self.beat_s = _now_s()
            if self.commits:
                await self._commit()
            await asyncio.sleep(answer.heartbeat_interval_ms / 1000)

    async def _beat(self, *, is_full: bool) -> Any:
        """A heartbeat, and, where the assignment changed, the one that tells so at once."""
        while True:
            answer = await self._call(lambda full=is_full: self._request(full), 1, _error)
            _require(answer.error_code, "ConsumerGroupHeartbeat")
            if answer.member_epoch != self.generation:
                self.generation, self.settled_s = answer.member_epoch, _now_s()
            if answer.assignment is None or answer.assignment.topic_partitions == self._owned:
                return answer  # a full heartbeat is answered with the assignment in any case
            self._owned, self.settled_s = answer.assignment.topic_partitions, _now_s()
            is_full = True

    def _request(self, is_full: bool) -> ConsumerGroupHeartbeatRequest:
        if not is_full:
            return ConsumerGroupHeartbeatRequest(self.group, self.member_id, self.generation)
        return ConsumerGroupHeartbeatRequest(
            self.group,
            self.member_id,
            self.generation,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[self._topic],
            topic_partitions=self._owned,
        )


KINDS: Final[dict[str, type[ClassicMember] | type[ConsumerMember]]] = {
    "classic": ClassicMember,
    "consumer": ConsumerMember,
}


class Groups:
    """Groups of members that run. Used as `async with Groups(…) as groups`."""

    def __init__(self, topic: str, partitions: int, brokers: list[Address]) -> None:
        self._arguments = (topic, partitions, brokers)
        self._rng = random.Random(1)
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Groups:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    def start(self, kind: str, group: str) -> ClassicMember | ConsumerMember:
        """One more member."""
        member = KINDS[kind](group, *self._arguments, self._rng)
        self._stack.push_async_callback(member.close)
        self._tasks.append(asyncio.create_task(member.run()))
        return member

    async def start_group(self, kind: str, group: str, members: int) -> list[Any]:
        """A whole one; returns when it has settled."""
        started = [self.start(kind, group) for _ in range(members)]
        await self.settled(started)
        return started

    async def settled(self, members: Sequence[Any]) -> None:
        """Waits until all are in one generation."""
        await self.wait(lambda: len({one.generation for one in members}) == 1 and members[0].generation > 0)

    async def wait(self, is_so: Callable[[], bool]) -> None:
        """Raises BenchError if a member failed, or after `SETTLE_S`."""
        deadline_s = _now_s() + SETTLE_S
        while not is_so():
            for task in self._tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise BenchError(f"a member failed: {error}") from error
            if _now_s() > deadline_s:
                raise BenchError(f"the members did not come to what they should within {SETTLE_S:g} s")
            await asyncio.sleep(0.01)


def _error(answer: Any) -> int:
    return int(answer.error_code)


def _require(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise BenchError(f"{what} was answered with {ErrorCode(code).name}")


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _array(items: Sequence[bytes]) -> bytes:
    return len(items).to_bytes(4, "big") + b"".join(items)


def _text(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data
