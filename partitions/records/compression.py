"""The codecs of record batches, with a limit that a bomb meets before it costs memory.

Guarantees: `decompress` never holds much more than `max_bytes` of output, however the input lies: sizes declared in
the input only ever lower the allocation. DecompressionError is the only exception for bad bytes. `compress` writes
formats that every Kafka client reads: snappy in the framing of Java's xerial library, lz4 frames of independent
blocks (KIP-57), zstd (KIP-110).

Called by `batch.py` and `builder.py`. Pure: no state is kept between calls, so any thread may call.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeAlias

import cramjam
import lz4.frame

from partitions.records.zstd_frames import SizeBound, ZstdFormatError, size_bound

Buffer: TypeAlias = bytes | bytearray | memoryview

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
"""Magic, version, lowest compatible version. Clients write the two versions in either byte order and they mean
nothing, so readers skip them."""
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
MAX_UNFOLDED_BYTES: Final = 256 * 1024 * 1024
"""The largest batch, unfolded, that a broker opens or takes from a client."""
_GZIP_MAX_RATIO = 1032
"""Two bits of a deflate stream yield at most 258 bytes."""
_SNAPPY_MAX_RATIO = 22
"""A snappy copy element of 3 bytes yields at most 64: no honest block declares more than this."""
_LZ4_MAX_RATIO = 255
_LZ4_SLACK_BYTES = 64 * 1024
_ZSTD_MAX_RATIO = 32 * 1024
"""A block of four bytes yields at most 128 KiB."""
_ZSTD_MAPPED_FROM_BYTES = 1024 * 1024
"""A larger buffer for output is taken from the system as it fills: Python would zero it first, some 20 ms for 16 MiB
of fresh memory, in which no other thread runs."""
_GZIP_MAX_MEMBERS = 64
"""Java reads concatenated members; each costs a copy of what follows, hence a bound."""
GZIP_DEFAULT_LEVEL = -1
"""zlib's own choice, which is 6."""
LZ4_FAST_LEVEL = 9
"""Kafka's default, which stands for the fast compressor; other levels are those of the slower one."""
ZSTD_DEFAULT_LEVEL = 3
_LZ4_FAST_COMPRESSOR = 0
_GZIP_WINDOW_BITS = 31


class Codec(IntEnum):
    """Number of a codec in a batch's attributes; the lower-case name is Kafka's `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_MAX_RATIO: Final[Mapping[int, int]] = {
    Codec.GZIP: _GZIP_MAX_RATIO,
    Codec.SNAPPY: _SNAPPY_MAX_RATIO,
    Codec.LZ4: _LZ4_MAX_RATIO,
    Codec.ZSTD: _ZSTD_MAX_RATIO,
}


def unfolds_at_most(codec: int, size_bytes: int) -> int:
    """The most bytes that may come out of `size_bytes` in a known codec, if a broker is to open them."""
    return min(_MAX_RATIO[codec] * size_bytes, MAX_UNFOLDED_BYTES) if codec else size_bytes


class DecompressionError(ValueError):
    """The bytes are no output of the codec."""


class OutputLimitError(DecompressionError):
    """The output would be larger than the caller's limit."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the records unfold to more than {max_bytes} bytes, the limit here")


def compress(codec: int, data: Buffer, *, level: int | None = None) -> bytes:
    """`data` compressed at a level of the codec, without one at Kafka's default; snappy has no levels."""
    match Codec(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            gzip_level = GZIP_DEFAULT_LEVEL if level is None else level
            gzip = zlib.compressobj(gzip_level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
            return gzip.compress(data) + gzip.flush()
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            frame: bytes = lz4.frame.compress(
                data,
                compression_level=_LZ4_FAST_COMPRESSOR if level in (None, LZ4_FAST_LEVEL) else level,
                block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                block_linked=False,
                store_size=False,
            )
            return frame
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_DEFAULT_LEVEL if level is None else level))


