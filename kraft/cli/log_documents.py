"""What a log's files hold, as plain documents for --json and as lines in the words of Kafka's dump tool.

Pure: values to documents and text. Used by `kraft log dump`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import Any, Final

from partitions.log.inspection.entries import PlacedChange
from partitions.log.partition_files import topic_id_text
from partitions.log.producer_state import ProducerEntry
from partitions.records.compression import Codec
from partitions.records.control import ControlType, decode_control_type
from partitions.records.header import MAX_SEQUENCE, NO_SEQUENCE, BatchHeader
from partitions.records.record import Record

Document = dict[str, Any]

_MARKER: Final = struct.Struct(">hi")
"""A transaction marker's value: version, coordinator epoch."""
_KAFKA_WORDS: Final = {
    "is_valid": "isvalid",
    "compress_codec": "compresscodec",
    "value": "payload",
}
_TRANSACTION_ENDS: Final = (ControlType.ABORT, ControlType.COMMIT)


def batch_document(position: int, header: BatchHeader, *, is_valid: bool) -> Document:
    """A batch's header; times in ms, sizes and positions in bytes."""
    codec = header.codec
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "partition_leader_epoch": header.partition_leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "position": position,
        "timestamp_type": timestamp_type(header),
        "max_timestamp": header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compress_codec": Codec(codec).name.lower() if codec <= max(Codec) else f"unknown({codec})",
        "crc": header.crc,
        "is_valid": is_valid,
    }


def timestamp_type(header: BatchHeader) -> str:
    """Kafka's name of what the timestamps are."""
    return "LogAppendTime" if header.uses_log_append_time else "CreateTime"


def batch_line(document: Document) -> str:
    """A batch as Kafka's dump tool prints it."""
    shown = {**document, document["timestamp_type"]: document["max_timestamp"]}
    order = [name for name in document if name != "timestamp_type"]
    order[order.index("max_timestamp")] = document["timestamp_type"]
    return _line((name, shown[name]) for name in order)


def record_document(header: BatchHeader, record: Record, *, with_data: bool) -> Document:
    """One record. Keys, values and headers' values are text where they are UTF-8, and base64 otherwise."""
    document: Document = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
        "sequence": _sequence(header, record),
        "header_keys": [name for name, _ in record.headers],
    }
    if header.is_control:
        document["control"] = _control(record)
    elif with_data:
        document |= _data("key", record.key) | _data("value", record.value)
        document["headers"] = [{"key": name} | _data("value", value) for name, value in record.headers]
    return document


def record_line(header: BatchHeader, record: Record, *, with_data: bool) -> str:
    """One record as Kafka's dump tool prints it, its headers with their values behind the rest."""
    document = record_document(header, record, with_data=False)
    control = document.pop("control", None)
    document["header_keys"] = f"[{','.join(map(printable, document['header_keys']))}]"
    line = "| " + _line(
        (timestamp_type(header) if name == "timestamp" else name, value) for name, value in document.items()
    )
    if control is not None:
        return f"{line} {_control_text(control)}"
    if with_data:
        if record.key is not None:
            line += f" key: {printable(record.key)}"
        if record.value is not None:
            line += f" payload: {printable(record.value)}"
        if record.headers:
            pairs = (
                f"{printable(name)}={'null' if value is None else printable(value)}"
                for name, value in record.headers
            )
            line += f" headers: [{', '.join(pairs)}]"
    return line


def _sequence(header: BatchHeader, record: Record) -> int:
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (header.base_sequence + record.offset - header.base_offset) & MAX_SEQUENCE


def _control(record: Record) -> Document:
    try:
        kind = decode_control_type(record.key)
    except ValueError:
        return {"type": "UNREADABLE"}
    document: Document = {"type": kind.name}
    if kind in _TRANSACTION_ENDS and record.value is not None and len(record.value) >= _MARKER.size:
        document["coordinator_epoch"] = _MARKER.unpack_from(record.value)[1]
    return document


def _control_text(control: Document) -> str:
    if "coordinator_epoch" in control:
        return f"endTxnMarker: {control['type']} coordinatorEpoch: {control['coordinator_epoch']}"
    return f"controlType: {control['type']}"


def producer_documents(producers: dict[int, ProducerEntry]) -> Iterator[Document]:
    """A snapshot's producers, one document for each batch that is remembered of them."""
    for producer_id in sorted(producers):
        entry = producers[producer_id]
        head: Document = {
            "producer_id": producer_id,
            "producer_epoch": entry.epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": None
            if entry.transaction_first_offset < 0
            else entry.transaction_first_offset,
            "last_timestamp": entry.last_timestamp,
        }
        for batch in entry.batches:
            yield head | {
                "first_sequence": batch.first_sequence,
                "last_sequence": batch.last_sequence,
                "last_offset": batch.last_offset,
                "offset_delta": batch.offset_delta,
                "timestamp": batch.timestamp,
            }
        if not entry.batches:
            yield head


def placement_document(change: PlacedChange) -> Document:
    """A line of the list of partitions: where one was placed, or that it is in no directory any more."""
    number, partition, placement = change.line
    document: Document = {"number": number, "change": "removed" if placement is None else "placed"}
    document |= partition._asdict()
    if placement is not None:
        topic_id = placement.topic_id
        document["topic_id"] = None if topic_id is None else topic_id_text(topic_id)
        document["directory_id"] = placement.directory_id
    return document


def entry_line(document: Document) -> str:
    """`name: value …`, the names as Kafka writes them."""
    return _line(document.items())


def _line(pairs: Any) -> str:
    return " ".join(f"{_word(name)}: {_value(value)}" for name, value in pairs)


def _word(name: str) -> str:
    """The name of a field in the words of Kafka's tools."""
    if name in _KAFKA_WORDS:
        return _KAFKA_WORDS[name]
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def _data(name: str, data: bytes | None) -> Document:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def printable(data: bytes | str) -> str:
    """Text on one line that no terminal takes for commands: other bytes and characters are escaped."""
    text = data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else data
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
