"""The first append after a start reads the active segment's first header: what comes of it if it cannot."""

from __future__ import annotations

import contextlib
import errno
import gc
import weakref

import pytest

from kraft.chaos.world.storage import Storage
from partitions.log.errors import (
    AppendError,
    AppendPostponed,
    DirectoryFailed,
    LogCorruptError,
    LogStorageError,
)
from tests.support.logs import batch_of, simulated_disk
from tests.unit.log.node_logs.test_failing_directories import Node, T, two_directories

FIRST_SEGMENT = "/more/t-1/00000000000000000000.log"
"""T[1] lies in the second directory."""


async def restarted(storage: Storage) -> Node:
    """A node whose logs have a record each, after a start."""
    node = Node(storage)
    node.make(*T[:2])
    for partition in T[:2]:
        node.append(partition)
    await node.close()
    return Node(storage)


def append(node: Node, *, follows: bool) -> None:
    log = node.manager.logs[T[1]]
    if follows:
        log.append_as_follower(batch_of(b"next", base_offset=1))
    else:
        log.append_as_leader(batch_of(b"next"), leader_epoch=0)


@pytest.mark.parametrize("follows", [False, True], ids=["leader", "follower"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_what_the_process_lacks_for_now_is_nobodys_failure(number: int, follows: bool) -> None:
    node = await restarted(two_directories())
    node.break_down("/more", number, "open", "read")
    with pytest.raises(AppendPostponed) as refused:
        append(node, follows=follows)
    assert (refused.value.code, refused.value.is_transient) == ("KAFKA_STORAGE_ERROR", True)
    node.disk.fail = lambda operation, path: None
    append(node, follows=follows)
    assert node.values(T[1]) == [b"x", b"next"]
    assert (node.told, node.manager.failed_directories) == ({}, {})


async def test_what_the_process_lacks_when_a_segment_is_due_is_nobodys_failure() -> None:
    node = await restarted(two_directories())
    log = node.manager.logs[T[1]]
    node.append(T[1], b"y" * 700)
    node.break_down("/more", errno.EMFILE, "create")
    with pytest.raises(AppendPostponed, match="no new segment"):
        node.append(T[1], b"z" * 300)
    node.disk.fail = lambda operation, path: None
    node.append(T[1], b"z" * 300)
    assert len(log.segment_base_offsets) == 2
    assert (node.told, node.manager.failed_directories) == ({}, {})


@pytest.mark.parametrize("follows", [False, True], ids=["leader", "follower"])
async def test_a_device_that_refuses_takes_its_directory(follows: bool) -> None:
    node = await restarted(two_directories())
    node.break_down("/more", errno.EIO, "read")
    with pytest.raises(DirectoryFailed):
        append(node, follows=follows)
    assert set(node.told) == {T[1]}
    assert list(node.manager.failed_directories) == ["/more"]
    node.append(T[0])


async def test_the_only_directory_stays_and_the_log_is_given_up() -> None:
    storage = two_directories()
    node = Node(storage, ("/data",))
    node.make(T[0], T[1])
    node.append(T[0])
    node.append(T[1])
    await node.close()
    node = Node(storage, ("/data",))
    node.break_down("/data/t-0", errno.EIO, "read")
    with pytest.raises(AppendError) as refused:
        node.append(T[0])
    assert (refused.value.code, refused.value.is_transient) == ("KAFKA_STORAGE_ERROR", False)
    assert list(node.told) == [T[0]]
    assert node.manager.failed_directories == {}
    node.append(T[1])


async def test_a_rotten_header_gives_the_log_up() -> None:
    storage = two_directories()
    node = await restarted(storage)
    file = simulated_disk(storage).open(FIRST_SEGMENT)
    file.write_at(16, b"\x07")  # the magic
    file.close()
    with pytest.raises(LogCorruptError) as damage:
        node.append(T[1])
    assert (damage.value.path, damage.value.position) == (FIRST_SEGMENT, 0)
    assert node.told == {T[1]: damage.value}
    assert node.manager.failed_directories == {}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
async def test_a_read_that_fails_keeps_nothing_of_those_who_asked(number: int) -> None:
    """They may hold open files, and an idle broker looks for cycles of references seldom."""
    storage = two_directories()
    node = Node(storage, ("/data",))
    node.make(T[0])
    node.append(T[0])
    await node.close()
    node = Node(storage, ("/data",))
    node.break_down("/data/t-0", number, "open", "read")
    log = node.manager.logs[T[0]]

    def ask() -> weakref.ref[WeakSet]:
        held = WeakSet({"slices"})
        with contextlib.suppress(LogStorageError):
            log.read(0, 1000, up_to_offset=1)
            raise AssertionError("it was read")
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert ask()() is None
    finally:
        gc.enable()


class WeakSet(set[str]):
    """A set that can be referred to weakly."""
