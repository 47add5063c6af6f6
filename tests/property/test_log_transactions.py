"""Transactions in a partition log against a list of batches and how each transaction ended.

Plain and transactional batches, markers, rolls, truncations, deletions, restarts, crashes and power losses
come in any order, and power may be lost before any disk operation. Whatever happens, the last stable offset
and the aborted transactions are those of the list, and so is what a read_committed consumer sees, however
it fetches; a follower that copies the log knows the same, and the files agree with the batches.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.log.inspection.findings import Findings
from partitions.log.inspection.log_state import Expected
from partitions.log.inspection.partition_check import check_partition
from partitions.log.log import PartitionLog
from partitions.log.producers.producer_state import ProducerState
from partitions.records.batch import decode_records, iter_batches
from partitions.records.control import ControlType
from partitions.records.markers import read_marker
from tests.property.test_log_model import CONFIG, STEPS_ON_DISK, World, cut_power_within
from tests.support.examples import examples
from tests.support.logs import FOLDER, batch_of, memory_disk, open_log, simulated_disk
from tests.support.transactions import (
    ABORT,
    COMMIT,
    Seen,
    Transaction,
    marker_of,
    read_committed,
    transactional,
    transactions_in,
)


class TransactionWorld(World):
    """The log of the plain model with transactions in it."""

    def __init__(self, seed: int) -> None:
        self.high_watermark = 0
        self.reopened_at = 0
        """Markers below were in the log when it was opened; it may not know which of them are new."""
        self.kinds: dict[int, ControlType] = {}
        self.values: dict[int, tuple[bytes, ...]] = {}
        super().__init__(seed)

    def _open(self, *, clean: bool) -> PartitionLog:
        log = super()._open(clean=clean)
        self.reopened_at = log.log_end_offset
        return log

    # ---- operations

    def append(self, count: int) -> None:
        records = bytearray()
        opened = {t.producer_id for t in self.transactions() if t.marker_offset is None}
        for _ in range(count):
            records += self._batch(opened)
        self.pending = records
        self.log.append_as_leader(records, leader_epoch=self.epoch, origin="coordinator")
        self.note_append(records)

    def _batch(self, opened: set[int]) -> bytes:
        rng = self.rng
        producer_id = rng.randrange(-1, 4)
        if producer_id >= 0 and rng.random() < (0.5 if producer_id in opened else 0.05):
            opened.discard(producer_id)
            return marker_of(producer_id, rng.choice((ABORT, COMMIT)), timestamp=1000 + rng.randrange(100))
        self.serial += 1
        values = [b"%06d" % self.serial] * rng.randint(1, 4)
        timestamp = 1000 + rng.randrange(100)
        sequence = self.sequences.get(producer_id, 0)
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(values)
        if producer_id in opened or producer_id > 0:
            opened.add(producer_id)
            return transactional(producer_id, *values, sequence=sequence, timestamp=timestamp)
        producer = (producer_id, 0, sequence) if producer_id >= 0 else None
        return batch_of(*values, timestamp=timestamp, producer=producer)

    def note_append(self, records: bytes) -> None:
        offset = self.model.end
        for at, header in iter_batches(records):
            if header.is_control:
                marker = read_marker(records, at, header)
                assert marker is not None
                self.kinds[offset] = marker.kind
            offset += header.last_offset_delta + 1
        super().note_append(records)

    def commit(self, amount: int) -> None:
        """The high watermark rises, to where a batch ends."""
        self.high_watermark = self.bounded(self.high_watermark + 3 * amount)
        self.log.forget_replicated(self.high_watermark)

    def forget_sequences(self) -> None:
        """Markers carry none."""
        self.sequences.clear()
        for batch in self.model.batches:
            if batch.producer_id >= 0 and not batch.is_control:
                self.sequences[batch.producer_id] = batch.last_sequence + 1

    def bounded(self, offset: int) -> int:
        """What a high watermark of about this offset can be: where a batch ends, or the log's start."""
        ends = [batch.next_offset for batch in self.model.batches if batch.next_offset <= offset]
        return max([self.model.start, *ends[-1:]])

    # ---- judging

    def transactions(self) -> list[Transaction]:
        return list(transactions_in(self.model.batches, self.kinds))

    def check(self) -> None:
        super().check()
        self.high_watermark = self.bounded(self.high_watermark)
        self.reopened_at = min(self.reopened_at, self.model.end)
        self.check_last_stable_offset()
        self.check_aborted()
        self.check_readers(self.log)
        if self.rng.random() < 0.1:
            self.check_follower()
        if self.rng.random() < 0.1:
            self.check_files()

    def check_producers(self) -> None:
        """The batches that are remembered, but for times: a snapshot has one time for batch and marker."""
        whole = ProducerState()
        for batch in self.model.batches:
            whole.record(batch, batch.base_offset)
        for producer_id, entry in self.log.producers.state.producers.items():
            batches = [known[:3] for known in entry.batches]
            expected = [known[:3] for known in whole.producers[producer_id].batches]
            assert expected[len(expected) - len(batches) :] == batches
        assert self.log.producers.state.end_offset == self.model.end

    def check_last_stable_offset(self) -> None:
        """Exactly what the list says; but a log that was opened may hold everything back, until the high watermark
        has come to where it was opened: which transactions ended before, it cannot know."""
        known, first_base = [], self.log.segment_base_offsets[0]
        undecided = [
            t
            for t in self.transactions()
            if t.marker_offset is None or t.marker_offset >= self.high_watermark
        ]
        for transaction in undecided:
            known += [offset for offset in transaction.offsets if offset >= first_base][:1]
        lowest = self.stable([t.first_offset for t in undecided])
        if self.high_watermark < self.reopened_at:
            lowest = min(self.model.start, self.high_watermark)
        assert lowest <= self.log.last_stable_offset(self.high_watermark) <= self.stable(known)

    def stable(self, first_offsets: list[int]) -> int:
        first = max(min(first_offsets, default=self.high_watermark), self.model.start)
        return min(first, self.high_watermark)

    def check_aborted(self) -> None:
        start, end = self.model.start, self.model.end
        fetch_offset = self.rng.randint(start, end)
        up_to_offset = self.rng.randint(fetch_offset, end)
        aborted = {t.marker_offset: t for t in self.transactions() if t.kind is ABORT}
        found = self.log.aborted_transactions(fetch_offset, up_to_offset)
        first_base = self.log.segment_base_offsets[0]
        for entry in found:
            known = aborted[entry.last_offset]
            assert entry.producer_id == known.producer_id
            assert entry.first_offset == known.first_offset or entry.first_offset in known.offsets
            assert entry.last_offset >= fetch_offset
            assert entry.first_offset < up_to_offset
        assert [entry.last_offset for entry in found] == sorted({entry.last_offset for entry in found})
        for marker_offset, known in aborted.items():
            assert marker_offset is not None
            overlaps = marker_offset >= fetch_offset and known.first_offset < up_to_offset
            if overlaps and known.first_offset >= first_base:
                assert (known.producer_id, known.first_offset, marker_offset) in [
                    (entry.producer_id, entry.first_offset, entry.last_offset) for entry in found
                ]

    def check_readers(self, log: PartitionLog) -> None:
        high_watermark = self.high_watermark
        stable = log.last_stable_offset(high_watermark)
        start = self.rng.randint(self.model.start, max(self.model.start, stable))
        max_bytes = self.rng.choice((1, 150, 400, 5000))
        assert list(read_committed(log, start, high_watermark, max_bytes)) == list(
            self.committed(start, stable)
        )

    def committed(self, start: int, end: int) -> Iterator[Seen]:
        """Records of the list in this range that no transaction took back."""
        hidden = {offset for t in self.transactions() if t.kind is not COMMIT for offset in t.offsets}
        for batch in self.model.batches:
            if batch.is_control or batch.base_offset in hidden:
                continue
            for offset in range(batch.base_offset, batch.next_offset):
                if start <= offset < end:
                    yield Seen(offset, None, self.value_at(offset))

    def value_at(self, offset: int) -> bytes | None:
        """What an ordinary reader finds there."""
        result = self.log.read(offset, 1, up_to_offset=self.log.log_end_offset)
        data = b"".join(part.read() for part in result.slices)
        return _value(data, offset)

    def check_follower(self) -> None:
        """A log that copies this one from its start knows what can be known from there."""
        leader = self.log
        follower = open_log(memory_disk(), CONFIG)
        base = leader.segment_base_offsets[0]
        if base:
            follower.truncate_fully_and_start_at(base)
        position, start = base, leader.log_start_offset
        leader.log_start_offset = base
        while position < leader.log_end_offset:
            result = leader.read(position, self.rng.choice((1, 500)), up_to_offset=leader.log_end_offset)
            follower.append_as_follower(b"".join(part.read() for part in result.slices))
            position = result.next_offset
        leader.log_start_offset = start
        follower.raise_log_start_offset(start)
        self.check_readers(follower)

    def check_files(self) -> None:
        """What `kraft log verify` says of the files as they are, those of the active segment not finished."""
        findings = Findings()
        check_partition(simulated_disk(self.storage), FOLDER, Expected(has_holes=True), findings)
        assert [finding for finding in findings.errors if ".txnindex" in finding.path] == []


