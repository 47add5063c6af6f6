"""Opening a partition's folder: a new log, one that was closed properly, or one that crashed.

Guarantees: a folder of another topic id is refused; a new folder, its topic id and its name are
durable before it is used; what `recovery.py` promises about the content. Called by
`PartitionLog.open` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import structlog

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME
from leader_epoch.epoch_cache import EpochCache, EpochEntry
from partitions.log.checked_bytes import CheckedBytes
from partitions.log.cleaner.swap import recover_swaps
from partitions.log.config import LogConfig
from partitions.log.epochs.epoch_evidence import (
    confirm_flushed_epochs,
    confirm_newest_epoch,
    find_epochs,
)
from partitions.log.errors import BatchDamaged, InconsistentTopicId, LogCorruptError
from partitions.log.opening.closed_end import confirm_end
from partitions.log.opening.closed_segments import ensure_no_segment_is_lost, ensure_none_is_cut
from partitions.log.opening.recovery import (
    Recovery,
    RecoveryReport,
    find_segments,
    log_end_after_clean_shutdown,
)
from partitions.log.partition_files import (
    PARTITION_METADATA,
    TRUNCATION_CHECKPOINT,
    PartitionFileError,
    TruncationCheckpoint,
    decode_partition_metadata,
    decode_truncation_checkpoint,
    encode_partition_metadata,
    topic_id_text,
)
from partitions.log.producers.producer_recovery import (
    find_aborted_transactions,
    load_producer_state,
    rebuild_aborted_transactions,
    remove_snapshots,
    remove_stray_snapshots,
)
from partitions.log.producers.producer_snapshot import SNAPSHOT_SUFFIX
from partitions.log.producers.producer_state import ProducerState
from partitions.log.producers.transaction_index import AbortedTransactions
from partitions.log.segment import Segment, base_offsets
from partitions.log.segments import SegmentList
from partitions.log.storage import LogStorage

logger = structlog.get_logger(__name__)

UNBOUNDED: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """What the log manager knows about a log before it is opened."""

    directory: str
    config: LogConfig
    now_ms: int
    recovery_point: int
    log_start_offset: int
    clean_shutdown: bool
    topic_id: bytes | None
    clean_offset: int = 0
    closed_at: int | None = None
    """Where a log ended when it was closed; None where that is not known."""


@dataclass(slots=True)
class OpenedLog:
    """A log's state as found, or as new."""

    segments: SegmentList
    epochs: EpochCache
    producer_state: ProducerState
    snapshot_offset: int
    """Offset of the producer snapshot that was loaded, -1 without one."""
    aborted: AbortedTransactions
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    topic_id: bytes | None
    limits: TruncationCheckpoint | None
    report: RecoveryReport
    epochs_changed: bool
    existed_cleanly: bool
    """Nothing in the folder is waiting for an fsync."""
    epochs_only_lacking: bool = True
    """Whether the file has no epoch that these contradict."""
    epochs_proven_from: int = 0
    """Batches at this offset and above, and the last one below, confirm the epochs."""

    def clean_offset(self, request: OpenRequest) -> int:
        """Up to where it is compacted: the directory's checkpoint may say more than is there."""
        limit = self.log_end_offset if self.limits is None else self.limits.recovery_point
        return min(request.clean_offset, limit, self.log_end_offset)

    def checked_bytes(self) -> CheckedBytes:
        """What of the bytes is known: recovery has read everything from the recovery point's segment on."""
        segments = self.segments
        if self.report.clean:
            return CheckedBytes(segments.active, self.epochs)
        checked = segments[segments.position_for(self.recovery_point)]
        return CheckedBytes(segments.active, self.epochs, known_from=checked.base_offset)


def open_log(storage: LogStorage, request: OpenRequest) -> OpenedLog:
    """Opens or creates the folder. Raises LogCorruptError, InconsistentTopicId, OSError."""
    directory = request.directory
    created = not storage.disk.exists(directory)
    if created:
        storage.disk.make_dirs(directory)
    names = storage.disk.list_dir(directory)
    topic_id = _check_topic_id(storage, directory, request.topic_id)
    for name in names:
        if name.endswith(".tmp"):
            storage.remove(f"{directory}/{name}")
    names = recover_swaps(storage, directory, names)
    segments = SegmentList(find_segments(storage, directory, names, request.config, now_ms=request.now_ms))
    open_it = _open_existing if len(segments) else _create
    opened = open_it(storage, request, names, segments)
    opened.topic_id = topic_id
    if created:
        storage.sync_dir(directory)
        storage.sync_dir(directory.rpartition("/")[0])
    return opened


