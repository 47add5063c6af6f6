"""How far the groups that this broker coordinates are behind: it asks the leaders from time to time.

Owned by the broker's server; `view` is for metrics, `of_group` for whoever asks about one group. Each
`metrics.groups.interval.ms` a round looks at all committed offsets in steps. Logs that are led here are looked at
directly; each other leader gets a connection for the round, one ListOffsets for up to `PARTITIONS_PER_QUERY`
partitions, and small Fetches, as a consumer's, for the time of what is not read: no request of Kafka's tells the time
of an offset, and a batch's header has it (`kraft.coordinator.groups.lag` says which to look at). A time
that was found stays known for `TIMES_KEPT_S` while the group and the leadership stay where they are: what lies at an
offset does not change. Without committed offsets nobody is asked. Guarantees: requests, bytes and time of a round are
bounded; what a leader did not tell in it is None. A defect in here costs the round's result and is logged, and not the
broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple, Protocol

import structlog

from fetcher.leader_endpoint import LeaderUnavailable
from kraft.broker.coordinators.group_coordinator import GroupCoordinator
from kraft.broker.coordinators.group_history import GroupHistory
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.broker.replicas.peer_connection import PeerConnection
from kraft.broker.replicas.replica_manager import ReplicaManager
from kraft.coordinator.groups.context import GroupType
from kraft.coordinator.groups.lag import (
    PARTITIONS_PER_FETCH,
    ROWS_PER_STEP,
    Answer,
    FoundTime,
    Led,
    LogStart,
    PartitionLag,
    ShardLags,
    Steps,
    TimeSearch,
    TopicLag,
    Unlisted,
    Unread,
    by_leader,
    lags,
    summed,
    survey,
    unread,
)
from kraft.coordinator.groups.offset_records import Place
from kraft.environment import Environment
from kraft.protocol import fetch as wire
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from partitions.disk import FileSlice
from partitions.errors import PartitionError
from partitions.log.errors import LogError, OffsetOutOfRange
from partitions.ports import Executor
from partitions.topic_partition import TopicPartition
from quorum.turns import taking_turns

log = structlog.get_logger(__name__)

LIST_OFFSETS_VERSION: Final = 9
FETCH_VERSION: Final = 16
PARTITIONS_PER_QUERY: Final = 1_000
"""Of one ListOffsets: a few milliseconds of encoding and decoding."""
FETCHES_MAX: Final = 32
"""Of one leader in a round; what is left then is found in the next rounds."""
ASKED_MAX: Final = FETCHES_MAX * PARTITIONS_PER_FETCH
FETCH_MAX_BYTES: Final = 1024 * 1024
"""Of one Fetch, but for its first batch."""
PARTITION_MAX_BYTES: Final = 16 * 1024
"""Of one partition, but for such a batch: as much as producers put into one by default."""
RESPONSE_MAX_BYTES: Final = 64 * 1024 * 1024
REQUEST_TIMEOUT_S: Final = 5.0
LEADER_S: Final = 15.0
"""That a round spends on one leader, all at the same time."""
TIMES_KEPT_S: Final = 300.0
"""Retention may delete what was the oldest unread record: its age is looked at anew from time to time."""
CLIENT_ID: Final = "group-lag"
WATCHED_INTERVAL_S: Final = 2.0
"""Between two rounds while somebody watches, and at least ten times as long as the last round took."""
WATCHED_FOR_S: Final = 10.0
"""After somebody has looked last."""


class GroupLagView(NamedTuple):
    """The groups that this broker coordinates, as the last round found them."""

    states: Mapping[tuple[GroupType, str], int]
    """How many groups of a type are in a state."""
    offsets: int
    """How many are committed."""
    listed: Sequence[PartitionLag]
    """At most `metrics.groups.max`."""
    topics: Sequence[TopicLag]
    unlisted: Unlisted


class LeaderLogs(Protocol):
    """The logs of one leader. Raises LeaderUnavailable."""

    async def ends(self, leds: Sequence[Led]) -> Mapping[Led, int]:
        """Where what is committed ends; without those that it does not tell of."""

    async def fetch(self, asked: Sequence[tuple[Unread, int]]) -> Mapping[Led, Answer]:
        """Batches from these offsets on, of the first partition one at least."""

    def close(self) -> None: ...


class GroupLag:
    """All on the event loop. `peer(broker_id)` makes a connection to another broker."""

    def __init__(
        self,
        broker_id: int,
        groups: GroupCoordinator,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        peer: Callable[[int], PeerConnection],
        *,
        interval_ms: int,
        listed_max: int,
    ) -> None:
        self._broker_id = broker_id
        self._groups = groups
        self._metadata = metadata
        self._here = LocalLogs(replicas, environment.executor)
        self._environment = environment
        self._loop = loop
        self._peer = peer
        self._interval_s = interval_ms / 1000
        self._listed_max = listed_max
        self._task: asyncio.Task[None] | None = None
        self._lags: Mapping[int, ShardLags] = {}
        """By shard; those of shards that left are not shown."""
        self._times: Mapping[Led, Mapping[int, FoundTime]] = {}
        """By offset."""
        self._asked = 0
        """Places in all rounds: with whom a round begins goes round."""
        self.measured_ms = 0
        """Wall time of the last round."""
        self.history = GroupHistory()
        self._watched_until_s = float("-inf")
        self._watched = asyncio.Event()

    # -- what is known

    def of_group(self, group_id: str) -> Sequence[PartitionLag] | None:
        """A group in all partitions for which it has committed, as of `measured_ms`; None if this broker does not
        coordinate it, or if it had not committed anything by then."""
        number = self._groups.partition_of(group_id)
        rows = next((shard.groups.get(group_id) for one, shard in self._shown() if one == number), None)
        return None if rows is None else [PartitionLag(*row) for row in rows]

    def view(self) -> GroupLagView:
        """All groups, for metrics; its size is bounded."""
        shards = [shard for _, shard in self._shown()]
        states: dict[tuple[GroupType, str], int] = {}
        for shard in shards:
            for state, count in shard.states.items():
                states[state] = states.get(state, 0) + count
        return GroupLagView(
            states,
            sum(shard.offsets for shard in shards),
            [row for shard in shards for row in shard.listed],
            [topic for shard in shards for topic in shard.topics],
            summed(shard.unlisted for shard in shards),
        )

    def _shown(self) -> Iterator[tuple[int, ShardLags]]:
        return (
            (number, self._lags[number])
            for number, _ in self._groups.runtime.shards()
            if number in self._lags
        )

    # -- rounds

    def start(self) -> None:
        self._task = self._loop.create_task(self._run(), name="group-lag")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def watch(self) -> None:
        """Somebody looks at groups: for a while, rounds come sooner."""
        self._watched_until_s = self._loop.time() + WATCHED_FOR_S
        self._watched.set()

    async def _run(self) -> None:
        took_s = 0.0
        while True:
            await self._until_due(self._loop.time(), took_s)
            began_s = self._loop.time()
            try:
                await self.measure()
            except Exception:
                self._lags, self._times = {}, {}
                self.history.clear()
                log.exception("the lag of groups could not be measured")
            took_s = self._loop.time() - began_s

    async def _until_due(self, since_s: float, took_s: float) -> None:
        """Waits as long as the interval says, or as somebody who watches waits."""
        due_s = since_s + self._interval_s
        soon_s = min(due_s, since_s + max(WATCHED_INTERVAL_S, 10 * took_s))
        if self._watched_until_s <= since_s:
            self._watched.clear()
            try:
                async with asyncio.timeout_at(due_s):
                    await self._watched.wait()
            except TimeoutError:
                return
        await asyncio.sleep(max(0.0, soon_s - self._loop.time()))

    async def measure(self) -> None:
        """One round."""
        surveys = {
            number: await taking_turns(survey(shard, self._locate))
            for number, shard in list(self._groups.runtime.shards())
        }
        leaders = await taking_turns(by_leader(surveys.values()))
        async with asyncio.TaskGroup() as asking:
            tasks = [asking.create_task(self._ask(leader, wanted)) for leader, wanted in leaders.items()]
        ends: dict[Led, int] = {}
        times: dict[Led, dict[int, FoundTime]] = {}
        for ends_there, times_there in (task.result() for task in tasks):
            ends.update(ends_there)
            times.update(times_there)
        self._times = times
        now_ms = self._environment.now_ms()
        before = {Place(*row[:3]) for shard in self._lags.values() for row in shard.listed}
        steps = lags(surveys, ends, times, now_ms, before, self._listed_max)
        self._lags = await taking_turns(steps)
        self.measured_ms = now_ms
        await taking_turns(self.history.take([shard for _, shard in self._shown()], now_ms))

    def _locate(self, topic_name: str, number: int) -> Led | None:
        topic = self._metadata.image.topic(topic_name)
        if topic is None or number >= len(topic.partitions):
            return None
        state = topic.partitions[number]
        return (
            Led(topic_name, topic.topic_id, number, state.leader, state.leader_epoch)
            if state.has_leader
            else None
        )

    async def _ask(
        self, leader: int, wanted: Mapping[Led, Collection[int]]
    ) -> tuple[Mapping[Led, int], Mapping[Led, dict[int, FoundTime]]]:
        """Where the logs of one leader end, and the times of what is not read there."""
        logs = self._here if leader == self._broker_id else RemoteLogs(self._peer(leader))
        ends: dict[Led, int] = {}
        times: dict[Led, dict[int, FoundTime]] = {}
        try:
            async with asyncio.timeout(LEADER_S):
                leds = list(wanted)
                for start in range(0, len(leds), PARTITIONS_PER_QUERY):
                    ends.update(await logs.ends(leds[start : start + PARTITIONS_PER_QUERY]))
                sought = await taking_turns(self._sought(await taking_turns(unread(wanted, ends)), times))
                await self._search(logs, TimeSearch({one: ends[one.led] for one in sought}), times)
        except (LeaderUnavailable, TimeoutError) as error:
            log.info("a leader did not tell how far groups are behind", leader=leader, reason=str(error))
        finally:
            logs.close()
        return ends, times

    def _sought(
        self, places: Mapping[Led, Sequence[int]], times: dict[Led, dict[int, FoundTime]]
    ) -> Steps[Sequence[Unread]]:
        """Fills `times` with what is known; returns as much of the rest as a round may ask for."""
        since_s = self._loop.time() - TIMES_KEPT_S
        unknown: list[tuple[Led, Sequence[int]]] = []
        for led, offsets in places.items():
            before, known = self._times.get(led, {}), times.setdefault(led, {})
            left: list[int] = []
            for start in range(0, len(offsets), ROWS_PER_STEP):
                for offset in offsets[start : start + ROWS_PER_STEP]:
                    found = before.get(offset)
                    if found is not None and found[1] > since_s:
                        known[offset] = found
                    else:
                        left.append(offset)
                yield
            unknown.append((led, left))
        count = sum(len(left) for _, left in unknown)
        begin = self._asked % max(count, 1)
        asked = min(count, ASKED_MAX)
        self._asked += asked

        def in_order() -> Iterator[Unread]:
            return (Unread(led, offset) for led, left in unknown for offset in left)

        return list(islice(chain(islice(in_order(), begin, None), in_order()), asked))

    async def _search(
        self, logs: LeaderLogs, search: TimeSearch, times: Mapping[Led, dict[int, FoundTime]]
    ) -> None:
        """Fills `times` with what the leader tells, also where it stops in between."""
        try:
            for _ in range(FETCHES_MAX):
                asked = search.next_fetch()
                if not asked:
                    break
                search.take(asked, await logs.fetch(asked))
        finally:
            found_s = self._loop.time()
            for one, time_ms in search.found.items():
                times[one.led][one.offset] = (time_ms, found_s)


class LocalLogs:
    """The logs that this broker leads."""

    def __init__(self, replicas: ReplicaManager, executor: Executor) -> None:
        self._replicas = replicas
        self._executor = executor

    async def ends(self, leds: Sequence[Led]) -> Mapping[Led, int]:
        await asyncio.sleep(0)
        found: dict[Led, int] = {}
        for led in leds:
            try:
                partition = self._replicas.partition(TopicPartition(led.topic, led.partition))
                listed = partition.list_offset(
                    LATEST_TIMESTAMP, for_client=True, current_leader_epoch=led.leader_epoch
                )
            except (PartitionError, LogError):
                continue  # the next round knows who leads it
            if listed is not None:
                found[led] = listed.offset
        return found

    async def fetch(self, asked: Sequence[tuple[Unread, int]]) -> Mapping[Led, Answer]:
        answers: dict[Led, Answer] = {}
        slices: list[tuple[Led, FileSlice]] = []
        for one, position in asked:
            led = one.led
            try:
                partition = self._replicas.partition(TopicPartition(led.topic, led.partition))
                read = partition.read_for_consumer(
                    position, max_bytes=PARTITION_MAX_BYTES, current_leader_epoch=led.leader_epoch
                )
            except OffsetOutOfRange as error:
                answers[led] = LogStart(error.log_start_offset)
            except (PartitionError, LogError):
                answers[led] = None
            else:
                if read.records is not None and read.records.slices:
                    slices.append((led, read.records.slices[0]))
        answers.update(await self._executor.run(_read, tuple(slices)))
        return answers

    def close(self) -> None:
        """It holds nothing."""


def _read(slices: Sequence[tuple[Led, FileSlice]]) -> dict[Led, Answer]:
    found: dict[Led, Answer] = {}
    for led, one in slices:
        try:
            found[led] = one.read()
        except (OSError, EOFError):
            found[led] = None  # the broker's own reads tell of a disk that fails
    return found


class RemoteLogs:
    """Those that another broker leads. It is asked as by a consumer: a follower's requests would move its replica."""

    def __init__(self, connection: PeerConnection) -> None:
        self._connection = connection

    async def ends(self, leds: Sequence[Led]) -> Mapping[Led, int]:
        return await self._list_offsets(leds, LATEST_TIMESTAMP)

    async def _list_offsets(self, leds: Sequence[Led], timestamp: int) -> dict[Led, int]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for led in leds:
            topics.setdefault(led.topic, []).append(
                ListOffsetsPartition(led.partition, led.leader_epoch, timestamp)
            )
        body = ListOffsetsRequest(topics=[ListOffsetsTopic(name, wanted) for name, wanted in topics.items()])
        answer = await self._connection.request(body, LIST_OFFSETS_VERSION, timeout_s=REQUEST_TIMEOUT_S)
        told = {
            (topic.name, partition.partition_index): partition.offset
            for topic in answer.topics
            for partition in topic.partitions
            if not partition.error_code and partition.offset >= 0
        }
        return {led: told[led.topic, led.partition] for led in leds if (led.topic, led.partition) in told}

    async def fetch(self, asked: Sequence[tuple[Unread, int]]) -> Mapping[Led, Answer]:
        leds = {(one.led.topic_id, one.led.partition): one.led for one, _ in asked}
        topics: list[wire.FetchTopic] = []
        for (_, topic_id, number, _, leader_epoch), position in (
            (one.led, position) for one, position in asked
        ):
            if not topics or topics[-1].topic_id != topic_id:  # the order is kept: the first gets a batch
                topics.append(wire.FetchTopic(topic_id=topic_id))
            topics[-1].partitions.append(
                wire.FetchPartition(number, leader_epoch, position, partition_max_bytes=PARTITION_MAX_BYTES)
            )
        body = wire.FetchRequest(max_bytes=FETCH_MAX_BYTES, topics=topics)
        answer = await self._connection.request(body, FETCH_VERSION, timeout_s=REQUEST_TIMEOUT_S)
        answers: dict[Led, Answer] = {}
        out_of_range: list[Led] = []
        for topic in answer.responses:
            for data in topic.partitions:
                led = leds.get((topic.topic_id, data.partition_index))
                if led is not None and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(led)
                elif led is not None:
                    answers[led] = None if data.error_code else data.records or b""
        if out_of_range:  # the answer does not tell where the log begins
            starts = await self._list_offsets(out_of_range, EARLIEST_TIMESTAMP)
            answers.update((led, LogStart(offset)) for led, offset in starts.items())
        return answers

    def close(self) -> None:
        self._connection.close()
