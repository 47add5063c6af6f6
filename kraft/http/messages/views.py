"""A record as JSON: null told from empty, text told from other bytes, and no more of it than was asked for.

Pure; the readers call it in the executor. What a record holds is never interpreted here: bytes that are UTF-8 are told
as text, others as hexadecimal digits, and the page puts both into text nodes alone.
"""

from __future__ import annotations

import json
from codecs import utf_8_decode
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

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


def message_view(partition: int, header: BatchHeader, record: Record, shown_max: int) -> Json:
    """One record. The headers together show as many bytes as the key or the value do, and so do their names."""
    told, left, names_left = [], shown_max, max(shown_max, NAMES_LEAST)
    for name, value in record.headers[:HEADERS_MAX]:
        view = field_view(value, left)
        left -= 0 if view is None else view["shown_bytes"]
        told.append({"name": name[:names_left], "value": view})
        names_left = max(names_left - len(name), 0)
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "timestamp_type": "LogAppendTime" if header.uses_log_append_time else "CreateTime",
        "key": field_view(record.key, shown_max),
        "value": field_view(record.value, shown_max),
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
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def lines(documents: Sequence[Mapping[str, Any]]) -> bytes:
    """JSON lines."""
    return b"".join(encoded(one) + b"\n" for one in documents)
