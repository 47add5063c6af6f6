"""Logs that a full disk has closed are opened again when there is room: beside the loop, and for whom they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from kraft.broker.replicas import replica_logs
from kraft.chaos.world.storage import Storage
from partitions.errors import ReplicaOffline
from partitions.log.errors import DirectoryFailed, InterruptedByFullDisk, NoSpaceLeft
from partitions.log.partition_files import decode_partition_metadata
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import PartitionChange
from quorum.rpc.messages import DAMAGED, DIRECTORY, ReplicaStatesRequest, ReplicaStatesResponse
from tests.support.broker_world import BrokerWorld, batch, gone, topic, topic_id
from tests.support.logs import new_storage, simulated_disk

T0 = TopicPartition("t", 0)
REPLICA = (topic_id(1), 0)
LOG = "/data/t-0/00000000000000000000.log"
RECORDS = 5


class Room:
    """Brokers over one disk, one after the other, and how much room there is."""

    def __init__(self) -> None:
        self.storage: Storage = new_storage()

    def broker(self) -> BrokerWorld:
        self.storage.locks.clear()
        # Every batch but the first gets an index entry, which a recovery has to write.
        world = BrokerWorld(simulated_disk(self.storage), "log.index.interval.bytes=0\n")
        world.controller.always(ReplicaStatesRequest, lambda _: ReplicaStatesResponse(()))
        return world

    def full(self, is_full: bool = True) -> None:
        self.storage.free_bytes = 0 if is_full else None


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setattr(replica_logs, "ROOM_CHECK_S", 0.01)
    return Room()


async def crashed(room: Room, *replicas: int) -> None:
    """A broker that leads a partition has appended, and died before its indexes were written."""
    world = room.broker()
    await world.start(*topic("t", 1, replicas))
    for number in range(RECORDS):
        world.replicas.partition(T0).append_records(batch(b"%d" % number), acks=1, now_ms=0)
    await world.close()
    for name in (".kafka_cleanshutdown", "t-0/00000000000000000000.index"):
        world.disk.remove(f"/data/{name}")


@pytest.fixture
async def world(room: Room) -> AsyncIterator[BrokerWorld]:
    """The broker after that one; the disk is full when it starts."""
    await crashed(room, 1, 2)
    room.full()
    made = room.broker()
    yield made
    room.full(False)
    await made.close()
    assert made.halts == []


async def eventually(condition: Callable[[], bool]) -> None:
    """Waits for a timer of the jobs' to do it."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came about")


def opened(world: BrokerWorld) -> bool:
    return T0 in world.logs.logs and not world.replicas._replica_logs.is_pending(T0)


async def test_a_log_that_finds_no_room_at_start_is_opened_when_there_is(
    world: BrokerWorld, room: Room
) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    assert isinstance(world.logs.failed[T0], NoSpaceLeft)
    with pytest.raises(ReplicaOffline, match="cannot be used"):
        world.replicas.partition(T0)
    assert world.offline_replicas.kinds == {REPLICA: DIRECTORY}
    room.full(False)
    await eventually(lambda: opened(world))
    partition = world.replicas.partition(T0)
    assert partition.is_leader
    assert partition.log_end_offset == RECORDS
    assert world.logs.logs[T0].log_end_offset == world.logs.logs[T0].recovery_point
    assert world.offline_replicas.kinds == {}
    assert world.replicas.offline_partitions == {}
    await world.controller.until_called(ReplicaStatesRequest, 2)
    assert world.controller.calls_of(ReplicaStatesRequest)[-1].online == (REPLICA,)


async def test_while_the_disk_is_full_the_log_is_not_read(world: BrokerWorld, room: Room) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    touched: list[str] = []
    room.storage.before_operation = lambda operation, path: touched.append(path)
    tries = "/data/t-0/room.tmp"
    await eventually(lambda: touched.count(tries) > 6)
    room.storage.before_operation = None
    assert LOG not in touched
    assert world.disk.list_dir("/data/t-0").count("room.tmp") == 0


async def test_a_reopened_log_follows_who_leads_by_then(world: BrokerWorld, room: Room) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    await world.publish(PartitionChange(topic_id(1), 0, isr=(2,), leader=2))
    room.full(False)
    await eventually(lambda: opened(world))
    followed = world.followed(T0)
    assert followed is not None
    assert followed.followed.leader_id == 2


async def test_a_topic_that_is_deleted_while_its_log_waits_leaves_nothing(
    world: BrokerWorld, room: Room
) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    await world.publish(gone(1))
    room.full(False)
    await world.logs.removals.remove_due()
    assert "t-0" not in world.disk.list_dir("/data")
    assert world.logs.failed == {}


