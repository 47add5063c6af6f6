"""The logs of a node together: what a start leaves behind when it fails, and what an end says."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from kraft.chaos.disk import SimulatedDisk
from partitions.log.config import LogConfig
from partitions.log.data_directory import CLEAN_SHUTDOWN_FILE
from partitions.log.errors import DataDirectoryError
from partitions.log.meta_properties import MetaProperties, write_meta_properties
from partitions.log_manager import LogManager
from partitions.topic_partition import TopicPartition
from tests.support.logs import halt, memory_disk

T = TypeVar("T")
CLUSTER_ID = "kraftTestingClusterIdA"
PARTITION = TopicPartition("t", 0)
TOPIC_ID = bytes(15) + b"\1"


class InlineExecutor:
    """Jobs run at once."""

    async def run(self, job: Callable[..., T], *args: object) -> T:
        return job(*args)


def formatted_disk(node_id: int = 1) -> SimulatedDisk:
    disk = memory_disk()
    write_meta_properties(disk, "/data", MetaProperties(CLUSTER_ID, node_id, "kraftTestingDirectory1"))
    return disk


def log_manager(disk: SimulatedDisk) -> LogManager:
    return LogManager(
        disk,
        ["/data"],
        LogConfig(),
        InlineExecutor(),
        now_ms=lambda: 1_000,
        halt=halt,
        rng=random.Random(1),
    )


def is_marked_clean(disk: SimulatedDisk) -> bool:
    return disk.exists(f"/data/{CLEAN_SHUTDOWN_FILE}")


async def test_an_end_is_marked_clean_and_the_next_start_takes_the_mark() -> None:
    disk = formatted_disk()
    logs = log_manager(disk)
    assert not logs.start(cluster_id=CLUSTER_ID, node_id=1).clean_shutdown
    await logs.close(broker_epoch=7, high_watermarks={})
    assert is_marked_clean(disk)
    report = log_manager(disk).start(cluster_id=CLUSTER_ID, node_id=1)
    assert report.clean_shutdown
    assert report.previous_broker_epoch == 7
    assert not is_marked_clean(disk)


async def test_a_start_that_found_the_directory_in_use_marks_nothing() -> None:
    """The process that holds it may die at any time; its logs have to be recovered then."""
    disk = formatted_disk()
    owner, other = log_manager(disk), log_manager(disk)
    owner.start(cluster_id=CLUSTER_ID, node_id=1)
    with pytest.raises(DataDirectoryError, match="another process"):
        other.start(cluster_id=CLUSTER_ID, node_id=1)
    await other.close(broker_epoch=-1, high_watermarks={})
    assert not is_marked_clean(disk)


async def test_a_start_in_a_foreign_directory_marks_nothing_and_lets_go_of_it() -> None:
    disk = formatted_disk(node_id=2)
    stranger = log_manager(disk)
    with pytest.raises(DataDirectoryError):
        stranger.start(cluster_id=CLUSTER_ID, node_id=1)
    await stranger.close(broker_epoch=-1, high_watermarks={})
    assert not is_marked_clean(disk)
    log_manager(disk).start(cluster_id=CLUSTER_ID, node_id=2)


async def test_a_log_that_cannot_be_opened_is_named_and_kept_from_use() -> None:
    disk = formatted_disk()
    logs = log_manager(disk)
    logs.start(cluster_id=CLUSTER_ID, node_id=1)
    logs.get_or_create(PARTITION, TOPIC_ID)
    await logs.close(broker_epoch=1, high_watermarks={})
    disk.remove("/data/t-0/partition.metadata")
    disk.open("/data/t-0/partition.metadata", create=True).append([b"nonsense"])
    again = log_manager(disk)
    report = again.start(cluster_id=CLUSTER_ID, node_id=1)
    assert list(report.failed) == list(again.failed) == [PARTITION]
    with pytest.raises(type(report.failed[PARTITION])):
        again.get_or_create(PARTITION, TOPIC_ID)
    await again.delete([PARTITION])
    assert not again.failed
    assert again.get_or_create(PARTITION, TOPIC_ID).log_end_offset == 0
