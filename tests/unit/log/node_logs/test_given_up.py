"""What a failure in one log, read or file must not do: count as a clean end, hide records, take others along."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from leader_epoch.epoch_cache import EpochEntry
from partitions.disk import File
from partitions.log.errors import DataDirectoryError, LogCorruptError, LogStorageError
from partitions.log.log import PartitionLog
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from partitions.log.node_logs.startup import StartReport
from partitions.log.opening.damage_note import DAMAGE_NOTE
from partitions.records.batch import iter_batches
from partitions.records.markers import build_marker
from partitions.topic_partition import TopicPartition
from tests.support.logs import (
    FOLDER,
    SMALL,
    FailingDisk,
    batch_of,
    memory_disk,
    new_storage,
    open_log,
    read_records,
    simulated_disk,
)
from tests.support.transactions import ABORT, transactional
from tests.unit.log.node_logs.test_failing_directories import CLUSTER, IDS, Node, T, filled
from tests.unit.log.test_checked_bytes import RECORDS, append
from tests.unit.log.test_checked_bytes import filled as filled_log

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST = f"/data/{P}/{0:020d}.log"


def one_directory() -> Any:
    storage = new_storage()
    write_meta_properties(simulated_disk(storage), "/data", MetaProperties(CLUSTER, 1, IDS["/data"]))
    storage.sync_everything()
    return storage


# ---- a log that was given up did not end cleanly


class GivenUp(NamedTuple):
    """The process after one that met damage in a log, gave it up, and ended properly."""

    log: PartitionLog
    report: StartReport
    epochs: tuple[EpochEntry, ...]
    """What the log knew when it was given up."""
    aborted: list[Any]
    end: int


@pytest.fixture
async def given_up() -> GivenUp:
    storage = one_directory()
    node = Node(storage, ("/data",))
    node.make(P)
    for number in range(30):
        node.manager.logs[P].append_as_leader(batch_of(b"value-%04d" % number), leader_epoch=0)
    await node.close()
    node = Node(storage, ("/data",))
    log = node.manager.logs[P]
    log.append_as_leader(batch_of(b"later"), leader_epoch=7)
    log.append_as_leader(transactional(9, b"aborted"), leader_epoch=7, origin="coordinator")
    marker = build_marker(9, 0, ABORT, coordinator_epoch=0, timestamp=1000)
    log.append_as_leader(marker, leader_epoch=7, origin="coordinator")
    epochs, end = log.epochs.entries, log.log_end_offset
    aborted = list(log.aborted_transactions(0, end))
    assert aborted
    rotten = storage.inode(FIRST).data.index(b"value-0003")
    storage.inode(FIRST).data[rotten] ^= 1
    with pytest.raises(LogCorruptError):
        log.read(0, 10_000, up_to_offset=end)
    assert P in node.manager.failed
    await node.close()
    storage.inode(FIRST).data[rotten] ^= 1  # somebody has restored the file
    again = Node(storage, ("/data",))
    return GivenUp(again.manager.logs[P], again.report, epochs, aborted, end)


async def test_a_log_that_was_given_up_is_recovered_by_the_next_start(given_up: GivenUp) -> None:
    assert given_up.report.previous_broker_epoch == -1
    assert not given_up.log.recovery.clean
    assert given_up.log.log_end_offset == given_up.end


async def test_nothing_is_forgotten_that_was_not_written_when_a_log_was_given_up(given_up: GivenUp) -> None:
    assert given_up.log.epochs.entries == given_up.epochs
    assert list(given_up.log.aborted_transactions(0, given_up.end)) == given_up.aborted


async def test_a_log_that_recovery_refused_is_refused_again() -> None:
    storage = one_directory()
    node = Node(storage, ("/data",))
    node.make(P, Q)
    for partition in (P, Q):
        append(node.manager.logs[partition], 2)
    await node.manager.checkpoint_recovery_points()
    storage.inode(FIRST).data[-1] ^= 1
    node = Node(storage, ("/data",))
    assert list(node.report.failed) == [P]
    await node.close()
    assert list(Node(storage, ("/data",)).report.failed) == [P]


# ---- damage that was found is found again


async def noted(*, loses_power: bool) -> tuple[Any, int]:
    """A disk on which a process has met damage below what a recovery reads; and where it is in the file."""
    storage = one_directory()
    node = Node(storage, ("/data",))
    node.make(P, Q)
    for partition in (P, Q):
        append(node.manager.logs[partition], 40)
    await node.close()
    rotten = storage.inode(FIRST).data.index(b"value-0003")
    storage.inode(FIRST).data[rotten] ^= 1
    node = Node(storage, ("/data",))
    with pytest.raises(LogCorruptError):
        node.manager.logs[P].read(0, 10_000, up_to_offset=40)
    if loses_power:
        await node.manager.damage_noted()
        storage.lose_power()
    else:
        await node.close()
    return storage, rotten


@pytest.mark.parametrize("loses_power", [False, True])
async def test_a_start_knows_of_the_damage_that_the_process_before_has_met(loses_power: bool) -> None:
    storage, _ = await noted(loses_power=loses_power)
    for _ in range(2):
        node = Node(storage, ("/data",))
        assert list(node.report.failed) == [P]
        assert isinstance(node.manager.failed[P], LogCorruptError)
        assert f"{FIRST} is damaged at byte" in str(node.manager.failed[P])
        assert "fails its checksum" in str(node.manager.failed[P])
        await node.close()


async def test_a_log_whose_file_was_restored_is_opened() -> None:
    storage, rotten = await noted(loses_power=False)
    storage.inode(FIRST).data[rotten] ^= 1
    node = Node(storage, ("/data",))
    assert node.report.failed == {}
    assert len(node.values(P)) == 40
    assert not node.disk.inner.exists(f"/data/{P}/{DAMAGE_NOTE}")
    await node.close()
    assert Node(storage, ("/data",)).report.clean_shutdown


async def test_a_torn_tail_behind_the_place_is_not_the_damage_that_was_noted() -> None:
    storage, rotten = await noted(loses_power=True)
    storage.inode(FIRST).data[rotten] ^= 1
    del storage.inode(FIRST).data[-5:]
    note = simulated_disk(storage).read_bytes(f"/data/{P}/{DAMAGE_NOTE}")
    assert b"fails its checksum" in note
    node = Node(storage, ("/data",))
    assert not simulated_disk(storage).exists(f"/data/{P}/{DAMAGE_NOTE}")
    assert P in {*node.manager.logs, *node.manager.failed}


@pytest.mark.parametrize("is_active", [False, True])
async def test_damage_that_only_the_segments_limit_shows_is_found_again(is_active: bool) -> None:
    """A last batch that claims later offsets is sound by itself; and no batch behind it says otherwise."""
    storage = one_directory()
    node = Node(storage, ("/data",))
    node.make(P)
    append(node.manager.logs[P], 40)
    base = node.manager.logs[P].segment_base_offsets[-1 if is_active else 0]
    data = storage.inode(f"/data/{P}/{base:020d}.log").data
    last = [position for position, _ in iter_batches(bytes(data))][-1]
    if not is_active:
        await node.close()
        node = Node(storage, ("/data",))
    data[last + 6] ^= 1
    node.manager.logs[P].distrust()
    with pytest.raises(LogCorruptError):
        read_records(node.manager.logs[P])
    await node.close()
    for _ in range(2):
        node = Node(storage, ("/data",))
        assert list(node.report.failed) == [P]
        await node.close()
    data[last + 6] ^= 1
    assert len(Node(storage, ("/data",)).values(P)) == 40


async def test_a_note_that_cannot_be_read_counts() -> None:
    storage, rotten = await noted(loses_power=False)
    storage.inode(FIRST).data[rotten] ^= 1
    simulated_disk(storage).open(f"/data/{P}/{DAMAGE_NOTE}").truncate(5)
    assert DAMAGE_NOTE in str(Node(storage, ("/data",)).report.failed[P])


async def with_a_rotten_record() -> tuple[Node, Any]:
    """A node that has just started over a log whose damage nobody has met yet, and its disk."""
    storage = one_directory()
    node = Node(storage, ("/data",))
    node.make(P)
    append(node.manager.logs[P], 40)
    await node.close()
    storage.inode(FIRST).data[storage.inode(FIRST).data.index(b"value-0003")] ^= 1
    return Node(storage, ("/data",)), storage


async def test_no_fsync_of_a_note_holds_up_the_event_loop() -> None:
    node, _ = await with_a_rotten_record()
    node.disk.calls.clear()
    with pytest.raises(LogCorruptError):
        node.manager.logs[P].read(0, 10_000, up_to_offset=40)
    assert list(node.told) == [P], "and it is known at once"
    assert {operation for operation, _ in node.disk.calls} <= {"open"}
    await node.manager.delete([P])
    node.make(P)
    assert DAMAGE_NOTE not in node.disk.inner.list_dir(f"/data/{P}")


async def test_a_full_disk_takes_no_note_and_the_log_is_given_up_nonetheless() -> None:
    node, storage = await with_a_rotten_record()
    storage.free_bytes = 0
    with pytest.raises(LogCorruptError):
        node.manager.logs[P].read(0, 10_000, up_to_offset=40)
    assert list(node.manager.failed) == [P]


# ---- a read that fails while an index is rebuilt


class RefusingReads(FailingDisk):
    """As `FailingDisk`; reads of open files can fail too."""

    def open(self, path: str, *, create: bool = False) -> File:
        return _RefusingFile(self, super().open(path, create=create))  # type: ignore[return-value]


class _RefusingFile:
    def __init__(self, disk: RefusingReads, inner: File) -> None:
        self._disk = disk
        self._inner = inner

    def read(self, position: int, length: int) -> bytes:
        self._disk.check("read", self._inner.path)
        return self._inner.read(position, length)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def without_an_index() -> tuple[RefusingReads, PartitionLog, int]:
    """A log whose second segment's offset index is lost; and where that segment begins."""
    disk = RefusingReads(memory_disk())
    filled_log(disk).close()  # type: ignore[arg-type]
    log = open_log(disk, clean=True)
    base = log.segment_base_offsets[1]
    index = disk.inner.open(f"{FOLDER}/{base:020d}.index")
    index.truncate(3)
    index.close()
    return disk, log, base


