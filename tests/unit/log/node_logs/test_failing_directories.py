"""Several data directories of which one fails, at start or later; and damaged files at the top of one."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Mapping

import pytest

from kraft.chaos.world.storage import Storage
from partitions.disk import Disk
from partitions.log.errors import (
    DataDirectoryError,
    DirectoryFailed,
    LogCorruptError,
    LogError,
    LogStorageError,
    NoSpaceLeft,
)
from partitions.log.node_logs.creation import NewLog
from partitions.log.node_logs.data_directory import CHECKPOINTS, RECOVERY_POINTS
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from partitions.log.node_logs.placements import FILE_NAME, Line, Placement, decode_placements
from partitions.log.node_logs.startup import StartReport
from partitions.log_manager import LogManager
from partitions.topic_partition import TopicPartition
from tests.support.logs import (
    SMALL,
    FailingDisk,
    Halted,
    InlineExecutor,
    batch_of,
    get_or_create,
    halt,
    new_storage,
    read_records,
    simulated_disk,
)

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
IDS = {"/data": "BBBBBBBBBBBBBBBBBBBBBB", "/more": "CCCCCCCCCCCCCCCCCCCCCC"}
DIRECTORIES = tuple(IDS)
ID, OTHER_ID = b"i" * 16, b"o" * 16
T = [TopicPartition("t", number) for number in range(4)]
"""The even ones come to lie in /data, the odd ones in /more."""


class Node:
    """A log manager over a disk that can fail, and who listens to it."""

    def __init__(
        self,
        storage: Storage,
        directories: tuple[str, ...] = DIRECTORIES,
        *,
        vital: str | None = None,
        start: bool = True,
    ) -> None:
        storage.locks.clear()
        self.disk = FailingDisk(simulated_disk(storage))
        self.told: dict[TopicPartition, LogError] = {}
        self.manager = LogManager(
            self.disk,  # type: ignore[arg-type]
            directories,
            SMALL,
            InlineExecutor(),  # type: ignore[arg-type]
            now_ms=lambda: 10_000,
            halt=halt,
            rng=random.Random(1),
            vital_directory=vital,
        )
        self.manager.set_failure_listener(self._listen)
        if start:
            self.report = self.start()

    def _listen(self, failed: Mapping[TopicPartition, LogError]) -> None:
        self.told.update(failed)

    def start(self) -> StartReport:
        return self.manager.start(cluster_id=CLUSTER, node_id=1)

    def make(self, *partitions: TopicPartition, topic_id: bytes = ID) -> None:
        for partition in partitions:
            get_or_create(self.manager, partition, topic_id)

    def append(self, partition: TopicPartition, value: bytes = b"x") -> None:
        self.manager.logs[partition].append_as_leader(batch_of(value), leader_epoch=0)

    def values(self, partition: TopicPartition) -> list[bytes | None]:
        return [record.value for record in read_records(self.manager.logs[partition])]

    def break_down(self, folder: str, number: int = errno.EIO, *operations: str) -> None:
        """From now on these operations (all) fail in the folder."""
        self.disk.fail = lambda operation, path: (
            number if path.startswith(folder + "/") and (not operations or operation in operations) else None
        )

    async def close(self) -> None:
        await self.manager.close(broker_epoch=5, high_watermarks={})


def two_directories() -> Storage:
    storage = new_storage()
    storage.make_dirs("/more")
    for path, directory_id in IDS.items():
        write_meta_properties(simulated_disk(storage), path, MetaProperties(CLUSTER, 1, directory_id))
    storage.sync_everything()
    return storage


def filled() -> tuple[Storage, Node]:
    storage = two_directories()
    node = Node(storage)
    node.make(*T)
    for partition in T:
        node.append(partition)
    return storage, node


def listed(disk: Disk, directory: str = "/data") -> dict[TopicPartition, Placement]:
    return decode_placements(disk.read_bytes(f"{directory}/{FILE_NAME}"))[0]


# ---- while the node runs


async def test_an_fsync_that_fails_takes_the_directory_and_nothing_else() -> None:
    storage, node = filled()
    node.break_down("/more", errno.EIO, "sync")
    await node.manager.flush()
    assert set(node.told) == {T[1], T[3]}
    assert all(isinstance(error, DirectoryFailed) for error in node.told.values())
    assert set(node.manager.logs) == {T[0], T[2]}
    assert list(node.manager.failed_directories) == ["/more"]
    for partition in (T[0], T[2]):
        assert node.manager.logs[partition].recovery_point == 1
        node.append(partition)
    with pytest.raises(DirectoryFailed):
        get_or_create(node.manager, T[1], ID)
    # Not even what would succeed is done there any more.
    node.disk.fail = lambda operation, path: None
    node.disk.calls.clear()
    new = TopicPartition("new", 0)
    node.make(new)
    assert node.manager.logs[new].directory == "/data/new-0"
    await node.manager.checkpoint_recovery_points()
    await node.manager.checkpoints.write_log_start_offsets()
    await node.manager.checkpoints.write_high_watermarks({T[1]: 1, T[0]: 1})
    await node.manager.removals.remove_due()
    await node.close()
    assert not [path for _, path in node.disk.calls if path.startswith("/more")]
    disk = simulated_disk(storage)
    assert disk.exists("/data/.kafka_cleanshutdown")
    assert not disk.exists("/more/.kafka_cleanshutdown")
    report = Node(storage).report
    assert not report.clean_shutdown
    assert report.previous_broker_epoch == -1


@pytest.mark.parametrize(
    ("operation", "number"), [("append", errno.EIO), ("append", errno.EROFS), ("open", errno.EIO)]
)
def test_an_io_error_takes_the_directory(operation: str, number: int) -> None:
    _, node = filled()
    node.break_down("/more", number, operation)
    node.manager.logs[T[1]].storage.close()  # as files are that were not used for long
    with pytest.raises(LogStorageError):
        node.append(T[1])
    assert set(node.told) == {T[1], T[3]}
    node.append(T[0])


@pytest.mark.parametrize(
    ("number", "given_up"), [(errno.EIO, True), (errno.ENOENT, True), (errno.EMFILE, False)]
)
def test_a_read_that_the_only_directory_refuses_takes_the_log_alone(number: int, given_up: bool) -> None:
    """Another replica may have the records; what the process lacks for now says nothing of the disk."""
    node = Node(two_directories(), ("/data",))
    node.make(*T[:2])
    for partition in T[:2]:
        node.append(partition)
    log = node.manager.logs[T[0]]
    log.storage.close()  # as files are that were not used for long
    node.break_down("/data/t-0", number, "open")
    with pytest.raises(LogStorageError):
        log.read(0, 1000, up_to_offset=1)
    assert list(node.told) == ([T[0]] if given_up else [])
    assert node.manager.failed_directories == {}
    assert node.values(T[1]) == [b"x"]
    node.break_down("/nowhere")
    assert given_up or node.values(T[0]) == [b"x"]


def test_a_full_disk_takes_nothing() -> None:
    _, node = filled()
    node.break_down("/more", errno.ENOSPC, "append")
    with pytest.raises(LogError) as raised:
        node.append(T[1])
    assert raised.value.is_transient
    assert not node.told
    node.break_down("/nowhere")
    node.append(T[1])


async def test_the_node_halts_with_its_last_directory() -> None:
    _, node = filled()
    node.break_down("/more", errno.EIO, "sync")
    await node.manager.flush()
    node.append(T[0])
    node.break_down("/data", errno.EIO, "sync")
    with pytest.raises(Halted):
        await node.manager.flush()


@pytest.mark.parametrize("vital", ["/more", "/more/"])
async def test_the_node_halts_with_the_directory_of_the_controllers_log(vital: str) -> None:
    storage = two_directories()
    node = Node(storage, vital=vital)
    node.make(*T)
    node.append(T[1])
    node.break_down("/more", errno.EIO, "sync")
    with pytest.raises(Halted):
        await node.manager.flush()


async def test_a_log_in_a_failed_directory_can_be_deleted_and_made_anew_elsewhere() -> None:
    storage, node = filled()
    await node.manager.flush()
    node.break_down("/more", errno.EIO)
    with pytest.raises(LogStorageError):
        node.append(T[1])
    await node.manager.delete([T[1]])
    node.make(T[1], topic_id=OTHER_ID)
    node.append(T[1], b"new")
    assert node.manager.logs[T[1]].directory == "/data/t-1"
    await node.close()
    # The directory comes back with the old folder: it is known to be the older one.
    node = Node(storage)
    assert node.values(T[1]) == [b"new"]
    assert node.manager.logs[T[1]].topic_id == OTHER_ID
    assert node.values(T[3]) == [b"x"]
    await node.manager.removals.remove_due()
    assert not simulated_disk(storage).exists("/more/t-1")


async def test_a_damaged_log_is_given_up_and_can_be_made_anew() -> None:
    storage, node = filled()
    await node.close()
    node = Node(storage)
    path = "/more/t-1/00000000000000000000.log"
    file = simulated_disk(storage).open(path)
    file.write_at(file.size() - 1, b"\xff")
    with pytest.raises(LogCorruptError):
        node.manager.logs[T[1]].read(0, 1000, up_to_offset=1)
    assert list(node.told) == [T[1]]
    assert isinstance(node.manager.failed[T[1]], LogCorruptError)
    with pytest.raises(LogCorruptError):
        get_or_create(node.manager, T[1], ID)
    await node.manager.delete([T[1]])
    node.make(T[1])
    assert node.manager.logs[T[1]].log_end_offset == 0
    assert not node.manager.failed


# ---- at start


def replaced_by_a_file(storage: Storage) -> None:
    disk = simulated_disk(storage)
    disk.rename("/more", "/away")
    disk.open("/more", create=True)


def removed(storage: Storage) -> None:
    simulated_disk(storage).rename("/more", "/away")


@pytest.mark.parametrize("go", [replaced_by_a_file, removed])
@pytest.mark.parametrize("first", [False, True])
async def test_a_directory_that_is_gone_is_offline_and_its_partitions_are_not_made_anew(
    go: object, first: bool
) -> None:
    storage, node = filled()
    await node.close()
    assert callable(go)
    go(storage)
    node = Node(storage, DIRECTORIES[::-1] if first else DIRECTORIES)
    assert list(node.report.failed_directories) == ["/more"]
    assert not node.report.clean_shutdown
    assert set(node.report.failed) == {T[1], T[3]}
    for partition in (T[1], T[3]):
        assert node.manager.failed_topic_id(partition) == ID
        with pytest.raises(DirectoryFailed, match="cannot be used"):
            get_or_create(node.manager, partition, ID)
    assert node.values(T[0]) == [b"x"]
    await node.close()
    disk = simulated_disk(storage)
    if disk.exists("/more"):
        disk.remove("/more")
    disk.rename("/away", "/more")
    node = Node(storage)
    assert not node.report.failed
    assert [node.values(partition) for partition in T] == [[b"x"]] * 4


async def test_a_disk_that_fails_at_start_is_offline() -> None:
    storage, node = filled()
    await node.close()
    for number, operations in ((errno.EIO, ()), (errno.EROFS, ("lock", "create", "remove", "rename"))):
        node = Node(storage, start=False)
        node.break_down("/more", number, *operations)
        report = node.start()
        assert list(report.failed_directories) == ["/more"]
        assert set(report.failed) == {T[1], T[3]}
        await node.close()


async def test_a_directory_that_fails_while_its_logs_are_opened_is_offline() -> None:
    storage, node = filled()
    await node.close()
    node = Node(storage, start=False)
    node.disk.fail = lambda operation, path: errno.EIO if path.startswith("/more/t-") else None
    report = node.start()
    assert list(report.failed_directories) == ["/more"]
    assert set(report.failed) == {T[1], T[3]}
    assert set(node.manager.logs) == {T[0], T[2]}


async def test_no_start_without_any_directory_nor_without_the_controllers() -> None:
    storage, node = filled()
    await node.close()
    removed(storage)
    with pytest.raises(DataDirectoryError, match="/more does not exist"):
        Node(storage, vital="/more")
    with pytest.raises(DataDirectoryError, match="/more does not exist"):
        Node(storage, ("/more",))


async def test_a_foreign_directory_refuses_the_start() -> None:
    storage, node = filled()
    await node.close()
    other = MetaProperties(CLUSTER, 2, IDS["/more"])
    write_meta_properties(simulated_disk(storage), "/more", other)
    with pytest.raises(DataDirectoryError, match="belongs to the node 2"):
        Node(storage)
    simulated_disk(storage).remove("/more/meta.properties")
    with pytest.raises(DataDirectoryError, match="is not formatted"):
        Node(storage)


async def test_a_directory_that_was_taken_out_of_the_configuration_is_no_clean_end() -> None:
    """Its replicas are made anew, and count for nothing that they have lost."""
    storage, node = filled()
    await node.close()
    node = Node(storage, ("/data",))
    assert not node.report.clean_shutdown
    assert node.report.previous_broker_epoch == -1
    assert not node.report.failed
    node.make(T[1])
    await node.close()
    assert not simulated_disk(storage).exists(f"/data/{FILE_NAME}")
    assert Node(storage, ("/data",)).report.clean_shutdown


# ---- which partition lives where


async def test_the_list_of_partitions_is_in_every_directory_and_durable() -> None:
    storage, node = filled()
    expected = {
        partition: Placement(ID, IDS["/more" if partition.partition % 2 else "/data"]) for partition in T
    }
    storage.lose_power()
    assert listed(simulated_disk(storage)) == listed(simulated_disk(storage), "/more") == expected
    node = Node(storage)
    await node.manager.delete([T[1]])
    storage.lose_power()
    del expected[T[1]]
    assert listed(simulated_disk(storage), "/more") == expected


async def test_the_newest_list_counts() -> None:
    storage, node = filled()
    old = simulated_disk(storage).read_bytes(f"/data/{FILE_NAME}")
    await node.manager.delete([T[3]])
    await node.close()
    disk = simulated_disk(storage)
    disk.remove(f"/data/{FILE_NAME}")
    disk.open(f"/data/{FILE_NAME}", create=True).append([old])
    removed(storage)
    assert set(Node(storage).report.failed) == {T[1], T[3]}  # all that /data alone can know
    disk.rename("/away", "/more")
    node = Node(storage)
    await node.close()
    removed(storage)
    assert set(Node(storage).report.failed) == {T[1]}


def test_a_torn_list_says_what_is_whole() -> None:
    lines = [Line(n, T[n], Placement(ID, IDS["/data"])).encode() for n in range(3)]
    whole = b"".join([*lines, Line(3, T[0], None).encode()])
    placements, last = decode_placements(whole)
    assert list(placements) == [T[1], T[2]]
    assert last == 3
    for cut in range(len(whole)):
        placements, last = decode_placements(whole[:cut])
        assert last < 3
        assert len(placements) == last + 1
    for at in range(len(lines[0]), len(lines[0]) + len(lines[1])):
        flipped = bytearray(whole)
        flipped[at] ^= 1
        assert list(decode_placements(bytes(flipped))[0])[:1] == [T[0]]
        assert T[1] not in decode_placements(bytes(flipped))[0]


# ---- a full directory beside others


def full(folder: str) -> Callable[[str, str], int | None]:
    """For `FailingDisk.fail`: the folder's file system takes no byte and no name."""
    return lambda operation, path: (
        errno.ENOSPC if operation in ("create", "append") and path.startswith(folder + "/") else None
    )


