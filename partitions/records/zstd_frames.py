"""Bounds on the unfolded size of zstd data, from its block headers alone (RFC 8878, section 3.1.1).

Guarantees: a decoder that follows the RFC never yields more than `at_most` bytes, and yields at least `at_least` or
fails. No declared content size can raise either: `at_most` adds up the limits of the blocks, 128 KiB or the window's
size each. `compression.py` calls it, since its zstd library cannot stop in the middle of a frame.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_FRAME_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_MASK = 0xFFFFFFF0
_U32 = struct.Struct("<I")
_BLOCK_HEADER_BYTES = 3
_MAX_BLOCK_BYTES = 128 * 1024
_CHECKSUM_BYTES = 4
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_TWO_BYTE_SIZE_OFFSET = 256
_RAW, _RUN_LENGTH, _COMPRESSED = 0, 1, 2


class ZstdFormatError(ValueError):
    """The bytes are not whole zstd frames."""


class SizeBound(NamedTuple):
    """Bytes of output: no decoder yields fewer than the first (or it fails) nor more than the second."""

    at_least: int
    at_most: int


class _FrameHeader(NamedTuple):
    blocks_position: int
    max_block_bytes: int
    content_size: int
    has_checksum: bool


def size_bound(data: bytes | bytearray | memoryview) -> SizeBound:
    """Walk all frames of `data`; cost is per block of up to 128 KiB. Raises ZstdFormatError."""
    at_least = at_most = position = 0
    try:
        while position < len(data):
            (magic,) = _U32.unpack_from(data, position)
            if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
                (length,) = _U32.unpack_from(data, position + 4)
                position += 8 + length
                continue
            if magic != _FRAME_MAGIC:
                raise ZstdFormatError("a frame does not begin with the magic number")
            frame = _frame_header(data, position + 4)
            position, exact, bound = _walk_blocks(data, frame)
            at_least += max(exact, frame.content_size)
            at_most += bound
    except (struct.error, IndexError) as error:
        raise ZstdFormatError("the frame is cut off") from error
    if position != len(data) or not data:
        raise ZstdFormatError("the frame is cut off")
    return SizeBound(at_least, at_most)


def _frame_header(data: bytes | bytearray | memoryview, position: int) -> _FrameHeader:
    descriptor = data[position]
    position += 1
    single_segment = bool(descriptor & 0x20)
    window_bytes = 0
    if not single_segment:
        exponent, mantissa = data[position] >> 3, data[position] & 7
        window_bytes = (1 << (10 + exponent)) // 8 * (8 + mantissa)
        position += 1
    position += _DICTIONARY_ID_BYTES[descriptor & 3]
    size_flag = descriptor >> 6
    size_bytes = 1 if single_segment and not size_flag else _CONTENT_SIZE_BYTES[size_flag]
    field = bytes(data[position : position + size_bytes])
    if len(field) < size_bytes:
        raise IndexError(position)
    content_size = int.from_bytes(field, "little") + (_TWO_BYTE_SIZE_OFFSET if size_bytes == 2 else 0)
    if single_segment:
        window_bytes = content_size
    return _FrameHeader(
        position + size_bytes, min(window_bytes, _MAX_BLOCK_BYTES), content_size, bool(descriptor & 4)
    )


def _walk_blocks(data: bytes | bytearray | memoryview, frame: _FrameHeader) -> tuple[int, int, int]:
    """The frame's end, the bytes in its raw and run-length blocks, and the upper bound."""
    position = frame.blocks_position
    exact = compressed_blocks = 0
    last = 0
    while not last:
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        position += _BLOCK_HEADER_BYTES
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if size > frame.max_block_bytes or kind > _COMPRESSED:
            raise ZstdFormatError("a block is larger than the format allows or of no known kind")
        if kind == _COMPRESSED:
            compressed_blocks += 1
        else:
            exact += size
        position += 1 if kind == _RUN_LENGTH else size
    if frame.has_checksum:
        position += _CHECKSUM_BYTES
    return position, exact, exact + compressed_blocks * frame.max_block_bytes