def _value(data: bytes, offset: int) -> bytes | None:
    for at, header in iter_batches(data):
        for record in decode_records(data, at, header, max_decompressed_bytes=1 << 20):
            if record.offset == offset:
                return record.value
    raise AssertionError(f"offset {offset} is not there")


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["append"] * 8,
                *["commit"] * 3,
                *["truncate", "sync", "flush", "checkpoint", "roll"] * 2,
                *["new_epoch", "delete", "retire", "restart", "kill", "lose_power", "start_anew"],
            ]
        ),
        st.integers(1, 12),
    ),
    max_size=30,
)


def play(world: TransactionWorld, action: str, amount: int) -> None:
    getattr(world, action)(min(amount, 6) if action == "append" else amount)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32), OPERATIONS)
def test_readers_see_what_was_committed(seed: int, operations: list[tuple[str, int]]) -> None:
    world = TransactionWorld(seed)
    for action, amount in operations:
        play(world, action, amount)
        world.check()


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32), OPERATIONS, st.data())
def test_power_may_be_lost_at_every_step(
    seed: int, operations: list[tuple[str, int]], data: st.DataObject
) -> None:
    world = TransactionWorld(seed)
    for action, amount in operations:
        step = data.draw(st.integers(0, 25))
        if action in STEPS_ON_DISK:
            cut_power_within(world, action, amount, step)
        else:
            play(world, action, amount)
        world.check()
