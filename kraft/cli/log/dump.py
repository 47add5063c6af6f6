"""`kraft log dump`: prints a log's files entry by entry, until the bytes are not sound any more.

It writes nothing. Memory holds a window of a file, and one batch where records are asked for. Each entry is a document
for --json, and a line in the words of Kafka's dump tool. Damage is told in its place; in a segment the next sound batch
follows it.
"""

from __future__ import annotations

import base64
import json
import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final, NamedTuple, Protocol

from kraft.cli.shared.documents import Document
from kraft.cli.shared.output import print_line
from partitions.log.inspection.batches import RecordsNotReadError, SegmentReader, StoredBatch, plain_reason
from partitions.log.inspection.entries import (
    PlacedChange,
    aborted_transactions,
    broker_epoch,
    damage_note,
    epoch_entries,
    meta_properties,
    metadata_position,
    offset_entries,
    offset_index_entries,
    placement_changes,
    producer_entries,
    time_index_entries,
    topic_id,
    truncation_limits,
)
from partitions.log.inspection.files import (
    FileKind,
    ReadableDisk,
    ReadableFile,
    StoredDamage,
    base_offset_of,
    read_whole,
)
from partitions.log.partition_files import topic_id_text
from partitions.log.producers.producer_state import ProducerEntry
from partitions.records.batch import CorruptBatchError
from partitions.records.compression import Codec
from partitions.records.control import ControlType, decode_control_type
from partitions.records.header import MAX_SEQUENCE, NO_SEQUENCE, BatchHeader
from partitions.records.record import Record


class BatchDetail(NamedTuple):
    """What of a batch is shown besides its header."""

    records: bool
    data: bool


class Shown(NamedTuple):
    """One entry of a file: for --json, and as lines."""

    document: Document
    lines: list[str]


Dumped = Shown | StoredDamage


def dump_file(disk: ReadableDisk, path: str, kind: FileKind, detail: BatchDetail) -> Iterator[Dumped]:
    """Everything in a file. Raises OSError, FileTooLargeError."""
    try:
        if kind is FileKind.SEGMENT:
            with closing(disk.open(path)) as file:
                yield from _segment(path, file, detail)
            return
        documents = _indexed(disk, path, kind) if kind in _INDEXES else _small(disk, path, kind)
        for document in documents:
            yield Shown(document, [entry_line(document)])
    except StoredDamage as damage:
        yield damage


def _segment(path: str, file: ReadableFile, detail: BatchDetail) -> Iterator[Dumped]:
    reader = SegmentReader(file)
    for step in reader.batches():
        if isinstance(step, StoredBatch):
            yield from _batch(path, reader, step, detail)
            continue
        if step.header is not None:
            document = batch_document(step.position, step.header, is_valid=False)
            yield Shown(document, [batch_line(document)])
        yield StoredDamage(path, step.position, f"{step.reason} ({step.end - step.position} bytes)")


def _batch(path: str, reader: SegmentReader, batch: StoredBatch, detail: BatchDetail) -> Iterator[Dumped]:
    header = batch.header
    document = batch_document(batch.position, header, is_valid=True)
    lines = [batch_line(document)]
    damage: StoredDamage | None = None
    if detail.records:
        try:
            records = reader.records(batch)
        except RecordsNotReadError as error:
            document["records_not_shown"] = str(error)
            lines.append(f"| records are not shown: {error}")
        except CorruptBatchError as error:
            damage = StoredDamage(path, batch.position, plain_reason(error))
        else:
            document["records"] = [
                record_document(header, record, with_data=detail.data) for record in records
            ]
            lines += [record_line(header, record, with_data=detail.data) for record in records]
    yield Shown(document, lines)
    if damage is not None:
        yield damage


_INDEXES = frozenset({FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX})


def _indexed(disk: ReadableDisk, path: str, kind: FileKind) -> Iterator[Document]:
    base_offset = base_offset_of(path)
    with closing(disk.open(path)) as file:
        if kind is FileKind.OFFSET_INDEX:
            for entry in offset_index_entries(path, file, base_offset):
                yield {"offset": entry.offset, "position": entry.position}
        elif kind is FileKind.TIME_INDEX:
            for timed in time_index_entries(path, file, base_offset):
                yield {"timestamp": timed.timestamp, "offset": timed.offset}
        else:
            for aborted in aborted_transactions(path, file):
                document = aborted._asdict()
                del document["at"]
                yield document


