"""What the handlers make of transactions: topics that are not there, producer ids, errors by version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from kraft.broker.handlers.transactions import fenced_as_known
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.find_coordinator import CoordinatorType, FindCoordinatorRequest
from kraft.protocol.schemas.producers import InitProducerIdRequest
from kraft.protocol.schemas.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
)
from quorum.rpc import messages
from tests.support.broker_world import BrokerWorld, topic

STATE = topic("__transaction_state", 8, (1,))
OFFSETS = topic("__consumer_offsets", 9, (1,))
T = topic("t", 1, (1,), (1,))
NONE = ErrorCode.NONE
UNKNOWN, NOT_ATTEMPTED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED


@pytest.fixture
async def broker(world: BrokerWorld) -> BrokerWorld:
    """Broker 1 coordinates all transactions; the controller gives the producer ids 50, 51, …"""
    for listener in (world.groups.runtime, world.transactions.runtime, world.transactions):
        world.replicas.leaderships.add(listener)
    world.controller.always(
        messages.AllocateProducerIdsRequest, lambda _: messages.AllocateProducerIdsResponse(50, 1000)
    )
    await world.start(*STATE, *OFFSETS, *T)
    for _ in range(10_000):
        if not (world.transactions.runtime.is_loading or world.groups.runtime.is_loading):
            return world
        await asyncio.sleep(0)
    pytest.fail("the shards are not loaded")


async def ask(world: BrokerWorld, body: Message, version: int) -> Any:
    answer = world.handle(body, version)
    return await answer if isinstance(answer, Awaitable) else answer


async def init(world: BrokerWorld, name: str = "x", version: int = 5, **fields: Any) -> tuple[int, int, int]:
    body = InitProducerIdRequest(transactional_id=name, **({"transaction_timeout_ms": 60_000} | fields))
    answer = await ask(world, body, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


async def add(
    world: BrokerWorld, *partitions: int, name: str = "t", epoch: int = 0, version: int = 3
) -> dict[int, int]:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=list(partitions))]
    body = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=50,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics,
    )
    answer = await ask(world, body, version)
    return {
        one.partition_index: one.partition_error_code
        for result in answer.results_by_topic_v3_and_below
        for one in result.results_by_partition
    }


async def end(world: BrokerWorld, *, epoch: int = 0, version: int = 4, commits: bool = True) -> Any:
    body = EndTxnRequest(transactional_id="x", producer_id=50, producer_epoch=epoch, committed=commits)
    return await ask(world, body, version)


async def state_of(world: BrokerWorld) -> Any:
    answer = await ask(world, DescribeTransactionsRequest(transactional_ids=["x", "x"]), 0)
    (described,) = answer.transaction_states
    return described


async def until_state(world: BrokerWorld, state: str) -> None:
    for _ in range(1000):
        if (await state_of(world)).transaction_state == state:
            return
        await asyncio.sleep(0)
    pytest.fail(f"it is {await state_of(world)}")


async def test_a_transaction_from_begin_to_end(broker: BrokerWorld) -> None:
    assert await init(broker) == (NONE, 50, 0)
    assert await add(broker, 0, 1) == {0: NONE, 1: NONE}
    body = AddOffsetsToTxnRequest(transactional_id="x", producer_id=50, producer_epoch=0, group_id="g")
    assert (await ask(broker, body, 4)).error_code == NONE
    described = await state_of(broker)
    assert described.transaction_state == "Ongoing"
    assert [(one.topic, one.partitions) for one in described.topics] == [
        ("__consumer_offsets", [0]),
        ("t", [0, 1]),
    ]
    assert (await end(broker)).error_code == NONE
    await until_state(broker, "CompleteCommit")
    assert (await end(broker)).error_code == NONE, "its retry"
    assert (await end(broker, commits=False)).error_code == ErrorCode.INVALID_TXN_STATE


async def test_a_fresh_id_is_taken_only_when_one_is_needed(broker: BrokerWorld) -> None:
    assert await init(broker) == (NONE, 50, 0)
    assert await init(broker) == (NONE, 50, 1)
    assert await init(broker, "y") == (NONE, 51, 0)


async def test_without_a_controller_there_is_no_fresh_id(world: BrokerWorld, broker: BrokerWorld) -> None:
    world.controller.answer(messages.AllocateProducerIdsRequest, messages.AllocateProducerIdsResponse(0, 0))
    assert await init(broker) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)]
)
async def test_an_old_incarnation_is_fenced(broker: BrokerWorld, version: int, code: ErrorCode) -> None:
    for _ in range(3):
        await init(broker)
    assert (await init(broker, version=version, producer_id=50, producer_epoch=0))[0] == code


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]
)
async def test_a_zombie_is_told_in_words_that_it_knows(
    broker: BrokerWorld, version: int, code: ErrorCode
) -> None:
    await init(broker)
    await init(broker)
    assert await add(broker, 0, version=version) == {0: code}
    assert (await end(broker, version=version)).error_code == code
    body = AddOffsetsToTxnRequest(transactional_id="x", producer_id=50, producer_epoch=0, group_id="g")
    assert (await ask(broker, body, version)).error_code == code
    assert fenced_as_known(code, version) == code


async def test_where_one_partition_is_not_there_none_is_added(broker: BrokerWorld) -> None:
    await init(broker)
    assert await add(broker, 0, 1, 2) == {0: NOT_ATTEMPTED, 1: NOT_ATTEMPTED, 2: UNKNOWN}
    assert await add(broker, 0, name="__consumer_offsets") == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert (await state_of(broker)).transaction_state == "Empty"


async def test_brokers_add_and_verify_for_several_producers_at_once(broker: BrokerWorld) -> None:
    await init(broker)
    await init(broker, "y")

    async def batched(verifies: bool) -> dict[str, list[int]]:
        wanted = [
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=0,
                verify_only=verifies,
                topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
            for name, producer_id in (("x", 50), ("y", 51), ("z", 52))
        ]
        answer = await ask(broker, AddPartitionsToTxnRequest(transactions=wanted), 5)
        return {
            one.transactional_id: [
                part.partition_error_code
                for result in one.topic_results
                for part in result.results_by_partition
            ]
            for one in answer.results_by_transaction
        }

    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert await batched(verifies=True) == {"x": [abortable], "y": [abortable], "z": [unknown]}
    assert await batched(verifies=False) == {"x": [NONE], "y": [NONE], "z": [unknown]}
    assert await batched(verifies=True) == {"x": [NONE], "y": [NONE], "z": [unknown]}


async def test_version_2_bumps_the_epoch_with_each_end(broker: BrokerWorld) -> None:
    await init(broker)
    await add(broker, 0)
    answer = await end(broker, version=5)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (NONE, 50, 1)
    await until_state(broker, "CompleteCommit")


async def test_transactions_are_listed_by_state(broker: BrokerWorld) -> None:
    await init(broker)
    await init(broker, "y")
    await add(broker, 0)
    answer = await ask(broker, ListTransactionsRequest(state_filters=["Ongoing", "Odd"]), 0)
    assert [one.transactional_id for one in answer.transaction_states] == ["x"]
    assert answer.unknown_state_filters == ["Odd"]
    everything = await ask(broker, ListTransactionsRequest(transactional_id_pattern="x|y"), 2)
    assert {one.transactional_id for one in everything.transaction_states} == {"x", "y"}
    wrong = await ask(broker, ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_where_the_coordinator_is_not(world: BrokerWorld) -> None:
    await world.start(*topic("__transaction_state", 8, (2, 1)), *T)
    assert (await init(world))[0] == ErrorCode.NOT_COORDINATOR
    assert (await end(world)).error_code == ErrorCode.NOT_COORDINATOR
    assert await add(world, 0) == {0: ErrorCode.NOT_COORDINATOR}
    assert (await state_of(world)).error_code == ErrorCode.NOT_COORDINATOR
    body = FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=["x"])
    (found,) = (await ask(world, body, 6)).coordinators
    assert (found.error_code, found.node_id, found.host) == (NONE, 2, "broker-2")


async def test_until_there_are_enough_brokers_there_is_no_coordinator(world: BrokerWorld) -> None:
    await world.start()
    world.controller.always(
        messages.CreateTopicsRequest,
        lambda call: messages.CreateTopicsResponse(
            tuple(messages.CreateTopicResult(one.name, "INVALID_REPLICATION_FACTOR") for one in call.topics)
        ),
    )
    body = FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=["x"])
    (found,) = (await ask(world, body, 6)).coordinators
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "transaction.state.log.replication.factor=3" in found.error_message