U = [TopicPartition("u", number) for number in range(6)]


async def test_a_full_directory_keeps_no_log_from_being_made_in_another() -> None:
    node = Node(two_directories())
    node.disk.fail = full("/more")
    failed = await node.manager.creator.create([NewLog(key, ID, SMALL, None) for key in U])
    assert failed == {}
    assert set(node.manager.logs) == set(U)
    assert all(log.directory.startswith("/data/") for log in node.manager.logs.values())


async def test_where_every_directory_is_full_nothing_is_made() -> None:
    node = Node(two_directories())
    node.disk.fail = lambda operation, path: full("/more")(operation, path) or full("/data")(operation, path)
    failed = await node.manager.creator.create([NewLog(key, ID, SMALL, None) for key in U])
    assert set(failed) == set(U)
    assert all(isinstance(error, NoSpaceLeft) for error in failed.values())
    node.break_down("/nowhere")
    assert await node.manager.creator.create([NewLog(key, ID, SMALL, None) for key in U]) == {}
    assert {log.directory.rpartition("/")[0] for log in node.manager.logs.values()} == set(IDS)


@pytest.mark.parametrize("torn_bytes", [0, 7])
async def test_a_list_that_is_behind_is_written_whole_when_there_is_room(torn_bytes: int) -> None:
    storage, node = filled()
    before = listed(simulated_disk(storage), "/more")
    node.disk.torn_bytes = torn_bytes
    node.disk.fail = full("/more")
    node.make(*U)
    assert listed(simulated_disk(storage), "/more") == before
    assert set(listed(simulated_disk(storage))) == {*T, *U}
    with pytest.raises(NoSpaceLeft):  # the checkpoint in the full directory, after the list elsewhere
        await node.manager.checkpoint_recovery_points()
    node.break_down("/nowhere")
    await node.manager.checkpoint_recovery_points()
    assert listed(simulated_disk(storage)) == listed(simulated_disk(storage), "/more")
    storage.lose_power()
    assert set(listed(simulated_disk(storage), "/more")) == {*T, *U}


