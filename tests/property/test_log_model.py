"""A partition log against a list of batches: random operations, restarts, crashes and power losses.

The disk is the simulator's: a power loss keeps what was fsynced, and of the rest whatever a file system
might. It may strike before any single disk operation. Whatever happens, the log found afterwards is a
prefix of the list, at least as long as what was flushed; nothing that was truncated comes back; leader
epochs and producers are those of the batches that are there.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.chaos.world.storage import Storage
from partitions.log.config import LogConfig
from partitions.log.errors import NoSpaceLeft
from partitions.log.flushes import run_flush
from partitions.log.log import PartitionLog
from partitions.log.producers.producer_state import BATCHES_RETAINED, BatchRange, ProducerState
from partitions.records.batch import BatchHeader, iter_batches, verify_crc
from tests.support.examples import examples
from tests.support.logs import FOLDER, PARTITION, batch_of, lead, new_storage, open_log, simulated_disk
from tests.support.power import PowerCut, power_cut_before

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, max_message_bytes=400)


@dataclass
class Model:
    """What the log should be."""

    batches: list[BatchHeader] = field(default_factory=list)
    """Every batch of the present history, deleted ones included."""
    start: int = 0
    end: int = 0
    origin: int = 0
    """Where the history began."""

    def batches_below(self, offset: int) -> list[BatchHeader]:
        return [batch for batch in self.batches if batch.next_offset <= offset]


class World:
    """One log on one disk, and what a data directory's checkpoints would say."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.storage: Storage = new_storage(seed)
        self.model = Model()
        self.recovery_point = 0
        self.log_start = 0
        self.epoch = 0
        self.led = 0
        """The last epoch whose start was noted without a record."""
        self.sequences: dict[int, int] = {}
        self.serial = 0
        self.log = self._open(clean=False)

    def _open(self, *, clean: bool) -> PartitionLog:
        disk = simulated_disk(self.storage)
        return open_log(
            disk, CONFIG, clean=clean, recovery_point=self.recovery_point, log_start_offset=self.log_start
        )

    # ---- operations

    def append(self, count: int) -> None:
        records = bytearray()
        for _ in range(count):
            self.serial += 1
            values = [b"%06d" % self.serial] * self.rng.randint(1, 4)
            producer_id = self.rng.randrange(-1, 3)
            sequence = self.sequences.get(producer_id, 0)
            producer = (producer_id, 0, sequence) if producer_id >= 0 else None
            records += batch_of(
                *values, timestamp=1000 + self.rng.randrange(100), leader_epoch=self.epoch, producer=producer
            )
            self.sequences[producer_id] = sequence + len(values)
        self.pending = records
        self.log.append_as_leader(records, leader_epoch=self.epoch)
        self.note_append(records)

    def note_append(self, records: bytes) -> None:
        for _, header in iter_batches(records):
            placed = header._replace(base_offset=self.model.end, partition_leader_epoch=self.epoch)
            self.model.batches.append(placed)
            self.model.end = placed.next_offset

    def new_epoch(self, amount: int) -> None:
        self.epoch += amount
        self.led = self.epoch
        lead(self.log, self.epoch)

    def unnoted_epoch(self, amount: int) -> None:
        """A follower learns it from the next batch; the file does not know it for now."""
        self.epoch += amount

    def truncate(self, amount: int) -> None:
        target = max(self.model.start, self.model.end - amount)
        self.target = target
        self.log.truncate_to(target)
        self.cut_model(target)
        assert self.log.log_end_offset <= target

    def cut_model(self, target: int) -> None:
        self.model.batches = self.model.batches_below(target)
        self.model.end = self.model.batches[-1].next_offset if self.model.batches else self.model.origin
        self.model.start = min(self.model.start, self.model.end)
        self.epoch += 1
        self.forget_sequences()

    def forget_sequences(self) -> None:
        self.sequences.clear()
        for batch in self.model.batches:
            if batch.producer_id >= 0:
                self.sequences[batch.producer_id] = batch.last_sequence + 1

    def start_anew(self, amount: int) -> None:
        target = max(0, self.model.end + amount - 10)
        self.target = target
        self.log.truncate_fully_and_start_at(target)
        self.model = Model([], target, target, target)
        self.epoch += 1
        self.sequences.clear()

    def delete(self, amount: int) -> None:
        target = min(self.model.end, self.model.start + amount)
        self.log.delete_segments_before(target)
        self.model.start = max(self.model.start, target)

    def retire(self, amount: int) -> None:
        """What a leader's DeleteRecords or retention does: the start moves, the segments go one by one."""
        target = min(self.model.end, self.model.start + amount)
        self.log.raise_log_start_offset(target)
        self.model.start = max(self.model.start, target)
        disk = simulated_disk(self.storage)
        aside: list[str] = []
        while self.log.has_obsolete_segments:
            if not self.log.may_set_aside:
                self.log.sync()
            assert self.log.may_set_aside
            aside += self.log.set_aside_first_segment()
            disk.sync_dir(FOLDER)
        for path in aside[amount % 3 :]:  # some are left for the next start
            disk.remove(path)

    def retire_on_a_full_disk(self, amount: int) -> None:
        """As `retire`, where no file takes another byte: all goes but for whose epochs something must be written."""
        target = min(self.model.end, self.model.start + amount)
        self.log.raise_log_start_offset(target)
        self.model.start = max(self.model.start, target)
        disk = simulated_disk(self.storage)
        with self.full_disk():
            while self.log.has_obsolete_segments:
                if not self.log.may_set_aside:
                    self.flush_job()
                if not self.log.may_set_aside:
                    break
                self.log.set_aside_first_segment()
                disk.sync_dir(FOLDER)
            if self.log.has_obsolete_segments:
                left = self.log.segment_base_offsets
                assert (len(left), left[1]) == (2, self.model.end), "no batch that stays tells the epoch"
            for name in disk.list_dir(FOLDER):
                if name.endswith(".deleted"):
                    disk.remove(f"{FOLDER}/{name}")

    def flush_on_a_full_disk(self, amount: int) -> None:
        with self.full_disk():
            self.flush_job()

    def flush_job(self) -> None:
        disk = simulated_disk(self.storage)
        job = self.log.prepare_flush()
        if job is not None:
            with disk.accounting(self.storage.sequence):
                run_flush(disk, job)
            with suppress(NoSpaceLeft):
                self.log.complete_flush(job)

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Nothing can be written, until the block ends."""
        before = self.storage.before_operation

        def hook(operation: str, path: str) -> None:
            if before is not None:
                before(operation, path)
            if operation in ("append", "write"):
                raise OSError(errno.ENOSPC, "injected", path)

        self.storage.before_operation = hook
        yield
        self.storage.before_operation = before

    def roll(self, amount: int) -> None:
        self.log.roll()

    def sync(self, amount: int) -> None:
        self.log.sync()
        assert self.log.recovery_point == self.model.end

    def flush(self, amount: int) -> None:
        """A flush through an executor, with an append in between."""
        disk = simulated_disk(self.storage)
        job = self.log.prepare_flush()
        if job is not None:
            horizon = self.storage.sequence
            self.append(1)
            with disk.accounting(horizon):
                run_flush(disk, job)
            self.log.complete_flush(job)

    def checkpoint(self, amount: int) -> None:
        """As the writer of the checkpoints does, which asks a log only if that is on its list."""
        storage = self.log.storage
        if not storage.moved_recovery_points:
            assert (self.recovery_point, self.log_start) == (
                self.log.recovery_point,
                self.log.log_start_offset,
            )
            return
        assert list(storage.moved_recovery_points) == list(storage.moved_log_starts) == [PARTITION]
        storage.moved_recovery_points.clear()
        storage.moved_log_starts.clear()
        now = self.log.begin_checkpoint()
        self.recovery_point, self.log_start = now
        self.log.complete_checkpoint(recovery_point=now.recovery_point, log_start_offset=now.log_start_offset)

    def restart(self, amount: int) -> None:
        self.log.close()
        now = self.log.begin_checkpoint()
        self.recovery_point, self.log_start = now
        self.log.complete_checkpoint(recovery_point=now.recovery_point, log_start_offset=now.log_start_offset)
        before = self.log
        self.log = self._open(clean=True)
        assert self.log.recovery.clean
        kept = [entry for entry in before.epochs.entries if entry.start_offset < self.model.end]
        assert list(self.log.epochs.entries) == kept

    def kill(self, amount: int) -> None:
        """kill -9: the page cache stays."""
        end = self.model.end
        self.log = self._open(clean=False)
        assert self.log.log_end_offset == end
        self.note_start()

    def note_start(self) -> None:
        """The log start's checkpoint may be older than the start: then it goes back."""
        assert self.log.log_start_offset <= max(self.model.start, self.log.log_end_offset)
        self.model.start = self.log.log_start_offset

    def lose_power(self, amount: int) -> None:
        flushed = self.log.recovery_point
        self.recover(flushed)

    # ---- judging

    def recover(self, flushed: int) -> None:
        """Power is gone; the log comes back, and the model is cut to what it still has."""
        self.storage.before_operation = None
        self.storage.lose_power()
        self.log = self._open(clean=False)
        assert self.log.log_end_offset >= flushed
        assert self.log.log_end_offset <= self.model.end
        self.model.batches = self.model.batches_below(self.log.log_end_offset)
        self.model.end = self.log.log_end_offset
        self.note_start()
        if self.log.size_bytes == 0 and not self.log.producers.state.producers:
            self.model = Model(
                [], self.model.end, self.model.end, self.model.end
            )  # perhaps even the folder is new
        self.epoch += 1
        self.forget_sequences()

    def check(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        found = []
        position = log.log_start_offset
        while position < log.log_end_offset:
            result = log.read(position, self.rng.choice((1, 150, 5000)), up_to_offset=log.log_end_offset)
            data = b"".join(part.read() for part in result.slices)
            for at, header in iter_batches(data):
                verify_crc(data, at, header)
                found.append(header)
            assert result.next_offset > position
            position = result.next_offset
        expected = [batch for batch in model.batches if batch.next_offset > model.start]
        assert found == expected
        for batch in expected:
            first = max(batch.base_offset, model.start)
            assert log.epochs.epoch_for_offset(first) == batch.partition_leader_epoch
            assert log.epochs.epoch_for_offset(batch.last_offset) == batch.partition_leader_epoch
        if expected and log.epochs.latest_epoch != self.led:
            assert log.epochs.latest_epoch == expected[-1].partition_leader_epoch
        self.check_producers()
        self.check_times(expected)

    def check_producers(self) -> None:
        whole = ProducerState()
        for batch in self.model.batches:
            whole.record(batch, batch.base_offset)
        state = self.log.producers.state
        assert state.end_offset == self.model.end
        for producer_id, entry in whole.producers.items():
            present = state.producers.get(producer_id)
            batches: list[BatchRange] = [] if present is None else present.batches
            # A producer whose snapshot was lost is known by the batches that are still in the log.
            assert entry.batches[len(entry.batches) - len(batches) :] == batches
            in_log = [known for known in entry.batches if known.first_offset >= self.model.start]
            assert len(batches) >= min(len(in_log), BATCHES_RETAINED)
        assert not set(state.producers) - set(whole.producers)

    def check_times(self, expected: list[BatchHeader]) -> None:
        timestamp = 1000 + self.rng.randrange(110)
        first = next((batch for batch in expected if batch.max_timestamp >= timestamp), None)
        found = self.log.offset_for_timestamp(timestamp)
        if first is None:
            assert found is None
        else:
            offset = max(first.base_offset, self.model.start)
            assert found == (first.max_timestamp, offset, first.partition_leader_epoch)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["append"] * 6,
                *["truncate", "sync", "flush", "checkpoint", "new_epoch", "unnoted_epoch"] * 2,
                *["roll", "delete", "retire", "restart", "kill", "lose_power", "start_anew"],
                *["retire_on_a_full_disk", "flush_on_a_full_disk"],
            ]
        ),
        st.integers(1, 12),
    ),
    max_size=30,
)


