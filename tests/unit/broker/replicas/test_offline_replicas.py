"""Replicas that cannot be served: reported until answered, and made anew when nobody counts on them."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import AsyncIterator, Callable

import pytest
from structlog.testing import capture_logs

from kraft.broker.replicas.offline_replicas import OfflineReplicas, kind_of
from kraft.chaos.world.disk import SimulatedDisk
from partitions.errors import ReplicaOffline
from partitions.log.errors import DirectoryFailed, LogCorruptError, LogError, LogStorageError
from partitions.partition import FollowerFetch
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Config, PartitionChange
from quorum.rpc.envelope import RpcError, RpcUnavailable
from quorum.rpc.messages import (
    DAMAGED,
    DIRECTORY,
    ReplicaStateResult,
    ReplicaStatesRequest,
    ReplicaStatesResponse,
)
from tests.support.broker_world import BrokerWorld, batch, gone, topic, topic_id
from tests.support.fake_controller import FakeController
from tests.support.logs import FailingDisk, memory_disk, new_storage, simulated_disk

T0 = TopicPartition("t", 0)
A, B = (topic_id(1), 0), (topic_id(1), 1)
TOOK_IT = ReplicaStatesResponse(())
FILE = "/data/t-0/00000000000000000000.log"


# ---- what is reported


class Reporter:
    """`OfflineReplicas` and the controller that it talks to."""

    def __init__(self) -> None:
        self.controller = FakeController()
        self.epoch = 5
        self.halts: list[str] = []
        self.offline = OfflineReplicas(
            1,
            lambda: self.epoch,
            self.controller,  # type: ignore[arg-type]
            random.Random(1),
            self.halts.append,
        )
        self.offline.start()

    def answer(self, *answers: object) -> None:
        self.controller.answer(ReplicaStatesRequest, *answers)

    async def reports(self, count: int) -> list[ReplicaStatesRequest]:
        await self.controller.until_called(ReplicaStatesRequest, count)
        for _ in range(5):
            await asyncio.sleep(0)
        return self.controller.calls_of(ReplicaStatesRequest)


@pytest.fixture
async def reporter() -> AsyncIterator[Reporter]:
    made = Reporter()
    yield made
    await made.offline.close()
    assert not made.halts


async def test_what_is_marked_at_once_is_one_report(reporter: Reporter) -> None:
    reporter.answer(TOOK_IT)
    assert reporter.offline.is_settled
    reporter.offline.mark(A, DAMAGED)
    reporter.offline.mark(B, DIRECTORY)
    assert not reporter.offline.is_settled
    (report,) = await reporter.reports(1)
    assert (report.broker_id, report.broker_epoch) == (1, 5)
    assert report.offline == ((*A, DAMAGED), (*B, DIRECTORY))
    assert report.online == ()
    assert reporter.offline.is_settled
    assert dict(reporter.offline.kinds) == {A: DAMAGED, B: DIRECTORY}


async def test_a_report_without_an_answer_is_repeated_with_what_is_so_then(reporter: Reporter) -> None:
    reporter.answer(RpcUnavailable("nobody there"), RpcError("STALE_BROKER_EPOCH", "register"), TOOK_IT)
    reporter.offline.mark(A, DAMAGED)
    await reporter.reports(1)
    assert not reporter.offline.is_settled
    reporter.offline.mark(B, DAMAGED)
    reporter.offline.clear(A)
    reports = await reporter.reports(3)
    assert reports[-1].offline == ((*B, DAMAGED),)
    assert reports[-1].online == (A,)
    assert reporter.offline.is_settled


async def test_what_changes_while_a_report_is_under_way_goes_into_the_next(reporter: Reporter) -> None:
    reporter.offline.mark(A, DAMAGED)
    await reporter.reports(1)  # which is not answered
    reporter.offline.clear(A)
    reporter.offline.mark(A, DIRECTORY)
    reporter.offline.report_again(A)
    assert not reporter.offline.is_settled
    assert reporter.offline._due == {A: None}


async def test_a_mark_that_is_not_so_is_retracted_once(reporter: Reporter) -> None:
    reporter.answer(TOOK_IT, TOOK_IT)
    reporter.offline.mark(A, DAMAGED)
    await reporter.reports(1)
    reporter.offline.retract(A)  # it is so
    reporter.offline.retract(B)
    reporter.offline.retract(B)
    reports = await reporter.reports(2)
    assert (reports[-1].offline, reports[-1].online) == ((), (B,))
    assert reporter.offline._due == {}


async def test_a_registration_has_everything_reported_anew(reporter: Reporter) -> None:
    reporter.answer(TOOK_IT, TOOK_IT, TOOK_IT)
    reporter.offline.mark(A, DAMAGED)
    reporter.offline.mark(B, DAMAGED)
    await reporter.reports(1)
    reporter.offline.clear(B)
    await reporter.reports(2)
    reporter.epoch = 6
    reporter.offline.on_registered()
    assert not reporter.offline.is_settled
    reports = await reporter.reports(3)
    assert (reports[-1].broker_epoch, reports[-1].offline, reports[-1].online) == (6, ((*A, DAMAGED),), ())
    assert reporter.offline.is_settled


async def test_an_answer_to_an_earlier_registration_is_no_answer(reporter: Reporter) -> None:
    reporter.controller.always(ReplicaStatesRequest, lambda _: setattr(reporter, "epoch", 6) or TOOK_IT)
    reporter.offline.mark(A, DAMAGED)
    reports = await reporter.reports(2)
    assert [(report.broker_epoch, report.offline) for report in reports] == [
        (5, ((*A, DAMAGED),)),
        (6, ((*A, DAMAGED),)),
    ]
    assert reporter.offline.is_settled


async def test_a_replica_that_is_gone_is_not_reported(reporter: Reporter) -> None:
    reporter.offline.mark(A, DAMAGED)
    reporter.offline.forget(A)
    reporter.offline.report_again(A)
    reporter.offline.clear(A)
    assert reporter.offline.is_settled
    assert reporter.offline._due == {}


async def test_a_refusal_is_not_repeated(reporter: Reporter) -> None:
    reporter.answer(ReplicaStatesResponse((ReplicaStateResult(*A, "UNKNOWN_TOPIC_ID"),)))
    reporter.offline.mark(A, DAMAGED)
    await reporter.reports(1)
    assert reporter.offline.is_settled


def test_kinds() -> None:
    assert kind_of(LogCorruptError("f", 3, "rotten")) == DAMAGED
    assert kind_of(DirectoryFailed("EIO")) == DIRECTORY
    assert kind_of(LogStorageError("EIO")) == DIRECTORY


# ---- a damaged replica


def rot(disk: SimulatedDisk) -> None:
    file = disk.open(FILE)
    file.write_at(file.size() - 1, b"\xff")


async def ended_cleanly(isr: tuple[int, ...] = (1, 2)) -> SimulatedDisk:
    """What a broker leaves that led the partition and wrote two records."""
    disk = memory_disk()
    world = BrokerWorld(disk)
    await world.start(*topic("t", 1, (1, 2), isr=isr))
    world.replicas.partition(T0).append_records(batch(b"a", b"b"), acks=1, now_ms=0)
    await world.close()
    return disk


class Damaged:
    """A broker that leads a partition, of which a byte has rotted while it was down."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.world = BrokerWorld(disk)
        self.world.controller.always(ReplicaStatesRequest, lambda _: TOOK_IT)

    async def start(self) -> None:
        rot(self.disk)
        await self.world.start(*topic("t", 1, (1, 2)))

    async def find(self) -> None:
        """A consumer meets the damage."""
        with pytest.raises(LogCorruptError):
            self.world.replicas.partition(T0).log.read(0, 1000, up_to_offset=2)
        await self.world.controller.until_called(ReplicaStatesRequest, 1)
        for _ in range(5):  # until the answer is taken
            await asyncio.sleep(0)
        assert self.world.offline_replicas.is_settled

    async def moved_away(self, elr: tuple[int, ...] = ()) -> None:
        """The controller has the other replica lead."""
        change = PartitionChange(*A, isr=(2,), elr=elr, leader=2, offline_replicas=(1,))
        await self.world.publish(change)

    @property
    def reports(self) -> list[ReplicaStatesRequest]:
        return self.world.controller.calls_of(ReplicaStatesRequest)


