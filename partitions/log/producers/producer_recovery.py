"""Producers, open transactions and aborted ones, learnt again from snapshots and batches.

Guarantees: the state found at an offset is the one that the log had there, as far as its batches and
snapshots are still there; a damaged snapshot is passed over. After an unclean end the transaction indexes
of the segments that were checked are made anew, so that no aborted record passes for a committed one.
Called when a log is opened or truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from partitions.log.errors import LogCorruptError
from partitions.log.producers.producer_snapshot import (
    SNAPSHOT_SUFFIX,
    SnapshotFormatError,
    decode_snapshot,
    snapshot_path,
)
from partitions.log.producers.producer_state import ProducerEntry, ProducerState
from partitions.log.producers.transaction_index import (
    TRANSACTION_INDEX_SUFFIX,
    AbortedTransaction,
    AbortedTransactions,
    transaction_index_path,
)
from partitions.log.producers.transaction_offsets import CompletedTransaction
from partitions.log.scan import walk
from partitions.log.segment import LOG_SUFFIX, Segment, base_offsets
from partitions.log.segments import SegmentList
from partitions.log.storage import LogStorage
from partitions.records.batch import BatchHeader, CorruptBatchError
from partitions.records.markers import EndTransactionMarker, read_marker

_FOREVER: Final = 2**63 - 1
OnCompleted: TypeAlias = Callable[[Segment, CompletedTransaction], None]


class KnownProducers(NamedTuple):
    """What a log knew of its producers when it ended at this offset."""

    end_offset: int
    producers: Mapping[int, ProducerEntry]

    @classmethod
    def of(cls, state: ProducerState) -> KnownProducers:
        """A copy of the state as it is."""
        return cls(state.end_offset, {number: entry.copy() for number, entry in state.producers.items()})

    def restored(self) -> ProducerState:
        """The state that goes on from there."""
        state = ProducerState(self.end_offset)
        state.restore({number: entry.copy() for number, entry in self.producers.items()}, self.end_offset)
        return state


def load_producer_state(
    storage: LogStorage,
    directory: str,
    names: Sequence[str],
    segments: SegmentList,
    log_end_offset: int,
    *,
    known: KnownProducers | None = None,
) -> tuple[ProducerState, int]:
    """The state at the log's end: the newest sound snapshot, or what is `known` from behind it, and the batches after.

    Snapshots beyond the log's end tell of records that are gone: they are removed, durably, lest one
    comes back when the log has grown past it again. Damaged ones go as well. One from below the
    first segment is of no use: between the two, batches are missing, and a producer that seems to
    have skipped sequences is worse off than one that is not known. Also returns the offset of the
    snapshot that was taken, -1 if there was none.
    """
    snapshots = base_offsets(names, SNAPSHOT_SUFFIX)
    remove_snapshots(storage, directory, [offset for offset in snapshots if offset > log_end_offset])
    left = [offset for offset in snapshots if offset <= log_end_offset]
    state, snapshot_offset = _from_snapshot(storage, directory, left, segments.first.base_offset)
    if known is not None and state.end_offset < known.end_offset:
        state = known.restored()
    replay(storage, segments, state, log_end_offset)
    return state, snapshot_offset


def remove_stray_snapshots(
    storage: LogStorage, directory: str, names: Sequence[str], segments: SegmentList, log_end_offset: int
) -> None:
    """Keeps the snapshots at segment starts, and the one at the log's end from the last close.

    The others go durably: one that came back after a truncation would tell of another history.
    """
    kept = {segment.base_offset for segment in segments} | {log_end_offset}
    stray = [offset for offset in base_offsets(names, SNAPSHOT_SUFFIX) if offset not in kept]
    remove_snapshots(storage, directory, stray)


def remove_snapshots(storage: LogStorage, directory: str, offsets: Sequence[int]) -> None:
    """Removes the snapshots at these offsets, durably. Raises OSError, DirectoryFailed."""
    for offset in offsets:
        storage.remove(snapshot_path(directory, offset))
    if offsets:
        storage.sync_dir(directory)


def _from_snapshot(
    storage: LogStorage, directory: str, snapshots: Sequence[int], first_offset: int
) -> tuple[ProducerState, int]:
    """The newest of these snapshots that is sound and not from below `first_offset`; its offset, or -1."""
    state = ProducerState(first_offset)
    for offset in reversed(snapshots):
        if offset < first_offset:
            break
        path = snapshot_path(directory, offset)
        content = storage.read_optional(path)
        if content is None:
            continue  # it was damaged, and removed a moment ago
        try:
            state.restore(decode_snapshot(content), offset)
        except SnapshotFormatError:
            storage.remove(path)
            continue
        return state, offset
    return state, -1


def replay(
    storage: LogStorage,
    segments: SegmentList,
    state: ProducerState,
    end_offset: int,
    on_completed: OnCompleted | None = None,
) -> None:
    """Records the batches from the state's end offset up to `end_offset`, where a batch or the log ends.

    Raises LogCorruptError.
    """
    start_offset = state.end_offset
    if start_offset < end_offset:
        for segment in segments.from_offset(start_offset):
            if segment.base_offset >= end_offset:
                break
            start = segment.locate(start_offset).position if start_offset > segment.base_offset else 0
            for position, header in walk(storage.file(segment.log_path), start, segment.size_bytes):
                marker = None
                if header.is_control:
                    marker = _marker(storage, segment, position, header)
                completed = state.record(header, header.base_offset, marker)
                if completed is not None and on_completed is not None:
                    on_completed(segment, completed)
    state.end_offset = end_offset


def _marker(
    storage: LogStorage, segment: Segment, position: int, header: BatchHeader
) -> EndTransactionMarker | None:
    if not header.has_producer_id:
        return None
    data = storage.file(segment.log_path).read(position, header.size_bytes)
    try:
        return read_marker(data, 0, header)
    except CorruptBatchError as error:
        raise LogCorruptError(segment.log_path, position, str(error)) from error


def aborted_in(
    storage: LogStorage, directory: str, segments: SegmentList, base_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions with markers in the segment that begins at `base_offset`, by its batches."""
    found: list[AbortedTransaction] = []

    def note(segment: Segment, completed: CompletedTransaction) -> None:
        if completed.is_aborted and segment.base_offset == base_offset:
            found.append(aborted_transaction(completed))

    number = segments.position_for(base_offset)
    end_offset = segments.next_base(number)
    state, _ = _state_at(storage, directory, segments, base_offset)
    replay(storage, segments, state, _FOREVER if end_offset is None else end_offset, note)
    return found


