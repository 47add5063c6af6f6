"""All logs of a node: start, deletion, checkpoints, retention, end."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import json
import random
import re

import pytest

from kraft.chaos.world.storage import Storage
from kraft.runtime.disk import RealDisk
from partitions.disk import Disk
from partitions.log.config import LogConfig
from partitions.log.errors import (
    DataDirectoryError,
    InconsistentTopicId,
    LogCorruptError,
    LogStorageError,
    NoSpaceLeft,
)
from partitions.log.node_logs.meta_properties import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
    read_meta_properties,
    write_meta_properties,
)
from partitions.log.node_logs.offset_checkpoint import (
    CheckpointDamaged,
    decode_offset_checkpoint,
    encode_offset_checkpoint,
)
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
META = MetaProperties(CLUSTER, 1, "BBBBBBBBBBBBBBBBBBBBBB")
ORDERS = TopicPartition("orders", 0)
DASHED = TopicPartition("a-b.c_d", 12)
ID, OTHER_ID = b"i" * 16, b"o" * 16


def formatted_storage() -> Storage:
    storage = new_storage()
    write_meta_properties(simulated_disk(storage), "/data", META)
    storage.sync_everything()
    return storage


def manager_on(
    disk: Disk, config: LogConfig = SMALL, *, directories: tuple[str, ...] = ("/data",)
) -> LogManager:
    return LogManager(
        disk,
        directories,
        config,
        InlineExecutor(),  # type: ignore[arg-type]
        now_ms=lambda: 10_000,
        halt=halt,
        rng=random.Random(1),
    )


def started(disk: Disk, config: LogConfig = SMALL) -> LogManager:
    manager = manager_on(disk, config)
    manager.start(cluster_id=CLUSTER, node_id=1)
    return manager


def restarted_disk(storage: Storage) -> Disk:
    storage.locks.clear()
    return simulated_disk(storage)


def append(manager: LogManager, partition: TopicPartition, count: int = 1) -> None:
    for number in range(count):
        manager.logs[partition].append_as_leader(batch_of(b"v%03d" % number), leader_epoch=0)


async def test_logs_come_back_after_a_clean_end() -> None:
    storage = formatted_storage()
    manager = started(simulated_disk(storage))
    for partition in (ORDERS, DASHED):
        get_or_create(manager, partition, ID)
        append(manager, partition, 20)
    await manager.close(broker_epoch=77, high_watermarks={ORDERS: 19})
    marker = simulated_disk(storage).read_bytes("/data/.kafka_cleanshutdown")
    assert json.loads(marker) == {"version": 0, "brokerEpoch": 77}

    manager = manager_on(simulated_disk(storage))
    report = manager.start(cluster_id=CLUSTER, node_id=1)
    assert (report.clean_shutdown, report.previous_broker_epoch, report.logs) == (True, 77, 2)
    assert (dict(report.failed), dict(report.recovered)) == ({}, {})
    assert sorted(manager.logs) == [DASHED, ORDERS]
    log = get_or_create(manager, ORDERS, ID)
    assert (log.recovery.clean, log.log_end_offset, log.topic_id) == (True, 20, ID)
    assert (manager.high_watermark(ORDERS), manager.high_watermark(DASHED)) == (19, 0)
    # The marker is gone for good before anything is appended.
    storage.lose_power()
    report = manager_on(restarted_disk(storage)).start(cluster_id=CLUSTER, node_id=1)
    assert (report.clean_shutdown, report.previous_broker_epoch) == (False, -1)


async def test_a_crash_is_recovered_from_the_recovery_points() -> None:
    storage = formatted_storage()
    manager = started(simulated_disk(storage))
    get_or_create(manager, ORDERS, ID)
    append(manager, ORDERS, 20)
    await manager.checkpoint_recovery_points()
    assert not manager.logs[ORDERS].needs_flush
    append(manager, ORDERS, 5)
    active = f"/data/{ORDERS}/{manager.logs[ORDERS].segment_base_offsets[-1]:020d}.log"
    storage.inode(active).data[-1] ^= 1
    manager = manager_on(restarted_disk(storage))
    report = manager.start(cluster_id=CLUSTER, node_id=1)
    assert list(report.recovered) == [ORDERS]
    log = manager.logs[ORDERS]
    assert (log.recovery_point, log.log_end_offset) == (20, 24)
    assert log.recovery.checked_bytes < log.size_bytes


def test_one_damaged_log_does_not_stop_the_others() -> None:
    storage = formatted_storage()
    manager = started(simulated_disk(storage))
    for partition in (ORDERS, DASHED):
        get_or_create(manager, partition, ID)
        append(manager, partition, 2)
    asyncio.run(manager.checkpoint_recovery_points())
    storage.inode(f"/data/{ORDERS}/{0:020d}.log").data[-1] ^= 1
    manager = manager_on(restarted_disk(storage))
    report = manager.start(cluster_id=CLUSTER, node_id=1)
    assert list(report.failed) == [ORDERS]
    assert list(manager.logs) == [DASHED]
    with pytest.raises(LogCorruptError, match="fails its checksum"):
        get_or_create(manager, ORDERS, ID)
    # It can be deleted, to be copied again from the leader.
    asyncio.run(manager.delete([ORDERS]))
    assert get_or_create(manager, ORDERS, ID).log_end_offset == 0


async def test_a_log_that_is_lost_after_a_clean_end_counts_as_an_unclean_one() -> None:
    storage = formatted_storage()
    manager = started(simulated_disk(storage))
    get_or_create(manager, ORDERS, ID)
    append(manager, ORDERS, 2)
    await manager.close(broker_epoch=77, high_watermarks={})
    disk = FailingDisk(simulated_disk(storage))
    disk.fail = lambda operation, path: errno.EIO if operation == "open" and str(ORDERS) in path else None
    report = manager_on(disk).start(cluster_id=CLUSTER, node_id=1)
    assert list(report.failed) == [ORDERS]
    assert (report.clean_shutdown, report.previous_broker_epoch) == (True, -1)


def test_two_processes_never_share_a_directory() -> None:
    storage = formatted_storage()
    started(simulated_disk(storage))
    with pytest.raises(DataDirectoryError, match="another process uses the data directory /data"):
        started(simulated_disk(storage))


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "reason"),
    [("CCCCCCCCCCCCCCCCCCCCCC", 1, "belongs to the cluster"), (CLUSTER, 2, "belongs to the node 1")],
)
def test_a_directory_of_another_cluster_or_node_is_refused(
    cluster_id: str, node_id: int, reason: str
) -> None:
    storage = formatted_storage()
    with pytest.raises(DataDirectoryError, match=reason):
        manager_on(simulated_disk(storage)).start(cluster_id=cluster_id, node_id=node_id)
    started(simulated_disk(storage))  # the lock was given back


def test_directories_must_exist_and_be_formatted() -> None:
    with pytest.raises(DataDirectoryError, match="is not formatted; run `kraft storage format"):
        started(simulated_disk(new_storage()))
    with pytest.raises(DataDirectoryError, match="does not exist"):
        manager_on(RealDisk(), directories=("/nowhere/at/all",)).start(cluster_id=CLUSTER, node_id=1)


async def test_a_name_is_free_again_after_deletion() -> None:
    storage = formatted_storage()
    manager = started(simulated_disk(storage))
    get_or_create(manager, ORDERS, ID)
    append(manager, ORDERS, 20)
    await manager.checkpoint_recovery_points()
    await manager.checkpoints.write_high_watermarks({ORDERS: 20})
    with pytest.raises(InconsistentTopicId):
        get_or_create(manager, ORDERS, OTHER_ID)
    await manager.delete([ORDERS, TopicPartition("unknown", 0)])
    [left] = [name for name in simulated_disk(storage).list_dir("/data") if "orders" in name]
    assert re.fullmatch(r"orders-0\.[0-9a-f]{32}-delete", left), "Kafka's name for it"
    assert (manager.get(ORDERS), manager.high_watermark(ORDERS)) == (None, 0)
    log = get_or_create(manager, ORDERS, OTHER_ID)
    assert (log.log_end_offset, log.topic_id) == (0, OTHER_ID)
    append(manager, ORDERS, 1)
    storage.lose_power()
    # Nothing of the old incarnation's checkpoints is taken for the new one's.
    manager = started(restarted_disk(storage))
    assert manager.high_watermark(ORDERS) == 0
    assert manager.logs[ORDERS].topic_id == OTHER_ID
    assert manager.logs[ORDERS].log_end_offset <= 1


async def test_an_interrupted_deletion_is_finished_after_the_next_start() -> None:
    storage = formatted_storage()
    disk = FailingDisk(simulated_disk(storage))
    manager = started(disk)
    get_or_create(manager, ORDERS, ID)
    append(manager, ORDERS, 3)
    await manager.checkpoint_recovery_points()
    await manager.delete([ORDERS])
    disk.fail = lambda operation, path: errno.EIO if operation == "remove_tree" else None
    with pytest.raises(LogStorageError, match="removing"):
        await manager.removals.remove_due()
    manager = started(restarted_disk(storage))
    assert manager.get(ORDERS) is None
    [left] = [name for name in simulated_disk(storage).list_dir("/data") if name.endswith("-delete")]
    assert left.startswith("orders-0.")
    await manager.removals.remove_due()
    assert not [name for name in simulated_disk(storage).list_dir("/data") if name.endswith("-delete")]


async def test_a_failed_removal_is_tried_again() -> None:
    disk = FailingDisk(simulated_disk(formatted_storage()))
    manager = manager_on(disk)
    manager.start(cluster_id=CLUSTER, node_id=1)
    get_or_create(manager, ORDERS, ID)
    await manager.delete([ORDERS])
    disk.fail = lambda operation, path: errno.EIO if operation == "remove_tree" else None
    with pytest.raises(LogStorageError, match="removing"):
        await manager.removals.remove_due()
    disk.fail = lambda operation, path: None
    await manager.removals.remove_due()
    assert not [name for name in disk.list_dir("/data") if name.endswith("-delete")]


async def test_checkpoint_files_are_kafkas() -> None:
    storage = formatted_storage()
    disk = simulated_disk(storage)
    manager = started(disk)
    for partition in (ORDERS, DASHED):
        get_or_create(manager, partition, ID)
        append(manager, partition, 12)
    manager.logs[ORDERS].delete_segments_before(5)
    await manager.checkpoint_recovery_points()
    await manager.checkpoints.write_log_start_offsets()
    await manager.checkpoints.write_high_watermarks({ORDERS: 11})
    assert disk.read_bytes("/data/recovery-point-offset-checkpoint") == b"0\n2\na-b.c_d 12 12\norders 0 12\n"
    assert disk.read_bytes("/data/log-start-offset-checkpoint") == b"0\n2\na-b.c_d 12 0\norders 0 5\n"
    assert disk.read_bytes("/data/replication-offset-checkpoint") == b"0\n1\norders 0 11\n"
    # Values that are not given stay; those of unknown partitions are not written.
    await manager.checkpoints.write_high_watermarks({DASHED: 7, TopicPartition("gone", 0): 5})
    assert disk.read_bytes("/data/replication-offset-checkpoint") == b"0\n2\na-b.c_d 12 7\norders 0 11\n"
    storage.lose_power()
    manager = started(restarted_disk(storage))
    assert (manager.logs[ORDERS].log_start_offset, manager.high_watermark(DASHED)) == (5, 7)


async def test_nothing_is_written_when_nothing_changed() -> None:
    disk = FailingDisk(simulated_disk(formatted_storage()))
    manager = started(disk)
    get_or_create(manager, ORDERS, ID)
    append(manager, ORDERS, 2)
    await manager.checkpoint_recovery_points()
    await manager.checkpoints.write_high_watermarks({ORDERS: 2})
    disk.calls.clear()
    await manager.checkpoint_recovery_points()
    await manager.checkpoints.write_high_watermarks({ORDERS: 2})
    await manager.checkpoints.write_high_watermarks({})
    assert disk.calls == []


async def test_a_recovery_point_is_never_written_before_its_data_is_durable() -> None:
    storage = formatted_storage()
    disk = FailingDisk(simulated_disk(storage))
    manager = started(disk)
    get_or_create(manager, ORDERS, ID)
    append(manager, ORDERS, 20)
    disk.fail = lambda operation, path: errno.EIO if operation == "sync" and path.endswith(".log") else None
    with pytest.raises(Halted, match="fsync of the log"):
        await manager.checkpoint_recovery_points()
    assert not simulated_disk(storage).exists("/data/recovery-point-offset-checkpoint")
    with pytest.raises(LogStorageError):
        append(manager, ORDERS)


async def test_a_full_disk_at_a_checkpoint_is_survived() -> None:
    disk = FailingDisk(simulated_disk(formatted_storage()))
    manager = started(disk)
    get_or_create(manager, ORDERS, ID)
    disk.fail = lambda operation, path: (
        errno.ENOSPC if operation == "append" and "checkpoint" in path else None
    )
    with pytest.raises(LogStorageError, match="no space left"):
        await manager.checkpoints.write_high_watermarks({ORDERS: 0})
    disk.fail = lambda operation, path: None
    await manager.checkpoints.write_high_watermarks({ORDERS: 0})
    append(manager, ORDERS)


async def test_a_flush_without_descriptors_is_survived_and_done_later() -> None:
    storage = formatted_storage()
    disk = FailingDisk(simulated_disk(storage))
    manager = started(disk)
    get_or_create(manager, ORDERS, ID)
    append(manager, ORDERS, 2)
    disk.fail = lambda operation, path: errno.EMFILE if operation == "open" else None
    with pytest.raises(NoSpaceLeft, match="no descriptor left to flush"):
        await manager.flush_log(ORDERS)
    disk.fail = lambda operation, path: None
    await manager.flush_log(ORDERS)
    assert manager.logs[ORDERS].recovery_point == manager.logs[ORDERS].log_end_offset
    storage.lose_power()
    assert storage.files()["/data/orders-0/00000000000000000000.log"]


async def test_no_clean_shutdown_marker_when_closing_failed() -> None:
    storage = formatted_storage()
    disk = FailingDisk(simulated_disk(storage))
    manager = started(disk)
    get_or_create(manager, ORDERS, ID)
    append(manager, ORDERS, 2)
    disk.fail = lambda operation, path: errno.EIO if operation == "sync" else None
    with pytest.raises(Halted):
        await manager.close(broker_epoch=1, high_watermarks={})
    assert not simulated_disk(storage).exists("/data/.kafka_cleanshutdown")


async def test_retention_walks_over_the_logs_in_steps() -> None:
    disk = simulated_disk(formatted_storage())
    config = dataclasses.replace(SMALL, retention_ms=1000)
    manager = started(disk, config)
    partitions = [TopicPartition("t", number) for number in range(5)]
    for partition in partitions:
        get_or_create(manager, partition, ID, config)
        append(manager, partition, 30)
    manager.logs[partitions[0]].append_as_leader(batch_of(b"x", producer=(7, 0, 0)), leader_epoch=0)
    ends = {partition: log.log_end_offset for partition, log in manager.logs.items()}
    deleted = await manager.retention.step(ends.__getitem__, max_logs=2)
    assert deleted > 0
    assert manager.retention.is_pending
    assert [log.size_bytes > 0 for log in manager.logs.values()] == [False, False, True, True, True]
    while manager.retention.is_pending:
        await manager.retention.step(ends.__getitem__, max_logs=2)
    assert [log.size_bytes for log in manager.logs.values()] == [0] * 5


async def test_configuration_of_the_topic_counts_once_it_is_known() -> None:
    storage = formatted_storage()
    manager = started(simulated_disk(storage))
    get_or_create(manager, ORDERS, ID)
    append(manager, ORDERS, 3)
    manager = started(restarted_disk(storage))
    assert manager.logs[ORDERS].config == SMALL
    other = SMALL.with_overrides({"segment.bytes": "100"})
    assert get_or_create(manager, ORDERS, ID, other).config == other
    append(manager, ORDERS, 3)
    assert len(manager.logs[ORDERS].segment_base_offsets) == 4
    assert len(read_records(manager.logs[ORDERS])) == 6


async def test_files_that_are_open_at_a_time_are_bounded(tmp_path: object) -> None:
    disk = RealDisk()
    write_meta_properties(disk, str(tmp_path), META)
    manager = LogManager(
        disk,
        [str(tmp_path)],
        SMALL,
        InlineExecutor(),  # type: ignore[arg-type]
        now_ms=lambda: 0,
        halt=halt,
        rng=random.Random(1),
        max_open_files=3,
    )
    manager.start(cluster_id=CLUSTER, node_id=1)
    storage = manager._directories.all[0].storage
    partitions = [TopicPartition("t", number) for number in range(10)]
    for turn in range(3):
        for partition in partitions:
            get_or_create(manager, partition, ID).append_as_leader(batch_of(b"%d" % turn), leader_epoch=0)
            assert storage.open_files <= 3
    for partition in partitions:
        assert [record.value for record in read_records(manager.logs[partition])] == [b"0", b"1", b"2"]
    await manager.close(broker_epoch=1, high_watermarks={})
    assert storage.open_files == 0


async def test_several_directories_share_the_logs() -> None:
    storage = formatted_storage()
    storage.make_dirs("/more")
    disk = simulated_disk(storage)
    write_meta_properties(disk, "/more", META._replace(directory_id="DDDDDDDDDDDDDDDDDDDDDD"))
    manager = manager_on(disk, directories=("/data", "/more"))
    manager.start(cluster_id=CLUSTER, node_id=1)
    for number in range(4):
        get_or_create(manager, TopicPartition("t", number), ID)
    assert [log.directory for log in manager.logs.values()] == [
        "/data/t-0",
        "/more/t-1",
        "/data/t-2",
        "/more/t-3",
    ]
    await manager.close(broker_epoch=5, high_watermarks={})
    assert disk.exists("/more/.kafka_cleanshutdown")
    manager = manager_on(disk, directories=("/data", "/more"))
    assert manager.start(cluster_id=CLUSTER, node_id=1).logs == 4


def test_the_quorums_folder_is_not_a_partition_of_the_broker() -> None:
    storage = formatted_storage()
    for name in ("__cluster_metadata-0", "orders-0", "orders-x", "orders-01", "x.abc-delete", "-1"):
        storage.make_dirs(f"/data/{name}")
    assert list(started(simulated_disk(storage)).logs) == [ORDERS]


# ---- the files' formats


def test_meta_properties() -> None:
    content = encode_meta_properties(META)
    assert (
        content.decode() == f"version=1\ncluster.id={CLUSTER}\nnode.id=1\ndirectory.id={META.directory_id}\n"
    )
    assert decode_meta_properties(b"#\n#Thu Nov 20 2025\n" + content, "f") == META
    assert read_meta_properties(simulated_disk(formatted_storage()), "/data") == META
    assert read_meta_properties(simulated_disk(new_storage()), "/data") is None
    for bad, reason in (
        (b"", "version None"),
        (b"version=0\nbroker.id=1\n", "only 1 is supported"),
        (b"version=1\ncluster.id=x\nnode.id=1\n", "lacks directory.id"),
        (b"version=1\ncluster.id=x\nnode.id=one\ndirectory.id=y\n", "not a number"),
    ):
        with pytest.raises(DataDirectoryError, match=reason):
            decode_meta_properties(bad, "f")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\nx\n",
        b"0\n1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 -1\n",
        b"0\n1\na b 1\n",
        b"0\n0\na 0 1",
    ],
)
def test_damaged_offset_checkpoints_are_refused(content: bytes) -> None:
    with pytest.raises(CheckpointDamaged, match=r"^/data/file "):
        decode_offset_checkpoint(content, "/data/file")


def test_offset_checkpoints_round_trip() -> None:
    offsets = {TopicPartition("b", 0): 3, TopicPartition("a", 10): 2**62, TopicPartition("a", 9): 0}
    content = encode_offset_checkpoint(offsets)
    assert content == b"0\n3\na 9 0\na 10 4611686018427387904\nb 0 3\n"
    assert decode_offset_checkpoint(content, "f") == offsets