STEPS_ON_DISK = (
    *("append", "truncate", "start_anew", "delete", "retire", "roll", "sync", "flush", "new_epoch"),
    *("retire_on_a_full_disk", "flush_on_a_full_disk"),
)


def play(world: World, action: str, amount: int) -> None:
    getattr(world, action)(min(amount, 4) if action == "append" else amount)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32), OPERATIONS)
def test_the_log_is_the_list(seed: int, operations: list[tuple[str, int]]) -> None:
    world = World(seed)
    for action, amount in operations:
        play(world, action, amount)
        world.check()


def cut_power_within(world: World, action: str, amount: int, step: int) -> bool:
    """Plays one action and cuts the power before its `step`-th disk operation; False if it had fewer."""
    before = Model(list(world.model.batches), world.model.start, world.model.end, world.model.origin)
    flushed = world.log.recovery_point
    recovery_point, log_start = world.recovery_point, world.log_start
    world.pending = bytearray()

    world.storage.before_operation = power_cut_before(step)
    try:
        play(world, action, amount)
    except PowerCut:
        pass
    else:
        world.storage.before_operation = None
        return False
    world.storage.before_operation = None
    if action == "start_anew":
        # Either history may be found: the old one, cut somewhere, or the new, empty one.
        world.model, flushed = before, 0
        world.recovery_point, world.log_start = recovery_point, log_start
        world.storage.lose_power()
        world.log = world._open(clean=False)
        found = world.log
        if found.size_bytes == 0 and not found.producers.state.producers:
            world.model = Model([], found.log_end_offset, found.log_end_offset, found.log_end_offset)
        else:
            world.model.batches = before.batches_below(found.log_end_offset)
            world.model.start, world.model.end = found.log_start_offset, found.log_end_offset
            world.model.origin = min(before.origin, world.model.start)
        world.epoch += 1
        world.forget_sequences()
        return True
    if action == "truncate":
        world.model = before
        flushed = min(flushed, max((b.next_offset for b in before.batches_below(world.target)), default=0))
    elif world.pending and world.model.end == before.end:
        world.note_append(bytes(world.pending))
    world.recover(flushed)
    return True


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32), OPERATIONS, st.data())
def test_power_may_be_lost_at_every_step(
    seed: int, operations: list[tuple[str, int]], data: st.DataObject
) -> None:
    world = World(seed)
    for action, amount in operations:
        step = data.draw(st.integers(0, 25))
        if action in STEPS_ON_DISK:
            cut_power_within(world, action, amount, step)
        else:
            play(world, action, amount)
        world.check()


@pytest.mark.parametrize(
    "action",
    [
        *("append", "roll", "truncate", "delete", "start_anew", "sync", "flush", "new_epoch"),
        *("retire", "retire_on_a_full_disk"),
    ],
)
def test_every_step_of_every_operation(action: str) -> None:
    """The same, exhaustively for one history: power is lost before each disk operation of each kind."""
    reached = 0
    for step in range(200):
        cut = False
        for seed in range(6):
            world = World(seed)
            for _ in range(12):
                world.append(2)
            world.sync(1)
            world.checkpoint(1)
            world.unnoted_epoch(seed % 2)
            for _ in range(5):
                world.append(2)
            cut |= cut_power_within(world, action, 25, step)
            world.check()
            world.append(3)
            world.sync(1)
            world.lose_power(1)
            world.check()
        if not cut:
            break
        reached = step + 1
    assert reached > 0