async def test_a_directory_whose_list_is_behind_does_not_end_cleanly() -> None:
    """Without the other one nobody could tell that logs are missing."""
    storage, node = filled()
    await node.manager.flush()
    for key in (T[1], T[3]):
        node.manager.logs[key].close()
    list_path = f"/more/{FILE_NAME}"
    node.disk.fail = lambda operation, path: errno.ENOSPC if path.startswith(list_path) else None
    node.make(U[0])
    await node.close()
    assert simulated_disk(storage).exists("/data/.kafka_cleanshutdown")
    assert not simulated_disk(storage).exists("/more/.kafka_cleanshutdown")
    node = Node(storage, ("/more",))
    assert not node.report.clean_shutdown
    assert node.report.previous_broker_epoch == -1


async def test_a_list_that_went_on_alone_is_newer_than_what_it_was_behind_of() -> None:
    storage, node = filled()
    node.disk.fail = full("/more")
    node.make(*U)
    storage.lose_power()
    disk = simulated_disk(storage)
    disk.rename("/data", "/away")
    node = Node(storage)
    assert not set(U) & set(node.manager.failed), "nobody told /more"
    node.make(U[0], topic_id=OTHER_ID)
    node.append(U[0], b"new")
    await node.close()
    disk.rename("/away", "/data")
    node = Node(storage)
    assert node.manager.logs[U[0]].directory == "/more/u-0"
    assert node.values(U[0]) == [b"new"]
    assert listed(disk)[U[0]] == Placement(OTHER_ID, IDS["/more"])
    assert listed(disk)[U[1]] == Placement(ID, IDS["/data"])


