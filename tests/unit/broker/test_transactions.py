"""What producers, brokers and tools are told of transactions, by a coordinator over real logs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft.coordinator.transactions.requests import ListTransactions
from kraft.coordinator.transactions.shard import TransactionShard
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
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
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import FeatureLevel
from quorum.rpc import messages
from tests.support.broker_world import BrokerWorld, topic
from tests.support.transactions import ABORT, marker_of, transactional

STATE = topic("__transaction_state", 8, (1,), (1,), (1,))
OFFSETS = topic("__consumer_offsets", 9, (1,))
T = topic("t", 1, (1,), (1,))
T0 = TopicPartition("t", 0)
NONE, FENCED, EPOCH = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
FIRST_ID = 1000


@pytest.fixture
async def broker(world: BrokerWorld) -> BrokerWorld:
    """Broker 1 coordinates all transactions, by transaction.version 2."""
    world.controller.always(
        messages.AllocateProducerIdsRequest, lambda _: messages.AllocateProducerIdsResponse(FIRST_ID, 1000)
    )
    world.replicas.leaderships.add(world.transactions.runtime)
    await world.start(FeatureLevel("transaction.version", 2), *STATE, *OFFSETS, *T)
    await until(lambda: not world.transactions.runtime.is_loading)
    return world


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    pytest.fail("it does not come about")


async def ask(world: BrokerWorld, body: Message, version: int) -> Any:
    answer = world.handle(body, version)
    return await answer if isinstance(answer, Awaitable) else answer


async def initialized(world: BrokerWorld, *has: int, version: int = 5) -> tuple[ErrorCode, int, int]:
    answer = await ask(world, InitProducerIdRequest("tx", 60_000, *has), version)
    return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch


async def added(
    world: BrokerWorld, *partitions: tuple[str, int], epoch: int = 0, version: int = 3
) -> list[ErrorCode]:
    topics = [AddPartitionsToTxnTopic(name, [number]) for name, number in partitions]
    if version >= 4:
        one = AddPartitionsToTxnTransaction("tx", FIRST_ID, epoch, False, topics)
        answer = await ask(world, AddPartitionsToTxnRequest(transactions=[one]), version)
        found = answer.results_by_transaction[0].topic_results
    else:
        answer = await ask(
            world,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="tx",
                v3_and_below_producer_id=FIRST_ID,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            ),
            version,
        )
        found = answer.results_by_topic_v3_and_below
    return [ErrorCode(part.partition_error_code) for one in found for part in one.results_by_partition]


async def state(world: BrokerWorld) -> str:
    answer = await ask(world, DescribeTransactionsRequest(["tx"]), 0)
    found: str = answer.transaction_states[0].transaction_state
    return found


async def until_ended(world: BrokerWorld) -> None:
    transactions = {
        one: known
        for _, shard in world.transactions.runtime.shards()
        for one, known in shard.transactions.items()
    }
    await until(lambda: transactions["tx"].is_at_rest)


async def test_a_transaction_is_ended_in_its_logs_and_the_epoch_goes_up(broker: BrokerWorld) -> None:
    assert await initialized(broker) == (NONE, FIRST_ID, 0)
    assert await added(broker, ("t", 0), version=5) == [NONE]
    broker.replicas.appends.append(T0, transactional(FIRST_ID, b"a"), acks=1, origin="coordinator")
    ended = await ask(broker, EndTxnRequest("tx", FIRST_ID, 0, True), 5)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (NONE, FIRST_ID, 1)
    await until_ended(broker)
    assert await state(broker) == "CompleteCommit"
    assert broker.replicas.partition(T0).last_stable_offset == 2


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_an_older_instance_is_told_in_words_that_it_knows(broker: BrokerWorld, version: int) -> None:
    await initialized(broker)
    await initialized(broker)
    code = FENCED if version >= 2 else EPOCH
    assert await added(broker, ("t", 0), version=version) == [code]
    assert (await ask(broker, EndTxnRequest("tx", FIRST_ID, 0, True), version)).error_code == code
    offsets = AddOffsetsToTxnRequest("tx", FIRST_ID, 0, "g")
    assert (await ask(broker, offsets, version)).error_code == code


async def test_an_older_instance_that_initializes_is_told_in_words_that_it_knows(broker: BrokerWorld) -> None:
    for _ in range(3):
        await initialized(broker)
    assert await initialized(broker, FIRST_ID, 0, version=3) == (EPOCH, -1, -1)
    assert await initialized(broker, FIRST_ID, 0, version=4) == (FENCED, -1, -1)


async def test_where_one_partition_cannot_be_added_none_is(broker: BrokerWorld) -> None:
    await initialized(broker)
    not_tried, unknown = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for wrong in (("t", 2), ("t", -1), ("u", 0), ("", 0)):
        assert sorted(await added(broker, ("t", 0), wrong)) == sorted([not_tried, unknown])
    assert await state(broker) == "Empty"
    internal = ("__consumer_offsets", 0)
    assert await added(broker, internal) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED], "groups have it added"
    assert await added(broker, internal, version=5) == [NONE], "as their coordinators do"


@pytest.mark.parametrize("commits", [True, False])
async def test_an_id_of_which_records_are_lost_goes_on_with_a_new_producer_id(
    broker: BrokerWorld, commits: bool
) -> None:
    """The partition has seen what the coordinator's log has lost."""
    await initialized(broker)
    late = marker_of(FIRST_ID, ABORT, epoch=300)
    broker.replicas.appends.append(T0, late, acks=1, origin="coordinator")
    await added(broker, ("t", 0), ("t", 1), version=5)
    await ask(broker, EndTxnRequest("tx", FIRST_ID, 0, commits), 5)
    await until_ended(broker)
    assert await initialized(broker, FIRST_ID, 1) == (NONE, FIRST_ID + 1, 0)


async def test_a_list_of_many_transactions_lets_others_have_their_turn(
    broker: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await initialized(broker)
    events: list[str] = []
    listed = TransactionShard._list

    def note(shard: TransactionShard, asked: ListTransactions, now: Any) -> Any:
        events.append("shard")
        asyncio.get_running_loop().call_soon(events.append, "other")
        return listed(shard, asked, now)

    monkeypatch.setattr(TransactionShard, "_list", note)
    answer = await ask(broker, ListTransactionsRequest(), 2)
    assert [one.transactional_id for one in answer.transaction_states] == ["tx"]
    assert events == ["shard", "other"] * 3
