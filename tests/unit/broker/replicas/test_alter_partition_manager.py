"""Proposals of many partitions in one request; repeated while they stand, dropped when they do not."""

from __future__ import annotations

import asyncio

import pytest

from kraft.broker.replicas import alter_partition_manager
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import PartitionChange
from quorum.rpc.envelope import RpcError, RpcUnavailable
from quorum.rpc.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    AlterPartitionTopicResult,
)
from tests.support.broker_world import BrokerWorld, batch, gone, led_by, topic, topic_id

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def committed(request: AlterPartitionRequest) -> AlterPartitionResponse:
    """Everything as proposed."""
    return AlterPartitionResponse(
        tuple(
            AlterPartitionTopicResult(
                asked.topic_id,
                tuple(
                    AlterPartitionResult(
                        item.partition,
                        leader=request.broker_id,
                        leader_epoch=item.leader_epoch,
                        isr=tuple(member.broker_id for member in item.new_isr_with_epochs),
                        partition_epoch=item.partition_epoch + 1,
                    )
                    for item in asked.partitions
                ),
            )
            for asked in request.topics
        )
    )


def refused(request: AlterPartitionRequest, code: str) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        tuple(
            AlterPartitionTopicResult(
                asked.topic_id, tuple(AlterPartitionResult(item.partition, code) for item in asked.partitions)
            )
            for asked in request.topics
        )
    )


def catch_up(world: BrokerWorld, *keys: TopicPartition) -> None:
    """Follower 2 fetches at the end: it may join."""
    for key in keys:
        world.replicas.partition(key).update_follower(2, 2, 0, 0, 0, world.replicas.monotonic_ms())


async def sent(world: BrokerWorld, times: int) -> AlterPartitionRequest:
    await world.controller.until_called(AlterPartitionRequest, times)
    request: AlterPartitionRequest = world.controller.calls_of(AlterPartitionRequest)[times - 1]
    return request


async def settled(world: BrokerWorld, key: TopicPartition) -> None:
    """The answer is taken a few turns of the loop after it was given."""
    for _ in range(100):
        await asyncio.sleep(0)
    assert world.replicas.partition(key).pending_proposal is None


async def test_what_is_proposed_together_goes_together(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), (1, 2), isr=(1,)), *topic("u", 2, (1, 2), isr=(1,)))
    world.controller.always(AlterPartitionRequest, committed)
    catch_up(world, T0, T1, TopicPartition("u", 0))
    request = await sent(world, 1)
    assert (request.broker_id, request.broker_epoch) == (1, 1)
    assert [(t.topic_id, [p.partition for p in t.partitions]) for t in request.topics] == [
        (topic_id(1), [0, 1]),
        (topic_id(2), [0]),
    ]
    members = request.topics[0].partitions[0].new_isr_with_epochs
    assert [(m.broker_id, m.broker_epoch) for m in members] == [(1, 1), (2, 2)]
    await settled(world, T1)
    assert world.replicas.partition(T0).isr == (1, 2)


async def test_what_is_proposed_meanwhile_goes_with_the_next(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), (1, 2), isr=(1,)))
    catch_up(world, T0)
    await sent(world, 1)
    catch_up(world, T1)
    await asyncio.sleep(0)
    assert len(world.controller.calls) == 1  # one in flight


async def test_all_who_can_join_when_the_request_is_sent_join_with_it(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2, 3), isr=(1,)))
    world.controller.always(AlterPartitionRequest, committed)
    partition = world.replicas.partition(T0)
    for follower in (2, 3):
        partition.update_follower(follower, follower, 0, 0, 0, world.replicas.monotonic_ms())
    assert partition.maximal_isr == (1, 2), "one proposal at a time"
    request = await sent(world, 1)
    members = request.topics[0].partitions[0].new_isr_with_epochs
    assert [(m.broker_id, m.broker_epoch) for m in members] == [(1, 1), (2, 2), (3, 3)]
    await settled(world, T0)
    assert (partition.isr, len(world.controller.calls)) == ((1, 2, 3), 1)


async def test_one_who_is_not_eligible_does_not_keep_the_others_out(world: BrokerWorld) -> None:
    """The controller has fenced broker 3, of which this leader has not heard yet."""
    await world.start(*topic("t", 1, (1, 2, 3), isr=(1,)))
    asked: list[tuple[int, ...]] = []

    def answer(request: AlterPartitionRequest) -> AlterPartitionResponse:
        members = tuple(m.broker_id for m in request.topics[0].partitions[0].new_isr_with_epochs)
        asked.append(members)
        return refused(request, "INELIGIBLE_REPLICA") if 3 in members else committed(request)

    world.controller.always(AlterPartitionRequest, answer)
    partition = world.replicas.partition(T0)
    for _ in range(2):
        calls = len(world.controller.calls)
        for follower in (2, 3):
            partition.update_follower(follower, follower, 0, 0, 0, world.replicas.monotonic_ms())
        await sent(world, calls + 1)
        await settled(world, T0)
    assert (asked, partition.isr) == ([(1, 2, 3), (1, 2)], (1, 2))


async def test_a_request_holds_only_so_many(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_partition_manager, "PARTITIONS_PER_REQUEST_MAX", 2)
    await world.start(*topic("t", 1, *[(1, 2)] * 5, isr=(1,)))
    world.controller.always(AlterPartitionRequest, committed)
    catch_up(world, *(TopicPartition("t", n) for n in range(5)))
    await sent(world, 3)
    sizes = [len(r.topics[0].partitions) for r in world.controller.calls]
    assert sizes == [2, 2, 1]


