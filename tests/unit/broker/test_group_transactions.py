"""Offsets in transactions at their coordinator: verified before they are appended, and ended by markers (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from kraft.broker.coordinators.shard_log import PartitionShardLog
from kraft.broker.handlers.group_offsets import txn_offset_commit_error
from kraft.coordinator.shard import ProducerIdAndEpoch, TransactionMarker
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import FeatureLevel
from tests.support.broker_world import BrokerWorld, topic

OFFSETS = topic("__consumer_offsets", 9, (1,))
T = topic("t", 1, (1,))
KEY = TopicPartition("__consumer_offsets", 0)
PRODUCER = ProducerIdAndEpoch(7, 3)
NONE, NOTHING = ErrorCode.NONE, -1
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
async def broker(world: BrokerWorld) -> BrokerWorld:
    """Broker 1 coordinates all groups."""
    world.replicas.leaderships.add(world.groups.runtime)
    await world.start(*OFFSETS, *T)
    await until_loaded(world)
    return world


async def until_loaded(world: BrokerWorld) -> None:
    for _ in range(10_000):
        if not world.groups.runtime.is_loading:
            return
        await asyncio.sleep(0)
    pytest.fail("the shard is not loaded")


async def until_asked(world: BrokerWorld, times: int = 1) -> None:
    for _ in range(10_000):
        if len(world.verifier.asked) >= times:
            return
        await asyncio.sleep(0)
    pytest.fail("nobody was asked")


async def ask(world: BrokerWorld, body: Message, version: int) -> Any:
    answer = world.handle(body, version)
    return await answer if isinstance(answer, Awaitable) else answer


async def commit(
    world: BrokerWorld,
    offset: int,
    *,
    producer: ProducerIdAndEpoch = PRODUCER,
    version: int = 3,
    group: str = "g",
) -> ErrorCode:
    part = TxnOffsetCommitRequestPartition(0, offset, committed_metadata="")
    topics = [TxnOffsetCommitRequestTopic("t", [part])]
    answer = await ask(world, TxnOffsetCommitRequest("tx", group, *producer, topics=topics), version)
    ((told,),) = [one.partitions for one in answer.topics]
    return ErrorCode(told.error_code)


async def fetched(world: BrokerWorld) -> tuple[int, ErrorCode]:
    wanted = OffsetFetchRequestTopics("t", partition_indexes=[0])
    group = OffsetFetchRequestGroup("g", topics=[wanted])
    answer = await ask(world, OffsetFetchRequest(groups=[group], require_stable=True), 8)
    part = answer.groups[0].topics[0].partitions[0]
    return part.committed_offset, ErrorCode(part.error_code)


async def end(
    world: BrokerWorld,
    *,
    is_commit: bool = True,
    producer: ProducerIdAndEpoch = PRODUCER,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> ErrorCode:
    marker = TransactionMarker(producer, is_commit, coordinator_epoch, version)
    return await world.groups.end_transaction(0, marker)


def end_offset(world: BrokerWorld) -> int:
    return world.replicas.partition(KEY).log_end_offset


@pytest.mark.parametrize("is_commit", [True, False])
async def test_offsets_are_pending_until_the_marker(broker: BrokerWorld, is_commit: bool) -> None:
    assert await commit(broker, 5) is NONE
    assert await fetched(broker) == (NOTHING, UNSTABLE)
    assert await end(broker, is_commit=is_commit) is NONE
    assert await fetched(broker) == (5 if is_commit else NOTHING, NONE)
    assert broker.verifier.asked == [("tx", PRODUCER, KEY, False)]


async def test_a_shard_that_loads_in_mid_transaction_goes_on(broker: BrokerWorld) -> None:
    await commit(broker, 5)
    runtime = broker.groups.runtime
    for expected in (UNSTABLE, NONE):
        runtime.on_resigned(KEY, 0)
        runtime.on_elected(KEY, 0)
        await until_loaded(broker)
        assert await fetched(broker) == (NOTHING if expected else 5, expected)
        assert await end(broker) is NONE


async def test_only_what_opens_a_transaction_here_is_verified(broker: BrokerWorld) -> None:
    for offset in (5, 6):
        assert await commit(broker, offset) is NONE
    assert len(broker.verifier.asked) == 1
    await end(broker)
    assert await commit(broker, 7) is NONE
    assert len(broker.verifier.asked) == 2


async def test_the_coordinator_has_the_word(broker: BrokerWorld) -> None:
    broker.verifier.code = ErrorCode.TRANSACTION_ABORTABLE
    before = end_offset(broker)
    assert await commit(broker, 5, version=4) is ErrorCode.TRANSACTION_ABORTABLE
    assert await commit(broker, 5, version=3) is ErrorCode.INVALID_TXN_STATE
    assert end_offset(broker) == before
    assert await fetched(broker) == (NOTHING, NONE)


async def test_a_marker_between_the_verification_and_the_append_voids_it(broker: BrokerWorld) -> None:
    broker.verifier.may_answer.clear()
    late = asyncio.ensure_future(commit(broker, 5, version=4))
    await until_asked(broker)
    assert await end(broker, is_commit=False) is NONE
    answered, broker.verifier.may_answer = broker.verifier.may_answer, asyncio.Event()
    answered.set()
    await until_asked(broker, 2)
    broker.verifier.code = ErrorCode.TRANSACTION_ABORTABLE
    broker.verifier.may_answer.set()
    assert await late is ErrorCode.TRANSACTION_ABORTABLE
    assert await fetched(broker) == (NOTHING, NONE)


async def test_the_marker_of_the_transaction_before_does_not_refuse_the_next(broker: BrokerWorld) -> None:
    """A producer goes on when its commit is decided, before the markers are written."""
    assert await commit(broker, 5) is NONE
    newer = PRODUCER._replace(epoch=PRODUCER.epoch + 1)
    broker.verifier.may_answer.clear()
    following = asyncio.ensure_future(commit(broker, 6, producer=newer))
    await until_asked(broker, 2)
    assert await end(broker, producer=newer) is NONE
    broker.verifier.may_answer.set()
    assert await following is NONE
    assert len(broker.verifier.asked) == 3
    assert await end(broker, producer=newer) is NONE
    assert await fetched(broker) == (6, NONE)


async def test_a_leadership_that_was_lost_between_voids_it(broker: BrokerWorld) -> None:
    broker.verifier.may_answer.clear()
    late = asyncio.ensure_future(commit(broker, 5))
    await until_asked(broker)
    broker.groups.runtime.on_resigned(KEY, 0)
    broker.verifier.may_answer.set()
    assert await late is ErrorCode.NOT_COORDINATOR


async def test_a_fenced_producer_commits_nothing(broker: BrokerWorld) -> None:
    newer = PRODUCER._replace(epoch=PRODUCER.epoch + 1)
    assert await commit(broker, 5, producer=newer) is NONE
    assert await commit(broker, 6) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await end(broker, producer=newer) is NONE
    assert await fetched(broker) == (5, NONE)


async def test_without_verification_the_epoch_still_counts() -> None:
    world = BrokerWorld(properties="transaction.partition.verification.enable=false\n")
    world.replicas.leaderships.add(world.groups.runtime)
    try:
        await world.start(*OFFSETS, *T)
        await until_loaded(world)
        assert await commit(world, 5) is NONE
        older = PRODUCER._replace(epoch=PRODUCER.epoch - 1)
        assert await commit(world, 6, producer=older) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await commit(world, 6, producer=ProducerIdAndEpoch(-1, -1)) is ErrorCode.INVALID_REQUEST
        assert await end(world) is NONE
        assert await fetched(world) == (5, NONE)
        assert world.verifier.asked == []
    finally:
        await world.close()


async def test_version_5_adds_where_the_cluster_has_come_to_it(broker: BrokerWorld) -> None:
    await commit(broker, 5, version=5)
    await broker.publish(FeatureLevel("transaction.version", 2))
    other = ProducerIdAndEpoch(8, 0)
    await commit(broker, 6, version=5, producer=other)
    await commit(broker, 6, version=4, producer=ProducerIdAndEpoch(9, 0))
    assert [adds for *_, adds in broker.verifier.asked] == [False, True, False]


async def test_a_marker_that_comes_again_is_answered_and_ends_nothing(broker: BrokerWorld) -> None:
    """By transaction.version 2, whose markers have an epoch above that of the transaction (KIP-1228)."""
    marker = PRODUCER._replace(epoch=PRODUCER.epoch + 1)
    await commit(broker, 5)
    assert await end(broker, producer=marker, version=2) is NONE
    written = end_offset(broker)
    assert await end(broker, producer=marker, version=2) is NONE
    assert end_offset(broker) == written
    assert await commit(broker, 6, producer=marker) is NONE
    assert await end(broker, producer=marker, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await fetched(broker) == (NOTHING, UNSTABLE)
    assert await end(broker, producer=marker._replace(epoch=marker.epoch + 1), version=2) is NONE
    assert await fetched(broker) == (6, NONE)


async def test_markers_of_older_epochs_are_refused(broker: BrokerWorld) -> None:
    await commit(broker, 5)
    older = PRODUCER._replace(epoch=PRODUCER.epoch - 1)
    assert await end(broker, producer=older) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await end(broker, coordinator_epoch=4) is NONE
    assert await end(broker, coordinator_epoch=3) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("producer", [ProducerIdAndEpoch(-1, 0), ProducerIdAndEpoch(79, -2)])
async def test_an_epoch_that_nobody_has_does_not_cost_the_shard_its_state(
    broker: BrokerWorld, producer: ProducerIdAndEpoch
) -> None:
    before = end_offset(broker)
    assert await end(broker, producer=producer) is ErrorCode.INVALID_REQUEST
    assert await commit(broker, 5, producer=producer) is ErrorCode.INVALID_REQUEST
    assert end_offset(broker) == before
    assert not broker.groups.runtime.is_loading


async def test_a_marker_of_a_producer_that_is_not_known_is_written(broker: BrokerWorld) -> None:
    before = end_offset(broker)
    assert await end(broker) is NONE
    assert end_offset(broker) == before + 1


async def test_where_the_group_is_not_led_nobody_is_asked(world: BrokerWorld) -> None:
    await world.start(*OFFSETS, *T)
    assert await commit(world, 5) is ErrorCode.NOT_COORDINATOR
    assert await end(world) is ErrorCode.NOT_COORDINATOR
    assert world.verifier.asked == []


async def test_no_group_has_an_empty_id(broker: BrokerWorld) -> None:
    assert await commit(broker, 5, group="") is ErrorCode.INVALID_GROUP_ID


async def test_a_marker_waits_for_what_came_before_it(
    broker: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is not written again, too: the first is not committed yet."""
    marker = PRODUCER._replace(epoch=PRODUCER.epoch + 1)
    await commit(broker, 5)
    committed = end_offset(broker)
    monkeypatch.setattr(PartitionShardLog, "high_watermark", committed)
    waits: list[asyncio.Future[bool]] = []

    def when_committed(log: PartitionShardLog, offset: int, timeout_s: float) -> asyncio.Future[bool]:
        waits.append(asyncio.get_running_loop().create_future())
        return waits[-1]

    monkeypatch.setattr(PartitionShardLog, "when_committed", when_committed)
    ends = [asyncio.ensure_future(end(broker, producer=marker, version=2)) for _ in range(2)]
    fetch = asyncio.ensure_future(fetched(broker))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(one.done() for one in (*ends, fetch))
    monkeypatch.setattr(PartitionShardLog, "high_watermark", end_offset(broker))
    for wait in waits:
        wait.set_result(True)
    assert [await one for one in ends] == [NONE, NONE]
    assert await fetch == (5, NONE)