def refusing(path: str, times: float) -> Callable[[str, str], int | None]:
    """EIO for so many reads of the file."""
    left = times

    def fail(operation: str, name: str) -> int | None:
        nonlocal left
        if operation != "read" or not name.endswith(path) or left <= 0:
            return None
        left -= 1
        return errno.EIO

    return fail


def test_a_segment_is_not_empty_because_one_read_failed() -> None:
    disk, log, base = without_an_index()
    disk.fail = refusing(f"{base:020d}.log", 1)
    with pytest.raises(LogStorageError):
        log.read(base + 1, 10_000, up_to_offset=RECORDS)
    assert [record.offset for record in read_records(log, base + 1)] == list(range(base + 1, RECORDS))


def test_a_follower_copies_no_hole_where_its_leader_cannot_read() -> None:
    disk, leader, base = without_an_index()
    disk.fail = refusing(f"{base:020d}.log", float("inf"))
    follower = open_log(memory_disk())
    for _ in range(60):
        try:
            result = leader.read(follower.log_end_offset, 400, up_to_offset=RECORDS)
        except LogStorageError:
            continue  # it asks again, as a fetcher does
        follower.append_as_follower(b"".join(part.read() for part in result.slices))
    copied = [record.offset for record in read_records(follower)]
    assert copied == list(range(len(copied)))
    assert len(copied) <= base


