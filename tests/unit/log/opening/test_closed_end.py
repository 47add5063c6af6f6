"""A node that ended properly starts again, and the last header of a log does not say where the log was closed."""

from __future__ import annotations

import errno
import random

import pytest

from partitions.disk import Disk
from partitions.log.config import LogConfig
from partitions.log.errors import LogCorruptError
from partitions.log.inspection.directory_check import DirectoryCheck
from partitions.log.inspection.findings import Findings
from partitions.log.node_logs.data_directory import CLEAN_SHUTDOWN_FILE, RECOVERY_POINTS
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from partitions.log.node_logs.offset_checkpoint import encode_offset_checkpoint
from partitions.log.opening.damage_note import DAMAGE_NOTE
from partitions.log_manager import LogManager
from partitions.records.batch import iter_batches
from partitions.topic_partition import TopicPartition
from tests.support.logs import (
    FailingDisk,
    InlineExecutor,
    batch_of,
    get_or_create,
    halt,
    new_storage,
    read_records,
    simulated_disk,
)

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
P = TopicPartition("t", 0)
FOLDER = f"/data/{P}"
LOG = f"{FOLDER}/{0:020d}.log"
CHECKPOINT = f"/data/{RECOVERY_POINTS}"
ONE_SEGMENT = LogConfig(segment_bytes=100_000, index_interval_bytes=150, max_message_bytes=800)
UNINDEXED = LogConfig(segment_bytes=100_000, index_interval_bytes=100_000, max_message_bytes=800)
LAST_DELTA = 23
"""Where it is in a batch."""


class Node:
    """One data directory through several lives of a process."""

    def __init__(self, config: LogConfig = ONE_SEGMENT) -> None:
        self.config = config
        self.storage = new_storage()
        meta = MetaProperties(CLUSTER, 1, CLUSTER)
        write_meta_properties(simulated_disk(self.storage), "/data", meta)
        self.storage.sync_everything()
        self.disk: Disk = simulated_disk(self.storage)
        self.start()

    def start(self) -> LogManager:
        self.storage.locks.clear()
        self.manager = LogManager(
            self.disk,
            ("/data",),
            self.config,
            InlineExecutor(),  # type: ignore[arg-type]
            now_ms=lambda: 10_000,
            halt=halt,
            rng=random.Random(1),
        )
        self.manager.start(cluster_id=CLUSTER, node_id=1)
        return self.manager

    async def filled(self, batches: int = 8, *, hole_before_last: int = 0) -> None:
        """Batches of two records; closed properly."""
        log = get_or_create(self.manager, P, b"i" * 16)
        for number in range(batches):
            is_last = number == batches - 1
            base = log.log_end_offset + (hole_before_last if is_last else 0)
            records = batch_of(b"value-%d" % number, b"more", base_offset=base, leader_epoch=3)
            log.append_as_follower(records)
        await self.close()

    async def close(self) -> None:
        await self.manager.close(broker_epoch=7, high_watermarks={})

    def rot_last(self, at: int, bit: int, path: str = LOG) -> int:
        """Flips a bit in the header of the last batch; returns where the batch begins."""
        data = self.storage.inode(path).data
        *_, (position, _) = iter_batches(bytes(data))
        data[position + at] ^= bit
        return position

    def say(self, recovery_point: int) -> None:
        """Has the checkpoint file hold another recovery point."""
        file = self.disk.open(CHECKPOINT)
        file.truncate(0)
        file.append([encode_offset_checkpoint({P: recovery_point})])


def damage_of(manager: LogManager) -> tuple[str, int]:
    """File and byte, of a log that is not served."""
    error = manager.failed[P]
    assert isinstance(error, LogCorruptError)
    assert P not in manager.logs
    return error.path, error.position


ROT = [(LAST_DELTA + 3, 1), (LAST_DELTA + 3, 2), (LAST_DELTA, 64), (7, 2), (7, 16), (5, 1)]


@pytest.mark.parametrize("config", [ONE_SEGMENT, UNINDEXED], ids=["indexed", "unindexed"])
@pytest.mark.parametrize(("at", "bit"), ROT)
async def test_the_end_of_a_log_is_not_a_rotten_one(config: LogConfig, at: int, bit: int) -> None:
    """Neither at the first start after it was closed nor at a later one, which is no clean one."""
    node = Node(config)
    await node.filled()
    position = node.rot_last(at, bit)
    for _ in range(3):
        assert damage_of(node.start()) == (LOG, position)
        await node.close()
        assert not node.disk.exists(f"/data/{CLEAN_SHUTDOWN_FILE}")


@pytest.mark.parametrize("bit", [1, 2])
async def test_an_end_that_rotted_downwards_into_a_hole_is_none(bit: int) -> None:
    node = Node()
    await node.filled(8, hole_before_last=5)  # 14 is due, and the batch begins at 19
    node.rot_last(7, bit)
    size = node.disk.open(LOG).size()
    for _ in range(2):
        assert damage_of(node.start()) == (LOG, size)


