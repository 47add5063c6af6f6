"""Data directories as files in memory: written by the log itself, then read and damaged by tests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kraft.chaos.world.storage import Storage
from partitions.log.config import LogConfig
from partitions.log.inspection.directory_check import DirectoryCheck
from partitions.log.inspection.findings import Findings
from partitions.log.log import PartitionLog
from partitions.log.node_logs.data_directory import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from partitions.log.node_logs.meta_properties import MetaProperties, encode_meta_properties
from partitions.log.node_logs.offset_checkpoint import encode_offset_checkpoint
from partitions.records.builder import RecordTuple, build_batch
from partitions.records.control import ControlType, encode_control_key
from partitions.topic_partition import TopicPartition
from tests.support.logs import halt, lead, new_storage, simulated_disk

DATA = "/data"
ORDERS = TopicPartition("orders", 0)
FOLDER = f"{DATA}/{ORDERS}"
TOPIC_ID = bytes(range(16))
SEGMENTS = LogConfig(segment_bytes=450, index_interval_bytes=100)
LAST_RECOVERY_POINT = 15
"""Where a crashed broker's log was flushed to; three batches follow."""
LEADER_EPOCHS = (0, 0, 0, 2, 2, 2, 5, 5)
"""Of the batches, in turn."""


class StoredFile:
    """A file of a `StoredFiles`, open."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read(self, position: int, length: int) -> bytes:
        return self._data[position : position + length]

    def close(self) -> None:
        """Nothing is held."""


class StoredFiles:
    """The reading half of a disk, over contents by path."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def open(self, path: str) -> StoredFile:
        return StoredFile(self.read_bytes(path))

    def read_bytes(self, path: str) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path]

    def exists(self, path: str) -> bool:
        return path in self._files or any(known.startswith(path + "/") for known in self._files)

    def list_dir(self, path: str) -> list[str]:
        prefix = path + "/"
        return sorted(
            {known[len(prefix) :].split("/")[0] for known in self._files if known.startswith(prefix)}
        )


def verified(files: Mapping[str, bytes], *, has_holes: bool = False) -> Findings:
    """What the check of the data directory finds."""
    findings = Findings()
    DirectoryCheck(StoredFiles(files), DATA, findings, {}).run(has_holes=has_holes)
    return findings


def records_of(number: int) -> list[RecordTuple]:
    """Batch `number` of the stored log: three records with and without keys, values, headers."""
    time = 1_000_000 + number * 10
    return [
        (time, b"key-%d" % number, b"value-%d" % number, (("h", b"\0\xff"), ("n", None))),
        (time + 5, None, b"value without a key", ()),
        (time + 3, b"tombstone", None, ()),
    ]


def _write(log: PartitionLog, number: int, epoch: int) -> None:
    producer = number % 2
    batch = build_batch(
        records_of(number),
        codec=number % 5,
        producer_id=40 + producer,
        producer_epoch=1,
        base_sequence=number // 2 * 3,
        is_transactional=producer == 1,
    )
    log.append_as_leader(batch, leader_epoch=epoch, origin="coordinator")


def marker(producer_id: int, *, commits: bool) -> bytes:
    """A transaction marker's batch, written by hand."""
    kind = ControlType.COMMIT if commits else ControlType.ABORT
    return build_batch(
        [(1_000_900, encode_control_key(kind), b"\0\0\0\0\0\x07", ())],
        producer_id=producer_id,
        producer_epoch=1,
        is_control=True,
        is_transactional=True,
    )


def _written_log(storage: Storage) -> PartitionLog:
    log = PartitionLog.open(
        simulated_disk(storage), FOLDER, ORDERS, SEGMENTS, now_ms=lambda: 0, halt=halt, topic_id=TOPIC_ID
    )
    before = -1
    for number, epoch in enumerate(LEADER_EPOCHS):
        if epoch != before:
            lead(log, epoch)
        before = epoch
        _write(log, number, epoch)
        if log.log_end_offset == LAST_RECOVERY_POINT:
            log.sync()
    log.append_as_leader(marker(41, commits=True), leader_epoch=before, origin="coordinator")
    return log


@cache
def closed_directory() -> dict[str, bytes]:
    """A data directory of a broker that ended properly: one partition of several segments and epochs."""
    storage = new_storage()
    log = _written_log(storage)
    log.close()
    end = log.log_end_offset
    marker_text = b'{"version": 0, "brokerEpoch": 17}'
    return {
        **storage.files(),
        **_directory_files(recovery_point=end, high_watermark=end),
        f"{DATA}/{CLEAN_SHUTDOWN_FILE}": marker_text,
    }


@cache
def crashed_directory() -> dict[str, bytes]:
    """The same of a broker that was killed: flushed up to `LAST_RECOVERY_POINT`."""
    storage = new_storage()
    log = _written_log(storage)
    return {
        **storage.files(),
        **_directory_files(recovery_point=LAST_RECOVERY_POINT, high_watermark=log.log_end_offset),
    }


def _directory_files(*, recovery_point: int, high_watermark: int) -> dict[str, bytes]:
    meta = MetaProperties("AAAAAAAAAAAAAAAAAAAAAQ", 1, "AAAAAAAAAAAAAAAAAAAAAg")
    return {
        f"{DATA}/meta.properties": encode_meta_properties(meta),
        f"{DATA}/{RECOVERY_POINTS}": encode_offset_checkpoint({ORDERS: recovery_point}),
        f"{DATA}/{HIGH_WATERMARKS}": encode_offset_checkpoint({ORDERS: high_watermark}),
        f"{DATA}/{LOG_START_OFFSETS}": encode_offset_checkpoint({ORDERS: 0}),
    }


def segment_paths(files: Mapping[str, bytes]) -> list[str]:
    """The partition's `.log` files, in order."""
    return sorted(path for path in files if path.startswith(FOLDER) and path.endswith(".log"))
