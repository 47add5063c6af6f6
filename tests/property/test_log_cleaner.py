"""A compacted log against the list of all records ever appended: what a reader makes of both is the same.

Random appends, tombstones, transactions, truncations, retention, deletions and restarts happen between
rounds of cleaning and within them, between any two jobs. The disk is the simulator's: a power loss may
strike before any disk operation, the cleaner's included. Whatever happens, the log's records are among
the appended ones, at their offsets; every key has its last committed value, and no deleted key is back;
producers and open transactions are known as before, and aborted records never pass for committed ones.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.log.cleaner.offset_map import SLOT_BYTES
from partitions.log.inspection.findings import Findings
from partitions.log.inspection.log_state import Expected
from partitions.log.inspection.partition_check import check_partition
from partitions.records.batch import BatchHeader, parse_header
from partitions.records.control import ControlType
from tests.support.compaction import (
    CLEANER,
    COMPACTED,
    FOLDER,
    Bench,
    Contents,
    Kept,
    data_batch,
    marker_batch,
)
from tests.support.examples import examples
from tests.support.logs import simulated_disk
from tests.support.power import PowerCut, power_cut_before
from tests.support.transactions import read_committed

KEYS = [b"a", b"b", b"c", b"d"]


class World:
    """One log, and the history that it should tell of."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        cleaner = dataclasses.replace(CLEANER, dedupe_buffer_bytes=rng.choice((3, 1000)) * SLOT_BYTES)
        config = dataclasses.replace(COMPACTED, cleanup_policy=rng.choice(("compact", "compact,delete")))
        self.bench = Bench(config=config, cleaner=cleaner, seed=seed, high_watermark=0)
        self.history = Contents([], [], [], [])
        self.serial = 0
        self.epoch = 0
        self.target: int | None = None
        """Where a truncation cuts that has begun."""

    @property
    def high_watermark(self) -> int:
        assert self.bench.high_watermark is not None
        return self.bench.high_watermark

    @property
    def open_transactions(self) -> list[int]:
        """Their producers, those included whose transaction began in what was deleted."""
        producers = self.bench.log.producers.state.producers
        return sorted(number for number, entry in producers.items() if entry.transaction_first_offset >= 0)

    # ---- what happens to the log

    def append(self, amount: int) -> None:
        """A batch of records, some of them tombstones; of a producer, of a transaction, or of nobody."""
        rng, history = self.rng, self.history
        pairs: list[tuple[bytes, bytes | None]] = []
        for _ in range(1 + amount % 4):
            self.serial += 1
            pairs.append((rng.choice(KEYS), None if rng.random() < 0.25 else b"%06d" % self.serial))
        producer_id = rng.randrange(-1, 3)
        is_open = producer_id in self.open_transactions
        transactional = is_open or producer_id == 1 or (producer_id == 2 and rng.random() < 0.5)
        producer = (producer_id, 0, self._next_sequence(producer_id)) if producer_id >= 0 else (-1, -1, -1)
        batch = data_batch(
            pairs,
            self.bench.now_ms,
            codec=rng.choice((0, 0, 4)),
            producer=producer,
            transactional=transactional,
        )
        base = self._append(batch)
        history.records.extend(
            Kept(base + n, self.bench.now_ms + n, key, value, producer_id, transactional, self.epoch)
            for n, (key, value) in enumerate(pairs)
        )

    def _next_sequence(self, producer_id: int) -> int:
        """After the producer's last batch in the history."""
        for header in reversed(self.history.headers):
            if header.producer_id == producer_id and not header.is_control:
                return header.last_sequence + 1
        return 0

    def _append(self, batch: bytes) -> int:
        base = self.bench.log.log_end_offset
        self.bench.log.append_as_leader(batch, leader_epoch=self.epoch, origin="coordinator")
        self.history.headers.append(
            parse_header(batch)._replace(base_offset=base, partition_leader_epoch=self.epoch)
        )
        return base

    def end_transaction(self, amount: int) -> None:
        opened = self.open_transactions
        if opened:
            producer_id = opened[amount % len(opened)]
            kind = self.rng.choice((ControlType.ABORT, ControlType.COMMIT))
            base = self._append(marker_batch(producer_id, kind, self.bench.now_ms))
            self.history.markers.append((base, producer_id, kind))

    def roll(self, amount: int) -> None:
        self.bench.log.roll()

    def commit(self, amount: int) -> None:
        """The high watermark moves."""
        self.bench.high_watermark = min(self.bench.log.log_end_offset, self.high_watermark + 3 * amount)

    def wait(self, amount: int) -> None:
        self.bench.now_ms += 300 * amount

    def truncate(self, amount: int) -> None:
        """Mostly above the high watermark; sometimes, as an unclean election has it, below."""
        log = self.bench.log
        floor = 0 if self.rng.random() < 0.3 else self.high_watermark
        self.target = max(floor, log.log_start_offset, log.log_end_offset - amount)
        log.truncate_to(self.target)
        self.note_cut()

    def note_cut(self) -> None:
        """The history ends where the log ends now, and the next epoch begins."""
        end, old = self.bench.log.log_end_offset, self.history
        if self.target is not None and self.target < self.high_watermark:
            # What was cleaned away for the sake of records that were cut is gone as well. Records below
            # the log's start count, as far as they are on disk: a crash may take the start back.
            log = self.bench.log
            start, log.log_start_offset = log.log_start_offset, log.segment_base_offsets[0]
            self.history = self.bench.contents()
            log.log_start_offset = start
        else:
            self.history = Contents(
                [header for header in old.headers if header.next_offset <= end],
                [record for record in old.records if record.offset < end],
                [marker for marker in old.markers if marker[0] < end],
                [],
            )
        self.target = None
        self.bench.high_watermark = min(self.high_watermark, end)
        self.epoch += 1

    def delete(self, amount: int) -> None:
        """What DeleteRecords and retention do."""
        log = self.bench.log
        log.delete_segments_before(min(log.log_start_offset + amount, self.high_watermark))

    def restart(self, amount: int) -> None:
        asyncio.run(self.bench.stop())
        self.bench.start()

    def kill(self, amount: int) -> None:
        """kill -9: the page cache stays."""
        end = self.bench.log.log_end_offset
        self.bench.start()
        assert self.bench.log.log_end_offset == end

    def lose_power(self, amount: int) -> None:
        flushed = self.bench.log.recovery_point
        if self.target is not None:
            flushed = min(flushed, self.target)
        self.bench.storage.before_operation = None
        self.bench.storage.lose_power()
        self.bench.start()
        assert self.bench.log.log_end_offset >= flushed or self.target is not None
        self.note_cut()

    def checkpoint(self, amount: int) -> None:
        async def checkpoint() -> None:
            await self.bench.manager.checkpoint_recovery_points()
            await self.bench.manager.checkpoints.write_log_start_offsets()

        asyncio.run(checkpoint())

    def clean(self, amount: int) -> None:
        asyncio.run(self.bench.clean())

    def clean_meanwhile(self, amount: int) -> None:
        """Cleans, and between two jobs something else happens."""
        rng = self.rng
        first = rng.randrange(25)

        def between() -> None:
            nonlocal first
            first -= 1
            if first < 0 and rng.random() < 0.2:
                actions = ("append", "append", "roll", "truncate", "delete", "end_transaction", "check")
                action = rng.choice(actions)
                self.check() if action == "check" else getattr(self, action)(rng.randrange(1, 12))

        self.bench.executor.between = between
        asyncio.run(self.bench.clean())
        self.bench.executor.between = lambda: None

    # ---- what must hold

    def check(self) -> None:
        log, history, found = self.bench.log, self.history, self.bench.contents()
        start = log.log_start_offset
        assert log.clean_offset <= log.recovery_point
        assert set(found.records) <= set(history.records)
        assert set(found.markers) <= set(history.markers)
        assert {identity(header) for header in found.headers} <= {identity(h) for h in history.headers}
        not_cleanable = max(start, self.high_watermark)
        assert [r for r in found.records if r.offset >= not_cleanable] == [
            r for r in history.records if r.offset >= not_cleanable
        ]
        assert found.table(start) == history.table(start)
        for record in found.records:
            assert log.epochs.epoch_for_offset(record.offset) == record.epoch
        self.check_producers(found, start)
        self.check_times(found, start)
        self.check_readers(found, start)

    def check_producers(self, found: Contents, start: int) -> None:
        producers = self.bench.log.producers.state.producers
        undecided = self.history.undecided()
        assert found.undecided().keys() <= undecided.keys()
        for producer_id, offset in undecided.items():
            if offset >= start:
                assert found.undecided()[producer_id] == offset
                assert 0 <= producers[producer_id].transaction_first_offset <= offset
        for producer_id in {header.producer_id for header in self.history.headers} - {-1}:
            batches = [h for h in self.history.headers if h.producer_id == producer_id and not h.is_control]
            if batches and batches[-1].base_offset >= start:
                assert producers[producer_id].batches[-1].last_sequence == batches[-1].last_sequence

    def check_times(self, found: Contents, start: int) -> None:
        times = [(offset, timestamp) for offset, timestamp in found.timestamps if offset >= start]
        wanted = self.bench.now_ms - self.rng.randrange(2000)
        first = next((offset for offset, timestamp in times if timestamp >= wanted), None)
        at = self.bench.log.offset_for_timestamp(wanted)
        assert first == (None if at is None else at.offset)
        newest = max((timestamp for _, timestamp in times), default=None)
        at = self.bench.log.offset_for_max_timestamp()
        assert newest == (None if at is None else at.timestamp)

    def check_readers(self, found: Contents, start: int) -> None:
        """A read_committed consumer is given what is left of what was committed, and nothing else."""
        log = self.bench.log
        ends = [h.next_offset for h in self.history.headers if h.next_offset <= self.high_watermark]
        high_watermark = max(ends, default=0)
        stable = log.last_stable_offset(high_watermark)
        committed = {(record.offset, record.key) for record in self.history.committed()}
        expected = [
            (record.offset, record.key, record.value)
            for record in found.records
            if start <= record.offset < stable and (record.offset, record.key) in committed
        ]
        max_bytes = self.rng.choice((1, 300, 10_000))
        assert list(read_committed(log, start, high_watermark, max_bytes)) == expected
        if self.rng.random() < 0.1:
            findings = Findings()
            check_partition(simulated_disk(self.bench.storage), FOLDER, Expected(has_holes=True), findings)
            assert [finding for finding in findings.errors if ".txnindex" in finding.path] == []

    def clean_all(self) -> None:
        """In the end: nothing is open or uncommitted, and what is cleaned holds each key once."""
        while self.open_transactions:
            self.end_transaction(0)
        self.append(1)
        while self.open_transactions:
            self.end_transaction(0)
        self.roll(0)
        self.bench.high_watermark = self.bench.log.log_end_offset
        self.clean(0)
        self.check()
        assert not self.bench.manager.cleaner.uncleanable
        assert self.bench.log.clean_offset == self.bench.log.log_end_offset
        keys = [record.key for record in self.bench.contents().records]
        assert len(keys) == len(set(keys))
        suffixes = {name.rpartition(".")[2] for name in self.bench.names() if name[0].isdecimal()}
        assert suffixes <= {"log", "index", "timeindex", "txnindex", "snapshot"}