def newly_made(storage: LogStorage, request: OpenRequest, epochs: Sequence[EpochEntry]) -> OpenedLog:
    """The state of an empty log whose files and names are durable; touches no file."""
    segment = Segment(storage, request.directory, 0, request.config, now_ms=request.now_ms)
    segment.reset()
    segment.indexes.are_durable()
    segment.sealed = False
    opened = _empty(storage, request, (), SegmentList([segment]), None)
    opened.epochs, opened.topic_id, opened.existed_cleanly = EpochCache(epochs), request.topic_id, True
    return opened


def _empty(
    storage: LogStorage,
    request: OpenRequest,
    names: Sequence[str],
    segments: SegmentList,
    limits: TruncationCheckpoint | None,
) -> OpenedLog:
    """The state of a log whose one segment is empty."""
    start = segments.first.base_offset
    return OpenedLog(
        segments=segments,
        epochs=EpochCache(),
        producer_state=ProducerState(start),
        snapshot_offset=-1,
        aborted=find_aborted_transactions(storage, request.directory, names, segments),
        log_start_offset=start,
        log_end_offset=start,
        recovery_point=start,
        topic_id=None,
        limits=limits,
        report=RecoveryReport(clean=True),
        epochs_changed=CHECKPOINT_FILE_NAME in names,
        existed_cleanly=False,
        epochs_only_lacking=CHECKPOINT_FILE_NAME not in names,
    )


def _check_topic_id(storage: LogStorage, directory: str, expected: bytes | None) -> bytes | None:
    path = f"{directory}/{PARTITION_METADATA}"
    content = storage.read_optional(path)
    if content is None:
        if expected is not None:
            storage.replace(path, encode_partition_metadata(expected))
        return expected
    try:
        found = decode_partition_metadata(content)
    except PartitionFileError as error:
        raise LogCorruptError(path, 0, str(error)) from error
    if expected is not None and found != expected:
        raise inconsistent_topic_id(directory, found, expected)
    return found


def stored_topic_id(storage: LogStorage, directory: str) -> bytes | None:
    """The topic id in a partition's folder, whatever else is wrong there; None if it cannot be read."""
    try:
        content = storage.read_optional(f"{directory}/{PARTITION_METADATA}")
        return None if content is None else decode_partition_metadata(content)
    except (OSError, PartitionFileError):
        return None


def inconsistent_topic_id(directory: str, found: bytes, expected: bytes) -> InconsistentTopicId:
    """The error for a folder that another incarnation of the topic left."""
    return InconsistentTopicId(
        f"{directory} holds topic id {topic_id_text(found)}, the topic's id now is {topic_id_text(expected)}:"
        " it is left from a deleted topic of the same name; delete it before this partition is created"
    )


def _create(
    storage: LogStorage, request: OpenRequest, names: Sequence[str], segments: SegmentList
) -> OpenedLog:
    """A log without segments. A crash may have left epochs and producers of ones that are gone."""
    remove_snapshots(storage, request.directory, base_offsets(names, SNAPSHOT_SUFFIX))
    limits = _truncation_limits(storage, request.directory)
    start = request.log_start_offset
    if limits is not None:
        start = min(start, limits.log_start_offset)
    segment = Segment(storage, request.directory, start, request.config, now_ms=request.now_ms)
    segment.create_files()
    if request.config.preallocate:
        segment.reserve(request.config.segment_bytes)
    segments.append(segment)
    return _empty(storage, request, names, segments, limits)


def _open_existing(
    storage: LogStorage, request: OpenRequest, names: Sequence[str], segments: SegmentList
) -> OpenedLog:
    directory = request.directory
    limits = _truncation_limits(storage, directory)
    recovery_point, log_start_offset = request.recovery_point, request.log_start_offset
    if limits is not None:
        recovery_point = min(recovery_point, limits.recovery_point)
        log_start_offset = min(log_start_offset, limits.log_start_offset)
    recovery_point = max(recovery_point, segments.first.base_offset)
    checked_from = segments[segments.position_for(recovery_point)].base_offset
    headers_below = UNBOUNDED if request.clean_shutdown else checked_from
    ensure_no_segment_is_lost(storage, directory, names, segments, below_offset=headers_below)
    ensure_none_is_cut(storage, segments, below_offset=headers_below)
    epochs, rebuilt = find_epochs(storage, directory, segments, below_offset=headers_below)
    known = epochs.entries
    aborted = find_aborted_transactions(storage, directory, names, segments)
    if request.clean_shutdown:
        end, report, unread_below, contradicted = _find_end(storage, request, names, segments, epochs)
        recovery_point = end
    else:
        stored = EpochCache(known) if known and rebuilt is None else None
        end, report, unread_below, contradicted = _recover(
            storage, directory, segments, epochs, aborted, recovery_point, stored
        )
        if (
            limits is not None
        ):  # a process that ended while it truncated may have cut the file without an fsync
            storage.sync(storage.file(segments.active.log_path))
    _make_missing_indexes(segments, names, below_offset=unread_below)
    start = min(max(log_start_offset, segments.first.base_offset), end)
    epochs.truncate_from_end(end)
    first = segments.first.base_offset
    epochs.truncate_from_start(first)
    producer_state, snapshot_offset = load_producer_state(storage, directory, names, segments, end)
    remove_stray_snapshots(storage, directory, names, segments, end)
    aborted.activate(segments.active.base_offset)
    return OpenedLog(
        segments=segments,
        epochs=epochs,
        producer_state=producer_state,
        snapshot_offset=snapshot_offset,
        aborted=aborted,
        log_start_offset=start,
        log_end_offset=end,
        recovery_point=min(recovery_point, end),
        topic_id=None,
        limits=limits,
        report=replace(report, epochs_rebuilt=rebuilt or contradicted),
        epochs_changed=epochs.entries != known or rebuilt is not None,
        existed_cleanly=report.clean,
        epochs_only_lacking=rebuilt is not None or _agree(known, epochs, first),
        epochs_proven_from=unread_below,
    )


