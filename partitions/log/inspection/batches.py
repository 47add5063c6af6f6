"""Every batch of a segment file, the sound and the unsound, in bounded memory.

Guarantees: a StoredBatch is whole and its CRC is right; everything between those is an Unsound that says
where and why, so that nothing of the file goes unmentioned. Bytes that fail are read again as long as
they change: a running broker appends, and may cut, while the file is read. Memory is a window of 1 MiB,
plus one batch where its records are asked for. Used by `kraft log dump` and the checks of this package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from partitions.log.inspection.files import ReadableFile
from partitions.records.batch import CorruptBatchError, Record, decode_records
from partitions.records.header import (
    CRC_START,
    HEADER_BYTES,
    MAGIC_POSITION,
    NO_LEADER_EPOCH,
    BatchHeader,
    UnsupportedMagicError,
    parse_header,
)

MAX_OPENED_BYTES: Final = 256 * 1024 * 1024
"""Batches beyond this, stored or unfolded, are checked by CRC only: their records stay unread."""
READ_ATTEMPTS: Final = 5
"""How often bytes that fail their check are read again, as long as they differ from the last time."""
_WINDOW_BYTES: Final = 1024 * 1024
_SEARCHED_MAX_BYTES: Final = 256 * 1024 * 1024
"""What is spent on checksums of candidates when the next sound batch is looked for."""
_CANDIDATE: Final = re.compile(rb"(?=\x00[\s\S]{7}[\x00-\x3f][\s\S]{7}\x02)")
"""A header as any real batch has it: base offset below 2^56, length below 2^30, magic 2."""


class StoredBatch(NamedTuple):
    """A sound batch and where it begins in its file."""

    position: int
    header: BatchHeader


class Unsound(NamedTuple):
    """Bytes that are no sound batch, from `position` up to `end`: the next sound batch, or the file's end."""

    position: int
    end: int
    reason: str
    header: BatchHeader | None
    """Of a batch that fails its checksum and nothing else: it ends at `end`."""
    is_last: bool
    """No sound batch follows in this file."""


class RecordsNotReadError(Exception):
    """A batch that is too large to be opened here: nothing is known about its records."""


class _Failure(NamedTuple):
    """What is wrong at a place; equal for equal bytes."""

    reason: str
    header: BatchHeader | None
    computed_crc: int = 0


