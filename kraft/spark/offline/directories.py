"""Data directories of stopped brokers: nobody uses them, what they hold, which replica of a partition is read.

While a directory is `held`, no broker can start on it; one that a broker uses is refused. Of several replicas of a
partition the one of the highest leader epoch is read, and of those the one with the highest high watermark: an older
epoch may have records that were truncated elsewhere (KIP-101). `cluster.py` calls it.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from kraft.runtime.read_only_disk import ReadOnlyDisk
from kraft.spark.errors import ConnectorError, CorruptDataError, OptionError
from kraft.spark.offline.log_files import SegmentSpan, read_spans
from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME, EpochCheckpointError, decode_checkpoint
from partitions.log.errors import DataDirectoryError
from partitions.log.node_logs.data_directory import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK_FILE,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from partitions.log.node_logs.meta_properties import META_PROPERTIES, decode_meta_properties
from partitions.log.node_logs.offset_checkpoint import CheckpointDamaged, decode_offset_checkpoint
from partitions.log.partition_files import (
    PARTITION_METADATA,
    TRUNCATION_CHECKPOINT,
    PartitionFileError,
    decode_partition_metadata,
    decode_truncation_checkpoint,
    topic_id_text,
)
from partitions.topic_partition import CLUSTER_METADATA, ZERO_TOPIC_ID, TopicPartition

_PARTITION_FOLDER: Final = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]{0,9})")


class DirectoryInUseError(ConnectorError):
    """A broker runs on the data directory."""


class DirectoryUnreadableError(ConnectorError):
    """A file of a data directory cannot be read, or is gone."""


@dataclass(frozen=True)
class Replica:
    """One partition's folder in one stopped data directory; goes to executors with the slices of it."""

    directory: str
    partition: TopicPartition
    topic_id: bytes
    """Zeros where the folder does not name it."""
    leader_epoch: int
    """The newest that the replica knows, -1: none."""
    high_watermark: int | None
    """As checkpointed; None: the checkpoint does not name the partition."""
    start_offset: int
    recovery_point: int
    """Below here everything was flushed, and so were the indexes of the segments that end there."""
    was_compacted: bool
    spans: tuple[SegmentSpan, ...]

    @property
    def folder(self) -> str:
        return f"{self.directory}/{self.partition}"

    @property
    def end_offset(self) -> int:
        return self.spans[-1].end_offset if self.spans else self.start_offset


