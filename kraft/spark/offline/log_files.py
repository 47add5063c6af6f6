"""The segments of one partition's folder: where they end, where offsets and times lie, and their bytes.

Positions that are handed out are batch boundaries: an index entry counts only if the batch that it leads to says the
same. Sound batches end where the first unsound one begins, which for the last segment may be a torn write. `cluster.py`
and `directories.py` call it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kraft.runtime.read_only_disk import ReadOnlyDisk, ReadOnlyFile
from kraft.spark.errors import CorruptDataError
from partitions.log.errors import LogCorruptError
from partitions.log.scan import Damage, seek, walk, walk_checked
from partitions.log.segment import LOG_SUFFIX, base_offsets, file_name
from partitions.log.segment_indexes import INDEX_SUFFIX
from partitions.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatchError,
    decode_records,
    parse_header,
)

_MAX_OPENED_BYTES: Final = 256 << 20
"""A compressed batch that unfolds to more is not searched for a time."""
_INDEX_ENTRY: Final = np.dtype(">i4")
_UNSETTLED: Final = (".swap",)
_FURTHEST: Final = 2**31 - 1


class SegmentSpan(NamedTuple):
    """One `.log` file."""

    base_offset: int
    size_bytes: int
    """Of the sound batches at its start."""
    end_offset: int
    """Behind the last of them; `base_offset` where there is none."""
    last_epoch: int
    """The leader epoch of the last of them, -1 where there is none."""


def read_spans(disk: ReadOnlyDisk, folder: str) -> list[SegmentSpan]:
    """The segments of a folder, in order. Raises CorruptDataError, OSError."""
    names = disk.list_dir(folder)
    unsettled = [name for name in names if name.endswith(_UNSETTLED)]
    if unsettled:
        raise CorruptDataError(
            f"{folder} holds {unsettled[0]}: its broker ended while it compacted the log. Start the broker once and"
            " stop it in order, or leave its directory out of path."
        )
    with LogFiles(disk, folder, ()) as files:
        return [files.measure(base) for base in base_offsets(names, LOG_SUFFIX)]


class LogFiles:
    """Reads the segments of these spans. Use it as a context manager: files stay open in between."""

    def __init__(self, disk: ReadOnlyDisk, folder: str, spans: Sequence[SegmentSpan]) -> None:
        self._disk = disk
        self._folder = folder
        self._spans = spans
        self._bases = [span.base_offset for span in spans]
        self._open: tuple[int, ReadOnlyFile, npt.NDArray[Any]] | None = None
        """One segment at a time: its base offset, file and index."""
        self._closing = ExitStack()
        self._passed = (0, 0, 0)
        """Base offset of a segment, an offset and the position of a batch in it that begins at or below that: where
        the last search ended."""

    def __enter__(self) -> LogFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.close()

    def measure(self, base_offset: int) -> SegmentSpan:
        """How far the segment is sound, from the last index entry on; what lies before is checked when it is read."""
        file, index = self._segment(base_offset)
        size = file.size()
        start = _entry_below(file, index, base_offset, _FURTHEST, size)
        last = _last_sound(file, start, size) or _last_sound(file, 0, size)
        if last is None:
            return SegmentSpan(base_offset, 0, base_offset, -1)
        position, header = last
        return SegmentSpan(
            base_offset, position + header.size_bytes, header.next_offset, header.partition_leader_epoch
        )

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Bytes from the batch on that holds the offset, or the next one; that one whole. b"": there is none.

        Raises CorruptDataError, OSError.
        """
        with _told():
            for number in range(self._number(offset), len(self._spans)):
                span = self._spans[number]
                if span.end_offset <= offset:
                    continue
                position, batch_bytes = self._locate(span, offset)
                if batch_bytes:
                    file, _ = self._segment(span.base_offset)
                    return file.read(position, max(batch_bytes, min(max_bytes, span.size_bytes - position)))
        return b""

    def headers(self, offset: int) -> Iterator[tuple[ReadOnlyFile, int, BatchHeader]]:
        """File, position and header of each batch from the one on that holds the offset. Raises CorruptDataError."""
        with _told():
            for number in range(self._number(offset), len(self._spans)):
                span = self._spans[number]
                position, _ = self._locate(span, offset)
                file, _ = self._segment(span.base_offset)
                for at, header in walk(file, position, span.size_bytes):  # type: ignore[arg-type]
                    yield file, at, header

    def first_since(self, timestamp: int, start: int, end: int) -> tuple[int, int] | None:
        """Offset and time (ms) of the first record from `start` up to `end` that is of this time or later."""
        for file, position, header in self.headers(start):
            if header.base_offset >= end:
                break
            if header.max_timestamp < timestamp:
                continue
            for record in decoded(file, position, header):
                if start <= record.offset < end and record.timestamp >= timestamp:
                    return record.offset, record.timestamp
        return None

    # ----

    def _number(self, offset: int) -> int:
        return max(bisect_right(self._bases, offset) - 1, 0)

    def _locate(self, span: SegmentSpan, offset: int) -> tuple[int, int]:
        """Position and size of the first batch of the segment that ends at or behind the offset; size 0: none."""
        file, index = self._segment(span.base_offset)
        start = _entry_below(file, index, span.base_offset, offset - span.base_offset, span.size_bytes)
        base, passed, position = self._passed
        if base == span.base_offset and passed <= offset:
            start = max(start, position)
        stop = seek(
            file,  # type: ignore[arg-type]  # it is only read
            start,
            span.size_bytes,
            stop_offset=offset,
            stop_position=span.size_bytes,
            passed_offset=span.base_offset,
        )
        if stop.batch_bytes:
            self._passed = span.base_offset, offset, stop.position
        return stop.position, stop.batch_bytes

    def _segment(self, base_offset: int) -> tuple[ReadOnlyFile, npt.NDArray[Any]]:
        if self._open is None or self._open[0] != base_offset:
            self._closing.close()
            stem = f"{self._folder}/{file_name(base_offset, '')}"
            file = self._disk.open(stem + LOG_SUFFIX)
            self._closing.callback(file.close)
            self._open = base_offset, file, _index(self._disk, stem + INDEX_SUFFIX)
        return self._open[1], self._open[2]