E = ErrorCode


@pytest.mark.parametrize(
    ("code", "by_version"),
    [
        (E.NETWORK_EXCEPTION, {1: E.COORDINATOR_NOT_AVAILABLE, 2: E.COORDINATOR_LOAD_IN_PROGRESS}),
        (E.COORDINATOR_LOAD_IN_PROGRESS, {1: E.COORDINATOR_NOT_AVAILABLE, 5: E.COORDINATOR_LOAD_IN_PROGRESS}),
        (E.CONCURRENT_TRANSACTIONS,
         {0: E.COORDINATOR_NOT_AVAILABLE, 4: E.COORDINATOR_LOAD_IN_PROGRESS, 5: E.CONCURRENT_TRANSACTIONS}),
        (E.TRANSACTION_ABORTABLE, {3: E.INVALID_TXN_STATE, 4: E.TRANSACTION_ABORTABLE}),
        (E.INVALID_TXN_STATE, {3: E.INVALID_TXN_STATE, 4: E.TRANSACTION_ABORTABLE}),
        (E.INVALID_PRODUCER_EPOCH, {0: E.INVALID_PRODUCER_EPOCH, 5: E.INVALID_PRODUCER_EPOCH}),
        (E.NOT_ENOUGH_REPLICAS, {5: E.COORDINATOR_NOT_AVAILABLE}),
        (E.NOT_LEADER_OR_FOLLOWER, {5: E.NOT_COORDINATOR}),
        (E.INVALID_PRODUCER_ID_MAPPING, {5: E.INVALID_PRODUCER_ID_MAPPING}),
    ],
)  # fmt: skip
def test_what_clients_of_each_version_are_told(code: E, by_version: dict[int, E]) -> None:
    assert {version: txn_offset_commit_error(code, version) for version in by_version} == by_version
