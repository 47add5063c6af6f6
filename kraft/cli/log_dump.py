"""`kraft log dump`: what stands in a log's files, entry by entry, until the bytes are not sound any more.

Guarantees: nothing is written; memory holds a window of a file, and one batch where records are asked for.
Each step is a thing to show or a StoredDamage; behind damage in a segment the next sound batch goes on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple, Protocol

from kraft.cli.log_documents import (
    Document,
    batch_document,
    batch_line,
    entry_line,
    placement_document,
    producer_documents,
    record_document,
    record_line,
)
from kraft.cli.output import print_line
from partitions.log.inspection.batches import RecordsNotReadError, SegmentReader, StoredBatch, plain_reason
from partitions.log.inspection.entries import (
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
from partitions.records.batch import CorruptBatchError


class Wanted(NamedTuple):
    """What of a batch is shown besides its header."""

    records: bool
    data: bool


class Shown(NamedTuple):
    """One entry of a file: for --json, and as lines."""

    document: Document
    lines: list[str]


Step = Shown | StoredDamage


def dump_file(disk: ReadableDisk, path: str, kind: FileKind, wanted: Wanted) -> Iterator[Step]:
    """Everything in a file. Raises OSError, FileTooLargeError."""
    try:
        if kind is FileKind.SEGMENT:
            with closing(disk.open(path)) as file:
                yield from _segment(path, file, wanted)
            return
        documents = _indexed(disk, path, kind) if kind in _INDEXES else _small(disk, path, kind)
        for document in documents:
            yield Shown(document, [entry_line(document)])
    except StoredDamage as damage:
        yield damage


def _segment(path: str, file: ReadableFile, wanted: Wanted) -> Iterator[Step]:
    reader = SegmentReader(file)
    for step in reader.batches():
        if isinstance(step, StoredBatch):
            yield from _batch(path, reader, step, wanted)
            continue
        if step.header is not None:
            document = batch_document(step.position, step.header, is_valid=False)
            yield Shown(document, [batch_line(document)])
        yield StoredDamage(path, step.position, f"{step.reason} ({step.end - step.position} bytes)")


def _batch(path: str, reader: SegmentReader, batch: StoredBatch, wanted: Wanted) -> Iterator[Step]:
    header = batch.header
    document = batch_document(batch.position, header, is_valid=True)
    lines = [batch_line(document)]
    damage: StoredDamage | None = None
    if wanted.records:
        try:
            records = reader.records(batch)
        except RecordsNotReadError as error:
            document["records_not_shown"] = str(error)
            lines.append(f"| records are not shown: {error}")
        except CorruptBatchError as error:
            damage = StoredDamage(path, batch.position, plain_reason(error))
        else:
            document["records"] = [
                record_document(header, record, with_data=wanted.data) for record in records
            ]
            lines += [record_line(header, record, with_data=wanted.data) for record in records]
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
