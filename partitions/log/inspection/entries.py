"""What stands in the files beside a segment's data: indexes, producer snapshots, checkpoints.

Guarantees: entries come in the order of the file, and the first byte that cannot be right ends them with
a StoredDamage; indexes are streamed, whatever their size. Whether entries agree with other files is not
looked at here. Formats are Kafka's: 8 bytes an offset index entry, 12 a time index entry, 34 an aborted
transaction (version 0); checkpoints are lines of text behind a version and a count.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from leader_epoch.epoch_cache import EpochEntry
from partitions.log.errors import DataDirectoryError
from partitions.log.inspection.files import ReadableFile, StoredDamage
from partitions.log.node_logs.meta_properties import MetaProperties, decode_meta_properties
from partitions.log.node_logs.metadata_position import MetadataPosition
from partitions.log.node_logs.placements import Line, decode_line
from partitions.log.opening.damage_note import DamageNote, decode_damage_note
from partitions.log.partition_files import (
    PartitionFileError,
    TruncationCheckpoint,
    decode_partition_metadata,
    parse_topic_id,
    topic_id_text,
)
from partitions.log.producers.producer_snapshot import SnapshotFormatError, decode_snapshot
from partitions.log.producers.producer_state import ProducerEntry
from partitions.records.header import NO_TIMESTAMP
from partitions.topic_partition import ZERO_TOPIC_ID, TopicPartition

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TXN_ENTRY: Final = struct.Struct(">hqqqq")
_TXN_VERSION: Final = 0
_CHUNK_ENTRIES: Final = 4096
_MAX_INT64: Final = 2**63 - 1
_MAX_INT32: Final = 2**31 - 1
_CHUNK_BYTES: Final = 1024 * 1024
_SNAPSHOT_VERSION: Final = b"\0\1"
_SNAPSHOT_CRC_POSITION: Final = 2
_SHOWN_BYTES: Final = 60
_NUMBER: Final = re.compile(rb"[0-9]{1,9}")
_EPOCH_LINE: Final = re.compile(rb"([0-9]{1,19}) ([0-9]{1,19})")
_OFFSET_LINE: Final = re.compile(rb"([a-zA-Z0-9._-]+) ([0-9]{1,19}) ([0-9]{1,19})")
_LIMITS: Final = re.compile(rb"0\n([0-9]{1,19})\n([0-9]{1,19})\n")
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]+")


class OffsetIndexEntry(NamedTuple):
    """At `at` in the index: the batch that ends with `offset` begins at byte `position` of the log."""

    at: int
    offset: int
    position: int


class TimeIndexEntry(NamedTuple):
    """At `at` in the index: up to `offset`, no record is younger than `timestamp` (ms)."""

    at: int
    timestamp: int
    offset: int


class TransactionIndexEntry(NamedTuple):
    """At `at` in the index: an aborted transaction, and the last stable offset once it was."""

    at: int
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class PlacedEpoch(NamedTuple):
    """A leader epoch entry and the byte at which its line begins."""

    at: int
    entry: EpochEntry


class PlacedOffset(NamedTuple):
    """An offset checkpoint's entry and the byte at which its line begins."""

    at: int
    partition: TopicPartition
    offset: int


class PlacedChange(NamedTuple):
    """A change in the list of partitions and the byte at which its line begins."""

    at: int
    line: Line


class PlacedId(NamedTuple):
    """A topic id and the byte at which its line begins."""

    at: int
    topic_id: bytes


def offset_index_entries(path: str, file: ReadableFile, base_offset: int) -> Iterator[OffsetIndexEntry]:
    """The entries in order; zeros at the end are room that was never used. Raises StoredDamage, OSError."""
    before = OffsetIndexEntry(-1, base_offset - 1, -1)
    for at, (relative, position) in _structs(path, file, _OFFSET_ENTRY, has_room=True):
        entry = OffsetIndexEntry(at, base_offset + relative, position)
        if entry.offset <= before.offset or entry.position <= before.position:
            reason = (
                f"offset {entry.offset} at byte {entry.position} of the log cannot follow offset"
                f" {before.offset} at byte {before.position}"
                if before.at >= 0
                else f"offset {entry.offset} at byte {entry.position} of the log cannot be"
            )
            raise StoredDamage(path, at, reason)
        yield entry
        before = entry


