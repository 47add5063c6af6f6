"""Replicas follow the metadata: created, promoted, demoted, removed, made anew under the same name."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from fetcher.replication import LogTruncation
from kraft.broker.replicas.replica_manager import REPLICAS_PER_STEP, UnknownTopicOrPartition
from partitions.errors import NotLeaderOrFollower, ReplicaOffline
from partitions.log.errors import LogStorageError, UnexpectedAppendOffset
from partitions.partition import FollowerFetch, Partition
from partitions.topic_partition import TopicPartition
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.records import (
    RECOVERED,
    RECOVERING,
    TOPIC_RESOURCE,
    BrokerChange,
    Config,
    PartitionChange,
)
from quorum.rpc.messages import AlterPartitionRequest
from quorum.steps import finished
from tests.support.broker_world import ME, BrokerWorld, batch, broker, gone, led_by, topic, topic_id

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def produce(world: BrokerWorld, key: TopicPartition, *values: bytes) -> None:
    world.replicas.partition(key).append_records(batch(*values), acks=1, now_ms=0)


async def deletions(world: BrokerWorld) -> None:
    await world.replicas.settled()
    await world.logs.removals.remove_due()


async def test_the_first_replica_leads_and_the_others_follow(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), (2, 1)), *topic("elsewhere", 2, (2, 3)))
    assert world.replicas.partition(T0).is_leader
    assert not world.replicas.partition(T1).is_leader
    assert world.followed(T0) is None
    followed = world.followed(T1)
    assert followed is not None
    assert (followed.followed.leader_id, followed.followed.leader_epoch) == (2, 0)
    with pytest.raises(NotLeaderOrFollower):
        world.replicas.partition(TopicPartition("elsewhere", 0))
    for stranger in (TopicPartition("elsewhere", 1), TopicPartition("nowhere", 0)):
        with pytest.raises(UnknownTopicOrPartition):
            world.replicas.partition(stranger)
    assert world.replicas.metrics.leader_elections == 1


async def test_leadership_moves_and_comes_back(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    waiting = world.replicas.produce_purgatory.wait({T0: 5}, 60)
    await world.publish(led_by(1, 0, 2))
    assert await waiting == {T0: "NOT_LEADER_OR_FOLLOWER"}
    assert world.followed(T0) is not None
    await world.publish(led_by(1, 0, -1, isr=(1,)))
    assert world.followed(T0) is None
    await world.publish(led_by(1, 0, 1))
    partition = world.replicas.partition(T0)
    assert partition.is_leader
    assert partition.leader_epoch == 3
    assert partition.epochs.latest_epoch == 3


async def test_a_deleted_topic_takes_its_files_along(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), (1,)))
    produce(world, T0, b"a")
    await world.publish(gone(1))
    with pytest.raises(UnknownTopicOrPartition):
        world.replicas.partition(T0)
    await deletions(world)
    assert not any(name.startswith("t-") for name in world.disk.list_dir("/data"))


async def test_a_topic_made_anew_has_nothing_of_the_old_one(world: BrokerWorld) -> None:
    """In one step of metadata, as after a pause, and again while the old files are still on their way out."""
    await world.start(*topic("t", 1, (1,)))
    produce(world, T0, b"old")
    waiting = world.replicas.produce_purgatory.wait({T0: 2}, 60)
    world.executor.holding = True
    await world.publish(gone(1), *topic("t", 2, (1,)))
    assert await waiting == {T0: "NOT_LEADER_OR_FOLLOWER"}
    with pytest.raises(NotLeaderOrFollower):  # not yet, and the client asks again
        world.replicas.partition(T0)
    await world.publish(gone(2), *topic("t", 3, (1,)))
    world.executor.release()
    await deletions(world)
    partition = world.replicas.partition(T0)
    assert partition.topic_id == topic_id(3)
    assert partition.log_end_offset == 0


async def test_a_replica_that_moves_elsewhere_goes(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    assert world.followed(T0) is not None
    moved = topic("t", 2, (2, 3))
    await world.publish(gone(1), *moved)
    assert world.followed(T0) is None
    await deletions(world)
    assert world.logs.get(T0) is None


async def test_stopping_while_logs_are_deleted_makes_nothing_anew(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    world.executor.holding = True
    await world.publish(gone(1), *topic("t", 2, (2, 1)))
    closing = asyncio.ensure_future(world.replicas.close())
    await asyncio.sleep(0)
    world.executor.release()
    await closing
    assert world.replicas.partition_count == 0


async def test_logs_of_topics_deleted_meanwhile_go_at_the_first_metadata(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)), *topic("gone", 2, (1,)), *topic("anew", 3, (1,)))
    for name in ("t", "gone", "anew"):
        produce(world, TopicPartition(name, 0), b"x")
    await world.close()
    again = BrokerWorld(world.disk)
    await again.start(*topic("t", 1, (1,), epoch=1), *topic("anew", 4, (1,), epoch=1))
    await deletions(again)
    assert sorted(map(str, again.logs.logs)) == ["anew-0", "t-0"]
    assert again.replicas.partition(T0).log_end_offset == 1
    assert again.replicas.partition(TopicPartition("anew", 0)).log_end_offset == 0
    await again.close()


async def test_one_damaged_log_keeps_no_other_offline(world: BrokerWorld) -> None:
    """And it goes with its topic."""
    await world.start(*topic("t", 1, (1,), (1,)))
    produce(world, T1, b"x")
    await world.close()
    world.disk.remove("/data/t-0/partition.metadata")
    world.disk.open("/data/t-0/partition.metadata", create=True).append([b"nonsense"])
    again = BrokerWorld(world.disk)
    await again.start(*topic("t", 1, (1,), (1,), epoch=1))
    with pytest.raises(ReplicaOffline, match="cannot be used"):
        again.replicas.partition(T0)
    assert list(again.replicas.offline_partitions) == [T0]
    assert again.replicas.partition(T1).log_end_offset == 1
    await again.publish(gone(1), *topic("t", 2, (1,)))
    await deletions(again)
    assert not again.replicas.offline_partitions
    assert again.replicas.partition(T0).is_leader
    await again.close()
    assert again.halts == []


async def test_a_damaged_log_of_a_deleted_topic_goes_too(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    await world.close()
    world.disk.remove("/data/t-0/partition.metadata")
    world.disk.open("/data/t-0/partition.metadata", create=True).append([b"nonsense"])
    again = BrokerWorld(world.disk)
    await again.start()
    await deletions(again)
    assert not again.logs.failed
    await again.close()


async def test_a_damaged_log_does_not_keep_a_topic_made_anew_offline(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    produce(world, T0, b"old")
    await world.close()
    world.disk.open("/data/t-0/truncation-checkpoint", create=True).append([b"nonsense"])
    again = BrokerWorld(world.disk)
    await again.start(*topic("t", 2, (1,), epoch=1))
    await deletions(again)
    assert not again.replicas.offline_partitions
    assert again.replicas.partition(T0).log_end_offset == 0
    await again.close()
    assert again.halts == []


async def test_a_reassignment_comes_and_goes(world: BrokerWorld) -> None:
    """While it is among the adding replicas the broker follows; removed, it has nothing left."""
    await world.start(*topic("t", 1, (2, 3)))
    assert world.followed(T0) is None
    adding = PartitionChange(topic_id(1), 0, replicas=(1, 2, 3), adding_replicas=(1,), removing_replicas=(2,))
    await world.publish(adding)
    assert world.followed(T0) is not None
    end = PartitionChange(
        topic_id(1), 0, isr=(1, 3), leader=1, replicas=(1, 3), adding_replicas=(), removing_replicas=()
    )
    await world.publish(end)
    assert world.replicas.partition(T0).is_leader
    waiting = world.replicas.produce_purgatory.wait({T0: 9}, 60)
    await world.publish(PartitionChange(topic_id(1), 0, isr=(3,), leader=3, replicas=(3,)))
    assert await waiting == {T0: "NOT_LEADER_OR_FOLLOWER"}
    with pytest.raises(NotLeaderOrFollower):
        world.replicas.partition(T0)
    await deletions(world)
    assert not any(name.startswith("t-0") for name in world.disk.list_dir("/data"))


async def test_a_replica_that_was_reassigned_meanwhile_goes_at_the_first_metadata(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    produce(world, T0, b"x")
    await world.close()
    again = BrokerWorld(world.disk)
    await again.start(*topic("t", 1, (3, 2)))
    await deletions(again)
    assert not any(name.startswith("t-0") for name in world.disk.list_dir("/data"))
    await again.close()


async def test_defaults_set_at_run_time_reach_the_logs(world: BrokerWorld) -> None:
    """A topic's own value goes first, then this broker's, then the one of all brokers."""
    await world.start(
        *topic("t", 1, (1,)),
        *topic("own", 2, (1,)),
        Config("topic", "own", "retention.ms", "1"),
        Config("broker", "", "log.retention.ms", "2"),
    )
    own = TopicPartition("own", 0)
    retention = {key: world.replicas.partition(key).log.config.retention_ms for key in (T0, own)}
    assert retention == {T0: 2, own: 1}
    await world.publish(
        Config("broker", "1", "log.retention.ms", "3"), Config("broker", "2", "log.retention.ms", "4")
    )
    assert world.replicas.partition(T0).log.config.retention_ms == 3
    await world.publish(
        Config("broker", "1", "log.retention.ms", None), Config("broker", "", "log.retention.ms", None)
    )
    assert world.replicas.partition(T0).log.config.retention_ms == 7 * 24 * 3_600_000
    await world.publish(*topic("late", 3, (1,)), Config("broker", "", "message.max.bytes", "77"))
    assert world.replicas.partition(TopicPartition("late", 0)).log.config.max_message_bytes == 77
    assert world.replicas.partition(own).log.config.max_message_bytes == 77


async def test_topic_configs_reach_the_logs(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)), Config("topic", "t", "min.insync.replicas", "2"))
    partition = world.replicas.partition(T0)
    assert partition.log.config.min_insync_replicas == 2
    await world.publish(Config("topic", "t", "min.insync.replicas", None))
    assert partition.log.config.min_insync_replicas == 1


async def waits_for_two(
    world: BrokerWorld,
) -> tuple[Partition, asyncio.Future[dict[TopicPartition, str | None]]]:
    """A leader alone in its ISR, with a record that was to be on two brokers, and who waits for that."""
    await world.start(*topic("t", 1, (1, 2)), Config("topic", "t", "min.insync.replicas", "2"))
    partition = world.replicas.partition(T0)
    partition.append_records(batch(b"a"), acks=-1, now_ms=0)
    await world.publish(PartitionChange(topic_id(1), 0, isr=(1,)))
    waiting = asyncio.ensure_future(world.replicas.produce_purgatory.wait({T0: 1}, 60))
    await asyncio.sleep(0)
    return partition, waiting


async def test_a_lowered_min_isr_acknowledges_what_waits(world: BrokerWorld) -> None:
    partition, waiting = await waits_for_two(world)
    assert partition.high_watermark == 0
    await world.publish(Config("topic", "t", "min.insync.replicas", "1"))
    assert partition.high_watermark == 1
    assert await waiting == {T0: None}


@pytest.mark.parametrize("resource", [("topic", "t"), ("broker", "")])
async def test_a_leader_that_is_deposed_acknowledges_nothing_by_new_configs(
    world: BrokerWorld, resource: tuple[str, str]
) -> None:
    """One step of metadata: another one is elected uncleanly, and one broker in sync is enough."""
    partition, waiting = await waits_for_two(world)
    await world.publish(
        led_by(1, 0, 2, (2,)),
        Config("topic", "t", "min.insync.replicas", "1" if resource[0] == "topic" else None),
        Config(*resource, "min.insync.replicas", "1"),
    )
    assert await waiting == {T0: "NOT_LEADER_OR_FOLLOWER"}
    assert partition.high_watermark == 0
    assert partition.log.config.min_insync_replicas == 1


async def test_high_watermarks_that_moved_are_written_once(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)), *topic("idle", 2, (1,)))
    produce(world, T0, b"a", b"b")
    changed = world.replicas.events.take_changed_high_watermarks()
    assert changed == {T0: 2}
    assert world.replicas.events.take_changed_high_watermarks() == {}
    world.replicas.events.note_changed_high_watermarks(changed)  # the disk was full
    assert world.replicas.events.take_changed_high_watermarks() == {T0: 2}


async def test_a_high_watermark_that_was_cut_back_is_written(world: BrokerWorld) -> None:
    """Else a restart would take what was appended since for committed."""
    await world.start(*topic("t", 1, (2, 1)))
    partition = world.replicas.partition(T0)
    partition.append_as_follower(
        batch(b"a", b"b", leader_epoch=0), leader_epoch=0, leader_high_watermark=2, leader_log_start_offset=0
    )
    assert world.replicas.events.take_changed_high_watermarks() == {T0: 2}
    partition.truncate_to(0, leader_epoch=0)
    world.replicas.events.on_truncated(LogTruncation(T0, 2, 0, 2, 0))
    assert world.replicas.events.take_changed_high_watermarks() == {T0: 0}


async def test_a_cut_says_how_much_is_lost_and_because_of_whom(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    partition = world.replicas.partition(T0)
    partition.append_as_follower(
        batch(b"a", b"b", b"c", leader_epoch=0),
        leader_epoch=0,
        leader_high_watermark=2,
        leader_log_start_offset=0,
    )
    with capture_logs() as uncommitted:
        partition.truncate_to(2, leader_epoch=0)
        world.replicas.events.on_truncated(LogTruncation(T0, 3, 2, 2, 0))
    with capture_logs() as committed:
        partition.truncate_to(0, leader_epoch=0)
        world.replicas.events.on_truncated(LogTruncation(T0, 2, 0, 2, 0))
    with capture_logs() as anew:
        world.replicas.events.on_truncated(LogTruncation(T0, 0, 7, 0, None))
    told = {"partition": "t-0", "leader": 2, "leader_epoch": 0}
    assert uncommitted == [
        {"event": "truncated", "log_level": "info", **told, "first": 2, "last": 2, "offsets": 1, "hw": 2}
    ]
    [line] = committed
    assert "lost" in line.pop("consequence")
    cut = {"first": 0, "last": 1, "offsets": 2, "known_committed": 2, "hw": 2}
    assert line == {"event": "truncated", "log_level": "error", **told, **cut}
    assert anew == [{"event": "a log starts anew", "log_level": "info", **told, "start": 7, "end_before": 0}]
    metrics = world.replicas.metrics
    assert (metrics.truncations, metrics.truncated_records, metrics.lost_records) == (3, 3, 2)


def elected_uncleanly(leader: int, *, epoch: int) -> PartitionChange:
    return PartitionChange(
        topic_id(1),
        0,
        isr=(leader,),
        leader=leader,
        leader_recovery_state=RECOVERING,
        unclean_leader_epoch=epoch,
    )


@pytest.mark.parametrize("latest_epoch", [None, 0, 1, 2])
async def test_a_cut_for_an_unclean_election_is_an_error_whatever_the_checkpoint_knew(
    world: BrokerWorld, latest_epoch: int | None
) -> None:
    """Of epochs before it; and also when others have been in sync with its leader since, or lead in its place."""
    await world.start(*topic("t", 1, (2, 1, 3)))
    world.replicas.partition(T0).append_as_follower(
        batch(b"a", leader_epoch=0), leader_epoch=0, leader_high_watermark=0, leader_log_start_offset=0
    )
    await world.publish(elected_uncleanly(2, epoch=1))
    await world.publish(PartitionChange(topic_id(1), 0, isr=(2, 3), leader_recovery_state=RECOVERED))
    await world.publish(PartitionChange(topic_id(1), 0, isr=(3,), leader=3))
    with capture_logs() as logs:
        world.replicas.events.on_truncated(LogTruncation(T0, 1, 0, 0, latest_epoch))
    [line] = logs
    if latest_epoch in (None, 0):
        assert (line["log_level"], line["offsets"], line["lost_at_most"]) == ("error", 1, 1)
        assert (line["leader"], line["leader_epoch"], line["known_committed"]) == (3, 2, 0)
    else:
        assert line["log_level"] == "info", (
            "it followed the unclean leader: what that one lacked is cut off already"
        )
    assert world.replicas.metrics.lost_records == (latest_epoch in (None, 0))


@pytest.mark.parametrize("replicas", [(2, 1), (1,)])
async def test_a_leader_says_that_its_election_was_unclean(
    world: BrokerWorld, replicas: tuple[int, ...]
) -> None:
    await world.start(*topic("t", 1, replicas, isr=replicas[:1]))
    with capture_logs() as logs:
        await world.publish(PartitionChange(topic_id(1), 0, isr=(), leader=-1))
        await world.publish(elected_uncleanly(ME, epoch=2))
    [line] = [line for line in logs if line["log_level"] == "error"]
    assert line["event"] == "leads after an unclean election"
    assert (line["partition"], line["epoch"], line["end"], line["hw"]) == ("t-0", 2, 0, 0)
    assert ("other replicas" in line["consequence"]) == (len(replicas) > 1)


async def test_a_clean_election_is_none_of_the_unclean_one_before(world: BrokerWorld) -> None:
    """The partition stays RECOVERING until its ISR changes, which may be never."""
    await world.start(*topic("t", 1, (1,)))
    await world.publish(PartitionChange(topic_id(1), 0, isr=(), leader=-1))
    await world.publish(elected_uncleanly(ME, epoch=2))
    await world.publish(PartitionChange(topic_id(1), 0, leader=-1))
    with capture_logs() as logs:
        await world.publish(PartitionChange(topic_id(1), 0, leader=ME))
    assert [(line["event"], line["log_level"]) for line in logs] == [("leads", "info")]


async def test_a_disk_that_fails_under_a_follower_takes_the_replica_offline(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    world.replicas.events.on_partition_failed(T0, 0, "KAFKA_STORAGE_ERROR", LogStorageError("EIO"))
    await asyncio.sleep(0)  # whoever met the failure goes on first
    with pytest.raises(ReplicaOffline):
        world.replicas.partition(T0).check_epoch(None)


async def test_a_broker_that_comes_back_may_join_at_once(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), isr=(1,)), BrokerChange(2, 2, fenced=True))
    partition = world.replicas.partition(T0)
    partition.update_follower(2, 2, 0, 0, 0, world.replicas.monotonic_ms())
    assert partition.pending_proposal is None
    await world.publish(BrokerChange(2, 2, fenced=False))
    await world.controller.until_called(AlterPartitionRequest, 1)
    (request,) = world.controller.calls_of(AlterPartitionRequest)
    assert [m.broker_id for m in request.topics[0].partitions[0].new_isr_with_epochs] == [1, 2]
    await world.publish(PartitionChange(topic_id(1), 0, isr=(1, 2)))
    assert partition.isr == (1, 2)


async def test_a_defect_in_the_lag_watch_halts_the_node() -> None:
    world = BrokerWorld(lag_max_ms=1)
    await world.start(*topic("t", 1, (1, 2)))
    partition = world.replicas.partition(T0)

    def broken(*_: object) -> None:
        raise KeyError("a defect")

    world.replicas.events.on_alter_partition = broken  # type: ignore[method-assign]
    partition.append_records(batch(b"x"), acks=1, now_ms=world.replicas.monotonic_ms())
    async with asyncio.timeout(60):
        await world.halted.wait()
    assert "isr-lag" in world.halts[0]
    await world.close()


async def test_a_crashed_fetcher_halts_the_node(world: BrokerWorld) -> None:
    with pytest.raises(Exception, match="the fetcher from broker 2"):
        world.replicas.events.on_fetcher_crashed(2, KeyError("x"))
    world.halts.clear()


# -- many at once

MANY = 2 * REPLICAS_PER_STEP + 1
LAST = TopicPartition("t", MANY - 1)


async def test_many_replicas_are_brought_in_line_in_steps(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, *[(2, 1)] * MANY))
    steps = world.publish_begun(*(led_by(1, number, ME, isr=(ME,)) for number in range(MANY)))
    taken = 0
    while True:
        led = sum(world.replicas.partition(TopicPartition("t", number)).is_leader for number in range(MANY))
        assert led == min(max(taken, 1) * REPLICAS_PER_STEP, MANY), (
            "the first come with the metadata themselves"
        )
        if next(steps, True):
            break
        taken += 1
    assert world.replicas.partition(LAST).is_leader
    await world.replicas.settled()
    assert not world.replicas.pending


async def test_what_is_gone_is_gone_before_the_first_step(world: BrokerWorld) -> None:
    """Nobody may append to a topic's old log once its name may stand for another topic."""
    await world.start(*topic("t", 1, *[(1,)] * MANY))
    steps = world.publish_begun(gone(1), *topic("t", 2, *[(1,)] * MANY))
    for number in (0, MANY - 1):
        with pytest.raises(NotLeaderOrFollower):
            world.replicas.partition(TopicPartition("t", number))
    for _ in steps:
        await asyncio.sleep(0)
    await world.replicas.settled()
    assert world.replicas.partition(LAST).topic_id == topic_id(2)