@pytest.mark.parametrize(
    "failure",
    [
        RpcUnavailable("nobody"),
        RpcError("STALE_BROKER_EPOCH", "x"),
        RpcError("NOT_CONTROLLER", "x"),
        # Of the request, by a controller of another release, say. Of a partition it would mean that metadata come.
        RpcError("INVALID_REQUEST", "AlterPartitionRequest: field x is unknown"),
    ],
)
async def test_an_unknown_outcome_is_repeated(world: BrokerWorld, failure: RpcError) -> None:
    await world.start(*topic("t", 1, (1, 2), isr=(1,)))
    world.controller.answer(AlterPartitionRequest, failure)
    world.controller.always(AlterPartitionRequest, committed)
    catch_up(world, T0)
    first, second = await sent(world, 1), await sent(world, 2)
    assert first == second
    await settled(world, T0)
    assert world.replicas.partition(T0).isr == (1, 2)


async def test_an_answer_without_the_partition_is_an_unknown_outcome(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), isr=(1,)))
    world.controller.answer(AlterPartitionRequest, AlterPartitionResponse(()))
    world.controller.always(AlterPartitionRequest, committed)
    catch_up(world, T0)
    await sent(world, 2)
    await settled(world, T0)


async def test_an_ineligible_replica_is_rolled_back(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), isr=(1,)))
    world.controller.always(AlterPartitionRequest, lambda request: refused(request, "INELIGIBLE_REPLICA"))
    catch_up(world, T0)
    await sent(world, 1)
    await settled(world, T0)
    assert world.replicas.partition(T0).maximal_isr == (1,)
    assert len(world.controller.calls) == 1


async def test_what_came_of_proposals_is_counted(world: BrokerWorld) -> None:
    """By what the controller has made of them, and not by what was proposed."""

    def counts() -> tuple[int, int, int]:
        metrics = world.metrics
        return metrics.isr_expands, metrics.isr_shrinks, metrics.failed_isr_updates

    await world.start(*topic("t", 1, (1, 2), isr=(1,)))
    world.controller.answer(AlterPartitionRequest, RpcUnavailable("nobody is there"))
    world.controller.always(AlterPartitionRequest, committed)
    catch_up(world, T0)
    assert counts() == (0, 0, 0)
    await sent(world, 2)
    await settled(world, T0)
    assert counts() == (1, 0, 1)
    partition, now_ms = world.replicas.partition(T0), world.replicas.monotonic_ms()
    partition.append_records(batch(b"a"), acks=1, now_ms=now_ms)
    partition.maybe_shrink(now_ms + 1_000_000)
    await sent(world, 3)
    await settled(world, T0)
    assert (partition.isr, counts()) == ((1,), (1, 1, 1))


@pytest.mark.parametrize("code", ["FENCED_LEADER_EPOCH", "INVALID_UPDATE_VERSION", "UNKNOWN_TOPIC_ID"])
async def test_what_is_out_of_date_waits_for_metadata(world: BrokerWorld, code: str) -> None:
    await world.start(*topic("t", 1, (1, 2), isr=(1,)))
    world.controller.always(AlterPartitionRequest, lambda request: refused(request, code))
    catch_up(world, T0)
    await sent(world, 1)
    await asyncio.sleep(0.1)
    assert len(world.controller.calls) == 1
    assert world.replicas.partition(T0).maximal_isr == (1, 2)
    await world.publish(PartitionChange(topic_id(1), 0, isr=(1, 2)))
    assert world.replicas.partition(T0).pending_proposal is None


async def test_a_former_leader_repeats_nothing(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), isr=(1, 2)), *topic("u", 2, (1, 2), isr=(1,)))
    world.controller.answer(AlterPartitionRequest, RpcUnavailable("nobody"))
    catch_up(world, TopicPartition("u", 0))
    await sent(world, 1)
    await world.publish(led_by(2, 0, -1))
    await asyncio.sleep(0.1)
    assert len(world.controller.calls) == 1


async def test_the_answer_for_a_deleted_topic_is_nobodys(world: BrokerWorld) -> None:
    """A topic of the same name has another id, and a state of its own."""
    await world.start(*topic("t", 1, (1, 2), isr=(1,)))
    world.controller.answer(AlterPartitionRequest, RpcUnavailable("nobody"))
    world.controller.always(AlterPartitionRequest, committed)
    catch_up(world, T0)
    await world.publish(gone(1), *topic("t", 2, (1, 2), isr=(1,)))
    await world.replicas.settled()
    assert world.replicas.partition(T0).isr == (1,)
    catch_up(world, T0)
    request = await sent(world, 2)
    assert [asked.topic_id for asked in request.topics] == [topic_id(2)]
    await settled(world, T0)
    assert world.replicas.partition(T0).isr == (1, 2)


async def test_a_defect_halts_the_node() -> None:
    world = BrokerWorld()
    await world.start(*topic("t", 1, (1, 2), isr=(1,)))
    world.controller.answer(AlterPartitionRequest, KeyError("oops"))
    catch_up(world, T0)
    async with asyncio.timeout(60):
        await world.halted.wait()
    assert "alter-partition" in world.halts[0]
    await world.close()
