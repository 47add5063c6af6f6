"""Partition logs in tests: disks that fail or lose power, batches, and everything that a log holds."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from kraft.chaos.world.disk import SimulatedDisk
from kraft.chaos.world.storage import Storage
from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME
from partitions.disk import Buffer, Disk, File
from partitions.log.config import LogConfig
from partitions.log.epochs.epoch_writer import EpochWriter
from partitions.log.log import PartitionLog
from partitions.log.node_logs.creation import NewLog
from partitions.log_manager import LogManager
from partitions.records.batch import decode_records, iter_batches, verify_crc
from partitions.records.builder import build_batch
from partitions.topic_partition import TopicPartition

T = TypeVar("T")
PARTITION = TopicPartition("orders", 3)
FOLDER = "/data/orders-3"
EPOCHS = f"{FOLDER}/{CHECKPOINT_FILE_NAME}"
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150, max_message_bytes=800, file_delete_delay_ms=0)
"""Several segments and index entries after a few batches; what is deleted may go at once."""


class Halted(Exception):
    """What `halt` raises in tests, so that nothing runs on."""


def halt(reason: str) -> None:
    raise Halted(reason)


class _Process:
    """The incarnation that a simulated disk asks whether it is alive."""

    alive = True

    def check_alive(self) -> None:
        return


def simulated_disk(storage: Storage, kind: type[SimulatedDisk] = SimulatedDisk) -> SimulatedDisk:
    """A process's view of a simulated disk, as after a (re)start."""
    return kind(storage, _Process(), lambda low, high: low)  # type: ignore[arg-type]


def new_storage(seed: int = 0) -> Storage:
    storage = Storage(random.Random(seed))
    storage.make_dirs("/data")
    storage.sync_everything()
    return storage


def memory_disk() -> SimulatedDisk:
    """A disk in memory, with an empty folder /data."""
    return simulated_disk(new_storage())


class FailingDisk:
    """A disk of which chosen operations fail; appends leave `torn_bytes` of what they should write."""

    def __init__(self, inner: Disk) -> None:
        self.inner = inner
        self.fail: Callable[[str, str], int | None] = lambda operation, path: None
        """(operation, path) → errno of the failure, None to let it through."""
        self.torn_bytes = 0
        self.calls: list[tuple[str, str]] = []

    def check(self, operation: str, path: str) -> None:
        """Reads fail as well, but are not among the `calls`."""
        if operation != "read":
            self.calls.append((operation, path))
        number = self.fail(operation, path)
        if number is not None:
            raise OSError(number, "injected", path)

    def open(self, path: str, *, create: bool = False) -> File:
        self.check("create" if create else "open", path)
        return _FailingFile(self, self.inner.open(path, create=create))

    def sync_dir(self, path: str) -> None:
        self.check("sync_dir", path)
        self.inner.sync_dir(path)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        self.inner.rename(source, target)

    def remove(self, path: str) -> None:
        self.check("remove", path)
        self.inner.remove(path)

    def remove_tree(self, path: str) -> None:
        self.check("remove_tree", path)
        self.inner.remove_tree(path)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


class _FailingFile:
    def __init__(self, disk: FailingDisk, inner: File) -> None:
        self._disk = disk
        self._inner = inner

    def append(self, buffers: Sequence[Buffer]) -> None:
        try:
            self._disk.check("append", self._inner.path)
        except OSError:
            self._inner.append([b"".join(buffers)[: self._disk.torn_bytes]])
            raise
        self._inner.append(buffers)

    def read(self, position: int, length: int) -> bytes:
        self._disk.check("read", self._inner.path)
        return self._inner.read(position, length)

    def sync(self) -> None:
        self._disk.check("sync", self._inner.path)
        self._inner.sync()

    def truncate(self, size: int) -> None:
        self._disk.check("truncate", self._inner.path)
        self._inner.truncate(size)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def full_disk(operation: str, path: str) -> int | None:
    """For `FailingDisk.fail`: no segment takes another byte."""
    return errno.ENOSPC if operation == "append" and path.endswith(".log") else None