@pytest.mark.parametrize("is_made_anew", [False, True])
async def test_a_topic_that_is_deleted_while_its_log_is_opened_loses_it(
    world: BrokerWorld, room: Room, is_made_anew: bool
) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    room.full(False)
    world.executor.holding = True
    await eventually(lambda: world.replicas._replica_logs.is_pending(T0))
    await world.publish(gone(1), *(topic("t", 2, (1, 2)) if is_made_anew else ()))
    assert world.disk.exists(LOG), "the job has it"
    world.executor.release()
    await world.replicas.settled()
    assert (T0 in world.logs.logs) == is_made_anew
    assert world.logs.failed == {}
    assert world.offline_replicas.kinds == {}
    if is_made_anew:
        assert world.replicas.partition(T0).log_end_offset == 0
        content = world.disk.read_bytes("/data/t-0/partition.metadata")
        assert decode_partition_metadata(content) == topic_id(2)


async def test_damage_that_the_recovery_meets_is_repaired_from_the_leader(
    world: BrokerWorld, room: Room
) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    await world.publish(PartitionChange(topic_id(1), 0, isr=(2,), leader=2, offline_replicas=(1,)))
    data = room.storage.inode(LOG).data
    data[len(data) // 2] ^= 1
    world.executor.holding = True
    room.full(False)
    await eventually(lambda: world.replicas._replica_logs.is_pending(T0))
    world.executor.release()
    await world.replicas.settled()
    followed = world.followed(T0)
    assert followed is not None, "made anew, and copied"
    assert world.replicas.partition(T0).log_end_offset == 0


async def test_damage_of_a_replica_that_others_count_on_stays(world: BrokerWorld, room: Room) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    data = room.storage.inode(LOG).data
    data[len(data) // 2] ^= 1
    room.full(False)
    await eventually(lambda: world.offline_replicas.kinds == {REPLICA: DAMAGED})
    assert T0 in world.logs.failed
    assert world.disk.exists(LOG)


async def test_nothing_is_opened_again_in_a_directory_that_failed_meanwhile(room: Room) -> None:
    room.storage.make_dirs("/more")
    world = BrokerWorld(simulated_disk(room.storage), directories=("/data", "/more"))
    world.controller.always(ReplicaStatesRequest, lambda _: ReplicaStatesResponse(()))
    await world.start(*topic("t", 1, *(((1, 2),) * 4)))
    there = [key for key, stored in world.logs.logs.items() if stored.directory.startswith("/more/")]
    assert len(there) == 2
    world.executor.holding = True
    for key in there:
        world.logs.give_up(key, InterruptedByFullDisk("the disk was full"))
    await eventually(lambda: all(world.replicas._replica_logs.is_pending(key) for key in there))
    world.logs.fail_directory("/more", "an fsync failed")
    touched: list[str] = []
    room.storage.before_operation = lambda operation, path: touched.append(path)
    world.executor.release()
    await world.replicas.settled()
    room.storage.before_operation = None
    assert [path for path in touched if path.startswith(f"/more/{there[1]}/")] == []
    assert all(isinstance(world.replicas.offline_partitions[key], DirectoryFailed) for key in there)
    await world.close()
    assert world.halts == []


async def cut_while_closed(room: Room, *replicas: int) -> BrokerWorld:
    """A broker that leads; its log is closed by a full disk, and the last batch rots before it is opened again."""
    world = room.broker()
    await world.start(*topic("t", 1, replicas))
    for number in range(RECORDS):
        world.replicas.partition(T0).append_records(batch(b"%d" % number), acks=1, now_ms=0)
    world.logs.give_up(T0, InterruptedByFullDisk("the disk was full"))
    room.storage.inode(LOG).data[-1] ^= 1
    await eventually(lambda: T0 in world.replicas._replica_logs._held)
    assert world.logs.logs[T0].log_end_offset == RECORDS - 1
    return world


async def test_a_reopened_log_that_lost_records_waits_until_nobody_counts_on_them(room: Room) -> None:
    world = await cut_while_closed(room, 1, 2)
    reports = [kind for call in world.controller.calls_of(ReplicaStatesRequest) for *_, kind in call.offline]
    assert reports[-1] == DAMAGED
    await asyncio.sleep(0.05)
    assert T0 in world.replicas.offline_partitions, "by what it knows, this broker leads still"
    with pytest.raises(ReplicaOffline):
        world.replicas.partition(T0)
    await world.publish(PartitionChange(topic_id(1), 0, isr=(2,), leader=2, offline_replicas=(1,)))
    await eventually(lambda: opened(world))
    assert world.followed(T0) is not None
    assert world.replicas.partition(T0).log_end_offset == RECORDS - 1, "it is not copied from the start"
    assert world.offline_replicas.kinds == {}
    assert world.logs.reopener.shortened == set()
    await world.close()
    assert world.disk.exists("/data/.kafka_cleanshutdown")
    assert world.halts == []


async def test_a_log_that_lacks_records_is_not_given_back_while_it_is_the_last_that_is_counted_on(
    room: Room,
) -> None:
    """Nobody else may lead by itself (`quorum.controller.replica_states`): given back, it would be elected as if it had
    everything, and who has more would be cut to it."""
    world = await cut_while_closed(room, 1, 2)
    await world.publish(PartitionChange(topic_id(1), 0, isr=(), leader=-1, elr=(1,), offline_replicas=(1,)))
    looks: list[TopicPartition] = []
    hold = world.replicas._replica_logs._hold

    def watched(key: TopicPartition) -> None:
        looks.append(key)
        hold(key)

    world.replicas._replica_logs._hold = watched  # type: ignore[method-assign]
    await eventually(lambda: len(looks) > 2 or opened(world))
    assert not opened(world)
    assert world.offline_replicas.kinds == {REPLICA: DAMAGED}
    assert [call.online for call in world.controller.calls_of(ReplicaStatesRequest) if call.online] == []
    await world.publish(PartitionChange(topic_id(1), 0, isr=(2,), leader=2, elr=()))  # an operator's election
    await eventually(lambda: opened(world))
    assert world.followed(T0) is not None
    await world.close()
    assert world.halts == []


async def test_records_are_missing_as_well_if_an_earlier_attempt_has_cut_them(room: Room) -> None:
    world = room.broker()
    await world.start(*topic("t", 1, (1, 2)))
    for number in range(RECORDS):
        world.replicas.partition(T0).append_records(batch(b"%d" % number), acks=1, now_ms=0)
    world.logs.give_up(T0, InterruptedByFullDisk("the disk was full"))
    room.storage.inode(LOG).data[-1] ^= 1
    was_full = []

    def fill(operation: str, path: str) -> None:
        """The index needs room that another log has taken meanwhile."""
        if operation == "truncate" and path == LOG:
            was_full.append(path)
            room.full()

    world.disk.remove("/data/t-0/00000000000000000000.index")
    room.storage.before_operation = fill
    await eventually(lambda: bool(was_full) and not world.replicas._replica_logs.is_pending(T0))
    room.storage.before_operation = None
    assert T0 in world.logs.failed
    room.full(False)
    await eventually(lambda: T0 in world.replicas._replica_logs._held)
    await eventually(lambda: world.offline_replicas.kinds == {REPLICA: DAMAGED})
    await world.close()


async def test_a_broker_that_ends_before_it_could_tell_of_lost_records_did_not_end_cleanly(
    room: Room,
) -> None:
    world = await cut_while_closed(room, 1, 2)
    await world.close()
    assert not world.disk.exists("/data/.kafka_cleanshutdown")


async def test_a_replica_that_is_moved_away_and_back_while_its_log_is_held_is_reported_again(
    room: Room,
) -> None:
    world = await cut_while_closed(room, 1, 2)
    await world.publish(PartitionChange(topic_id(1), 0, isr=(2,), leader=2, replicas=(2,)))
    await world.publish(PartitionChange(topic_id(1), 0, replicas=(2, 1)))
    await eventually(lambda: world.offline_replicas.kinds == {REPLICA: DAMAGED})
    await world.publish(PartitionChange(topic_id(1), 0, offline_replicas=(1,)))
    await eventually(lambda: opened(world))
    assert world.followed(T0) is not None
    await world.close()
    assert world.halts == []


async def test_a_topic_that_is_deleted_while_its_log_is_held_loses_it(room: Room) -> None:
    world = await cut_while_closed(room, 1, 2)
    await world.publish(gone(1))
    await eventually(lambda: T0 not in world.logs.logs and not world.replicas._replica_logs.is_pending(T0))
    await world.logs.removals.remove_due()
    assert "t-0" not in world.disk.list_dir("/data")
    assert world.logs.reopener.shortened == set()
    await world.close()
    assert world.halts == []


async def test_a_truncation_that_a_full_disk_interrupts_takes_one_replica_for_a_while(room: Room) -> None:
    world = room.broker()
    await world.start(*topic("t", 1, (2, 1), (2, 1)))
    partition = world.replicas.partition(T0)
    room.full()
    with pytest.raises(InterruptedByFullDisk):
        partition.truncate_fully_and_start_at(50, leader_epoch=0)
    await eventually(lambda: T0 in world.replicas.offline_partitions)
    assert world.replicas.partition(TopicPartition("t", 1))
    room.full(False)
    await eventually(lambda: opened(world))
    assert world.followed(T0) is not None
    assert world.replicas.partition(T0).log_end_offset == 0
    await world.close()
    assert world.halts == []