def decompress(codec: int, data: Buffer, *, max_bytes: int) -> bytes:
    """The original of `data`, at most `max_bytes` long.

    Raises OutputLimitError if it is longer, DecompressionError if the bytes are torn, forged or
    followed by others, ValueError if no codec has that number.
    """
    match Codec(codec):
        case Codec.NONE:
            if len(data) > max_bytes:
                raise OutputLimitError(max_bytes)
            return bytes(data)
        case Codec.GZIP:
            return _decompress_gzip(data, max_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), max_bytes)
        case Codec.LZ4:
            return _decompress_lz4(memoryview(data), max_bytes)
        case Codec.ZSTD:
            return _decompress_zstd(data, max_bytes)


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes:
    members: list[bytes] = []
    room = max_bytes
    for _ in range(_GZIP_MAX_MEMBERS):
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            output = member.decompress(data, room + 1)
        except zlib.error as error:
            raise DecompressionError(f"gzip: {error}") from error
        room -= len(output)
        if room < 0:
            raise OutputLimitError(max_bytes)
        if not member.eof:
            raise DecompressionError("gzip: the stream is cut off")
        members.append(output)
        data = member.unused_data
        if not data:
            return members[0] if len(members) == 1 else b"".join(members)
    raise DecompressionError(f"gzip: more than {_GZIP_MAX_MEMBERS} concatenated streams")


def _compress_snappy(data: Buffer) -> bytes:
    parts: list[bytes] = [_XERIAL_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_bytes: int) -> bytes:
    """Both forms that clients send: xerial's framed blocks, or one raw block (Go and C clients)."""
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _snappy_block(data, max_bytes, max_bytes)
    blocks: list[bytes] = []
    room = max_bytes
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise DecompressionError("snappy: the framing's header is cut off")
    while position < len(data):
        start = position + _BLOCK_LENGTH.size
        if start > len(data):
            raise DecompressionError("snappy: a block's length is cut off")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position = start + length
        if length <= 0 or position > len(data):
            raise DecompressionError(f"snappy: impossible block length {length}")
        block = _snappy_block(data[start:position], room, max_bytes)
        room -= len(block)
        blocks.append(block)
    return b"".join(blocks)


def _snappy_block(block: memoryview, room: int, max_bytes: int) -> bytes:
    """One raw block; the library allocates its declared size, so it must be credible."""
    try:
        declared = cramjam.snappy.decompress_raw_len(block)
        if declared > room:
            raise OutputLimitError(max_bytes)
        if declared > _SNAPPY_MAX_RATIO * len(block):
            raise DecompressionError(f"snappy: {len(block)} bytes cannot unfold to the declared {declared}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from error


def _decompress_lz4(data: memoryview, max_bytes: int) -> bytes:
    """One frame. Kafka's Java client reads no further, so bytes behind it are an error."""
    context = lz4.frame.create_decompression_context()
    pieces: list[bytes] = []
    room = max_bytes
    position = 0
    while True:
        rest = data[position:]
        step = min(room + 1, _LZ4_MAX_RATIO * len(rest) + _LZ4_SLACK_BYTES)
        try:
            piece, consumed, ended = lz4.frame.decompress_chunk(context, rest, max_length=step)
        except RuntimeError as error:
            raise DecompressionError(f"lz4: {error}") from error
        pieces.append(piece)
        position += consumed
        room -= len(piece)
        if room < 0:
            raise OutputLimitError(max_bytes)
        if ended:
            break
        if not consumed and not piece:
            raise DecompressionError("lz4: the frame is cut off")
    if position < len(data):
        raise DecompressionError(f"lz4: {len(data) - position} bytes follow the frame")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _decompress_zstd(data: Buffer, max_bytes: int) -> bytes:
    """The library has no incremental reader, so the output gets a buffer that bounds it.

    The block headers say how much the frames can unfold to at most (`zstd_frames`); that is tight
    for honest input and never more than the limit is allocated.
    """
    try:
        bound = size_bound(data)
    except ZstdFormatError as error:
        raise DecompressionError(f"zstd: {error}") from error
    if bound.at_least > max_bytes:
        raise OutputLimitError(max_bytes)
    output_bytes = min(bound.at_most, max_bytes)
    if output_bytes < _ZSTD_MAPPED_FROM_BYTES:
        return _decompress_zstd_into(bytearray(output_bytes), data, bound, max_bytes)
    try:
        mapped = mmap.mmap(-1, output_bytes)
    except OSError as error:
        raise MemoryError(f"zstd: {error}") from error
    with mapped as output:
        return _decompress_zstd_into(output, data, bound, max_bytes)


def _decompress_zstd_into(
    output: bytearray | mmap.mmap, data: Buffer, bound: SizeBound, max_bytes: int
) -> bytes:
    try:
        size = cramjam.zstd.decompress_into(data, output)
    except (cramjam.DecompressionError, OSError) as error:
        if bound.at_most > max_bytes and "whole buffer" in str(error):
            raise OutputLimitError(max_bytes) from error
        raise DecompressionError(f"zstd: {error}") from error
    with memoryview(output) as view, view[:size] as filled:
        return bytes(filled)