def open_log(
    disk: Disk,
    config: LogConfig = SMALL,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    topic_id: bytes | None = None,
    now_ms: int = 1_000_000,
) -> PartitionLog:
    return PartitionLog.open(
        disk,
        FOLDER,
        PARTITION,
        config,
        now_ms=lambda: now_ms,
        halt=halt,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean_shutdown=clean,
        topic_id=topic_id,
    )


def rot_epochs(disk: Disk, said: bytes) -> None:
    """Has the log's epoch checkpoint say this, whatever it said before, if there was one."""
    file = disk.open(EPOCHS, create=True)
    file.truncate(0)
    file.append([said])


def rot_epoch_entry(disk: Disk, entry: bytes, said: bytes) -> None:
    """Has the log's epoch checkpoint say something else in the place of one entry."""
    content = disk.read_bytes(EPOCHS)
    assert content.count(entry) == 1
    rot_epochs(disk, content.replace(entry, said))


def batch_of(
    *values: bytes,
    timestamp: int = 1000,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer: tuple[int, int, int] | None = None,
) -> bytes:
    """A batch of these values; `producer` is (id, epoch, first sequence)."""
    producer_id, producer_epoch, sequence = producer or (-1, -1, -1)
    return build_batch(
        [(timestamp, None, value, ()) for value in values],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )


class Stored(NamedTuple):
    """One record as it is in a log."""

    offset: int
    epoch: int
    value: bytes | None


def read_records(log: PartitionLog, offset: int | None = None, *, max_bytes: int = 400) -> list[Stored]:
    """Every record from `offset` (the log's start) to the log's end, read piece by piece, CRCs checked."""
    position = log.log_start_offset if offset is None else offset
    found: list[Stored] = []
    while position < log.log_end_offset:
        result = log.read(position, max_bytes, up_to_offset=log.log_end_offset)
        assert result.slices, f"nothing to read at {position} of {log.log_end_offset}"
        data = b"".join(part.read() for part in result.slices)
        assert len(data) == result.size_bytes
        for at, header in iter_batches(data):
            verify_crc(data, at, header)
            for record in decode_records(data, at, header, max_decompressed_bytes=1 << 20):
                if record.offset >= position:
                    found.append(Stored(record.offset, header.partition_leader_epoch, record.value))
        assert result.next_offset > position
        position = result.next_offset
    return found


def retain(log: PartitionLog, now_ms: int, high_watermark: int) -> int:
    """One round of retention over one log, without waiting for anything; returns how many segments went."""
    log.expire_segments(now_ms, high_watermark)
    count = 0
    while log.has_obsolete_segments:
        log.sync()
        assert log.set_aside_first_segment()
        count += 1
    return count


class InlineExecutor:
    """Runs jobs at once."""

    async def run(self, job: Callable[..., object], *args: object) -> object:
        return job(*args)


def run_inline(coroutine: Coroutine[Any, Any, T]) -> T:
    """The value of a coroutine that waits for nothing but an executor whose jobs run at once."""
    try:
        while coroutine.send(None) is None:  # a turn of the loop, as `asyncio.sleep(0)` takes one
            continue
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("it waits for something")


def get_or_create(
    manager: LogManager, partition: TopicPartition, topic_id: bytes, config: LogConfig | None = None
) -> PartitionLog:
    """The partition's log, made if there is none, by a manager with an `InlineExecutor`. Raises LogError."""
    config = config or manager._parts.default_config
    log = manager.claim(partition, topic_id, config)
    if log is None:
        failed = run_inline(manager.creator.create([NewLog(partition, topic_id, config, None)]))
        if partition in failed:
            raise failed[partition]
        log = manager.claim(partition, topic_id, config)
    assert log is not None
    return log


def lead(log: PartitionLog, epoch: int) -> None:
    """Becomes leader in `epoch`, and writes that durably."""
    if not log.assign_epoch_start(epoch):
        writer = EpochWriter(log._storage.disk, InlineExecutor(), {log.topic_partition: log})  # type: ignore[arg-type]
        assert run_inline(writer.write([log.topic_partition])) == {}
        assert log.assign_epoch_start(epoch)
