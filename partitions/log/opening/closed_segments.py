"""Whether the closed segments of a log that is opened are there, as far as that shows without reading data.

Guarantees: a segment ends where the next one begins, in a compacted log and in a copy of one as well; so a data file
that is lost, empty or cut is damage, and what it held is neither passed over nor taken for compacted away (each
rewritten file keeps its last batch, if only as a header; a follower begins a segment where its log ends). Of a sound
log names and lengths are looked at, and the last entry of each offset index; headers only where those contradict each
other. What does not show here the first read finds (`checked_bytes.py`). What a recovery reads it judges by itself: a
crash may have left there what would be damage elsewhere. `open_log.py` asks.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from partitions.log.errors import LogCorruptError
from partitions.log.scan import ensure_end, walk
from partitions.log.segment import LOG_SUFFIX, base_offsets, file_name
from partitions.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from partitions.log.segments import SegmentList
from partitions.log.storage import LogStorage

logger = structlog.get_logger(__name__)


def ensure_no_segment_is_lost(
    storage: LogStorage, directory: str, names: Sequence[str], segments: SegmentList, *, below_offset: int
) -> None:
    """An index between two segments tells of a data file that is lost: what removes segments from inside a log has
    the name of an index durably gone before the log goes on without it. At or above the offset, where a recovery
    looks for gaps, such an index is removed. Raises LogCorruptError, OSError."""
    first, last = segments.first.base_offset, segments.active.base_offset
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        for base_offset in base_offsets(names, suffix):
            if not first < base_offset < last or segments.has_base(base_offset):
                continue
            index = file_name(base_offset, suffix)
            if base_offset < below_offset:
                path = f"{directory}/{file_name(base_offset, LOG_SUFFIX)}"
                raise LogCorruptError(path, 0, f"the file is missing, and {index} is there")
            storage.remove(f"{directory}/{index}")


def ensure_none_is_cut(storage: LogStorage, segments: SegmentList, *, below_offset: int) -> None:
    """Looks at the closed segments that begin below the offset. Raises LogCorruptError (SegmentEndsElsewhere),
    OSError."""
    for segment in list(segments)[:-1]:
        if segment.base_offset >= below_offset:
            break
        try:
            is_suspect = segment.is_cut_by_its_index
        except OSError as error:
            # The first lookup in there meets it again.
            logger.warning("a segment was not looked at", segment=segment.log_path, reason=str(error))
            continue
        if is_suspect:
            file = storage.file(segment.log_path)
            last = None
            for step in walk(file, 0, segment.size_bytes):
                last = step
            ensure_end(
                file, segment.size_bytes, last, base_offset=segment.base_offset, next_base=segment.next_base
            )
