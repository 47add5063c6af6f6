"""Files with the oddities of real logs, made from a seed: the same bytes in every run.

What they carry: \\r before \\n and alone, repeated and empty lines, invalid UTF-8, NUL and 0xff, lines
far longer than a fetch's minimum, a last line without \\n, an empty file, names with spaces.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

LONG_LINE_BYTES = (65_535, 65_536, 65_537, 200_000)
LINES_PER_FILE = 250


def split_lines(data: bytes) -> list[bytes]:
    """Lines end at \\n and nowhere else; what follows the last \\n is a line unless it is empty."""
    lines = data.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def log_files() -> dict[str, bytes]:
    """File name → content."""
    rng = random.Random(20_140_101)
    return {
        "web access.log": _windows_lines(rng),
        "repeats.log": _repeated_lines(rng),
        "odd bytes (1).log": _odd_bytes(rng),
        "long lines.log": _long_lines(rng),
        "no last newline.log": _plain_lines(rng) + b"the end has no newline",
        "just a newline.log": b"\n",
        "empty.log": b"",
        "no newline at all.log": b"one line, no end\r",
    }


def write_log_files(directory: Path) -> list[Path]:
    """Writes the files; returns their paths."""
    paths = []
    for name, content in log_files().items():
        path = directory / name
        path.write_bytes(content)
        paths.append(path)
    return paths


def _joined(make: Callable[[random.Random, int], bytes], rng: random.Random, end: bytes) -> bytes:
    return b"".join(make(rng, number) + end for number in range(LINES_PER_FILE))


def _windows_lines(rng: random.Random) -> bytes:
    def line(rng: random.Random, number: int) -> bytes:
        return b'10.0.0.%d - - [%d] "GET /%d HTTP/1.1" 200 %d' % (
            rng.randrange(256),
            number,
            rng.randrange(1000),
            rng.randrange(10**6),
        )

    return _joined(line, rng, b"\r\n")


def _repeated_lines(rng: random.Random) -> bytes:
    choices = (b"retry", b"retry", b"", b"", b"\r", b"\r\r", b"connection reset", b" ", b"\t", b"\rfront")
    return _joined(lambda rng, _: rng.choice(choices), rng, b"\n")


def _odd_bytes(rng: random.Random) -> bytes:
    special = (
        b"\x00",
        b"\xff",
        b"\xfe\xff",
        b"\xc3(",
        b"\xed\xa0\x80",
        b"\x00\r\x00",
        b"\x1b[31m",
        b"%s %n \\n",
    )

    def line(rng: random.Random, _: int) -> bytes:
        if rng.random() < 0.5:
            return rng.choice(special) * rng.randrange(1, 4)
        return rng.randbytes(rng.randrange(80)).replace(b"\n", b"\x00")

    return _joined(line, rng, b"\n")


def _long_lines(rng: random.Random) -> bytes:
    return b"".join(_long(rng) + rng.choice((b"\n", b"\r\n", b"\n\n")) for _ in range(2))


def _long(rng: random.Random) -> bytes:
    """One line of each length, half of it incompressible."""
    return b"\n".join(
        rng.randbytes(size // 2).replace(b"\n", b"\r") + b"=" * (size - size // 2) for size in LONG_LINE_BYTES
    )


def _plain_lines(rng: random.Random) -> bytes:
    return _joined(lambda rng, number: b"%06d %s" % (number, rng.randbytes(20).hex().encode()), rng, b"\n")


def spread(files: dict[str, bytes], partitions: int) -> dict[int, list[bytes]]:
    """All lines in the order of the files, dealt out to the partitions a few at a time."""
    spread_lines: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    for position, line in enumerate(_all_lines(files)):
        # Runs of lines rather than single ones, so that batches hold more than one.
        spread_lines[(position // 7) % partitions].append(line)
    return spread_lines


def _all_lines(files: dict[str, bytes]) -> Iterator[bytes]:
    for content in files.values():
        yield from split_lines(content)