@pytest.fixture
async def damaged() -> AsyncIterator[Damaged]:
    made = Damaged(await ended_cleanly())
    await made.start()
    yield made
    await made.world.close()
    assert not made.world.halts


async def test_damage_takes_the_replica_offline_and_it_is_copied_anew(damaged: Damaged) -> None:
    world = damaged.world
    waiting = world.replicas.produce_purgatory.wait({T0: 5}, 60)
    await damaged.find()
    assert await waiting == {T0: "KAFKA_STORAGE_ERROR"}
    with pytest.raises(ReplicaOffline, match="damaged at byte"):
        world.replicas.partition(T0)
    assert damaged.reports[0].offline == ((*A, DAMAGED),)
    assert list(world.replicas.offline_partitions) == [T0]
    await damaged.moved_away()
    await world.controller.until_called(ReplicaStatesRequest, 2)
    assert (damaged.reports[1].offline, damaged.reports[1].online) == ((), (A,))
    partition = world.replicas.partition(T0)
    assert (partition.log_end_offset, partition.leader_id) == (0, 2)
    assert world.followed(T0) is not None
    assert not world.replicas.offline_partitions
    await world.logs.removals.remove_due()
    assert [name for name in damaged.disk.list_dir("/data") if name.startswith("t-0")] == ["t-0"]