def aborted_transaction(completed: CompletedTransaction) -> AbortedTransaction:
    """The index entry of a transaction that was aborted."""
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.marker_offset, completed.last_stable_offset
    )


def _state_at(
    storage: LogStorage, directory: str, segments: SegmentList, offset: int
) -> tuple[ProducerState, int]:
    """As `load_producer_state` at `offset`, where a segment begins; keeps the snapshots beyond."""
    snapshots = base_offsets(storage.disk.list_dir(directory), SNAPSHOT_SUFFIX)
    known = [snapshot for snapshot in snapshots if snapshot <= offset]
    state, snapshot_offset = _from_snapshot(storage, directory, known, segments.first.base_offset)
    replay(storage, segments, state, offset)
    return state, snapshot_offset


def find_aborted_transactions(
    storage: LogStorage, directory: str, names: Sequence[str], segments: SegmentList
) -> AbortedTransactions:
    """The transaction indexes that are there; leftovers of segments that are gone are removed."""
    found = base_offsets(names, TRANSACTION_INDEX_SUFFIX)
    if found:
        present = set(base_offsets(names, LOG_SUFFIX))
        for base in found:
            if base not in present:
                storage.remove(transaction_index_path(directory, base))
        found = [base for base in found if base in present]
    return AbortedTransactions(
        storage, directory, found, lambda base: aborted_in(storage, directory, segments, base)
    )


def rebuild_aborted_transactions(
    storage: LogStorage,
    directory: str,
    segments: SegmentList,
    aborted: AbortedTransactions,
    *,
    from_offset: int,
    end_offset: int,
    has_markers: bool,
) -> None:
    """Makes the indexes anew of the segments from `from_offset` on, which an unclean end left unsure.

    `has_markers`: whether they hold any control batch of a producer. Raises OSError, LogCorruptError.
    """
    for base in aborted.base_offsets:
        if base >= from_offset:
            aborted.remove(base)
    if not has_markers:
        return

    def note(segment: Segment, completed: CompletedTransaction) -> None:
        if completed.is_aborted:
            aborted.append(segment.base_offset, aborted_transaction(completed))

    state, _ = _state_at(storage, directory, segments, from_offset)
    replay(storage, segments, state, end_offset, note)
    for segment in segments.from_offset(from_offset):
        if segment is not segments.active:
            aborted.persist(segment.base_offset, sealed=True)