@contextmanager
def held(directories: Iterable[str]) -> Iterator[None]:
    """No broker starts on these directories meanwhile. Raises DirectoryInUseError, OptionError.

    A shared lock, so that tasks do not exclude each other; our brokers lock with flock, Apache Kafka's with fcntl.
    Where there is no lock file (a copy, a read-only medium) there is no broker.
    """
    with ExitStack() as stack:
        for directory in directories:
            if not os.path.isdir(directory):
                raise OptionError(
                    f"path: {directory} is no directory here. Executors must see it at the same path."
                )
            try:
                lock = os.open(f"{directory}/{LOCK_FILE}", os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            stack.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise DirectoryInUseError(
                    f"path: a running broker uses {directory} (it holds {LOCK_FILE} in it). Stop the broker, or read"
                    " from it with kafka.bootstrap.servers."
                ) from error
        yield


def find_replicas(
    directories: Sequence[str], wanted: Callable[[str], bool]
) -> dict[TopicPartition, list[Replica]]:
    """The replicas of the partitions of wanted topics, the one to be read first. Raises ConnectorError.

    The directories are held. `wanted` takes a topic's name.
    """
    found: dict[TopicPartition, list[Replica]] = {}
    clusters: dict[str, str] = {}
    for directory in directories:
        for replica in _replicas_in(directory, wanted, clusters):
            found.setdefault(replica.partition, []).append(replica)
    for replicas in found.values():
        replicas.sort(key=_order, reverse=True)
    return found


def check_topic_ids(replicas: Iterable[Replica]) -> None:
    """Whether these folders are of one topic id. Raises OptionError.

    A directory that was stopped before a topic was deleted and made anew holds the old one.
    """
    known: Replica | None = None
    for replica in replicas:
        if replica.topic_id == ZERO_TOPIC_ID:
            continue
        known = known or replica
        if known.topic_id != replica.topic_id:
            raise OptionError(
                f"path: {known.folder} is of the topic id {topic_id_text(known.topic_id)}, {replica.folder} of"
                f" {topic_id_text(replica.topic_id)}: the topic was deleted and made anew. Leave out the directory"
                " that holds the old one."
            )


def _order(replica: Replica) -> tuple[int, int]:
    return replica.leader_epoch, -1 if replica.high_watermark is None else replica.high_watermark


def _replicas_in(
    directory: str, wanted: Callable[[str], bool], clusters: dict[str, str]
) -> Iterator[Replica]:
    try:
        files = _DirectoryFiles(directory)
        clusters.setdefault(files.cluster_id, directory)
        if len(clusters) > 1:
            one, two = clusters.items()
            raise OptionError(
                f"path: {one[1]} belongs to the cluster {one[0]}, {two[1]} to {two[0]}: read one cluster at a time."
            )
        for name in ReadOnlyDisk().list_dir(directory):
            partition = _partition_of(name)
            if partition is not None and partition != CLUSTER_METADATA and wanted(partition.topic):
                yield files.replica(partition)
    except OSError as error:
        raise DirectoryUnreadableError(f"path: {error.filename or directory}: {error.strerror}.") from error
    except (CheckpointDamaged, DataDirectoryError, PartitionFileError) as error:
        raise CorruptDataError(
            f"path: {directory}: {error}. Leave the directory out if others hold replicas of its partitions."
        ) from error


def _partition_of(name: str) -> TopicPartition | None:
    found = _PARTITION_FOLDER.fullmatch(name)
    return None if found is None else TopicPartition(found[1], int(found[2]))


class _DirectoryFiles:
    """What stands at the top of a data directory."""

    def __init__(self, directory: str) -> None:
        """Raises OSError, DataDirectoryError, CheckpointDamaged, OptionError."""
        self._directory = directory
        self._disk = ReadOnlyDisk()
        meta = self._optional(META_PROPERTIES)
        if meta is None:
            raise OptionError(
                f"path: {directory} is no data directory of a broker: it has no {META_PROPERTIES}."
            )
        self.cluster_id = decode_meta_properties(meta, f"{directory}/{META_PROPERTIES}").cluster_id
        self._was_closed = self._disk.exists(f"{directory}/{CLEAN_SHUTDOWN_FILE}")
        self._high_watermarks = self._checkpoint(HIGH_WATERMARKS)
        self._log_starts = self._checkpoint(LOG_START_OFFSETS)
        self._recovery_points = self._checkpoint(RECOVERY_POINTS)
        self._cleaned = self._checkpoint(CLEANER_OFFSETS)

    def replica(self, partition: TopicPartition) -> Replica:
        """Raises OSError, PartitionFileError, CorruptDataError."""
        spans = tuple(read_spans(self._disk, f"{self._directory}/{partition}"))
        metadata = self._optional(f"{partition}/{PARTITION_METADATA}")
        recovery_point = self._recovery_points.get(partition, 0)
        start_offset = self._log_starts.get(partition, 0)
        cap = self._optional(f"{partition}/{TRUNCATION_CHECKPOINT}")
        if cap is not None:
            limits = decode_truncation_checkpoint(cap)
            recovery_point = min(recovery_point, limits.recovery_point)
            start_offset = min(start_offset, limits.log_start_offset)
        return Replica(
            directory=self._directory,
            partition=partition,
            topic_id=ZERO_TOPIC_ID if metadata is None else decode_partition_metadata(metadata),
            leader_epoch=max([self._epoch(partition), *(span.last_epoch for span in spans)]),
            high_watermark=self._high_watermarks.get(partition),
            start_offset=max(start_offset, spans[0].base_offset if spans else 0),
            recovery_point=recovery_point,
            was_compacted=self._cleaned.get(partition, 0) > 0,
            spans=spans,
        )

    def _epoch(self, partition: TopicPartition) -> int:
        """The newest in the epoch checkpoint. A damaged one tells less than the batches, as when a broker starts."""
        content = self._optional(f"{partition}/{CHECKPOINT_FILE_NAME}")
        try:
            entries = decode_checkpoint(content) if content is not None else ()
        except EpochCheckpointError:
            return -1
        return entries[-1].epoch if entries else -1

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        content = self._optional(name)
        return {} if content is None else decode_offset_checkpoint(content, name)

    def _optional(self, name: str) -> bytes | None:
        try:
            return self._disk.read_bytes(f"{self._directory}/{name}")
        except FileNotFoundError:
            return None