class _From:
    """A file from a position on."""

    def __init__(self, file: ReadOnlyFile, start: int) -> None:
        self._file = file
        self._start = start

    def read(self, position: int, length: int) -> bytes:
        return self._file.read(self._start + position, length)


def _last_sound(file: ReadOnlyFile, start: int, end: int) -> tuple[int, BatchHeader] | None:
    """The last batch, and its position, before the first unsound one from `start` on."""
    last = None
    for step in walk_checked(_From(file, start), end - start):
        if isinstance(step, Damage):
            break
        last = start + step[0], step[1]
    return last


@contextmanager
def _told() -> Iterator[None]:
    """Damage that the log's own readers find, as the connector's error."""
    try:
        yield
    except LogCorruptError as error:
        raise _damaged(error.path, error.position, error.reason) from error


def _damaged(path: str, position: int, reason: str) -> CorruptDataError:
    return CorruptDataError(
        f"{path} is damaged at byte {position}: {reason}. Nothing was skipped. Give the directory of another replica"
        " with path, or leave these offsets out with startingOffsets and endingOffsets."
    )


def decoded(file: ReadOnlyFile, position: int, header: BatchHeader) -> list[Any]:
    """The records of the batch at this position. Raises CorruptDataError, OSError."""
    try:
        return decode_records(
            file.read(position, header.size_bytes), 0, header, max_decompressed_bytes=_MAX_OPENED_BYTES
        )
    except CorruptBatchError as error:
        raise _damaged(file.path, position, str(error)) from error


def _index(disk: ReadOnlyDisk, path: str) -> npt.NDArray[Any]:
    """Rows of (relative last offset, position of the batch), up to the first that does not follow the one before.

    A missing file is an empty index. Zeros at the end are room that was never used.
    """
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        data = b""
    rows = np.frombuffer(data, _INDEX_ENTRY, len(data) // 8 * 2).reshape(-1, 2).astype(np.int64)
    falls = np.flatnonzero((np.diff(rows, axis=0) <= 0).any(axis=1))
    rows = rows[: falls[0] + 1] if len(falls) else rows
    return rows if not len(rows) or (rows[0] >= 0).all() else rows[:0]


def _entry_below(
    file: ReadOnlyFile, index: npt.NDArray[Any], base_offset: int, relative_offset: int, end: int
) -> int:
    """The position of a batch at or before the one that holds the offset; 0 where the index tells none."""
    number = int(np.searchsorted(index[:, 0], relative_offset, side="right")) - 1
    if number < 0:
        return 0
    last_offset, position = base_offset + int(index[number][0]), int(index[number][1])
    if position + HEADER_BYTES > end:
        return 0
    try:
        header = parse_header(file.read(position, HEADER_BYTES))
    except CorruptBatchError:
        return 0
    return position if header.last_offset == last_offset else 0