async def test_nothing_is_given_up_that_somebody_may_count_on(damaged: Damaged) -> None:
    world = damaged.world
    await damaged.find()
    size = damaged.disk.open(FILE).size()
    await world.publish(PartitionChange(*A, isr=(1, 2), leader=-1))  # the report has not arrived
    await world.controller.until_called(ReplicaStatesRequest, 2)  # so it is repeated
    await world.publish(PartitionChange(*A, isr=(), elr=(1,), leader=-1, offline_replicas=(1,)))
    await world.publish(PartitionChange(*A, isr=(), elr=(), leader=-1))
    await world.publish(PartitionChange(*A, isr=(2,), elr=(1,), leader=2))
    assert damaged.disk.open(FILE).size() == size
    assert list(world.replicas.offline_partitions) == [T0]
    await world.publish(PartitionChange(*A, elr=()))
    await world.controller.until_called(ReplicaStatesRequest, 3)
    assert damaged.reports[-1].online == (A,)
    assert damaged.disk.open(FILE).size() == 0


async def test_an_offline_report_that_comes_late_is_retracted(damaged: Damaged) -> None:
    world = damaged.world
    await world.publish(PartitionChange(*A, isr=(2,), leader=2, offline_replicas=(1,)))
    await world.controller.until_called(ReplicaStatesRequest, 1)
    assert (damaged.reports[0].offline, damaged.reports[0].online) == ((), (A,))


async def test_the_topic_is_deleted_meanwhile(damaged: Damaged) -> None:
    await damaged.find()
    await damaged.world.publish(gone(1))
    assert not damaged.world.replicas.offline_partitions
    assert not damaged.world.offline_replicas.kinds
    assert not damaged.disk.exists("/data/t-0")
    await damaged.world.publish(*topic("t", 2, (1, 2)))
    assert damaged.world.replicas.partition(T0).topic_id == topic_id(2)
    assert len(damaged.reports) == 1


async def test_the_topic_is_made_anew_while_the_damaged_log_is_set_aside(damaged: Damaged) -> None:
    world = damaged.world
    await damaged.find()
    world.executor.holding = True
    await damaged.moved_away()
    await world.publish(gone(1), *topic("t", 2, (1, 2)))
    world.executor.release()
    await world.replicas.settled()
    assert world.replicas.partition(T0).topic_id == topic_id(2)
    assert world.replicas.partition(T0).is_leader
    assert not world.offline_replicas.kinds


async def test_the_replica_is_moved_elsewhere_meanwhile(damaged: Damaged) -> None:
    await damaged.find()
    await damaged.world.publish(PartitionChange(*A, replicas=(2, 3), isr=(2,), leader=2, offline_replicas=()))
    assert not damaged.disk.exists("/data/t-0")
    assert not damaged.world.offline_replicas.kinds


async def test_a_log_that_is_damaged_at_start_is_reported_before_it_is_made_anew() -> None:
    disk = await ended_cleanly()
    disk.remove("/data/.kafka_cleanshutdown")
    disk.open("/data/recovery-point-offset-checkpoint").truncate(0)
    file = disk.open("/data/recovery-point-offset-checkpoint")
    file.append([b"0\n1\nt 0 2\n"])
    found = Damaged(disk)
    await found.start()
    assert not found.world.offline_replicas.is_settled
    await found.world.controller.until_called(ReplicaStatesRequest, 1)
    assert found.reports[0].offline == ((*A, DAMAGED),)
    await found.moved_away()
    await found.world.controller.until_called(ReplicaStatesRequest, 2)
    assert found.reports[1].online == (A,)
    await found.world.close()


