"""Appends for anybody: in whose epoch, in which order, and when they are committed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraft.broker.replicas.appends import AckCondition, Appended
from partitions.errors import FencedLeaderEpoch, NotEnoughReplicas, NotLeaderOrFollower, PartitionError
from partitions.log.errors import AppendError
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Config
from tests.support.broker_world import BrokerWorld, batch, gone, led_by, topic

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LONG_S = 60.0


def append(world: BrokerWorld, key: TopicPartition = T0, *, acks: int = -1, **how: Any) -> Appended:
    appended = world.replicas.appends.append(key, batch(b"x"), acks=acks, **how)
    assert isinstance(appended, Appended)
    return appended


def append_past_gates(world: BrokerWorld) -> Appended:
    partition = world.replicas.partition(T0)
    info = partition.append_records(batch(b"x"), acks=1, now_ms=0)
    return Appended(info, AckCondition(partition, info.last_offset + 1, partition.leader_epoch))


def follower_at(world: BrokerWorld, offset: int, key: TopicPartition = T0) -> None:
    world.replicas.partition(key).update_follower(2, 2, offset, 0, offset, world.replicas.monotonic_ms())


async def test_an_append_tells_where_it_is_and_in_which_epoch(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), epoch=4))
    append(world)
    appended = append(world, origin="coordinator", leader_epoch=4)
    assert (appended.info.first_offset, *appended.condition[1:]) == (1, 2, 4)
    assert world.metrics.messages_in == 2


async def test_an_append_for_another_epoch_is_refused(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), epoch=4))
    with pytest.raises(FencedLeaderEpoch):
        append(world, leader_epoch=3)
    assert world.replicas.partition(T0).log_end_offset == 0


async def test_who_does_not_lead_or_has_too_small_an_isr_appends_nothing(world: BrokerWorld) -> None:
    few = TopicPartition("few", 0)
    await world.start(
        *topic("t", 1, (2, 1)),
        *topic("few", 2, (1, 2), isr=(1,)),
        Config("topic", "few", "min.insync.replicas", "2"),
    )
    with pytest.raises(NotLeaderOrFollower):
        append(world)
    with pytest.raises(NotEnoughReplicas):
        append(world, few)
    assert world.replicas.partition(few).log_end_offset == 0


async def test_what_is_committed_already_is_told_at_once(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), (1,)))
    done = world.replicas.appends.when_committed(
        {T0: append(world).condition, T1: append(world, T1).condition}, LONG_S
    )
    assert done == {T0: None, T1: None}
    assert world.replicas.produce_purgatory.count == 0


async def test_several_appends_are_one_wait(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), (1,)))
    mine = {T0: append(world).condition, T1: append(world, T1).condition}
    committed = world.replicas.appends.when_committed(mine, LONG_S)
    assert isinstance(committed, asyncio.Future)
    assert world.replicas.produce_purgatory.count == 1
    follower_at(world, 1)
    assert committed.result() == {T0: None, T1: None}


async def test_time_that_is_over_is_told(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    committed = world.replicas.appends.when_committed({T0: append(world).condition}, 0.0)
    assert isinstance(committed, asyncio.Future)
    assert await committed == {T0: "REQUEST_TIMED_OUT"}


async def test_a_leadership_or_a_topic_that_ends_is_told(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), (1, 2)), *topic("u", 2, (1, 2)))
    u0 = TopicPartition("u", 0)
    mine = {key: append(world, key).condition for key in (T0, T1, u0)}
    committed = world.replicas.appends.when_committed(mine, LONG_S)
    assert isinstance(committed, asyncio.Future)
    world.publish_soon(led_by(1, 0, 2), gone(2))
    assert not committed.done()
    follower_at(world, 1, T1)
    assert committed.result() == {T0: "NOT_LEADER_OR_FOLLOWER", T1: None, u0: "NOT_LEADER_OR_FOLLOWER"}


async def test_somebody_elses_records_acknowledge_nothing(world: BrokerWorld) -> None:
    """The caller asks only when this broker leads again, and others' records are at the offset by then."""
    await world.start(*topic("t", 1, (1, 2)))
    appended, partition = append(world), world.replicas.partition(T0)
    world.publish_soon(led_by(1, 0, 2))
    partition.truncate_to(0, leader_epoch=1)
    partition.append_as_follower(
        batch(b"another's", leader_epoch=1),
        leader_epoch=1,
        leader_high_watermark=1,
        leader_log_start_offset=0,
    )
    world.publish_soon(led_by(1, 0, 1))
    assert partition.high_watermark == 1
    outcomes = world.replicas.appends.when_committed({T0: appended.condition}, LONG_S)
    assert outcomes == {T0: "NOT_LEADER_OR_FOLLOWER"}