def _agree(known: Sequence[EpochEntry], epochs: EpochCache, start_offset: int) -> bool:
    """Whether nothing in the file contradicts the epochs of a log that begins there."""
    stored = EpochCache(known)
    stored.truncate_from_start(start_offset)
    return all(epochs.epoch_for_offset(entry.start_offset) == entry.epoch for entry in stored.entries)


def _make_missing_indexes(segments: SegmentList, names: Sequence[str], *, below_offset: int) -> None:
    """Of closed segments that no recovery has read. Later, the first lookup would have the event loop walk over
    the whole segment; a start keeps nobody waiting."""
    present = frozenset(names)
    for segment in list(segments)[:-1]:
        if segment.base_offset >= below_offset:
            break
        if not present.issuperset(path.rpartition("/")[2] for path in segment.indexes.paths):
            try:
                segment.make_indexes()
            except BatchDamaged:
                raise  # the segment is not whole
            except (OSError, LogCorruptError) as error:
                # Nothing is lost yet: the first lookup in there meets it again.
                logger.warning("missing indexes were not made", segment=segment.log_path, reason=str(error))


class _End(NamedTuple):
    """Where the log ends, and what came of looking for that."""

    offset: int
    report: RecoveryReport
    unread_below: int
    """Of the batches below only the last one was looked at."""
    contradicted: str | None
    """Why epochs were taken from batches although their file can be read; None if they were not."""


def _find_end(
    storage: LogStorage, request: OpenRequest, names: Sequence[str], segments: SegmentList, epochs: EpochCache
) -> _End:
    """Where the log ends after a clean one."""
    if segments.active.size_bytes:  # what closed a log with records has covered both indexes
        segments.active.indexes.are_durable()
    end, last_epoch = log_end_after_clean_shutdown(segments)
    if request.closed_at is not None and request.closed_at != end:
        confirm_end(storage, request.directory, names, segments, end, request.closed_at)
    epochs.truncate_from_end(end)
    contradicted = None
    is_elsewhere = last_epoch is None and len(segments) > 1
    if is_elsewhere or last_epoch != epochs.epoch_for_offset(end - 1):
        contradicted = confirm_newest_epoch(storage, segments, epochs, end)
    return _End(end, RecoveryReport(clean=True), end, contradicted)


def _recover(
    storage: LogStorage,
    directory: str,
    segments: SegmentList,
    epochs: EpochCache,
    aborted: AbortedTransactions,
    recovery_point: int,
    stored: EpochCache | None,
) -> _End:
    """Where the log ends after an unclean end; epochs and aborted transactions are learnt again. `stored`: the
    epochs in the checkpoint file, if it has any."""
    contradicted = None
    unread = list(segments)[: segments.position_for(recovery_point)]
    if unread:
        end = segments[len(unread)].base_offset
        contradicted = confirm_newest_epoch(storage, SegmentList(unread), epochs, end)
    recovery = Recovery(storage, segments, epochs, recovery_point=recovery_point)
    end, report = recovery.run()
    rebuild_aborted_transactions(
        storage,
        directory,
        segments,
        aborted,
        from_offset=recovery.first_offset,
        end_offset=end,
        has_markers=recovery.has_markers,
    )
    if stored is not None:
        flushed = range(recovery.first_offset, min(recovery_point, end))
        contradicted = confirm_flushed_epochs(storage, segments, stored, epochs, flushed) or contradicted
    return _End(end, report, recovery.first_offset, contradicted)


def _truncation_limits(storage: LogStorage, directory: str) -> TruncationCheckpoint | None:
    path = f"{directory}/{TRUNCATION_CHECKPOINT}"
    content = storage.read_optional(path)
    if content is None:
        return None
    try:
        return decode_truncation_checkpoint(content)
    except PartitionFileError as error:
        raise LogCorruptError(path, 0, str(error)) from error