def time_index_entries(path: str, file: ReadableFile, base_offset: int) -> Iterator[TimeIndexEntry]:
    """As `offset_index_entries`. Raises StoredDamage, OSError."""
    before = TimeIndexEntry(-1, NO_TIMESTAMP - 1, base_offset - 1)
    for at, (timestamp, relative) in _structs(path, file, _TIME_ENTRY, has_room=True):
        entry = TimeIndexEntry(at, timestamp, base_offset + relative)
        if entry.timestamp <= before.timestamp or entry.offset <= before.offset:
            reason = (
                f"timestamp {timestamp} at offset {entry.offset} cannot follow timestamp {before.timestamp}"
                f" at offset {before.offset}"
                if before.at >= 0
                else f"timestamp {timestamp} at offset {entry.offset} cannot be"
            )
            raise StoredDamage(path, at, reason)
        yield entry
        before = entry


def aborted_transactions(path: str, file: ReadableFile) -> Iterator[TransactionIndexEntry]:
    """The entries in order. Raises StoredDamage, OSError."""
    before = -1
    for at, fields in _structs(path, file, _TXN_ENTRY, has_room=False):
        entry = TransactionIndexEntry(at, *fields)
        if entry.version != _TXN_VERSION:
            raise StoredDamage(path, at, f"the entry has version {entry.version} instead of {_TXN_VERSION}")
        if not (before < entry.last_offset and 0 <= entry.first_offset <= entry.last_offset):
            raise StoredDamage(
                path,
                at,
                f"a transaction from offset {entry.first_offset} to {entry.last_offset} cannot follow one"
                f" that ends at {before}",
            )
        yield entry
        before = entry.last_offset