class SegmentReader:
    """Reads one segment's `.log` file."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._window = memoryview(b"")
        self._window_position = 0

    def batches(self) -> Iterator[StoredBatch | Unsound]:
        """Everything in the file, in order and without holes. Raises OSError."""
        position = next_offset = 0
        while position < self._file.size():
            header = self._examine_again(position)
            if isinstance(header, BatchHeader):
                yield StoredBatch(position, header)
                position += header.size_bytes
                next_offset = max(next_offset, header.next_offset)
                continue
            end = self._find_sound(position, header, next_offset)
            size = self._file.size()
            if position < size:  # it may have been cut meanwhile
                ends_there = header.header is not None and position + header.header.size_bytes == (
                    end or size
                )
                yield Unsound(
                    position, end or size, header.reason, header.header if ends_there else None, end is None
                )
            if end is None:
                return
            position = end

    def records(self, batch: StoredBatch) -> list[Record]:
        """The batch's records. Raises CorruptBatchError, RecordsNotReadError, OSError."""
        size = batch.header.size_bytes
        if size > MAX_OPENED_BYTES:
            raise RecordsNotReadError(
                f"its {size} bytes are more than the {MAX_OPENED_BYTES} that are opened"
            )
        data = self._view(batch.position, size)
        try:
            return decode_records(data, 0, batch.header, max_decompressed_bytes=MAX_OPENED_BYTES)
        except CorruptBatchError as error:
            if error.code == "MESSAGE_TOO_LARGE":
                raise RecordsNotReadError(plain_reason(error)) from error
            raise

    def _view(self, position: int, length: int) -> memoryview:
        """Bytes at a position, fewer at the file's end; those of a whole window stay in memory."""
        start = position - self._window_position
        if start < 0 or start + length > len(self._window):
            self._window = memoryview(self._file.read(position, max(length, _WINDOW_BYTES)))
            self._window_position, start = position, 0
        return self._window[start : start + length]

    def _forget(self) -> None:
        self._window = memoryview(b"")

    def _examine_again(self, position: int) -> BatchHeader | _Failure:
        found = self._examine(position)
        for _ in range(READ_ATTEMPTS):
            if isinstance(found, BatchHeader):
                break
            self._forget()
            before, found = found, self._examine(position)
            if found == before:
                break
        return found

    def _examine(self, position: int) -> BatchHeader | _Failure:
        """The batch at a position, if it is sound."""
        data = self._view(position, HEADER_BYTES)
        try:
            header = parse_header(data)
        except CorruptBatchError as error:
            return _Failure(_header_reason(error, data), None)
        left = self._file.size() - position
        if header.size_bytes > left:
            return _Failure(f"the batch has {header.size_bytes} bytes, the file ends after {left}", None)
        computed = self._checksum(position, header)
        if computed == header.crc:
            if header.partition_leader_epoch >= NO_LEADER_EPOCH:
                return header
            return _Failure(f"the batch is of leader epoch {header.partition_leader_epoch}", header, computed)
        reason = f"the batch fails its checksum: stored {header.crc:#010x}, computed {computed:#010x}"
        return _Failure(reason, header, computed)

    def _checksum(self, position: int, header: BatchHeader) -> int:
        end = position + header.size_bytes
        at = position + CRC_START
        checksum = 0
        while at < end:
            part = self._view(at, min(end - at, _WINDOW_BYTES))
            if not part:
                break  # cut meanwhile: the checksum will not fit
            checksum = crc32c(part, checksum)
            at += len(part)
        return checksum

    # ---- behind damage

    def _find_sound(self, position: int, failure: _Failure, next_offset: int) -> int | None:
        """Where the next sound batch begins: behind this one, if its length is right, or later."""
        size = self._file.size()
        budget = _SEARCHED_MAX_BYTES
        if failure.header is not None:
            behind = position + failure.header.size_bytes
            if self._spent_on(behind, next_offset) < 0:
                return behind
        start = position + 1
        while start < size and budget > 0:
            data = bytes(self._view(start, _WINDOW_BYTES))
            for match in _CANDIDATE.finditer(data):
                spent = self._spent_on(start + match.start(), next_offset)
                if spent < 0:
                    return start + match.start()
                budget -= spent
                if budget <= 0:
                    break
            start += max(len(data) - MAGIC_POSITION, 1)
        return None

    def _spent_on(self, position: int, next_offset: int) -> int:
        """Below 0 if a sound batch of later offsets begins there, else the bytes it took to find out."""
        data = self._file.read(position, HEADER_BYTES)
        try:
            header = parse_header(data)
        except CorruptBatchError:
            return HEADER_BYTES
        if header.base_offset < next_offset or position + header.size_bytes > self._file.size():
            return HEADER_BYTES
        return -1 if self._checksum(position, header) == header.crc else header.size_bytes


def plain_reason(error: CorruptBatchError) -> str:
    """The sentence without the place in the buffer, which is said beside it."""
    return str(error).removesuffix(f" (byte {error.position})")


def _header_reason(error: CorruptBatchError, data: memoryview) -> str:
    if not any(data):
        return "there are zeros instead of a batch"
    if len(data) < HEADER_BYTES:
        return f"the {len(data)} bytes up to the file's end are less than a batch's header"
    if isinstance(error, UnsupportedMagicError):
        return f"the magic is {data[MAGIC_POSITION]}, and a batch here has 2"
    return plain_reason(error)