# ---- damage that nobody reads


async def rotten_header() -> Node:
    """Two logs; in the first segment of one the last batch's length has rotted while the node was down."""
    storage = one_directory()
    node = Node(storage, ("/data",))
    node.make(P, Q)
    for partition in (P, Q):
        append(node.manager.logs[partition], 40)
    await node.close()
    data = storage.inode(FIRST).data
    last = [position for position, _ in iter_batches(bytes(data))][-1]
    data[last + 8] ^= 0x40
    return Node(storage, ("/data",))


async def test_retention_gives_up_the_damaged_log_alone() -> None:
    node = await rotten_header()
    for partition in (P, Q):
        node.manager.logs[partition].update_config(replace(SMALL, retention_ms=1_000))
    await node.manager.retention.step(lambda _: 40, max_logs=10)
    assert list(node.manager.failed) == [P]


async def test_the_cleaner_gives_up_the_damaged_log_alone() -> None:
    node = await rotten_header()
    compacted = replace(SMALL, cleanup_policy="compact", min_compaction_lag_ms=1)
    for partition in (P, Q):
        node.manager.logs[partition].update_config(compacted)
    await node.manager.cleaner.clean_dirty_logs(lambda _: 40)
    assert list(node.manager.failed) == [P]


# ---- an index file that cannot be opened for its fsync


async def test_a_flush_that_meets_a_broken_device_takes_its_directory_alone() -> None:
    _, node = filled()
    log = node.manager.logs[T[1]]
    node.append(T[1], b"v" * 700)

    class Executor:
        async def run(self, job: Callable[..., Any], *arguments: Any) -> Any:
            done = job(*arguments)
            log.roll()  # exactly where the job has ended
            node.disk.fail = broken
            return done

    def broken(operation: str, path: str) -> int | None:
        return errno.EIO if operation == "create" and path.startswith("/more/") else None

    node.manager._parts = replace(node.manager._parts, executor=Executor())  # type: ignore[arg-type]
    with pytest.raises(LogStorageError):
        await node.manager._flush(log)
    assert list(node.manager.failed_directories) == ["/more"]


# ---- directories that are copies


def test_a_copy_of_a_data_directory_is_refused() -> None:
    storage = new_storage()
    disk = simulated_disk(storage)
    for path in IDS:
        disk.make_dirs(path)
        write_meta_properties(disk, path, MetaProperties(CLUSTER, 1, IDS["/data"]))
    storage.sync_everything()
    node = Node(storage, start=False)
    with pytest.raises(DataDirectoryError, match=r"same directory\.id") as refused:
        node.start()
    assert "/data and /more" in str(refused.value)
