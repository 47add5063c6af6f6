"""What the runtime promises of a shard, over a log in memory whose commits, refusals and failures the test decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import uvloop

from kraft.coordinator.runtime import Environment, Runtime
from kraft.coordinator.shard import (
    NO_PRODUCER_ID,
    Decisions,
    Moment,
    ProducerIdAndEpoch,
    Record,
    ShardTimers,
    StoredMarker,
    StoredRecord,
    TransactionMarker,
)
from kraft.coordinator.timers import Timers
from kraft.protocol.errors import ErrorCode
from partitions.errors import NotLeaderOrFollower
from partitions.records.batch import decode_records, iter_batches
from partitions.records.markers import read_marker
from partitions.topic_partition import TopicPartition

TOPIC = "__consumer_offsets"
KEY = TopicPartition(TOPIC, 3)
PRODUCER = ProducerIdAndEpoch(11, 2)


class Counters:
    """A shard of named counters: "name" counts up, "name?" reads, "name@" counts up by a timer that is overdue, "name+"
    counts up in the transaction of PRODUCER, "name!" commits it, "name>" counts up and then wants `name` done."""

    def __init__(self) -> None:
        self.timers: ShardTimers = Timers()
        self.values: dict[str, int] = {}
        self.loaded = 0
        self.replayed: list[tuple[str, int]] = []
        """What was part of a transaction, and its markers, by producer id."""

    def replay(self, record: StoredRecord) -> None:
        if record.producer_id != NO_PRODUCER_ID:
            self.replayed.append((record.key.decode(), record.producer_id))
        self.values[record.key.decode()] = int(record.value or b"0")

    def replay_marker(self, marker: StoredMarker) -> None:
        self.replayed.append(("commit" if marker.is_commit else "abort", marker.producer_id))

    def on_replayed(self) -> None:
        self.values.setdefault("replayed", 1)

    def on_loaded(self, now: Moment, decisions: Decisions) -> None:
        self.loaded += 1

    def handle(self, token: int, request: str, now: Moment, decisions: Decisions) -> None:
        if request == "defect":
            decisions.write("a", Record(b"a", b"99"))
            raise KeyError(request)
        name = request.rstrip("?@+!>")
        if request.endswith("@"):
            self.timers.set(name, now.monotonic_ms - 10, lambda at, out: self.count(name, token, out))
        elif request.endswith("?"):
            decisions.reply(name or None, token, self.values.get(name, 0))
        elif request.endswith("!"):
            decisions.mark({name}, TransactionMarker(PRODUCER, True, 4, 2))
            decisions.reply(name, token, "ended")
        elif request.endswith("+"):
            decisions.write(name, Record(name.encode(), b"7"), PRODUCER)
            decisions.reply(name, token, "added")
        elif request.endswith(">"):
            self.count(name, token, decisions)
            decisions.then(name, name)
        else:
            self.count(name, token, decisions)

    def count(self, name: str, token: int, decisions: Decisions) -> None:
        self.values[name] = self.values.get(name, 0) + 1
        decisions.write(name, Record(name.encode(), str(self.values[name]).encode()))
        decisions.reply(name, token, self.values[name])


class MemoryLog:
    """One partition: what was appended, and how far it is committed."""

    def __init__(self) -> None:
        self.max_batch_bytes = 1_000
        self.stored: list[StoredRecord | StoredMarker] = []
        self.appends: list[list[int]] = []
        """For each append, how many records each of its batches has."""
        self.high_watermark = 0
        self.refused: ErrorCode | None = None
        self.is_deposed = False
        self.failure: Exception | None = None
        self._waits: list[tuple[int, asyncio.Future[bool]]] = []

    @property
    def end_offset(self) -> int:
        return len(self.stored)

    def refusal(self, *, appends: bool) -> ErrorCode | None:
        if self.is_deposed:
            return ErrorCode.NOT_COORDINATOR
        return self.refused if appends else None

    def append(self, batches: bytes) -> int:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        counts = []
        for position, header in iter_batches(batches):
            assert header.size_bytes <= self.max_batch_bytes
            if header.is_control:
                marker = read_marker(batches, position, header)
                assert marker is not None
                self.stored.append(StoredMarker(len(self.stored), header.producer_id, not marker.is_abort))
                counts.append(0)
                continue
            records = decode_records(batches, position, header, max_decompressed_bytes=1)
            counts.append(len(records))
            self.stored += [
                StoredRecord(len(self.stored), r.timestamp, r.key or b"", r.value, header.producer_id)
                for r in records
            ]
        self.appends.append(counts)
        return len(self.stored)

    def when_committed(self, offset: int, timeout_s: float) -> asyncio.Future[bool]:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waits.append((offset, future))
        if self.high_watermark >= offset:
            future.set_result(True)
        return future

    def commit(self, offset: int | None = None) -> None:
        self.high_watermark = self.end_offset if offset is None else offset
        for required, future in self._waits:
            if required <= self.high_watermark and not future.done():
                future.set_result(True)

    def time_out(self) -> None:
        for _, future in self._waits:
            if not future.done():
                future.set_result(False)

    def records(self) -> Chunks:
        return Chunks(self)


class Chunks:
    def __init__(self, log: MemoryLog) -> None:
        self.end_offset = log.end_offset
        self._left = list(log.stored)

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> Sequence[StoredRecord | StoredMarker]:
        await asyncio.sleep(0)
        if not self._left:
            raise StopAsyncIteration
        chunk, self._left = self._left[:2], self._left[2:]
        return chunk


class World:
    def __init__(self) -> None:
        self.log = MemoryLog()
        self.made: list[Counters] = []
        loop = asyncio.get_running_loop()
        environment = Environment(loop, lambda: 1_000, lambda work, name: loop.create_task(work, name=name))
        self.done: list[tuple[int, int, Any]] = []
        """The effects: partition, leader epoch, what."""
        self.runtime: Runtime[str, Counters] = Runtime(
            TOPIC,
            self._make,
            lambda key, epoch: self.log,
            environment,
            append_timeout_s=5.0,
            perform=lambda *effect: self.done.append(effect),
        )

    def _make(self, _number: int) -> Counters:
        self.made.append(Counters())
        return self.made[-1]

    def ask(self, request: str, *, reads: bool = False) -> asyncio.Future[Any]:
        return self.runtime.submit(KEY.partition, request, reads=reads)

    async def loaded(self, epoch: int = 1) -> None:
        self.runtime.on_elected(KEY, epoch)
        await self.until(lambda: not self.runtime.is_loading)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Lets the loop go on until the condition holds."""
        for _ in range(100_000):
            if condition():
                return
            await asyncio.sleep(0)
        pytest.fail("it does not come about")

    async def turns(self) -> None:
        """Lets everything that is ready run."""
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_reply_leaves_when_its_records_are_committed(world: World) -> None:
    await world.loaded()
    first, second = world.ask("a"), world.ask("a")
    await world.turns()
    assert world.log.appends == [[2]], "one append for the requests of one turn"
    assert not first.done()
    assert not second.done()
    world.log.commit()
    assert [await first, await second] == [1, 2]