async def test_a_full_directory_does_not_keep_a_node_from_starting() -> None:
    storage, node = filled()
    await node.close()
    node = Node(storage, start=False)
    node.disk.fail = full("/more")
    report = node.start()
    assert report.logs == len(T)
    node.make(*U)
    assert set(node.manager.logs) == {*T, *U}


def test_one_directory_needs_no_list() -> None:
    storage = two_directories()
    node = Node(storage, ("/data",))
    node.make(*T)
    assert not simulated_disk(storage).exists(f"/data/{FILE_NAME}")


# ---- damaged checkpoints


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("content", [b"", b"0\n2\nt 0 1\n", b"7\n0\n", b"\x00\xff" * 40])
async def test_a_damaged_checkpoint_counts_as_absent_and_everything_is_recovered(
    name: str, content: bytes
) -> None:
    storage = two_directories()
    node = Node(storage, ("/data",))
    node.make(*T)
    for number in range(30):
        node.append(T[0], b"%d" % number)
    await node.manager.checkpoints.write_high_watermarks({T[0]: 30})
    await node.close()
    disk = simulated_disk(storage)
    if disk.exists(f"/data/{name}"):
        disk.remove(f"/data/{name}")
    disk.open(f"/data/{name}", create=True).append([content])
    node = Node(storage, ("/data",))
    (reason,) = node.report.damaged_checkpoints
    assert f"/data/{name}" in reason
    assert not node.report.clean_shutdown
    assert node.report.previous_broker_epoch == -1
    assert not node.report.failed
    log = node.manager.logs[T[0]]
    assert not log.recovery.clean
    assert log.recovery.checked_bytes == log.size_bytes
    assert log.log_start_offset == 0
    assert node.values(T[0]) == [b"%d" % number for number in range(30)]
    await node.close()
    report = Node(storage, ("/data",)).report
    assert report.clean_shutdown
    assert not report.damaged_checkpoints


