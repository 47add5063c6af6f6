"""Who does the work when the data directories' checkpoints are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from partitions.log import checkpointing
from partitions.log.data_directory import HIGH_WATERMARKS
from partitions.log.offset_checkpoint import decode_offset_checkpoint, encode_offset_checkpoint
from partitions.topic_partition import TopicPartition
from tests.unit.log.test_failing_directories import Node, T, two_directories


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
    node.manager._checkpoints._executor = executor  # type: ignore[assignment]
    encoded: list[int] = []

    def encode(offsets: dict[TopicPartition, int]) -> bytes:
        assert executor.is_at_work
        encoded.append(len(offsets))
        return encode_offset_checkpoint(offsets)

    monkeypatch.setattr(checkpointing, "encode_offset_checkpoint", encode)
    await node.manager.checkpoint_high_watermarks({T[0]: 1, T[1]: 1, T[2]: 1})
    await node.manager.checkpoint_high_watermarks({T[0]: 2})
    assert encoded == [2, 1, 2]
    assert stored(node, "/data") == {T[0]: 2, T[2]: 1}
    assert stored(node, "/more") == {T[1]: 1}


async def test_what_says_so_already_is_not_written_again() -> None:
    node = Node(two_directories())
    node.make(*T[:2])
    await node.manager.checkpoint_high_watermarks({T[0]: 1, T[1]: 1})
    node.disk.calls.clear()
    await node.manager.checkpoint_high_watermarks({T[0]: 1, T[1]: 1})
    assert node.disk.calls == []