def _small(disk: ReadableDisk, path: str, kind: FileKind) -> Iterator[Document]:
    content = read_whole(disk, path)
    match kind:
        case FileKind.PRODUCER_SNAPSHOT:
            yield from producer_documents(producer_entries(path, content))
        case FileKind.LEADER_EPOCHS:
            for epoch in epoch_entries(path, content):
                yield epoch.entry._asdict()
        case FileKind.OFFSET_CHECKPOINT:
            for placed in offset_entries(path, content):
                yield placed.partition._asdict() | {"offset": placed.offset}
        case FileKind.TRUNCATION_LIMITS:
            yield truncation_limits(path, content)._asdict()
        case FileKind.PARTITION_METADATA:
            yield {"topic_id": topic_id_text(topic_id(path, content).topic_id)}
        case FileKind.META_PROPERTIES:
            yield meta_properties(path, content)._asdict()
        case FileKind.CLEAN_SHUTDOWN:
            yield {"broker_epoch": broker_epoch(path, content)}
        case FileKind.DAMAGE_NOTE:
            yield damage_note(path, content)._asdict()
        case FileKind.PARTITION_DIRECTORIES:
            yield from map(placement_document, placement_changes(path, content))
        case FileKind.METADATA_POSITION:
            position = metadata_position(path, content)
            yield {
                "offset": position.offset,
                "epoch": position.epoch,
                "voter_directory_ids": sorted(position.voters),
            }


class Printer(Protocol):
    """Where steps go, file after file."""

    def begin(self, path: str, kind: FileKind) -> None: ...

    def show(self, shown: Shown) -> None: ...

    def damage(self, damage: StoredDamage) -> None: ...

    def end(self) -> None:
        """The file ends."""

    def finish(self, error: str | None) -> None:
        """There are no more files."""


class LinePrinter:
    """A line for each entry, and for each record."""

    def begin(self, path: str, kind: FileKind) -> None:
        print_line(f"Dumping {path}")
        if kind is FileKind.SEGMENT:
            print_line(f"Log starting offset: {base_offset_of(path)}")

    def show(self, shown: Shown) -> None:
        sys.stdout.write("".join(f"{line}\n" for line in shown.lines))

    def damage(self, damage: StoredDamage) -> None:
        """Told beside the output."""

    def end(self) -> None:
        sys.stdout.flush()

    def finish(self, error: str | None) -> None:
        """Nothing is open."""


class JsonPrinter:
    """One object, written as the entries come: {"files": [{path, kind, batches or entries, damage}], error}."""

    def __init__(self) -> None:
        self._damage: list[dict[str, Any]] = []
        self._is_first_file = self._is_first_entry = True

    def begin(self, path: str, kind: FileKind) -> None:
        head: Document = {"path": path, "kind": kind.value}
        name = "entries"
        if kind is FileKind.SEGMENT:
            head["base_offset"] = base_offset_of(path)
            name = "batches"
        sys.stdout.write('{"files": [' if self._is_first_file else ", ")
        sys.stdout.write(f'{json.dumps(head)[:-1]}, "{name}": [')
        self._is_first_file, self._is_first_entry = False, True
        self._damage = []

    def show(self, shown: Shown) -> None:
        sys.stdout.write(("" if self._is_first_entry else ", ") + json.dumps(shown.document))
        self._is_first_entry = False

    def damage(self, damage: StoredDamage) -> None:
        self._damage.append({"position": damage.position, "reason": damage.reason})

    def end(self) -> None:
        sys.stdout.write("], " + json.dumps({"damage": self._damage})[1:])

    def finish(self, error: str | None) -> None:
        start = '{"files": [' if self._is_first_file else ""
        print_line(f"{start}], {json.dumps({'error': error})[1:]}")


# -- entries as documents and as lines

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