def identity(header: BatchHeader) -> tuple[int, ...]:
    """What cleaning must leave of a batch."""
    return (
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        int(header.is_control),
        int(header.is_transactional),
    )


CLEANING = ("clean", "clean_meanwhile")
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["append"] * 8,
                *["roll", "commit", "end_transaction", *CLEANING] * 2,
                *["truncate", "delete", "wait", "checkpoint", "restart", "kill", "lose_power"],
            ]
        ),
        st.integers(1, 12),
    ),
    max_size=40,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32), OPERATIONS)
def test_a_reader_makes_the_same_of_it(seed: int, operations: list[tuple[str, int]]) -> None:
    world = World(seed)
    for action, amount in operations:
        getattr(world, action)(amount)
        world.check()
    world.clean_all()


def cut_power_within(world: World, action: str, amount: int, step: int) -> bool:
    """Plays one action and cuts the power before its `step`-th disk operation; False if it had fewer."""

    world.bench.storage.before_operation = power_cut_before(step)
    try:
        getattr(world, action)(amount)
    except PowerCut:
        world.lose_power(0)
        return True
    world.bench.storage.before_operation = None
    return False


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32), OPERATIONS, st.data())
def test_power_may_be_lost_at_every_step(
    seed: int, operations: list[tuple[str, int]], data: st.DataObject
) -> None:
    world = World(seed)
    for action, amount in operations:
        if action in (*CLEANING, "truncate", "delete"):
            cut_power_within(world, action, amount, data.draw(st.integers(0, 150)))
        elif action not in ("append", "roll", "end_transaction") or data.draw(st.booleans()):
            getattr(world, action)(amount)
        else:
            cut_power_within(world, action, amount, data.draw(st.integers(0, 10)))
        world.check()
    world.clean_all()


@pytest.mark.parametrize("seed", [0, 3])
def test_every_step_of_a_cleaning(seed: int) -> None:
    """The same, exhaustively for one history: power is lost before each disk operation, and again later."""
    for step in range(1000):
        world = World(seed)
        for count in (24, 8):
            for number in range(count):
                world.append(number)
            while world.open_transactions:
                world.end_transaction(0)
            world.commit(1000)
            world.roll(0)
            if count > 8:
                world.clean(0)
                world.wait(10)
        cut = cut_power_within(world, "clean", 0, step)
        world.check()
        world.lose_power(0)
        world.check()
        world.clean_all()
        if not cut:
            assert step > 50
            return
    raise AssertionError("the cleaning does not end")