async def test_a_gate_keeps_the_order_of_its_partition_alone(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), (1,)))
    may_pass, appends = asyncio.Event(), world.replicas.appends

    first = appends.gates.pass_then(T0, may_pass.wait, lambda _: append_past_gates(world), 10)
    second = appends.append(T0, batch(b"second"), acks=1)
    assert isinstance(second, asyncio.Future)
    assert append(world, T1).info.first_offset == 0, "nothing is in its way"
    await asyncio.sleep(0)
    assert world.replicas.partition(T0).log_end_offset == 0
    may_pass.set()
    assert [(await one).info.first_offset for one in (first, second)] == [0, 1]
    assert append(world).info.first_offset == 2, "nothing waits any more"


@pytest.mark.parametrize("error", [NotLeaderOrFollower("not here"), AppendError("INVALID_RECORD", "so bad")])
async def test_what_a_gate_refuses_is_raised_and_holds_up_nobody(
    world: BrokerWorld, error: PartitionError | AppendError
) -> None:
    await world.start(*topic("t", 1, (1,)))
    appends = world.replicas.appends

    async def refuse() -> None:
        raise error

    refused = appends.gates.pass_then(T0, refuse, lambda _: append(world), 10)
    behind = appends.append(T0, batch(b"behind"), acks=1)
    assert isinstance(behind, asyncio.Future)
    with pytest.raises(type(error)):
        await refused
    assert (await behind).info.first_offset == 0


async def test_a_lane_that_has_not_begun_is_ended_too(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    never = asyncio.Event()
    gates = world.replicas.appends.gates
    waiting = [gates.pass_then(T0, never.wait, lambda _: append(world), 10) for _ in range(2)]
    await world.replicas.appends.close()
    assert all(one.cancelled() for one in waiting)
    assert (gates.count, gates.size_bytes, gates.is_busy(T0)) == (0, 0, False)


async def test_two_appends_of_which_the_first_was_lost_are_not_acknowledged(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    first = append(world).condition
    world.publish_soon(led_by(1, 0, 2))
    world.publish_soon(led_by(1, 0, 1))
    await world.replicas.settled()
    both = first.and_then(append(world).condition)
    follower_at(world, 2)
    assert world.replicas.appends.when_committed({T0: both}, LONG_S) == {T0: "NOT_LEADER_OR_FOLLOWER"}


async def test_rules_for_clients_that_change_meanwhile_are_none_for_others(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    may_pass, appends = asyncio.Event(), world.replicas.appends
    ahead = appends.gates.pass_then(T0, may_pass.wait, lambda _: append_past_gates(world), 10)
    no_clients = batch(b"mine", base_offset=5)
    mine = appends.append(T0, no_clients, acks=1, origin="coordinator", leader_epoch=0)
    assert isinstance(mine, asyncio.Future)
    await asyncio.sleep(0)
    await world.publish(Config("topic", "t", "max.message.bytes", "100000"))
    may_pass.set()
    assert [(await one).info.first_offset for one in (ahead, mine)] == [0, 1]
