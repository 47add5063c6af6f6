"""A record as JSON: null told from empty, text told from other bytes, and no more of it than was asked for.

Pure; the readers call it in the executor. What a record holds is never interpreted here: bytes that are UTF-8 are told
as text, others as hexadecimal digits, and the page puts both into text nodes alone.
"""

from __future__ import annotations

import json
from codecs import getincrementaldecoder, utf_8_decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from partitions.records.batch import BatchHeader
from partitions.records.compression import Codec
from partitions.records.record import Record

Json: TypeAlias = dict[str, Any]
HEADERS_MAX: Final = 32
"""Headers of a record that are told; `headers_total` says how many there are."""
NAMES_LEAST: Final = 1024
"""Characters of the names of a record's headers together that are told, or `shown_max` where that is more."""
WHOLE: Final = 2**31 - 1
"""For `shown_max`: no field is cut."""
PIECE_BYTES: Final = 128 * 1024
"""Of a field. JSON takes six bytes for each of some: a record in one piece would cost a multiple of itself."""


def field_view(data: bytes | None, shown_max: int) -> Json | None:
    """A key, a value or a header's value: its size, and its first `shown_max` bytes as text or as hex; None is null."""
    if data is None:
        return None
    part = data[:shown_max]
    try:
        text, shown = utf_8_decode(part, "strict", len(part) == len(data))
    except UnicodeDecodeError:
        return {"size_bytes": len(data), "shown_bytes": len(part), "hex": part.hex()}
    return {"size_bytes": len(data), "shown_bytes": shown, "text": text}


def message_view(
    partition: int,
    header: BatchHeader,
    record: Record,
    shown_max: int,
    tell: Callable[[bytes | None, int], Json | None] = field_view,
) -> Json:
    """One record, each field as `tell` tells it. The headers together show as many bytes as the key or the value do,
    and so do their names."""
    told, left, names_left = [], shown_max, max(shown_max, NAMES_LEAST)
    for name, value in record.headers[:HEADERS_MAX]:
        view = tell(value, left)
        left -= 0 if view is None else view["shown_bytes"]
        told.append({"name": name[:names_left], "value": view})
        names_left = max(names_left - len(name), 0)
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "timestamp_type": "LogAppendTime" if header.uses_log_append_time else "CreateTime",
        "key": tell(record.key, shown_max),
        "value": tell(record.value, shown_max),
        "headers": told,
        "headers_total": len(record.headers),
        "leader_epoch": header.partition_leader_epoch,
        "compression": Codec(header.codec).name.lower(),
        "producer_id": header.producer_id,
        "is_transactional": header.is_transactional,
    }


def shown_bytes(message: Json) -> int:
    """What a `message_view` shows of a record, about."""
    fields = (message["key"], message["value"], *(one["value"] for one in message["headers"]))
    names = sum(len(one["name"]) for one in message["headers"])
    return int(names + sum(one["shown_bytes"] for one in fields if one is not None))


def encoded(document: Mapping[str, Any]) -> bytes:
    """One line of JSON in UTF-8."""
    return _json(document)


def line_pieces(rows: Iterable[tuple[int, tuple[BatchHeader, Record]]]) -> Iterator[bytes]:
    """Records, each whole, as JSON lines: what `encoded` makes of their views, some `PIECE_BYTES` of fields at once.

    A piece takes six times as much at most. Rows are by partition.
    """
    gathered, size = list[bytes](), 0
    for partition, (header, record) in rows:
        view = message_view(partition, header, record, WHOLE, _long_field_view)
        for part in _parts(view) if _is_long(record) else (encoded(view),):
            gathered.append(part)
            size += len(part)
            if size >= PIECE_BYTES:
                yield b"".join(gathered)
                gathered, size = [], 0
        gathered.append(b"\n")
    if gathered:
        yield b"".join(gathered)


def _is_long(record: Record) -> bool:
    """Whether some of its fields may have to be told in pieces."""
    size = len(record.key or b"") + len(record.value or b"")
    size += sum(len(name) + len(value or b"") for name, value in record.headers[:HEADERS_MAX])
    return size > PIECE_BYTES


class _Long(NamedTuple):
    """The text or the hexadecimal digits of a field, which are not made yet."""

    data: bytes
    is_text: bool

    def parts(self) -> Iterator[bytes]:
        """What is between the quotes."""
        view = memoryview(self.data)
        pieces = (view[at : at + PIECE_BYTES] for at in range(0, len(view), PIECE_BYTES))
        if not self.is_text:
            return (piece.hex().encode() for piece in pieces)
        decoder = getincrementaldecoder("utf-8")()
        return (_json(decoder.decode(piece))[1:-1] for piece in pieces)


def _long_field_view(data: bytes | None, shown_max: int) -> Json | None:
    """As `field_view`; a long field, whole, comes as a `_Long`."""
    if data is None or not PIECE_BYTES < len(data) <= shown_max:
        return field_view(data, shown_max)
    is_text, decoder = True, getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(data), PIECE_BYTES):
            decoder.decode(data[at : at + PIECE_BYTES], final=at + PIECE_BYTES >= len(data))
    except UnicodeDecodeError:
        is_text = False
    sizes = {"size_bytes": len(data), "shown_bytes": len(data)}
    return sizes | {"text" if is_text else "hex": _Long(data, is_text)}


def _parts(value: Any) -> Iterator[bytes]:
    """The JSON of a view, in parts of which none is long."""
    match value:
        case dict():
            for number, (key, inner) in enumerate(value.items()):
                yield (b"," if number else b"{") + _json(key) + b":"
                yield from _parts(inner)
            yield b"}" if value else b"{}"
        case list():
            for number, inner in enumerate(value):
                yield b"," if number else b"["
                yield from _parts(inner)
            yield b"]" if value else b"[]"
        case _Long():
            yield b'"'
            yield from value.parts()
            yield b'"'
        case str() if len(value) > PIECE_BYTES:  # the name of a header
            yield b'"'
            yield from (_json(value[at : at + PIECE_BYTES])[1:-1] for at in range(0, len(value), PIECE_BYTES))
            yield b'"'
        case _:
            yield _json(value)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
