"""What a read_committed reader of a stopped log leaves out: what is undecided, and what aborted transactions wrote.

The state at the high watermark comes from a producer snapshot and the batches behind it, as when a broker starts
(KIP-98). Transactions that ended before the snapshot are in the `.txnindex` files of the segments before it, which are
durable below the recovery point. Without a sound snapshot or index there, all batches are looked at. `cluster.py` calls
it.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.runtime.read_only_disk import ReadOnlyDisk, ReadOnlyFile
from kraft.spark.errors import CorruptDataError
from kraft.spark.offline.directories import Replica
from kraft.spark.offline.log_files import LogFiles
from partitions.log.producers.producer_snapshot import SnapshotFormatError, decode_snapshot, snapshot_path
from partitions.log.producers.producer_state import ProducerState
from partitions.log.producers.transaction_index import decode_entries, transaction_index_path
from partitions.records.batch import BatchHeader, CorruptBatchError
from partitions.records.markers import EndTransactionMarker, read_marker


class Aborted(NamedTuple):
    """A producer's transactional records from the first to the last offset, which is the marker's, were given up."""

    producer_id: int
    first_offset: int
    last_offset: int


class Decided(NamedTuple):
    """What is known of a log's transactions at an offset."""

    last_stable_offset: int
    aborted: tuple[Aborted, ...]
    """By marker; those whose markers are below the offset."""


def decided(disk: ReadOnlyDisk, replica: Replica, high_watermark: int) -> Decided:
    """The transactions below the high watermark. Raises CorruptDataError, OSError."""
    state, aborted = _known(disk, replica, high_watermark)
    with LogFiles(disk, replica.folder, replica.spans) as files:
        for file, position, header in files.headers(state.end_offset):
            if header.base_offset >= high_watermark:
                break
            if header.base_offset < state.end_offset:
                continue
            completed = state.record(header, header.base_offset, _marker(file, position, header))
            if completed is None:
                continue
            state.transactions.forget_replicated(high_watermark)
            if completed.is_aborted:
                aborted.append(
                    Aborted(completed.producer_id, completed.first_offset, completed.marker_offset)
                )
    first_open = state.transactions.first_open
    return Decided(high_watermark if first_open is None else min(first_open, high_watermark), tuple(aborted))


def _known(disk: ReadOnlyDisk, replica: Replica, high_watermark: int) -> tuple[ProducerState, list[Aborted]]:
    """What snapshot and indexes tell: the newest sound snapshot where a segment begins that was flushed."""
    bases = [span.base_offset for span in replica.spans]
    limit = min(replica.recovery_point, high_watermark)
    for base in reversed(bases[1:]):
        if base > limit or not disk.exists(snapshot_path(replica.folder, base)):
            continue
        state = ProducerState()
        try:
            state.restore(decode_snapshot(disk.read_bytes(snapshot_path(replica.folder, base))), base)
        except SnapshotFormatError:
            continue
        aborted = _indexed(disk, replica, base)
        if aborted is None:
            break
        return state, aborted
    return ProducerState(bases[0] if bases else 0), []


def _indexed(disk: ReadOnlyDisk, replica: Replica, end: int) -> list[Aborted] | None:
    """The entries of the segments before this offset; None if one of the files is damaged."""
    aborted: list[Aborted] = []
    for span in replica.spans:
        path = transaction_index_path(replica.folder, span.base_offset)
        if span.base_offset >= end or not disk.exists(path):
            continue
        entries = decode_entries(disk.read_bytes(path), span.base_offset)
        if entries is None:
            return None
        aborted += [Aborted(entry.producer_id, entry.first_offset, entry.last_offset) for entry in entries]
    return aborted


def _marker(file: ReadOnlyFile, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    if not header.is_control or not header.has_producer_id:
        return None
    try:
        return read_marker(file.read(position, header.size_bytes), 0, header)
    except CorruptBatchError as error:
        raise CorruptDataError(f"{file.path} is damaged at byte {position}: {error}.") from error
