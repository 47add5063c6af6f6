"""Who does the work when the data directories' checkpoints are written."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from partitions.log.errors import NoSpaceLeft
from partitions.log.log import PartitionLog
from partitions.log.node_logs import checkpointing
from partitions.log.node_logs.data_directory import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from partitions.log.node_logs.offset_checkpoint import decode_offset_checkpoint, encode_offset_checkpoint
from partitions.topic_partition import TopicPartition
from tests.support.logs import new_storage, simulated_disk
from tests.unit.log.node_logs.test_failing_directories import CLUSTER, OTHER_ID, Node, T, two_directories


class Elsewhere:
    """An executor that says whether a job of it runs at the moment."""

    def __init__(self) -> None:
        self.is_at_work = False

    async def run(self, job: Callable[..., Any], *arguments: Any) -> Any:
        self.is_at_work = True
        try:
            return job(*arguments)
        finally:
            self.is_at_work = False


def stored(node: Node, directory: str) -> dict[TopicPartition, int]:
    path = f"{directory}/{HIGH_WATERMARKS}"
    return decode_offset_checkpoint(node.disk.inner.read_bytes(path), path)


async def test_one_changed_partition_leaves_the_others_lines_to_the_executor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, executor = Node(two_directories()), Elsewhere()
    node.make(*T)
    node.manager.checkpoints._executor = executor  # type: ignore[assignment]
    encoded: list[int] = []

    def encode(offsets: dict[TopicPartition, int]) -> bytes:
        assert executor.is_at_work
        encoded.append(len(offsets))
        return encode_offset_checkpoint(offsets)

    monkeypatch.setattr(checkpointing, "encode_offset_checkpoint", encode)
    await node.manager.checkpoints.write_high_watermarks({T[0]: 1, T[1]: 1, T[2]: 1})
    await node.manager.checkpoints.write_high_watermarks({T[0]: 2})
    assert encoded == [2, 1, 2]
    assert stored(node, "/data") == {T[0]: 2, T[2]: 1}
    assert stored(node, "/more") == {T[1]: 1}


async def test_what_says_so_already_is_not_written_again() -> None:
    node = Node(two_directories())
    node.make(*T[:2])
    await node.manager.checkpoints.write_high_watermarks({T[0]: 1, T[1]: 1})
    node.disk.calls.clear()
    await node.manager.checkpoints.write_high_watermarks({T[0]: 1, T[1]: 1})
    assert node.disk.calls == []


async def test_checkpoints_ask_only_the_logs_that_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[TopicPartition] = []
    begin = PartitionLog.begin_checkpoint

    def begin_checkpoint(log: PartitionLog) -> Any:
        asked.append(log.topic_partition)
        return begin(log)

    storage = two_directories()
    node = Node(storage)
    node.make(*T)
    for partition in T:
        node.append(partition)
    monkeypatch.setattr(PartitionLog, "begin_checkpoint", begin_checkpoint)

    async def checkpoint() -> list[TopicPartition]:
        asked.clear()
        await node.manager.checkpoint_recovery_points()
        first = sorted(asked)
        asked.clear()
        await node.manager.checkpoints.write_log_start_offsets()
        assert sorted(asked) == first
        return first

    def on_disk(name: str) -> dict[TopicPartition, int]:
        paths = [f"{directory}/{name}" for directory in ("/data", "/more")]
        return {
            key: offset
            for path in paths
            for key, offset in decode_offset_checkpoint(node.disk.inner.read_bytes(path), path).items()
        }

    assert await checkpoint() == T
    assert await checkpoint() == []
    node.append(T[1])
    node.manager.logs[T[2]].raise_log_start_offset(1)
    assert await checkpoint() == [T[1], T[2]]
    assert on_disk(RECOVERY_POINTS) == {T[0]: 1, T[1]: 2, T[2]: 1, T[3]: 1}
    assert on_disk(LOG_START_OFFSETS) == {T[0]: 0, T[1]: 0, T[2]: 1, T[3]: 0}
    node.manager.logs[T[3]].truncate_to(0)
    node.break_down("/more", errno.ENOSPC, "append")
    with pytest.raises(NoSpaceLeft):
        await node.manager.checkpoint_recovery_points()
    node.break_down("/nowhere")
    assert T[3] in await checkpoint(), "what had no room is told by the next one"
    assert on_disk(RECOVERY_POINTS)[T[3]] == 0
    await node.close()
    node = Node(storage)
    assert await checkpoint() == [T[3]], "of an empty log nothing may be in a file"


async def test_a_name_that_moved_to_another_directory_is_told_of_there_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a log would lift the cap on what its directory's file says before that file is written."""
    node = Node(two_directories())
    node.make(*T[:3])
    node.append(T[0])
    await node.manager.delete(T[:1])
    node.make(T[3], T[0])
    assert node.manager.logs[T[0]].directory == f"/more/{T[0]}"
    node.append(T[0])
    node.manager.logs[T[0]].raise_log_start_offset(1)
    await node.manager.flush()
    completed: list[str] = []
    complete = PartitionLog.complete_checkpoint

    def complete_checkpoint(log: PartitionLog, **values: int) -> None:
        if log.topic_partition == T[0]:
            ((kind, value),) = values.items()
            name = {"recovery_point": RECOVERY_POINTS, "log_start_offset": LOG_START_OFFSETS}[kind]
            path = f"/more/{name}"
            assert decode_offset_checkpoint(node.disk.inner.read_bytes(path), path)[T[0]] == value == 1
            completed.append(kind)
        complete(log, **values)

    monkeypatch.setattr(PartitionLog, "complete_checkpoint", complete_checkpoint)
    await node.manager.checkpoint_recovery_points()
    await node.manager.checkpoints.write_log_start_offsets()
    assert completed == ["recovery_point", "log_start_offset"]


async def test_a_new_log_does_not_inherit_the_high_watermark_that_was_on_its_way_for_its_namesake() -> None:
    """Where there are many directories, a topic is deleted and made again before the last of them has its turn."""
    paths = [f"/d{number}" for number in range(6)]
    storage = new_storage()
    for number, path in enumerate(paths):
        storage.make_dirs(path)
        identity = MetaProperties(CLUSTER, 1, chr(ord("A") + number) * 22)
        write_meta_properties(simulated_disk(storage), path, identity)
    storage.sync_everything()
    node = Node(storage, tuple(paths))
    named = [TopicPartition("t", number) for number in range(6)]
    node.make(*named)
    again = named[-1]
    assert node.manager.logs[again].directory == f"/d5/{again}"
    goes_on = asyncio.Event()

    class Slow:
        """One disk has a long pause in the middle."""

        async def run(self, job: Callable[..., Any], *arguments: Any) -> Any:
            await asyncio.sleep(0)
            if arguments[1:2] == (HIGH_WATERMARKS,) and arguments[2].path == "/d4":
                await goes_on.wait()
            return job(*arguments)

    node.manager.checkpoints._executor = Slow()  # type: ignore[assignment]
    writing = asyncio.create_task(node.manager.checkpoints.write_high_watermarks(dict.fromkeys(named, 1000)))
    await asyncio.sleep(0)
    await node.manager.delete([again])
    node.make(again, topic_id=OTHER_ID)
    assert node.manager.logs[again].directory == f"/d5/{again}"
    assert node.manager.high_watermark(again) == 0
    goes_on.set()
    await writing
    assert node.manager.high_watermark(again) == 0
    assert not node.disk.exists(f"/d5/{HIGH_WATERMARKS}") or again not in stored(node, "/d5")
