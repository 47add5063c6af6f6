"""Replicas whose logs are made, or whose epochs are written, beside the loop, and what happens meanwhile."""

from __future__ import annotations

import asyncio
import errno

import pytest
from structlog.testing import capture_logs

from kraft.broker.handlers import forwarding
from kraft.broker.handlers.forwarding import catch_up
from kraft.broker.replicas import replica_logs
from partitions.errors import NotLeaderOrFollower
from partitions.log.beside_loop import JOBS_AT_ONCE, LOGS_PER_JOB
from partitions.log.partition_files import decode_partition_metadata
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Config, PartitionChange, Record
from quorum.rpc.messages import DIRECTORY, ReplicaStatesRequest, ReplicaStatesResponse
from tests.support.broker_world import BrokerWorld, batch, gone, led_by, topic, topic_id
from tests.support.logs import FailingDisk, memory_disk

T0 = TopicPartition("t", 0)
MANY = 2 * LOGS_PER_JOB + 7
MORE = JOBS_AT_ONCE * LOGS_PER_JOB + 7


def accepts(world: BrokerWorld, key: TopicPartition) -> bool:
    try:
        world.replicas.partition(key).append_records(batch(b"x"), acks=1, now_ms=0)
    except NotLeaderOrFollower:
        return False
    return True


def count_jobs(world: BrokerWorld) -> list[str]:
    """The names of the jobs that run from now on."""
    names: list[str] = []
    run = world.executor.run

    async def counted(job: object, *args: object) -> object:
        names.append(job.__name__)  # type: ignore[attr-defined]
        return await run(job, *args)  # type: ignore[arg-type]

    world.executor.run = counted  # type: ignore[method-assign, assignment]
    return names


async def hold(world: BrokerWorld, *records: Record) -> None:
    """Publishes, and comes back when the job that follows from it waits for its turn."""
    world.executor.holding = True
    await world.publish(*records)
    await asyncio.sleep(0)


async def let_go(world: BrokerWorld) -> None:
    world.executor.release()
    await world.replicas.settled()


def stored_topic_id(world: BrokerWorld, folder: str) -> bytes:
    return decode_partition_metadata(world.disk.read_bytes(f"/data/{folder}/partition.metadata"))


def folders(world: BrokerWorld) -> list[str]:
    return [name for name in world.disk.list_dir("/data") if name.startswith("t-")]


async def test_a_large_topic_is_made_by_few_jobs_and_clients_ask_again_until_then(world: BrokerWorld) -> None:
    await world.start()
    jobs = count_jobs(world)
    await hold(world, *topic("t", 1, *((1, 2) if n % 2 else (2, 1) for n in range(MANY))))
    for number in range(MANY):
        with pytest.raises(NotLeaderOrFollower, match="no replica"):
            world.replicas.partition(TopicPartition("t", number))
    await let_go(world)
    assert jobs == ["make_folders"] * 3
    assert world.replicas.partition_count == MANY
    for number in range(MANY):
        key = TopicPartition("t", number)
        assert accepts(world, key) == (number % 2 == 1)
        assert (world.followed(key) is None) == (number % 2 == 1)


async def test_a_topic_that_is_deleted_while_it_is_made_leaves_nothing(world: BrokerWorld) -> None:
    await world.start()
    await hold(world, *topic("t", 1, *(((1,),) * MANY)))
    await world.publish(gone(1))
    await let_go(world)
    await world.logs.removals.remove_due()
    assert world.replicas.partition_count == 0
    assert folders(world) == []
    assert not world.logs.logs


async def test_a_topic_made_anew_while_it_is_made_gets_logs_of_its_own(world: BrokerWorld) -> None:
    await world.start()
    await hold(world, *topic("t", 1, (1,)))
    await world.publish(gone(1), *topic("t", 2, (1,)))
    await let_go(world)
    assert accepts(world, T0)
    assert world.replicas.partition(T0).topic_id == topic_id(2)
    assert stored_topic_id(world, "t-0") == topic_id(2)


async def test_a_replica_that_is_moved_away_while_it_is_made_goes_and_may_come_back(
    world: BrokerWorld,
) -> None:
    await world.start()
    await hold(world, *topic("t", 1, (1, 2)))
    await world.publish(PartitionChange(topic_id(1), 0, isr=(2, 3), leader=2, replicas=(2, 3)))
    await let_go(world)
    await world.logs.removals.remove_due()
    assert folders(world) == []
    await hold(world, PartitionChange(topic_id(1), 0, replicas=(2, 3, 1), adding_replicas=(1,)))
    await world.publish(PartitionChange(topic_id(1), 0, replicas=(2, 3), adding_replicas=()))
    await world.publish(PartitionChange(topic_id(1), 0, replicas=(2, 3, 1), adding_replicas=(1,)))
    await let_go(world)
    assert world.followed(T0) is not None


async def test_a_replica_is_made_for_what_it_is_when_it_is_there(world: BrokerWorld) -> None:
    """Asked for as the leader's, with other configs."""
    await world.start()
    await hold(world, *topic("t", 1, (1, 2), (1, 2)))
    await world.publish(
        led_by(1, 0, 2), led_by(1, 1, 2), led_by(1, 1, 1), Config("topic", "t", "retention.ms", "5")
    )
    await let_go(world)
    assert world.followed(T0) is not None
    assert not accepts(world, T0)
    again = world.replicas.partition(TopicPartition("t", 1))
    assert (again.is_leader, again.leader_epoch, again.epochs.entries) == (True, 2, ((2, 0),))
    assert accepts(world, TopicPartition("t", 1))
    assert world.disk.read_bytes("/data/t-1/leader-epoch-checkpoint") == b"0\n1\n2 0\n"
    assert again.log.config.retention_ms == 5  # type: ignore[attr-defined]