async def test_a_restored_file_is_sound_again() -> None:
    node = Node()
    await node.filled()
    node.rot_last(7, 16)
    damage_of(node.start())
    assert node.disk.exists(f"{FOLDER}/{DAMAGE_NOTE}")
    node.rot_last(7, 16)
    log = node.start().logs[P]
    assert (log.log_end_offset, len(read_records(log))) == (16, 16)
    assert not node.disk.exists(f"{FOLDER}/{DAMAGE_NOTE}")


async def test_a_lost_tail_is_missed() -> None:
    """Cut at a batch's boundary: every batch that is left is sound."""
    node = Node()
    await node.filled()
    *_, (position, _) = iter_batches(bytes(node.storage.inode(LOG).data))
    node.disk.open(LOG).truncate(position)
    node.disk.remove(f"{FOLDER}/{0:020d}.index")
    for _ in range(2):
        assert damage_of(node.start()) == (LOG, position)


@pytest.mark.parametrize("recovery_point", [0, 14, 17])
async def test_a_checkpoint_that_is_behind_does_not_condemn_a_log(recovery_point: int) -> None:
    """Two files say where the log ends: its last header, and the producer snapshot that was written at its end.
    But nothing tells a recovery point above that from records that are gone."""
    node = Node()
    await node.filled()
    node.say(recovery_point)
    manager = node.start()
    if recovery_point > 16:
        assert damage_of(manager) == (LOG, node.disk.open(LOG).size())
        return
    log = manager.logs[P]
    assert (log.log_end_offset, log.recovery_point, len(read_records(log))) == (16, 16, 16)
    await node.close()
    assert node.disk.read_bytes(CHECKPOINT) == encode_offset_checkpoint({P: 16})


async def test_damage_behind_a_checkpoint_that_is_behind_is_not_cut() -> None:
    node = Node()
    await node.filled()
    node.say(4)
    position = node.rot_last(30, 1)
    size = node.disk.open(LOG).size()
    assert damage_of(node.start()) == (LOG, position)
    assert node.disk.open(LOG).size() == size


async def test_a_log_that_no_checkpoint_names_is_believed() -> None:
    """A folder that somebody has brought from elsewhere."""
    node = Node()
    await node.filled()
    node.disk.remove(CHECKPOINT)
    assert node.start().logs[P].log_end_offset == 16


async def test_a_log_whose_files_were_removed_is_copied_again() -> None:
    node = Node()
    await node.filled()
    node.disk.open(LOG).truncate(0)
    assert node.start().logs[P].log_end_offset == 0


async def test_an_empty_segment_at_the_end_was_one_when_the_log_was_closed() -> None:
    node = Node()
    await node.filled(2)
    log = node.start().logs[P]
    log.roll()
    log.append_as_leader(batch_of(b"more"), leader_epoch=3)
    await node.close()
    last = f"{FOLDER}/{4:020d}.log"
    node.disk.open(last).truncate(0)
    for _ in range(2):
        assert damage_of(node.start()) == (last, 0)


def reads_of_a_start(node: Node) -> list[str]:
    """Each read of the log's data, of a start that opens it."""
    reads: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "read" and path.endswith(".log"):
            reads.append(path)

    failing = FailingDisk(node.disk)
    failing.fail = note
    node.disk = failing  # type: ignore[assignment]
    assert node.start().logs[P].log_end_offset == 400
    return reads


async def test_an_end_that_is_right_costs_no_read() -> None:
    known, unknown = Node(), Node()
    await known.filled(200)
    await unknown.filled(200)
    unknown.disk.remove(CHECKPOINT)
    assert reads_of_a_start(known) == reads_of_a_start(unknown)


async def test_damage_that_cannot_be_noted_is_damage() -> None:
    node = Node()
    await node.filled()
    position = node.rot_last(7, 16)
    failing = FailingDisk(node.disk)
    failing.fail = lambda _, path: errno.ENOSPC if DAMAGE_NOTE in path else None
    node.disk = failing  # type: ignore[assignment]
    assert damage_of(node.start()) == (LOG, position)


async def test_a_check_of_the_files_tells_an_end_that_is_too_late() -> None:
    """Also of a compacted log, in which offsets may be missing anywhere."""
    node = Node()
    await node.filled()
    assert not verified(node.disk).errors
    node.rot_last(7, 16)
    (error,) = verified(node.disk).errors
    assert (error.path, error.position) == (LOG, node.disk.open(LOG).size())
    assert error.reason == f"the log ends at offset 32, and was closed at 16 by the {RECOVERY_POINTS}"


def verified(disk: Disk) -> Findings:
    findings = Findings()
    DirectoryCheck(disk, "/data", findings, {}).run(has_holes=True)
    return findings
