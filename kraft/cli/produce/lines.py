"""Lines of files or of standard input, and the records that they say.

Lines end at \\n only: a \\r stays, and a last line without \\n counts. A line that does not say what the options
promise is an error that names it.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kraft.user_error import UserError

CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 1_000_000_000
"""The most that librdkafka's `message.max.bytes` may be: a longer line is no record, and is not gathered."""

Headers = list[tuple[str, bytes | None]]


class LineError(Exception):
    """Why a line is no record; ends a sentence that begins with where it is."""


class Record(NamedTuple):
    """What a line says; None is Kafka's null."""

    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True)
class Source:
    """A stream of lines, and its name for people. `size` in bytes, where it is a regular file."""

    name: str
    stream: Any
    size: int | None = None
    is_terminal: bool = False


@dataclass(frozen=True)
class LineFormat:
    """How a line becomes a record: [headers, separator,] [key, separator,] value. Empty separators split nothing."""

    key_separator: bytes = b""
    is_key_optional: bool = False
    headers_separator: bytes = b""
    null: bytes | None = None
    """What stands for null, as a key, as a value, as all headers or as a header's value."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """On every record, before its own."""

    def record(self, line: bytes) -> Record:
        """Raises LineError where a separator is missing, or a header is none."""
        headers = list(self.headers)
        if not self.key_separator and not self.headers_separator:
            return Record(None, None if line == self.null else line, headers)
        if self.headers_separator:
            text, found, line = line.partition(self.headers_separator)
            if not found:
                raise LineError(f"has no separator {_shown(self.headers_separator)} after its headers")
            headers += self._headers(text)
        key: bytes | None = None
        if self.key_separator:
            head, found, tail = line.partition(self.key_separator)
            if found:
                key, line = self._nullable(head), tail
            elif not self.is_key_optional:
                raise LineError(
                    f"has no key separator {_shown(self.key_separator)} (--key-optional sends such lines without a key)"
                )
        return Record(key, self._nullable(line), headers)

    def _nullable(self, data: bytes) -> bytes | None:
        return None if data == self.null else data

    def _headers(self, text: bytes) -> Headers:
        if not text or text == self.null:
            return []
        headers: Headers = []
        for part in text.split(b","):
            key, found, value = part.partition(b"=")
            try:
                name = key.decode()
            except UnicodeDecodeError as error:
                raise LineError(f"has a header whose name {_shown(key)} is no UTF-8") from error
            if not found or not name:
                raise LineError(f"has {_shown(part)} where a header K=V belongs")
            headers.append((name, self._nullable(value)))
        return headers


def _shown(data: bytes) -> str:
    """Bytes between quotes, for a sentence."""
    return repr(data)[1:]


def open_sources(files: list[Path]) -> list[Source]:
    """Opens every file before the first line is sent, so that a wrong name sends nothing. No file: standard input.
    Raises UserError."""
    if not files:
        return [Source("standard input", sys.stdin.buffer, is_terminal=sys.stdin.isatty())]
    sources: list[Source] = []
    for file in files:
        try:
            stream = file.open("rb")
            size = file.stat().st_size if file.is_file() else None
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}") from error
        sources.append(Source(str(file), stream, size))
    return sources


def lines(source: Source, wait_s: float, on_read: Callable[[int], None]) -> Iterator[bytes | None]:
    """Each line without its \\n; None each time that nothing has come for `wait_s`. `on_read` is told bytes.

    Raises UserError where the source cannot be read on, or a line never ends.
    """
    pieces: list[bytes] = []
    length = 0
    for chunk in _chunks(source, wait_s):
        if chunk is None:
            yield None
            continue
        on_read(len(chunk))
        first, *others = chunk.split(b"\n")
        pieces.append(first)
        length += len(first)
        if length > MAX_LINE_BYTES:
            raise UserError(
                f"a line of {source.name} is longer than {MAX_LINE_BYTES:,} bytes: no record can be"
            )
        if others:
            yield b"".join(pieces)
            yield from others[:-1]
            pieces, length = [others[-1]], len(others[-1])
    if length:
        yield b"".join(pieces)


def _chunks(source: Source, wait_s: float) -> Iterator[bytes | None]:
    poll = _poll_of(source.stream)
    try:
        while True:
            if poll is not None and not poll.poll(wait_s * 1000):
                yield None
                continue
            chunk = source.stream.read1(CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
    except OSError as error:
        raise UserError(f"cannot read {source.name}: {error.strerror}") from error


def _poll_of(stream: Any) -> select.poll | None:
    """What waits for the stream; None for one in memory. A read of `CHUNK_BYTES`, more than the stream's own buffer
    holds, leaves nothing behind that the kernel would not tell of."""
    try:
        number = stream.fileno()
    except OSError:
        return None
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return poll
