"""A broker goes on only with metadata that continue what it followed before; otherwise it deletes nothing."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from kraft.broker.membership.history_guard import HistoryError, HistoryGuard, position_of
from kraft.chaos.world.disk import SimulatedDisk
from kraft.chaos.world.host import Process
from kraft.node import Node
from partitions.log.errors import LogStorageError
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from partitions.log.node_logs.metadata_position import METADATA_POSITION, MetadataPosition
from quorum.metadata.changes import ImageDiff
from quorum.metadata.image import EMPTY, MetadataImage
from tests.support.broker_world import CLUSTER_ID, HeldExecutor
from tests.support.logs import FailingDisk, memory_disk
from tests.unit.broker.test_server import node_of, told

PATH = f"/data/{METADATA_POSITION}"
VOTERS = {1: b"a" * 16, 2: b"b" * 16, 3: b"c" * 16}
FOLLOWED = replace(EMPTY, offset=812, epoch=7, voters=VOTERS)


class World:
    """A broker's guard, life after life on one disk."""

    def __init__(self) -> None:
        self.disk: SimulatedDisk = memory_disk()
        self.halts: list[str] = []
        self.failed: list[str] = []

    def start(self) -> HistoryGuard:
        guard = HistoryGuard(
            self.disk,
            lambda: ["/data"],
            HeldExecutor(),
            self.halts.append,
            lambda path, reason: self.failed.append(path),
        )
        guard.load()
        return guard

    async def followed(self, *images: MetadataImage) -> None:
        guard = self.start()
        for image in images:
            publish(guard, image)
            await guard.checkpoint()


def publish(guard: HistoryGuard, image: MetadataImage) -> None:
    guard.on_metadata(ImageDiff(EMPTY, image), image)


CONTINUATIONS = {
    "the same": FOLLOWED,
    "more": replace(FOLLOWED, offset=900, epoch=9),
    "two new disks": replace(FOLLOWED, offset=900, voters={1: b"d" * 16, 2: b"e" * 16, 3: b"c" * 16}),
}
OTHERS = {
    "fewer records": (
        replace(FOLLOWED, offset=5),
        "end at offset 5, and this broker had followed them to offset 812",
    ),
    "an older epoch": (replace(FOLLOWED, offset=900, epoch=2), "are of epoch 2"),
    "only strangers": (
        replace(FOLLOWED, offset=900, epoch=9, voters={1: b"x" * 16, 2: b"y" * 16, 3: b"z" * 16}),
        "come from voters none of which",
    ),
    "no voters": (replace(FOLLOWED, offset=900, epoch=9, voters={}), "come from voters none of which"),
}


@pytest.mark.parametrize("case", CONTINUATIONS)
async def test_a_continuation_is_followed(case: str) -> None:
    world = World()
    await world.followed(FOLLOWED)
    await world.followed(CONTINUATIONS[case])
    assert world.halts == []
    assert MetadataPosition.decode(world.disk.read_bytes(PATH)) == position_of(CONTINUATIONS[case])


@pytest.mark.parametrize("case", OTHERS)
async def test_another_history_halts_the_broker_at_every_start(case: str) -> None:
    world = World()
    await world.followed(replace(EMPTY, offset=10, epoch=1), FOLLOWED)
    image, why = OTHERS[case]
    for starts in (1, 2):
        guard = world.start()
        with pytest.raises(HistoryError, match=why):
            publish(guard, image)
        await guard.checkpoint()
        assert len(world.halts) == starts
        assert why in world.halts[-1]
        assert "Nothing was deleted here" in world.halts[-1]
    world.disk.remove(PATH)  # as the sentence says
    await world.followed(image)
    assert len(world.halts) == 2


