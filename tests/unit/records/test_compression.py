"""The codecs: both snappy forms, what is refused, and that bombs cost neither memory nor time."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import lz4.frame
import pytest

from partitions.records import compression
from partitions.records.batch import (
    CorruptBatchError,
    DecompressedTooLargeError,
    UnsupportedCodecError,
    decode_records,
    parse_header,
)
from partitions.records.builder import build_batch
from partitions.records.compression import (
    XERIAL_MAGIC,
    Codec,
    DecompressionError,
    OutputLimitError,
    compress,
    decompress,
)

TEXT = b"".join(b'{"id": %d, "square": %d}\n' % (number, number * number) for number in range(20_000))
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
CAP_BYTES = 1 << 20
GIB = 1 << 30
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"a", b"ab" * 40_000, TEXT], ids=["empty", "one", "repeat", "text"])
def test_round_trip_at_exactly_the_limit(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, max_bytes=len(data)) == data
    assert decompress(codec, memoryview(bytearray(b"..." + packed))[3:], max_bytes=len(data)) == data
    assert compress(codec, memoryview(data)) == packed, "equal input, equal bytes"
    if data:
        with pytest.raises(OutputLimitError):
            decompress(codec, packed, max_bytes=len(data) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncation_and_trailing_bytes_are_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT[:3000])
    # xerial framing has no end mark: cut between two blocks it is whole, and the record count tells.
    whole = {len(XERIAL_MAGIC) + 8} if codec is Codec.SNAPPY else set()
    for size in range(len(packed)):
        if size not in whole:
            with pytest.raises(DecompressionError):
                decompress(codec, packed[:size], max_bytes=CAP_BYTES)
    for tail in (b"\0", b"\xff" * 9):
        with pytest.raises(DecompressionError):
            decompress(codec, packed + tail, max_bytes=CAP_BYTES)


def test_snappy_is_written_in_javas_framing() -> None:
    packed = compress(Codec.SNAPPY, b"x" * 40_000)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    (first,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == b"x" * 32 * 1024


def test_raw_snappy_is_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, raw, max_bytes=len(TEXT)) == TEXT


def test_xerial_versions_in_either_byte_order_are_read() -> None:
    packed = bytearray(compress(Codec.SNAPPY, TEXT))
    packed[8:16] = struct.pack("<ii", 1, 1)
    assert decompress(Codec.SNAPPY, packed, max_bytes=len(TEXT)) == TEXT


@pytest.mark.parametrize("length", [0, -1, -(2**31), 2**31 - 1, 1000])
def test_forged_xerial_block_lengths_are_refused(length: int) -> None:
    packed = bytearray(compress(Codec.SNAPPY, b"hello"))
    struct.pack_into(">i", packed, 16, length)
    with pytest.raises(DecompressionError):
        decompress(Codec.SNAPPY, packed, max_bytes=CAP_BYTES)


def test_lz4_frames_suit_javas_reader() -> None:
    """Version 1, independent blocks (KIP-57), no content size: Kafka's own reader knows no other."""
    flags = compress(Codec.LZ4, TEXT)[4]
    assert flags >> 6 == 1
    assert flags & 0x20, "blocks are independent"
    assert not flags & 0x08, "no content size"