async def test_where_configs_change_too_their_replicas_follow_at_once(world: BrokerWorld) -> None:
    """A leader that is deposed in it would acknowledge by the new min.insync.replicas meanwhile."""
    await world.start(*topic("t", 1, *[(1, 2)] * MANY), *topic("u", 2, *[(1, 2)] * MANY))
    laxer = Config(TOPIC_RESOURCE, "u", "min.insync.replicas", "1")
    moved = (led_by(one, number, 2) for one in (1, 2) for number in range(MANY))
    steps = world.publish_begun(laxer, *moved)
    leads = (
        world.replicas.partition(LAST).is_leader,
        world.replicas.partition(TopicPartition("u", MANY - 1)).is_leader,
    )
    assert leads == (True, False), "the other topic's replicas follow in steps"
    finished(steps)
    assert not world.replicas.partition(LAST).is_leader


async def test_where_a_broker_registers_anew_all_follow_at_once(world: BrokerWorld) -> None:
    """Its new incarnation would count as the member of an ISR that the old one was, and lost records of (KIP-903)."""
    await world.start(
        *topic("t", 1, *[(1, 2)] * MANY), Config(TOPIC_RESOURCE, "t", "min.insync.replicas", "2")
    )
    partition = world.replicas.partition(LAST)
    partition.append_records(batch(b"a"), acks=-1, now_ms=0)
    epoch = world.image.offset + 1
    delta = MetadataDelta(world.image)
    for number in range(MANY):
        delta.apply(PartitionChange(topic_id(1), number, isr=(1,), elr=()), epoch, 1)
    delta.apply(broker(2)[0], epoch, 1)
    steps = world.hand_out(delta, delta.finish(epoch, 1))
    fetch = FollowerFetch(
        replica_id=2,
        broker_epoch=epoch,
        current_leader_epoch=partition.leader_epoch,
        fetch_offset=1,
        last_fetched_epoch=0,
        log_start_offset=0,
    )
    partition.fetch_as_follower(fetch, max_bytes=1000, now_ms=1)
    assert partition.high_watermark == 0
    finished(steps)


async def test_what_the_own_log_refuses_again_and_again_is_told_ever_more_rarely(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (2, 1)))
    error = UnexpectedAppendOffset("the hole from offset 1 to 2 is too wide for a segment", 2)
    with capture_logs() as lines:
        for failures in range(1, 1001):
            world.replicas.events.on_retry(T0, 0, error.code, error, failures)
        world.replicas.events.on_retry(T0, 0, "NOT_LEADER_OR_FOLLOWER", None, 1)
    told = [line for line in lines if line["log_level"] == "warning"]
    assert [line["failures"] for line in told] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert {(line["partition"], line["code"], line["error"]) for line in told} == {
        ("t-0", "OFFSET_OUT_OF_RANGE", str(error))
    }
    assert world.replicas.metrics.replication_retries == 1001
