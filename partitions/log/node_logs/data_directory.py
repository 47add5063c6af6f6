"""One data directory (`log.dirs`): its lock, its identity, its checkpoints, its clean shutdown marker.

Guarantees: one process at a time uses it; checkpoint files are replaced whole and durably, or not at
all; a damaged one counts as absent, and then nothing in the directory counts as flushed or closed; the
clean shutdown marker is durably gone before the first log is opened for appends, so that a crash is never
taken for a clean end. The log manager has one per directory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from partitions.disk import DirLock, Disk, write_atomically
from partitions.log.errors import DataDirectoryError, DirectoryUnusable
from partitions.log.node_logs.meta_properties import MetaProperties, check_meta_properties
from partitions.log.node_logs.offset_checkpoint import (
    CheckpointDamaged,
    decode_offset_checkpoint,
    encode_offset_checkpoint,
)
from partitions.log.storage import LogStorage
from partitions.topic_partition import TopicPartition

LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
CHECKPOINTS: Final = (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS)
DELETE_SUFFIX: Final = "-delete"
_PARTITION_FOLDER: Final = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]*)")
_JOURNAL_FOLDER: Final = "__cluster_metadata-0"
"""The quorum's own log, when it shares the directory."""
UNKNOWN_BROKER_EPOCH: Final = -1


class DataDirectory:
    """The files at the top of a data directory, and the folders of partitions in it."""

    def __init__(self, disk: Disk, path: str, storage: LogStorage) -> None:
        self._disk = disk
        self.path = path
        self.storage = storage
        """Through which its logs use it; knows whether the directory has failed."""
        self.directory_id = ""
        """From meta.properties, once `check_identity` has read it."""
        self._lock: DirLock | None = None
        self.checkpoints: dict[str, dict[TopicPartition, int]] = {name: {} for name in CHECKPOINTS}
        """What the checkpoint files hold."""
        self.clean_shutdown = False
        """Whether the process before closed every log."""
        self.previous_broker_epoch = UNKNOWN_BROKER_EPOCH
        """Broker epoch of the process before, if it ended properly."""
        self.damaged_checkpoints: dict[str, str] = {}
        """Files that could not be made sense of at start, with the reason."""

    def lock(self) -> None:
        """Takes the directory for this process. Raises DirectoryUnusable, DataDirectoryError."""
        try:
            self._lock = self._disk.lock(f"{self.path}/{LOCK_FILE}")
        except FileNotFoundError as error:
            raise DirectoryUnusable(
                f"the data directory {self.path} does not exist; format it with `kraft storage format`"
            ) from error
        except BlockingIOError as error:
            raise DataDirectoryError(
                f"another process uses the data directory {self.path} (it holds {LOCK_FILE} in it);"
                " stop it, or give this node another log.dirs"
            ) from error
        except OSError as error:
            raise DirectoryUnusable(f"the data directory {self.path} cannot be used: {error}") from error

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def check_identity(self, *, cluster_id: str, node_id: int) -> MetaProperties:
        """Raises DataDirectoryError if the directory is not this node's, DirectoryUnusable."""
        try:
            meta = check_meta_properties(self._disk, self.path, cluster_id=cluster_id, node_id=node_id)
        except OSError as error:
            raise DirectoryUnusable(f"the data directory {self.path} cannot be used: {error}") from error
        self.directory_id = meta.directory_id
        return meta

    def load(self) -> None:
        """Reads marker and checkpoints, and durably removes the marker. Raises DirectoryUnusable.

        A checkpoint file that cannot be read whole says nothing, and then neither do the others nor the
        marker say how far logs were flushed or closed: every log is checked from its first segment on.
        """
        try:
            self._take_clean_shutdown()
            for name in CHECKPOINTS:
                self._load_checkpoint(name)
        except OSError as error:
            raise DirectoryUnusable(f"the data directory {self.path} cannot be used: {error}") from error
        if self.damaged_checkpoints:
            self.clean_shutdown = False
            self.previous_broker_epoch = UNKNOWN_BROKER_EPOCH
            self.checkpoints[RECOVERY_POINTS] = {}

    def _load_checkpoint(self, name: str) -> None:
        path = self.checkpoint_path(name)
        try:
            self.checkpoints[name] = decode_offset_checkpoint(self._disk.read_bytes(path), path)
        except FileNotFoundError:
            return
        except CheckpointDamaged as error:
            self.damaged_checkpoints[name] = str(error)
            self._disk.remove(path)
            self._disk.sync_dir(self.path)

    def _take_clean_shutdown(self) -> None:
        path = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        try:
            content = self._disk.read_bytes(path)
        except FileNotFoundError:
            self.clean_shutdown = False
            return
        self.clean_shutdown = True
        try:
            marker = json.loads(content) if content else {}
        except ValueError:
            marker = {}
        epoch = marker.get("brokerEpoch") if isinstance(marker, dict) else None
        self.previous_broker_epoch = epoch if isinstance(epoch, int) else UNKNOWN_BROKER_EPOCH
        self._disk.remove(path)
        self._disk.sync_dir(self.path)

    def write_clean_shutdown(self, broker_epoch: int) -> None:
        """Says, durably, that every log of this directory was closed. Raises OSError."""
        marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch})
        write_atomically(self._disk, f"{self.path}/{CLEAN_SHUTDOWN_FILE}", marker.encode("ascii"))

    def checkpoint_path(self, name: str) -> str:
        return f"{self.path}/{name}"

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces a checkpoint file, durably. Raises OSError."""
        write_atomically(self._disk, self.checkpoint_path(name), encode_offset_checkpoint(offsets))
        self.checkpoints[name] = dict(offsets)

    def partition_folders(self) -> list[tuple[TopicPartition, str]]:
        """The partitions that have a folder here, with the folder's path, by name."""
        found = []
        for name in self._disk.list_dir(self.path):
            match = _PARTITION_FOLDER.fullmatch(name)
            if match is not None and name != _JOURNAL_FOLDER:
                found.append((TopicPartition(match[1], int(match[2])), f"{self.path}/{name}"))
        return found

    def deleted_folders(self) -> list[str]:
        """Folders that were renamed for deletion, or never finished, and are still there."""
        return [
            f"{self.path}/{name}" for name in self._disk.list_dir(self.path) if name.endswith(DELETE_SUFFIX)
        ]

    def folder(self, topic_partition: TopicPartition) -> str:
        return f"{self.path}/{topic_partition}"

    def deleted_folder(self, topic_partition: TopicPartition, unique: str) -> str:
        """Where a partition's folder goes for deletion, and is while it is made; the name fits a file
        system's 255 bytes."""
        suffix = f".{unique}{DELETE_SUFFIX}"
        return f"{self.path}/{str(topic_partition)[: 255 - len(suffix)]}{suffix}"
