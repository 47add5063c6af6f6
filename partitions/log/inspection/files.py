"""The files of a data directory as tools see them: what they are by name, and how they are read.

Guarantees: nothing here can write. Bytes that are not what was written are a StoredDamage, which names
file, byte and reason. `ReadableDisk` is the part of the disk port (`partitions.disk`) that tools need, so
that they work on the real file system, a read-only one, and the simulated one. Used by this package and
by `kraft log`.
"""

from __future__ import annotations

import re
from contextlib import closing
from enum import Enum
from typing import Final, Protocol

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME
from partitions.log.node_logs.data_directory import CHECKPOINTS, CLEAN_SHUTDOWN_FILE
from partitions.log.node_logs.meta_properties import META_PROPERTIES
from partitions.log.node_logs.metadata_position import METADATA_POSITION
from partitions.log.node_logs.placements import FILE_NAME as PARTITION_DIRECTORIES
from partitions.log.opening.damage_note import DAMAGE_NOTE
from partitions.log.partition_files import PARTITION_METADATA, TRUNCATION_CHECKPOINT
from partitions.log.producers.producer_snapshot import SNAPSHOT_SUFFIX
from partitions.log.producers.transaction_index import TRANSACTION_INDEX_SUFFIX
from partitions.log.segment import LOG_SUFFIX
from partitions.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from partitions.topic_partition import TopicPartition

MAX_WHOLE_FILE_BYTES: Final = 512 * 1024 * 1024
"""Snapshots and checkpoints beyond this are not read: they would have to be held in memory."""
_OFFSET_DIGITS: Final = 20
_PARTITION_FOLDER: Final = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]*)")


class ReadableFile(Protocol):
    """An open file; see `partitions.disk.File`."""

    def size(self) -> int: ...

    def read(self, position: int, length: int) -> bytes: ...

    def close(self) -> None: ...


class ReadableDisk(Protocol):
    """The reading half of `partitions.disk.Disk`."""

    def open(self, path: str) -> ReadableFile: ...

    def read_bytes(self, path: str) -> bytes: ...

    def exists(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]: ...


class StoredDamage(ValueError):
    """Stored bytes that are not what was written: in `path`, at byte `position`."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class FileTooLargeError(Exception):
    """A file that must be read whole and is larger than any honest one."""


class FileKind(Enum):
    """What a file of a data directory is; the value is how outputs call it."""

    SEGMENT = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    LEADER_EPOCHS = CHECKPOINT_FILE_NAME
    OFFSET_CHECKPOINT = "offset-checkpoint"
    TRUNCATION_LIMITS = TRUNCATION_CHECKPOINT
    PARTITION_METADATA = PARTITION_METADATA
    META_PROPERTIES = META_PROPERTIES
    CLEAN_SHUTDOWN = "cleanshutdown"
    METADATA_POSITION = METADATA_POSITION
    DAMAGE_NOTE = DAMAGE_NOTE
    PARTITION_DIRECTORIES = PARTITION_DIRECTORIES


_BY_SUFFIX: Final = {
    LOG_SUFFIX: FileKind.SEGMENT,
    INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    TRANSACTION_INDEX_SUFFIX: FileKind.TXN_INDEX,
    SNAPSHOT_SUFFIX: FileKind.PRODUCER_SNAPSHOT,
}
_BY_NAME: Final = {
    CHECKPOINT_FILE_NAME: FileKind.LEADER_EPOCHS,
    TRUNCATION_CHECKPOINT: FileKind.TRUNCATION_LIMITS,
    PARTITION_METADATA: FileKind.PARTITION_METADATA,
    META_PROPERTIES: FileKind.META_PROPERTIES,
    CLEAN_SHUTDOWN_FILE: FileKind.CLEAN_SHUTDOWN,
    METADATA_POSITION: FileKind.METADATA_POSITION,
    DAMAGE_NOTE: FileKind.DAMAGE_NOTE,
    PARTITION_DIRECTORIES: FileKind.PARTITION_DIRECTORIES,
    **dict.fromkeys(CHECKPOINTS, FileKind.OFFSET_CHECKPOINT),
}
SEGMENT_KINDS: Final = frozenset(
    {FileKind.SEGMENT, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX}
)
"""The files that share a segment's base offset and are checked against each other."""


def file_kind(path: str) -> FileKind | None:
    """What a file is by its name; None for one that no log has."""
    name = path.rpartition("/")[2]
    if name in _BY_NAME:
        return _BY_NAME[name]
    stem, dot, suffix = name.rpartition(".")
    if len(stem) == _OFFSET_DIGITS and stem.isdecimal() and stem.isascii():
        return _BY_SUFFIX.get(dot + suffix)
    return None


def base_offset_of(path: str) -> int:
    """The offset in the name of a segment's file or a producer snapshot."""
    return int(path.rpartition("/")[2].partition(".")[0])


def partition_of_folder(path: str) -> TopicPartition | None:
    """The partition that a folder is for, by its name."""
    match = _PARTITION_FOLDER.fullmatch(path.rpartition("/")[2])
    return None if match is None else TopicPartition(match[1], int(match[2]))


def read_whole(disk: ReadableDisk, path: str) -> bytes:
    """A small file's bytes. Raises FileTooLargeError, OSError."""
    with closing(disk.open(path)) as file:
        size = file.size()
    if size > MAX_WHOLE_FILE_BYTES:
        raise FileTooLargeError(
            f"it has {size} bytes, more than the {MAX_WHOLE_FILE_BYTES} that are read of such a file"
        )
    return disk.read_bytes(path)
