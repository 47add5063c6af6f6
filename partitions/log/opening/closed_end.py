"""Whether a log that was closed ends where it was closed.

Guarantees: the end of such a log is taken from the header of its last batch, without a checksum, and none covers all
of it; so it is compared with the recovery point, which the process that closed the log put at its end. Where the two
differ, the last segment is read and its checksums are compared, nothing is cut, and the log is damaged unless
something else on disk says that it ends where it does. `open_log.py` asks.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from partitions.log.errors import LogCorruptError
from partitions.log.opening.damage_note import LogExtent, write_damage_note
from partitions.log.producers.producer_snapshot import SNAPSHOT_SUFFIX
from partitions.log.scan import Damage, walk_checked
from partitions.log.segment import Segment, file_name
from partitions.log.segments import SegmentList
from partitions.log.storage import LogStorage

logger = structlog.get_logger(__name__)


def confirm_end(
    storage: LogStorage,
    directory: str,
    names: Sequence[str],
    segments: SegmentList,
    end_offset: int,
    closed_at: int,
) -> None:
    """Finds out which is wrong, the end that the last header tells or the recovery point, another one.

    Returns where the log is to be believed. A lower end never is: what was flushed is gone. A higher one is,
    where the producer snapshot that was written when the log was closed is of that offset. Raises
    LogCorruptError, OSError.
    """
    active = segments.active
    if len(segments) == 1 and not active.size_bytes:
        return  # somebody removed the files, to have them copied again
    damage = _damage(storage, active)
    if damage is None and end_offset < closed_at:
        reason = f"the log ends at offset {end_offset}, but was closed at {closed_at}"
        damage = LogCorruptError(active.log_path, active.size_bytes, reason)
    if damage is not None:
        raise damage
    if not active.size_bytes or file_name(end_offset, SNAPSHOT_SUFFIX) in names:
        logger.warning(
            "a log's recovery point is behind the end of the log",
            log=directory,
            recovery_point=closed_at,
            log_end=end_offset,
        )
        return
    beyond = _first_beyond(storage, active, closed_at)
    # The next start is no clean one, and a recovery would find nothing wrong with such a batch.
    _note(storage, directory, segments, beyond, closed_at)
    raise beyond


def _damage(storage: LogStorage, segment: Segment) -> LogCorruptError | None:
    """The first batch of the segment that is not sound, or goes back."""
    due = segment.base_offset
    for step in walk_checked(storage.file(segment.log_path), segment.size_bytes):
        if isinstance(step, Damage):
            return LogCorruptError(segment.log_path, step.position, step.reason)
        position, header = step
        if header.base_offset < due:
            reason = f"the batch goes back to offset {header.base_offset}, expected {due}"
            return LogCorruptError(segment.log_path, position, reason)
        due = header.next_offset
    return None


def _first_beyond(storage: LogStorage, segment: Segment, closed_at: int) -> LogCorruptError:
    """The first batch of a sound segment that reaches beyond the offset."""
    for step in walk_checked(storage.file(segment.log_path), segment.size_bytes):
        if not isinstance(step, Damage) and step[1].last_offset >= closed_at:
            position, header = step
            reason = (
                f"a batch has the offsets {header.base_offset} to {header.last_offset}, but the log was"
                f" closed at {closed_at}"
            )
            return LogCorruptError(segment.log_path, position, reason)
    raise AssertionError("the last batch of the segment reaches beyond the offset")


def _note(
    storage: LogStorage, directory: str, segments: SegmentList, error: LogCorruptError, closed_at: int
) -> None:
    extent = LogExtent([segment.base_offset for segment in segments], closed_at)
    try:
        write_damage_note(storage.disk, directory, error, extent)
    except OSError as failure:
        # The next start takes the log for sound.
        logger.error("damage was not noted", folder=directory, reason=str(failure))