async def test_the_position_is_durable_once_written_and_written_only_when_it_moved() -> None:
    world = World()
    guard = world.start()
    await guard.checkpoint()
    assert not world.disk.exists(PATH), "nothing was followed yet"
    publish(guard, FOLLOWED)
    await guard.checkpoint()
    world.disk.remove(PATH)
    await guard.checkpoint()
    assert not world.disk.exists(PATH), "it has not moved"
    publish(guard, replace(FOLLOWED, offset=813))
    await guard.checkpoint()
    assert world.disk.exists(PATH)


@pytest.mark.parametrize("at", range(0, 60, 7))
async def test_a_damaged_file_counts_as_absent_and_is_written_anew(at: int) -> None:
    world = World()
    await world.followed(FOLLOWED)
    file = world.disk.open(PATH)
    file.write_at(at, bytes([file.read(at, 1)[0] ^ 1]))
    later = replace(FOLLOWED, offset=813)
    with capture_logs() as said:
        await world.followed(later)
    assert [(line["log_level"], line["file"]) for line in said] == [("error", PATH)]
    assert MetadataPosition.decode(world.disk.read_bytes(PATH)) == position_of(later)
    guard = world.start()
    with pytest.raises(HistoryError):
        publish(guard, FOLLOWED)


def test_a_node_whose_quorum_begins_anew_keeps_the_logs_of_the_old_one() -> None:
    """The only voter's folders are made anew under the same cluster id; the broker's are as they were."""
    separate = "metadata.log.dir=/metadata\n"

    async def story(_: Node, process: Process) -> None:
        process.disk.make_dirs("/metadata")
        write_meta_properties(
            process.disk, "/metadata", MetaProperties(CLUSTER_ID, 1, "kraftTestingDirectory2")
        )
        first = node_of(process, properties=separate)
        await first.start()
        await first.wait_ready()
        await first.stop()
        assert process.disk.exists(PATH)
        process.disk.make_dirs("/data/orders-0")
        process.disk.remove_tree("/metadata")
        process.disk.make_dirs("/metadata")
        write_meta_properties(
            process.disk, "/metadata", MetaProperties(CLUSTER_ID, 1, "kraftTestingDirectory3")
        )
        halted: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        again = node_of(process, properties=separate)

        def halt(reason: str) -> None:
            if not halted.done():
                halted.set_result(reason)

        again._environment = replace(again._environment, halt=halt)
        starting = asyncio.ensure_future(again.start())
        assert "Nothing was deleted here" in await halted
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert "orders-0" in process.disk.list_dir("/data")

    told(story)


@pytest.mark.parametrize(("number", "failed"), [(errno.EIO, ["/data"]), (errno.ENOSPC, [])])
async def test_only_a_full_disk_is_tried_again(number: int, failed: list[str]) -> None:
    world = World()
    guard = world.start()
    publish(guard, FOLLOWED)
    world.disk._storage.sync_failure = lambda path: number
    with pytest.raises(LogStorageError, match="writing /data"):
        await guard.checkpoint()
    assert world.failed == failed


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO])
async def test_a_directory_that_takes_no_position_keeps_no_other_from_it(number: int) -> None:
    disk = FailingDisk(memory_disk())
    disk.inner.make_dirs("/more")
    failed: list[str] = []
    guard = HistoryGuard(
        disk,  # type: ignore[arg-type]
        lambda: ["/data", "/more"],
        HeldExecutor(),
        lambda reason: None,
        lambda path, reason: failed.append(path),
    )
    publish(guard, FOLLOWED)
    disk.fail = lambda operation, path: number if path.startswith("/data/") else None
    with pytest.raises(LogStorageError, match="/data"):
        await guard.checkpoint()
    assert failed == (["/data"] if number == errno.EIO else [])
    assert MetadataPosition.decode(disk.inner.read_bytes(f"/more/{METADATA_POSITION}")) == position_of(
        FOLLOWED
    )
    disk.fail = lambda operation, path: None
    await guard.checkpoint()
    assert MetadataPosition.decode(disk.inner.read_bytes(PATH)) == position_of(FOLLOWED)
