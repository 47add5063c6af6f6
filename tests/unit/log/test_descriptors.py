"""A process that has run out of descriptors: what could not be opened has changed nothing, and is opened later."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from partitions.disk import Disk, File
from partitions.log.errors import DirectoryFailed, InterruptedByFullDisk, LogError, NoSpaceLeft
from partitions.log.log import PartitionLog
from partitions.log.storage import LogStorage
from partitions.topic_partition import TopicPartition
from tests.support.logs import FOLDER, PARTITION, SMALL, FailingDisk, InlineExecutor, batch_of, memory_disk


class ScarceDisk:
    """A disk below a process that may have so many files open at a time."""

    def __init__(self, inner: Disk, descriptors: int) -> None:
        self.inner = inner
        self.free = descriptors

    def open(self, path: str, *, create: bool = False) -> File:
        return _CountedFile(self, self._with_one(lambda: self.inner.open(path, create=create)))  # type: ignore[return-value]

    def sync_dir(self, path: str) -> None:
        self._with_one(lambda: self.inner.sync_dir(path))
        self.free += 1

    def _with_one(self, operation: Callable[[], Any]) -> Any:
        if not self.free:
            raise OSError(errno.EMFILE, "Too many open files")
        result = operation()
        self.free -= 1
        return result

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


class _CountedFile:
    def __init__(self, disk: ScarceDisk, inner: File) -> None:
        self._disk = disk
        self._inner = inner

    def close(self) -> None:
        self._inner.close()
        self._disk.free += 1

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def of_idle_files(descriptors: int) -> tuple[LogStorage, list[str]]:
    """A storage that has taken all descriptors for files that are idle; and why it was given up."""
    failures: list[str] = []
    storage = LogStorage(ScarceDisk(memory_disk(), descriptors), failures.append)  # type: ignore[arg-type]
    for number in range(descriptors):
        storage.create_empty(f"/data/{number}")
    return storage, failures


@pytest.mark.parametrize(
    "use",
    [
        lambda storage: storage.create_empty("/data/new"),
        lambda storage: storage.file("/data/0"),
        lambda storage: storage.truncate_durably("/data/0", 0),
        lambda storage: storage.replace("/data/checkpoint", b"content"),
        lambda storage: storage.sync_dir("/data"),
    ],
)
def test_idle_files_give_their_descriptors_to_what_is_needed(use: Callable[[LogStorage], object]) -> None:
    storage, failures = of_idle_files(40)
    storage.release("/data/0")
    storage.create_empty("/data/40")
    use(storage)
    assert failures == []
    assert storage.open_files > 20, "no more than it takes"


async def test_idle_files_give_their_descriptors_to_an_fsync_beside_the_loop() -> None:
    storage, failures = of_idle_files(3)
    await storage.sync_dir_beside(InlineExecutor(), "/data")  # type: ignore[arg-type]
    assert failures == []


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_what_cannot_be_opened_is_put_off(number: int) -> None:
    disk, failures = FailingDisk(memory_disk()), []  # type: FailingDisk, list[str]
    storage = LogStorage(disk, failures.append)  # type: ignore[arg-type]
    storage.create_empty("/data/log").append([b"content"])
    storage.release("/data/log")
    disk.fail = lambda operation, path: number if operation in ("open", "create") else None
    with pytest.raises(NoSpaceLeft, match="no descriptor left to write"):
        storage.replace("/data/checkpoint", b"content")
    with pytest.raises(NoSpaceLeft, match="no descriptor left to cut"):
        storage.truncate_durably("/data/log", 1)
    assert failures == []
    disk.fail = lambda operation, path: None
    storage.replace("/data/checkpoint", b"content")
    storage.truncate_durably("/data/log", 1)
    assert disk.inner.read_bytes("/data/checkpoint") == b"content"
    assert disk.inner.read_bytes("/data/log") == b"c"


def test_an_fsync_that_fails_is_the_end_and_nothing_is_given_back_for_it() -> None:
    storage, failures = of_idle_files(3)
    failing = FailingDisk(storage.disk)
    storage.disk = failing  # type: ignore[assignment]
    failing.fail = lambda operation, path: errno.EIO if operation == "sync_dir" else None
    with pytest.raises(DirectoryFailed):
        storage.sync_dir("/data")
    assert len(failures) == 1
    assert storage.open_files == 3


def test_a_truncation_without_descriptors_takes_one_log_for_a_while() -> None:
    disk = FailingDisk(memory_disk())
    lost: list[tuple[TopicPartition, LogError]] = []
    failures: list[str] = []
    storage = LogStorage(
        disk,  # type: ignore[arg-type]
        failures.append,
        on_lost=lambda partition, error: lost.append((partition, error)),
    )
    log = PartitionLog.open(
        storage.disk, FOLDER, PARTITION, SMALL, now_ms=lambda: 1, halt=failures.append, storage=storage
    )
    for _ in range(3):
        log.append_as_leader(batch_of(b"value"), leader_epoch=0)
    storage.release_folder(FOLDER)
    disk.fail = lambda operation, path: errno.EMFILE if operation in ("open", "create") else None
    with pytest.raises(InterruptedByFullDisk):
        log.truncate_to(1)
    assert [type(error) for _, error in lost] == [InterruptedByFullDisk]
    assert failures == []


def test_a_roll_takes_the_descriptors_of_idle_files() -> None:
    scarce = ScarceDisk(memory_disk(), 20)
    failures: list[str] = []
    storage = LogStorage(scarce, failures.append)  # type: ignore[arg-type]
    log = PartitionLog.open(
        scarce,  # type: ignore[arg-type]
        FOLDER,
        PARTITION,
        SMALL,
        now_ms=lambda: 1,
        halt=failures.append,
        storage=storage,
    )
    while scarce.free:
        storage.create_empty(f"/data/{scarce.free}")
    for number in range(40):
        log.append_as_leader(batch_of(b"value-%d" % number), leader_epoch=0)
    assert (len(log.segment_base_offsets) > 2, failures) == (True, [])