async def test_a_stop_while_logs_are_made_waits_for_them_and_the_next_start_goes_on(
    world: BrokerWorld,
) -> None:
    records = topic("t", 1, *(((1,),) * MORE))
    await world.start()
    await hold(world, *records)
    closing = asyncio.ensure_future(world.close())
    await closing
    assert world.replicas.partition_count == 0
    assert len(folders(world)) == JOBS_AT_ONCE * LOGS_PER_JOB, "the batches that were under way, and no more"
    again = BrokerWorld(world.disk)
    await again.start(*records)
    assert again.replicas.partition_count == MORE
    assert accepts(again, T0)
    await again.close()
    assert again.halts == []


async def test_leaders_take_no_append_before_the_start_of_their_epoch_is_durable(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, *(((2, 1),) * MANY)))
    jobs = count_jobs(world)
    await hold(world, *(led_by(1, number, 1) for number in range(MANY)))
    for number in range(MANY):
        partition = world.replicas.partition(TopicPartition("t", number))
        assert not accepts(world, partition.topic_partition)
        assert partition.read_for_consumer(0, max_bytes=100, current_leader_epoch=1).high_watermark == 0
        assert world.followed(partition.topic_partition) is None
    await let_go(world)
    assert jobs == ["write_temporaries", "install_files"] * 3
    assert all(accepts(world, TopicPartition("t", number)) for number in range(MANY))
    assert world.disk.read_bytes(f"/data/t-{MANY - 1}/leader-epoch-checkpoint") == b"0\n1\n1 0\n"


async def test_a_leader_that_is_deposed_while_its_epoch_is_written_follows(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    await hold(world, led_by(1, 0, 1))
    await world.publish(led_by(1, 0, 2))
    await let_go(world)
    partition = world.replicas.partition(T0)
    assert (partition.is_leader, partition.leader_epoch) == (False, 2)
    followed = world.followed(T0)
    assert followed is not None
    assert followed.followed.leader_epoch == 2


async def test_a_leader_whose_next_epoch_begins_meanwhile_waits_for_that_one(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    await hold(world, led_by(1, 0, 1))
    await world.publish(led_by(1, 0, 2), led_by(1, 0, 1))
    assert not accepts(world, T0)
    await let_go(world)
    assert accepts(world, T0)
    assert world.disk.read_bytes("/data/t-0/leader-epoch-checkpoint") == b"0\n1\n3 0\n"


async def test_a_topic_that_is_deleted_while_epochs_are_written_takes_them_along(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    await hold(world, led_by(1, 0, 1))
    await world.publish(gone(1), *topic("t", 2, (2, 1)))
    await let_go(world)
    assert world.replicas.partition(T0).topic_id == topic_id(2)
    assert world.replicas.partition(T0).epochs.entries == ()
    assert not world.disk.exists("/data/t-0/leader-epoch-checkpoint")


async def test_who_waits_for_acks_goes_on_waiting_when_the_same_leader_gets_a_new_epoch(
    world: BrokerWorld,
) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    partition = world.replicas.partition(T0)
    partition.append_records(batch(b"a"), acks=-1, now_ms=0)
    waiting = asyncio.ensure_future(world.replicas.produce_purgatory.wait({T0: 1}, 60))
    await hold(world, led_by(1, 0, 1))
    assert partition.awaits_epoch_start
    assert not waiting.done()
    partition.update_follower(2, 2, 1, 0, 1, 0)
    assert await waiting == {T0: None}
    await let_go(world)
    assert accepts(world, T0)


async def test_the_answer_to_a_creation_waits_a_moment_for_this_brokers_replicas(world: BrokerWorld) -> None:
    await world.start()
    await hold(world, *topic("t", 1, (1,)))
    caught_up = asyncio.ensure_future(catch_up(world.services, world.image.offset))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not caught_up.done()
    world.executor.release()
    await caught_up
    assert accepts(world, T0)


async def test_the_answer_does_not_wait_for_long(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "CATCH_UP_TIMEOUT_S", 0.01)
    await world.start()
    await hold(world, *topic("t", 1, (1,)))
    await catch_up(world.services, world.image.offset)
    assert not accepts(world, T0)
    await let_go(world)


async def test_a_log_that_could_not_be_made_is_made_later_though_the_metadata_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_logs, "ROOM_CHECK_S", 0.01)
    failing = FailingDisk(memory_disk())
    world = BrokerWorld(failing)  # type: ignore[arg-type]
    world.controller.always(ReplicaStatesRequest, lambda _: ReplicaStatesResponse(()))
    tries = 0
    was_tried_again = asyncio.Event()

    def no_descriptors(operation: str, path: str) -> int | None:
        nonlocal tries
        if "t-0" not in path:
            return None
        tries += 1
        if tries > 3:
            was_tried_again.set()
        return errno.EMFILE

    failing.fail = no_descriptors
    with capture_logs() as lines:
        await world.start(*topic("t", 1, (1, 2)))
        await world.replicas.settled()
        assert world.offline_replicas.kinds == {(topic_id(1), 0): DIRECTORY}
        async with asyncio.timeout(20):
            await was_tried_again.wait()
        await world.replicas.settled()
    assert [line["event"] for line in lines].count("a replica is offline") == 1
    assert T0 not in world.logs.logs
    assert not world.replicas.pending
    failing.fail = lambda operation, path: None
    await world.controller.until_called(ReplicaStatesRequest, 2)
    await world.replicas.settled()
    assert accepts(world, T0)
    assert world.replicas.offline_partitions == {}
    assert world.offline_replicas.kinds == {}
    await world.close()
    assert world.halts == []