async def test_a_follower_asks_twice_for_what_it_cannot_use() -> None:
    """Bytes that this process wrote itself are handed out unread, until somebody cannot use them."""
    disk = memory_disk()
    world = BrokerWorld(disk)
    world.controller.always(ReplicaStatesRequest, lambda _: TOOK_IT)
    await world.start(*topic("t", 1, (1, 2)))
    partition = world.replicas.partition(T0)
    partition.append_records(batch(b"a", b"b"), acks=1, now_ms=0)
    rot(disk)
    fetch = partition_fetch(partition.leader_epoch)
    assert partition.fetch_as_follower(fetch, max_bytes=1000, now_ms=0).size_bytes > 0
    with pytest.raises(LogCorruptError):
        partition.fetch_as_follower(fetch, max_bytes=1000, now_ms=0)
    await world.controller.until_called(ReplicaStatesRequest, 1)
    await world.close()


SHORTER = pytest.mark.parametrize("left", [0.9, 0.6, 0.3, 0.0])


@SHORTER
@pytest.mark.parametrize("number", [0, 1], ids=["closed segment", "active segment"])
async def test_a_file_that_became_shorter_is_found_after_it_could_not_be_sent(
    number: int, left: float
) -> None:
    """What this process wrote it hands out unread, and only who sends it can tell that it is not there."""
    disk = memory_disk()
    world = BrokerWorld(disk)
    world.controller.always(ReplicaStatesRequest, lambda _: TOOK_IT)
    await world.start(*topic("t", 1, (1,), (1,)), Config("topic", "t", "segment.bytes", "1024"))
    partition = world.replicas.partition(T0)
    for _ in range(10):
        partition.append_records(batch(b"x" * 150), acks=1, now_ms=0)
    paths = [f"/data/t-0/{name}" for name in disk.list_dir("/data/t-0") if name.endswith(".log")]
    assert len(paths) > 1
    file = disk.open(paths[number])
    file.truncate(int(file.size() * left))
    file.close()
    records = partition.read_for_consumer(0, max_bytes=10_000, current_leader_epoch=-1).records
    assert records is not None
    with pytest.raises(EOFError):
        b"".join(piece.read() for piece in records.slices)
    other = world.replicas.partition(TopicPartition("t", 1))
    other.append_records(batch(b"y"), acks=1, now_ms=0)
    world.replicas.on_unreadable(records.slices[number].path)
    with pytest.raises(LogCorruptError, match=paths[number]):
        partition.read_for_consumer(0, max_bytes=10_000, current_leader_epoch=-1)
    await world.controller.until_called(ReplicaStatesRequest, 1)
    (report,) = world.controller.calls_of(ReplicaStatesRequest)
    assert report.offline == ((*A, DAMAGED),)
    assert other.read_for_consumer(0, max_bytes=1000, current_leader_epoch=-1).size_bytes
    world.replicas.on_unreadable(records.slices[number].path)  # others were being sent the same
    await world.close()
    assert world.halts == []


# ---- a directory


async def test_a_log_that_cannot_be_appended_to_any_more_is_reported() -> None:
    failing = FailingDisk(memory_disk())
    world = BrokerWorld(failing)  # type: ignore[arg-type]
    world.controller.always(ReplicaStatesRequest, lambda _: TOOK_IT)
    await world.start(*topic("t", 1, (2, 1)))
    failing.fail = lambda operation, path: errno.EIO if operation == "append" else None
    error = LogStorageError("EIO")
    world.replicas.events.on_partition_failed(T0, 0, error.code, error)
    await world.controller.until_called(ReplicaStatesRequest, 1)
    (report,) = world.controller.calls_of(ReplicaStatesRequest)
    assert report.offline == ((*A, DIRECTORY),)
    failing.fail = lambda operation, path: None
    await world.publish(PartitionChange(*A, isr=(2,), offline_replicas=(1,)))
    assert list(world.replicas.offline_partitions) == [T0]  # until the next start
    await world.close()