async def test_a_read_waits_for_what_it_tells_of_and_for_nothing_else(world: World) -> None:
    await world.loaded()
    world.ask("a")
    await world.turns()
    told, other, everything = (
        world.ask("a?", reads=True),
        world.ask("b?", reads=True),
        world.ask("?", reads=True),
    )
    await world.turns()
    assert (told.done(), other.done(), everything.done()) == (False, True, False)
    world.log.commit()
    assert await told == 1
    await everything


async def test_appends_that_are_committed_at_once_do_not_count_as_uncommitted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraft.coordinator.runtime.UNCOMMITTED_MAX", 2)
    monkeypatch.setattr(world.log, "append", partial(_append_and_commit, world.log, world.log.append))
    await world.loaded()
    assert [await world.ask("a") for _ in range(5)] == [1, 2, 3, 4, 5]


def _append_and_commit(memory_log: MemoryLog, append: Callable[[bytes], int], batches: bytes) -> int:
    """As where this broker is the only replica."""
    end_offset = append(batches)
    memory_log.commit()
    return end_offset


async def test_appends_without_replies_count_only_until_they_are_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraft.coordinator.runtime.UNCOMMITTED_MAX", 2)
    await world.loaded()
    for _ in range(2):
        world.runtime.each(_write_only)
        await world.turns()
    assert await world.ask("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.commit()
    answer = world.ask("a")
    await world.turns()
    world.log.commit()
    assert await answer == 1


def _write_only(shard: Counters, now: Moment, decisions: Decisions) -> None:
    decisions.write("b", Record(b"b", b"1"))


async def test_a_read_of_an_undecided_turn_is_not_told_before_its_append(world: World) -> None:
    await world.loaded()
    world.ask("a")
    told = world.ask("a?", reads=True)
    await world.turns()
    assert not told.done()
    world.log.commit()
    assert await told == 1


async def test_a_shard_is_loaded_from_all_records_once_they_are_committed(world: World) -> None:
    world.log.stored = [StoredRecord(n, 0, b"a", str(n).encode()) for n in range(5)]
    world.log.high_watermark = 3
    world.runtime.on_elected(KEY, 1)
    await world.turns()
    assert await world.ask("a?", reads=True) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.log.commit()
    await world.until(lambda: not world.runtime.is_loading)
    assert await world.ask("a?", reads=True) == 4
    assert world.made[-1].loaded == 1


async def test_refused_appends_leave_the_shard_alone_and_reads_go_on(world: World) -> None:
    await world.loaded()
    world.log.refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await world.ask("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await world.ask("a?", reads=True) == 0
    assert world.log.appends == []


async def test_reads_find_a_whole_shard_though_nothing_can_be_appended(world: World) -> None:
    world.log.refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    await world.loaded()
    assert await world.ask("replayed?", reads=True) == 1
    assert world.made[-1].loaded == 0


async def test_sessions_begin_anew_when_appends_are_possible_again(world: World) -> None:
    await world.loaded()
    world.log.refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.runtime.each(lambda shard, now, decisions: pytest.fail("it cannot write what follows"))
    world.log.refused = None
    world.ask("a")
    assert world.made[-1].loaded == 2


async def test_a_shard_that_was_not_told_looks_at_what_there_is_though_nobody_asks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraft.coordinator.runtime.RETRY_S", 0.001)
    await world.loaded()
    world.log.refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.runtime.tell(
        KEY.partition, 1, lambda shard, now, decisions: pytest.fail("it cannot write what follows")
    )
    world.log.refused = None
    await world.until(lambda: world.made[-1].loaded == 2)


async def test_sessions_begin_anew_where_only_requests_met_the_refusal(world: World) -> None:
    await world.loaded()
    world.log.refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await world.ask("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.refused = None
    world.ask("a")
    assert world.made[-1].loaded == 2


async def test_a_wait_that_takes_too_long_keeps_the_shard(world: World) -> None:
    await world.loaded()
    asked = world.ask("a")
    await world.turns()
    world.log.time_out()
    assert await asked is ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = world.ask("a?", reads=True)
    await world.turns()
    assert not again.done(), "what was not committed is still not told"
    world.log.commit()
    assert await again == 1
    assert len(world.made) == 1


async def test_an_append_that_fails_drops_the_shard_which_loads_anew(world: World) -> None:
    await world.loaded()
    world.ask("a")
    await world.turns()
    world.log.commit()
    world.log.failure = NotLeaderOrFollower("gone")
    lost, waiting = world.ask("a"), world.ask("a?", reads=True)
    assert await lost is await waiting is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await world.until(lambda: not world.runtime.is_loading)
    assert await world.ask("a?", reads=True) == 1
    assert len(world.made) == 2


async def test_a_shard_that_is_dropped_again_and_again_does_not_have_the_log_read_all_the_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def note(delay_s: float) -> None:
        waits.append(delay_s)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    monkeypatch.setattr("kraft.coordinator.runtime.RETRY_S", 1_000.0)  # no test takes so long
    await world.loaded()
    for _ in range(3):
        assert await world.ask("defect") is ErrorCode.UNKNOWN_SERVER_ERROR
        await world.until(lambda: not world.runtime.is_loading)
    assert len(world.made) == 4
    assert [delay_s for delay_s in waits if delay_s] == [1_000.0, 1_000.0], "all but the first drop wait"


async def test_a_record_that_no_shard_can_take_in_does_not_halt_the_broker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraft.coordinator.runtime.RETRY_S", 0.001)
    world.log.stored = [StoredRecord(0, 0, b"a", b"no number")]
    world.log.commit()
    world.runtime.on_elected(KEY, 1)
    await world.until(lambda: len(world.made) > 1)
    assert await world.ask("a") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.log.stored = [StoredRecord(0, 0, b"a", b"7")]
    await world.until(lambda: not world.runtime.is_loading)
    assert await world.ask("a?", reads=True) == 7


async def test_a_defect_costs_the_shard_its_state_and_nothing_is_appended(world: World) -> None:
    await world.loaded()
    assert await world.ask("defect") is ErrorCode.UNKNOWN_SERVER_ERROR
    await world.until(lambda: not world.runtime.is_loading)
    assert world.log.appends == []
    assert await world.ask("a?", reads=True) == 0
    assert len(world.made) == 2


async def test_the_end_of_a_leadership_answers_all_that_wait(world: World) -> None:
    await world.loaded()
    asked = world.ask("a")
    await world.turns()
    world.runtime.on_resigned(KEY, 1)
    assert await asked is ErrorCode.NOT_COORDINATOR
    assert await world.ask("a") is ErrorCode.NOT_COORDINATOR
    world.log.commit()
    await world.turns()


async def test_a_leadership_that_ends_in_the_turn_appends_nothing(world: World) -> None:
    await world.loaded()
    asked = world.ask("a")
    world.runtime.on_resigned(KEY, 1)
    await world.turns()
    assert await asked is ErrorCode.NOT_COORDINATOR
    assert world.log.appends == []


async def test_a_deposed_coordinator_reads_nothing_out(world: World) -> None:
    await world.loaded()
    world.log.is_deposed = True
    assert await world.ask("a?", reads=True) is ErrorCode.NOT_COORDINATOR


async def test_a_timer_decides_like_a_request(world: World) -> None:
    await world.loaded()
    asked = world.ask("a@")
    await world.until(lambda: bool(world.log.appends))
    assert not asked.done()
    world.log.commit()
    assert await asked == 1


def test_timers_that_are_overdue_together_on_the_loop_of_real_nodes() -> None:
    """After a long loading many have run out; uvloop's handle of such a timer does not tell when it is due."""

    async def run() -> None:
        world = World()
        await world.loaded()
        asked = [world.ask("a@"), world.ask("b@")]
        await world.until(lambda: len(world.log.stored) == 2)
        world.log.commit()
        assert [await one for one in asked] == [1, 1]
        await world.runtime.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def test_records_of_one_decision_share_a_batch_that_they_fit_into(world: World) -> None:
    await world.loaded()

    def twice(name: str, shard: Counters, now: Moment, decisions: Decisions) -> None:
        shard.count(name * 300, 0, decisions)
        shard.count(name * 300, 0, decisions)

    world.runtime.each(partial(twice, "a"))
    world.runtime.each(partial(twice, "b"))
    await world.turns()
    assert world.log.appends == [[2, 2]]


async def test_a_client_that_is_gone_is_not_answered_and_not_kept(world: World) -> None:
    await world.loaded()
    asked = world.ask("a")
    asked.cancel()
    await world.turns()
    world.log.commit()
    assert await world.ask("a?", reads=True) == 1
    await world.runtime.close()
    assert world.runtime.hosted == ()


async def test_an_effect_is_had_when_its_records_are_committed(world: World) -> None:
    await world.loaded(epoch=9)
    world.ask("a>")
    await world.turns()
    assert world.done == []
    world.log.commit()
    await world.turns()
    assert world.done == [(KEY.partition, 9, "a")]


async def test_an_effect_outlives_a_wait_that_takes_too_long(world: World) -> None:
    await world.loaded()
    told = world.ask("a>")
    await world.turns()
    world.log.time_out()
    assert await told is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await world.turns()
    assert world.done == []
    world.log.commit()
    await world.turns()
    assert [what for _, _, what in world.done] == ["a"]


async def test_no_effect_of_a_leadership_that_is_over_or_of_a_shard_that_was_dropped(world: World) -> None:
    await world.loaded()
    world.ask("a>")
    await world.turns()
    world.log.failure = NotLeaderOrFollower("gone")
    world.ask("b")
    await world.turns()
    world.log.commit()
    await world.until(lambda: not world.runtime.is_loading)
    world.ask("c>")
    await world.turns()
    world.runtime.on_resigned(KEY, 1)
    world.log.commit()
    await world.turns()
    assert world.done == []


async def test_records_of_a_transaction_have_their_own_batch_and_a_marker_ends_it(world: World) -> None:
    await world.loaded()
    answers = [world.ask(request) for request in ("a", "b+", "c+", "d", "b!", "e")]
    await world.turns()
    assert world.log.appends == [[1, 2, 1, 0, 1]]
    world.log.commit()
    assert [await answer for answer in answers] == [1, "added", "added", 1, "ended", 1]
    world.runtime.on_resigned(KEY, 1)
    await world.loaded(epoch=2)
    assert world.made[-1].replayed == [("b", 11), ("c", 11), ("commit", 11)]


async def test_a_marker_is_told_of_when_it_is_committed(world: World) -> None:
    await world.loaded()
    world.ask("b!")
    await world.turns()
    told = world.ask("b?", reads=True)
    await world.turns()
    assert not told.done()
    world.log.commit()
    assert await told == 0


async def test_a_precondition_sees_all_that_was_decided_before_and_nothing_comes_between(
    world: World,
) -> None:
    await world.loaded()
    seen: list[int] = []

    def look(log: Any) -> None:
        seen.append(log.end_offset)

    world.ask("a")
    world.runtime.submit(KEY.partition, "b", precondition=look)
    assert (seen, world.log.end_offset) == ([1], 2)
    refused = world.runtime.submit(KEY.partition, "b", precondition=lambda _log: "refused")
    assert await refused == "refused"
    assert world.log.end_offset == 2


async def test_an_append_that_fails_before_a_precondition_drops_the_shard(world: World) -> None:
    await world.loaded()
    first = world.ask("a")
    world.log.failure = NotLeaderOrFollower("gone")
    second = world.runtime.submit(KEY.partition, "b", precondition=lambda _log: None)
    assert [await first, await second] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert world.log.end_offset == 0


async def test_one_shard_is_told_of_what_happened_in_its_leadership_only(world: World) -> None:
    await world.loaded(epoch=3)
    for number, epoch in ((KEY.partition, 2), (KEY.partition + 1, 3), (KEY.partition, 3)):
        world.runtime.tell(number, epoch, _write_only)
    await world.turns()
    assert world.log.appends == [[1]]