async def test_a_log_start_that_is_not_known_is_that_of_the_segments() -> None:
    storage = two_directories()
    node = Node(storage, ("/data",))
    node.make(T[0])
    for number in range(30):
        node.append(T[0], b"%d" % number)
    log = node.manager.logs[T[0]]
    first = log.segment_base_offsets[1]
    log.raise_log_start_offset(first + 1)
    await node.manager.retention.step(lambda _: 30, max_logs=1)
    await node.close()
    simulated_disk(storage).open("/data/log-start-offset-checkpoint").truncate(3)
    node = Node(storage, ("/data",))
    assert node.manager.logs[T[0]].log_start_offset == first
    assert node.manager.logs[T[0]].log_end_offset == 30


async def test_a_damaged_topic_id_takes_one_replica_offline() -> None:
    storage, node = filled()
    await node.close()
    simulated_disk(storage).open("/data/t-0/partition.metadata").truncate(5)
    node = Node(storage)
    assert list(node.report.failed) == [T[0]]
    assert "partition.metadata" in str(node.report.failed[T[0]])
    assert node.values(T[2]) == [b"x"]


def test_the_recovery_point_is_not_taken_from_a_directory_with_a_damaged_file() -> None:
    storage, node = filled()
    node.manager.logs[T[0]].sync()
    disk = simulated_disk(storage)
    disk.open(f"/data/{RECOVERY_POINTS}", create=True).append([b"0\n1\nt 0 1\n"])
    disk.open("/data/replication-offset-checkpoint", create=True).append([b"?"])
    node = Node(storage)
    assert node.manager.logs[T[0]].recovery.checked_bytes > 0


async def test_a_full_disk_at_the_end_is_no_clean_end_of_its_directory() -> None:
    storage, node = filled()
    node.break_down("/more", errno.ENOSPC)
    await node.close()
    disk = simulated_disk(storage)
    assert disk.exists("/data/.kafka_cleanshutdown")
    assert not disk.exists("/more/.kafka_cleanshutdown")
    report = Node(storage).report
    assert not report.clean_shutdown
    assert not report.failed