async def test_a_leader_that_cannot_roll_makes_room_for_another() -> None:
    """Its folder is gone: what fits into the open file would go on being taken, and nothing else for ever."""
    disk = memory_disk()
    world = BrokerWorld(disk)
    world.controller.always(ReplicaStatesRequest, lambda _: TOOK_IT)
    await world.start(*topic("t", 1, (1, 2), (1, 2)), Config("topic", "t", "segment.bytes", "1024"))
    partition = world.replicas.partition(T0)
    value = b"x" * 600
    partition.append_records(batch(value), acks=1, now_ms=0)
    disk.remove_tree("/data/t-0")
    with capture_logs() as lines:
        for _ in range(3):
            with pytest.raises(LogError):
                partition.append_records(batch(value), acks=1, now_ms=0)
        await world.controller.until_called(ReplicaStatesRequest, 1)
        with pytest.raises(ReplicaOffline):
            world.replicas.partition(T0)
        await world.publish(PartitionChange(*A, isr=(2,), leader=2, offline_replicas=(1,)))
    (report,) = world.controller.calls_of(ReplicaStatesRequest)
    assert report.offline == ((*A, DIRECTORY),)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["a replica is offline"]
    assert list(world.replicas.offline_partitions) == [T0]  # until the next start: it may come back
    world.replicas.partition(TopicPartition("t", 1)).append_records(batch(value), acks=1, now_ms=0)
    await world.close()
    assert world.halts == []
    world = BrokerWorld(disk)
    await world.start(*topic("t", 1, (2, 1), (2, 1), isr=(2,)))
    state = world.followed(T0)
    assert state is not None  # copied from its leader
    assert state.log.log_end_offset == 0
    assert not world.replicas.offline_partitions
    await world.close()


async def test_a_directory_that_fails_takes_its_replicas_and_no_others() -> None:
    failing = FailingDisk(memory_disk())
    world = BrokerWorld(failing, directories=("/data", "/more"))  # type: ignore[arg-type]
    world.controller.always(ReplicaStatesRequest, lambda _: TOOK_IT)
    await world.start(*topic("t", 1, (1, 2), (1, 2), (2, 1), (2, 1)))
    for number in (0, 1):
        key = TopicPartition("t", number)
        world.replicas.partition(key).append_records(batch(b"a"), acks=1, now_ms=0)
    failing.fail = lambda operation, path: errno.EIO if path.startswith("/more/") else None
    await world.logs.flush()
    await world.controller.until_called(ReplicaStatesRequest, 1)
    (report,) = world.controller.calls_of(ReplicaStatesRequest)
    assert sorted(report.offline) == [(*B, DIRECTORY), (topic_id(1), 3, DIRECTORY)]
    for number in (1, 3):
        with pytest.raises(ReplicaOffline):
            world.replicas.partition(TopicPartition("t", number))
        assert world.followed(TopicPartition("t", number)) is None
    world.replicas.partition(T0).append_records(batch(b"b"), acks=1, now_ms=0)
    assert world.followed(TopicPartition("t", 2)) is not None
    # What the controller makes of it: others lead, and nothing is made anew.
    await world.publish(PartitionChange(*B, isr=(2,), leader=2, offline_replicas=(1,)))
    await world.publish(*topic("new", 2, (1, 2)))
    assert len(world.replicas.offline_partitions) == 2
    assert world.replicas.partition(TopicPartition("new", 0)).is_leader
    assert not world.halts
    await world.close()
    assert failing.exists("/data/.kafka_cleanshutdown")  # type: ignore[operator]


def partition_fetch(leader_epoch: int) -> FollowerFetch:
    """Broker 2 from offset 0 on."""
    return FollowerFetch(2, 2, leader_epoch, 0, -1, 0)


# ---- a full disk


def full_for(folder: str) -> Callable[[str, str], int | None]:
    def fail(operation: str, path: str) -> int | None:
        return errno.ENOSPC if operation in ("create", "append") and folder in path else None

    return fail


async def test_a_log_that_finds_no_room_at_start_is_reported() -> None:
    storage = new_storage()
    world = BrokerWorld(simulated_disk(storage))
    await world.start(*topic("t", 1, (1, 2)))
    world.replicas.partition(T0).append_records(batch(b"a"), acks=1, now_ms=0)
    await world.replicas.close()
    storage.locks.clear()  # the process is gone, without a clean end
    disk = FailingDisk(simulated_disk(storage))
    disk.fail = full_for("/t-0/")
    again = BrokerWorld(disk)  # type: ignore[arg-type]
    await again.start(*topic("t", 1, (1, 2)))
    assert list(again.replicas.offline_partitions) == [T0]
    assert dict(again.offline_replicas.kinds) == {A: DIRECTORY}


async def test_a_leader_without_room_for_its_log_is_reported() -> None:
    disk = FailingDisk(memory_disk())
    world = BrokerWorld(disk)  # type: ignore[arg-type]
    await world.start()
    disk.fail = full_for("/")
    await world.publish(*topic("t", 1, (1, 2, 3)))
    assert dict(world.offline_replicas.kinds) == {A: DIRECTORY}
    assert not world.offline_replicas.is_settled