@pytest.mark.parametrize("store_size", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("linked", [True, False])
def test_other_lz4_frames_are_read(store_size: bool, checksum: bool, linked: bool) -> None:
    frame = lz4.frame.compress(
        TEXT, block_linked=linked, store_size=store_size, content_checksum=checksum, block_checksum=checksum
    )
    assert decompress(Codec.LZ4, frame, max_bytes=len(TEXT)) == TEXT


def test_concatenated_gzip_and_zstd_are_read_up_to_a_bound() -> None:
    two = compress(Codec.GZIP, b"one") + compress(Codec.GZIP, b"two")
    assert decompress(Codec.GZIP, two, max_bytes=6) == b"onetwo"
    with pytest.raises(OutputLimitError):
        decompress(Codec.GZIP, two, max_bytes=5)
    with pytest.raises(DecompressionError, match="more than 64"):
        decompress(Codec.GZIP, compress(Codec.GZIP, b"") * 65, max_bytes=6)
    skippable = struct.pack("<II", 0x184D2A53, 3) + b"abc"
    frames = skippable + compress(Codec.ZSTD, b"one") + skippable + compress(Codec.ZSTD, TEXT)
    assert decompress(Codec.ZSTD, frames, max_bytes=len(TEXT) + 3) == b"one" + TEXT


def test_a_large_zstd_output_is_no_zeroed_memory() -> None:
    """What Python zeroes it zeroes under the interpreter's lock: only the result is its own memory."""
    data = b"0123456789abcdef" * (192 * 1024)
    packed = compress(Codec.ZSTD, data)
    tracemalloc.start()
    try:
        assert decompress(Codec.ZSTD, packed, max_bytes=2 * len(data)) == data
        assert tracemalloc.get_traced_memory()[1] < 1.5 * len(data)
    finally:
        tracemalloc.stop()
    with pytest.raises(DecompressionError):
        decompress(Codec.ZSTD, packed[:-5], max_bytes=2 * len(data))
    with pytest.raises(OutputLimitError):
        decompress(Codec.ZSTD, packed, max_bytes=len(data) - 1)


def test_want_of_memory_for_a_large_zstd_output_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    def scarce(descriptor: int, size_bytes: int) -> None:
        raise OSError(errno.ENOMEM, "no memory")

    packed = compress(Codec.ZSTD, bytes(2 * 1024 * 1024))
    monkeypatch.setattr(compression.mmap, "mmap", scarce)
    with pytest.raises(MemoryError):
        decompress(Codec.ZSTD, packed, max_bytes=4 * 1024 * 1024)


def zstd_block(kind: int, size: int, content: bytes, *, last: bool = False) -> bytes:
    return (last | kind << 1 | size << 3).to_bytes(3, "little") + content


def zstd_frame(blocks: bytes, *, window: int = 0x38) -> bytes:
    """A frame of hand-made blocks without content size; the default window is 128 KiB."""
    return ZSTD_MAGIC + bytes([0, window]) + blocks


def test_zstd_frames_without_content_size_are_read() -> None:
    blocks = zstd_block(0, 3, b"abc") + zstd_block(1, 5, b"d") + zstd_block(0, 0, b"", last=True)
    assert decompress(Codec.ZSTD, zstd_frame(blocks), max_bytes=8) == b"abcddddd"


def test_zstd_checksums_are_read_and_compared() -> None:
    """As the zstd command writes it: a raw block, then four bytes of xxHash."""
    frame = bytearray.fromhex("28b52ffd0458810000636865636b73756d6d6564207a737464f54573fa")
    assert decompress(Codec.ZSTD, frame * 2, max_bytes=32) == b"checksummed zstd" * 2
    frame[-1] ^= 1
    with pytest.raises(DecompressionError, match="checksum"):
        decompress(Codec.ZSTD, frame, max_bytes=32)


def test_a_snappy_size_that_the_bytes_cannot_hold_is_not_allocated() -> None:
    with pytest.raises(DecompressionError, match="25 bytes cannot unfold to the declared 1048576"):
        decompress(Codec.SNAPPY, snappy_claim(), max_bytes=CAP_BYTES)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abcd",
        zstd_frame(zstd_block(3, 3, b"abc", last=True)),
        zstd_frame(zstd_block(0, 200_000, b"a" * 200_000, last=True)),
        zstd_frame(zstd_block(0, 3, b"abc", last=True), window=0xF8),
        ZSTD_MAGIC + b"\xe0" + struct.pack("<Q", 2**60) + zstd_block(0, 3, b"abc", last=True),
        ZSTD_MAGIC + b"\x20\x02" + zstd_block(0, 3, b"abc", last=True),
        struct.pack("<II", 0x184D2A50, 2**32 - 1),
    ],
    ids=["empty", "magic", "reserved", "block", "window", "declared", "declared-less", "skippable"],
)
def test_impossible_zstd_frames_are_refused(data: bytes) -> None:
    with pytest.raises(DecompressionError):
        decompress(Codec.ZSTD, data, max_bytes=CAP_BYTES)


def gzip_bomb() -> bytes:
    """1 GiB of zeros; the deflate blocks of 32 MiB of them repeat, byte-aligned, after a full flush."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    period = packer.compress(bytes(GIB // 32)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + period * 32 + b"\x03\0" + struct.pack("<II", 0, GIB)


def lz4_bomb() -> bytes:
    """1 GiB of zeros: one compressed block of 4 MiB, 256 times."""
    frame: bytes = lz4.frame.compress(
        bytes(4 << 20), block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False
    )
    return frame[:7] + frame[7:-4] * 256 + frame[-4:]


def zstd_bomb() -> bytes:
    """1 GiB of zeros in run-length blocks."""
    blocks = GIB // 131072
    return zstd_frame(zstd_block(1, 131072, b"\0") * (blocks - 1) + zstd_block(1, 131072, b"\0", last=True))


def zstd_compressed_bomb() -> bytes:
    """64 MiB in compressed blocks: their headers do not tell their size."""
    frame = bytes(cramjam.zstd.compress(b"a" * 70_000 + b"b" * 61_072))
    header_bytes = 5 + (not frame[4] & 0x20) + (1 if frame[4] & 0x20 and not frame[4] >> 6 else 0)
    header_bytes += (0, 2, 4, 8)[frame[4] >> 6]
    block = bytearray(frame[header_bytes:])
    if frame[4] & 4:
        del block[-4:]
    size = int.from_bytes(block[:3], "little")
    assert size >> 1 & 3 == 2
    block[:3] = (size & ~1).to_bytes(3, "little")
    return zstd_frame(bytes(block) * 512 + zstd_block(0, 0, b"", last=True))


def zstd_bomb_with_forged_size() -> bytes:
    """Claims to hold 3 bytes, then yields a lot."""
    size = struct.pack("<I", 3)
    return (
        ZSTD_MAGIC
        + b"\x80\x38"
        + size
        + zstd_block(1, 131072, b"\0") * 800
        + zstd_block(0, 0, b"", last=True)
    )


def snappy_bomb() -> bytes:
    return bytes(cramjam.snappy.compress_raw(bytes(64 << 20)))


def snappy_claim() -> bytes:
    """25 bytes that claim to be 1 MiB, which the limit would allow and the bytes cannot hold."""
    return b"\x80\x80\x40" + b"\0a" * 11


def xerial_bomb() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 19)))
    return XERIAL_MAGIC + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 128


WATCH_PEAK = """
import resource, sys
from pathlib import Path
from partitions.records.compression import DecompressionError, decompress

def peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

for path in sorted(Path(sys.argv[1]).iterdir()):
    data = path.read_bytes()
    before = peak_kib()
    try:
        decompress(int(path.name[-1]), data, max_bytes=int(sys.argv[2]))
    except DecompressionError:
        print(peak_kib() - before)
"""
BOMBS: list[tuple[Codec, Callable[[], bytes], type[DecompressionError]]] = [
    (Codec.GZIP, gzip_bomb, OutputLimitError),
    (Codec.LZ4, lz4_bomb, OutputLimitError),
    (Codec.ZSTD, zstd_bomb, OutputLimitError),
    (Codec.ZSTD, zstd_compressed_bomb, OutputLimitError),
    (Codec.ZSTD, zstd_bomb_with_forged_size, OutputLimitError),
    (Codec.SNAPPY, snappy_bomb, OutputLimitError),
    (Codec.SNAPPY, snappy_claim, DecompressionError),
    (Codec.SNAPPY, xerial_bomb, OutputLimitError),
]


@pytest.mark.parametrize(("codec", "bomb", "error"), BOMBS, ids=[bomb[1].__name__ for bomb in BOMBS])
def test_bombs_cost_no_more_than_the_limit(
    codec: Codec, bomb: Callable[[], bytes], error: type[DecompressionError]
) -> None:
    data = bomb()
    tracemalloc.start()
    try:
        with pytest.raises(error):
            decompress(codec, data, max_bytes=CAP_BYTES)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * CAP_BYTES + len(data)


def test_the_bombs_are_live() -> None:
    """What the limit stops would really have unfolded."""
    for codec, bomb, length in (
        (Codec.ZSTD, zstd_compressed_bomb, 512 * 131_072),
        (Codec.LZ4, lz4_bomb, GIB),
    ):
        with pytest.raises(OutputLimitError):
            decompress(codec, bomb(), max_bytes=length // 16)
    period = zlib.decompressobj(31)
    assert len(period.decompress(gzip_bomb(), 64 << 20)) == 64 << 20
    assert len(decompress(Codec.ZSTD, zstd_compressed_bomb(), max_bytes=512 * 131_072)) == 512 * 131_072


def test_bombs_cost_no_memory_outside_of_pythons_heap_either(tmp_path: Path) -> None:
    """The codecs' own allocations are invisible to tracemalloc: watch a process's peak."""
    for number, (codec, bomb, _) in enumerate(BOMBS):
        (tmp_path / f"{number}-{codec.value}").write_bytes(bomb())
    child = subprocess.run(
        [sys.executable, "-c", WATCH_PEAK, str(tmp_path), str(CAP_BYTES)],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert child.stderr == ""
    growth_kib = [int(line) for line in child.stdout.split()]
    assert len(growth_kib) == len(BOMBS)
    assert max(growth_kib) < 16 * 1024


def with_body(codec: int, body: bytes) -> bytes:
    """A batch of one record whose bytes behind the header are `body`."""
    batch = bytearray(build_batch([(0, None, b"v", ())])[:61] + body)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    batch[22] |= codec
    return bytes(batch)


@pytest.mark.parametrize(("codec", "bomb", "error"), BOMBS, ids=[bomb[1].__name__ for bomb in BOMBS])
def test_a_bomb_in_a_batch_is_a_corrupt_batch(
    codec: Codec, bomb: Callable[[], bytes], error: type[DecompressionError]
) -> None:
    batch = with_body(codec, bomb())
    with pytest.raises(CorruptBatchError, match="the batch at offset 0 cannot be read") as refusal:
        decode_records(batch, 0, parse_header(batch), max_decompressed_bytes=CAP_BYTES)
    assert isinstance(refusal.value, DecompressedTooLargeError) == (error is OutputLimitError)
    assert refusal.value.code == ("MESSAGE_TOO_LARGE" if error is OutputLimitError else "CORRUPT_MESSAGE")


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist(codec: int) -> None:
    batch = with_body(codec, b"")
    with pytest.raises(UnsupportedCodecError) as refusal:
        decode_records(batch, 0, parse_header(batch), max_decompressed_bytes=CAP_BYTES)
    assert refusal.value.code == "UNSUPPORTED_COMPRESSION_TYPE"