def _structs(
    path: str, file: ReadableFile, layout: struct.Struct, *, has_room: bool
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Where each entry begins, and its fields. With `has_room`, zeros up to the end are no entries: files
    that are mapped have their full length from the start. A single entry of zeros is one."""
    size = file.size()
    whole = size - size % layout.size
    position = 0
    while position < whole:
        data = file.read(position, min(_CHUNK_ENTRIES * layout.size, whole - position))
        for at in range(0, len(data) - layout.size + 1, layout.size):
            is_unused = has_room and size > layout.size and not any(data[at : at + layout.size])
            if is_unused and _only_zeros(file, position + at):
                return
            yield position + at, layout.unpack_from(data, at)
        if len(data) < layout.size:
            return  # cut meanwhile
        position += len(data) - len(data) % layout.size
    if whole < size:
        raise StoredDamage(path, whole, f"{size - whole} bytes are left, and an entry has {layout.size}")


def _only_zeros(file: ReadableFile, position: int) -> bool:
    while data := file.read(position, _CHUNK_BYTES):
        if any(data):
            return False
        position += len(data)
    return True


def producer_entries(path: str, content: bytes) -> dict[int, ProducerEntry]:
    """The producers in a snapshot. Raises StoredDamage."""
    try:
        return decode_snapshot(content)
    except SnapshotFormatError as error:
        has_version = content[:_SNAPSHOT_CRC_POSITION] == _SNAPSHOT_VERSION
        raise StoredDamage(path, _SNAPSHOT_CRC_POSITION if has_version else 0, str(error)) from error


# ---- files of text


def epoch_entries(path: str, content: bytes) -> Iterator[PlacedEpoch]:
    """The leader epochs, oldest first; both numbers grow. Raises StoredDamage."""
    before = EpochEntry(-1, -1)
    for at, line in _counted_lines(path, content):
        match = _EPOCH_LINE.fullmatch(line)
        if match is None:
            raise StoredDamage(path, at, f"{_shown(line)} is not an epoch and an offset")
        entry = EpochEntry(int(match[1]), int(match[2]))
        if entry.epoch > _MAX_INT32 or entry.start_offset > _MAX_INT64:
            raise StoredDamage(path, at, f"no leader epoch can be {_shown(line)}")
        if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
            raise StoredDamage(
                path,
                at,
                f"epoch {entry.epoch} from offset {entry.start_offset} on cannot follow epoch {before.epoch}"
                f" from offset {before.start_offset} on",
            )
        yield PlacedEpoch(at, entry)
        before = entry


def offset_entries(path: str, content: bytes) -> Iterator[PlacedOffset]:
    """Offset by partition, each partition once. Raises StoredDamage."""
    seen: set[TopicPartition] = set()
    for at, line in _counted_lines(path, content):
        match = _OFFSET_LINE.fullmatch(line)
        if match is None or int(match[3]) > _MAX_INT64 or int(match[2]) > _MAX_INT32:
            raise StoredDamage(path, at, f"{_shown(line)} is not a topic, a partition and an offset")
        partition = TopicPartition(match[1].decode("ascii"), int(match[2]))
        if partition in seen:
            raise StoredDamage(path, at, f"{partition} stands there a second time")
        seen.add(partition)
        yield PlacedOffset(at, partition, int(match[3]))


def _counted_lines(path: str, content: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines behind version 0 and the count, and where each begins."""
    lines = content.split(b"\n")
    if lines[0] != b"0":
        raise StoredDamage(path, 0, f"it begins with {_shown(lines[0])} instead of version 0")
    at = 2
    if len(lines) < 2 or not _NUMBER.fullmatch(lines[1]):
        raise StoredDamage(path, min(at, len(content)), "behind the version there is no count of entries")
    count = int(lines[1])
    at += len(lines[1]) + 1
    for line in lines[2:-1][:count]:
        yield at, line
        at += len(line) + 1
    found = len(lines) - 3
    if found != count or lines[-1]:
        at = min(at, len(content))
        torn = ", the last of them without its end" if lines[-1] else ""
        raise StoredDamage(
            path, at, f"it announces {count} entries and holds {found + bool(lines[-1])}{torn}"
        )


def placement_changes(path: str, content: bytes) -> Iterator[PlacedChange]:
    """The lines of a `partition-directories`, whose numbers grow. Raises StoredDamage."""
    at, before = 0, -1
    for text in content.split(b"\n")[:-1]:
        line = decode_line(text)
        if line is None:
            raise StoredDamage(path, at, f"{_shown(text)} is no whole line of the list")
        if line.number <= before:
            raise StoredDamage(path, at, f"line number {line.number} cannot follow {before}")
        yield PlacedChange(at, line)
        at += len(text) + 1
        before = line.number
    if at < len(content):
        raise StoredDamage(path, at, f"{_shown(content[at:])} is no whole line of the list")


def damage_note(path: str, content: bytes) -> DamageNote:
    """What a broker has noted of damage that it met. Raises StoredDamage."""
    try:
        return decode_damage_note(content)
    except ValueError as error:
        raise StoredDamage(path, 0, str(error)) from error


def truncation_limits(path: str, content: bytes) -> TruncationCheckpoint:
    """What a `truncation-checkpoint` says. Raises StoredDamage."""
    match = _LIMITS.fullmatch(content)
    if match is None:
        raise StoredDamage(path, 0, "it does not hold a version 0 and two offsets")
    return TruncationCheckpoint(int(match[1]), int(match[2]))


def topic_id(path: str, content: bytes) -> PlacedId:
    """The topic id in a `partition.metadata`. Raises StoredDamage."""
    at = _place(content, b"topic_id:")
    try:
        found = decode_partition_metadata(content)
    except PartitionFileError as error:
        raise StoredDamage(path, at, str(error)) from error
    if found == ZERO_TOPIC_ID or topic_id_text(found).encode() not in content:
        raise StoredDamage(path, at, "no topic has this id")
    return PlacedId(at, found)


def meta_properties(path: str, content: bytes) -> MetaProperties:
    """The identity in a `meta.properties`. Raises StoredDamage."""
    try:
        found = decode_meta_properties(content, path)
        directory_id = topic_id_text(parse_topic_id(found.directory_id))
    except DataDirectoryError as error:
        raise StoredDamage(path, 0, str(error).removeprefix(f"{path} ")) from error
    except PartitionFileError as error:
        raise StoredDamage(path, _place(content, b"directory.id"), str(error)) from error
    if directory_id != found.directory_id:
        raise StoredDamage(path, _place(content, b"directory.id"), f"{found.directory_id} is no id")
    if not _CLUSTER_ID.fullmatch(found.cluster_id):
        reason = f"{found.cluster_id!r} is no cluster id"
        raise StoredDamage(path, _place(content, b"cluster.id"), reason)
    return found


def _place(content: bytes, key: bytes) -> int:
    return max(content.find(key), 0)


def broker_epoch(path: str, content: bytes) -> int:
    """The broker epoch in the marker of a clean shutdown. Raises StoredDamage."""
    try:
        marker = json.loads(content)
        version, epoch = marker["version"], marker["brokerEpoch"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoredDamage(path, 0, "it does not hold a version and a broker epoch") from error
    if version != 0 or not isinstance(epoch, int):
        raise StoredDamage(path, 0, f"version {version!r} and broker epoch {epoch!r} cannot be")
    return epoch


def metadata_position(path: str, content: bytes) -> MetadataPosition:
    """How far the broker has followed the cluster's metadata. Raises StoredDamage."""
    try:
        return MetadataPosition.decode(content)
    except ValueError as error:
        raise StoredDamage(path, 0, str(error)) from error


def _shown(line: bytes) -> str:
    """Bytes of a file within a sentence."""
    text = ascii(line[:_SHOWN_BYTES].decode("latin-1"))
    return text if len(line) <= _SHOWN_BYTES else f"{text}…"
