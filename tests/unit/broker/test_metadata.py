"""Metadata, DescribeCluster and DescribeTopicPartitions."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from kraft.broker.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kraft.broker.handlers.forwarding import MAX_ITEMS
from kraft.network.connection import CloseConnectionError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.cluster import (
    Cursor,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kraft.protocol.schemas.metadata import (
    UNKNOWN_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from partitions.topic_partition import ZERO_TOPIC_ID
from quorum.metadata.records import BrokerChange, PartitionChange
from quorum.rpc import messages
from quorum.rpc.envelope import RpcUnavailable
from tests.support.broker_world import CLUSTER_ID, BrokerWorld, led_by, topic, topic_id

VERSION = 12


def metadata(*topics: MetadataRequestTopic, create: bool = False) -> MetadataRequest:
    return MetadataRequest(topics=list(topics), allow_auto_topic_creation=create)


def named(name: str) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=name, topic_id=ZERO_TOPIC_ID)


def identified(number: int) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=None, topic_id=topic_id(number))


async def test_all_topics_in_order_and_the_brokers_that_are_alive(world: BrokerWorld) -> None:
    await world.start(
        *topic("u", 2, (1,)),
        *topic("t", 1, (1, 2)),
        *topic("__consumer_offsets", 3, (1,)),
        *topic("__mine", 4, (1,)),
        BrokerChange(3, 3, fenced=True),
    )
    response: MetadataResponse = world.handle(MetadataRequest(topics=None), VERSION)
    assert [(t.name, t.is_internal) for t in response.topics] == [
        ("__consumer_offsets", True),
        ("__mine", False),
        ("t", False),
        ("u", False),
    ]
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [
        (1, "broker-1", 9092),
        (2, "broker-2", 9092),
    ]
    assert response.cluster_id == CLUSTER_ID
    assert response.controller_id == 1


@pytest.mark.parametrize("create", [False, True])
async def test_no_answer_is_without_a_broker(world: BrokerWorld, create: bool) -> None:
    """A client that takes over an empty list has nobody left to ask; one that is cut off asks somebody else."""
    await world.start(
        *topic("t", 1, (1, 2)), *(BrokerChange(broker_id, broker_id, fenced=True) for broker_id in (1, 2, 3))
    )
    world.controller.answer(messages.CreateTopicsRequest, RpcUnavailable("none answered"))
    with pytest.raises(CloseConnectionError, match="unfenced"):
        await world.handle(metadata(named("new" if create else "t"), create=create), VERSION)
    await world.publish(BrokerChange(2, 2, fenced=False))
    response: MetadataResponse = world.handle(metadata(named("t")), VERSION)
    assert [broker.node_id for broker in response.brokers] == [2]


async def test_the_answer_with_a_new_leader_still_names_the_dead_one(world: BrokerWorld) -> None:
    """librdkafka loses the partitions of a broker that vanishes as they move (`recently_fenced`)."""
    await world.start(*topic("t", 1, (2, 1)))
    await world.publish(BrokerChange(2, 2, fenced=True), led_by(1, 0, leader=1, isr=(1,)))
    response: MetadataResponse = world.handle(metadata(named("t")), VERSION)
    assert [broker.node_id for broker in response.brokers] == [1, 3, 2]
    (partition,) = response.topics[0].partitions
    assert (partition.leader_id, partition.offline_replicas) == (1, [2])
    for topics in ([], None):  # who asks so looks for brokers that are there
        response = world.handle(MetadataRequest(topics=topics), VERSION)
        assert [broker.node_id for broker in response.brokers] == [1, 3]


async def test_no_topics_is_none_but_in_the_first_version(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    assert world.handle(MetadataRequest(topics=[]), VERSION).topics == []
    assert len(world.handle(MetadataRequest(topics=[]), 0).topics) == 1


async def test_by_name_by_id_and_what_is_unknown(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    body = metadata(
        named("t"), identified(1), named("nowhere"), identified(9), MetadataRequestTopic(name=None)
    )
    found = world.handle(body, VERSION).topics
    assert [(t.error_code, t.name, t.topic_id) for t in found] == [
        (0, "t", topic_id(1)),
        (0, "t", topic_id(1)),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nowhere", ZERO_TOPIC_ID),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id(9)),
        (ErrorCode.INVALID_REQUEST, None, ZERO_TOPIC_ID),
    ]
    (partition,) = found[0].partitions
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes, partition.isr_nodes) == (
        1,
        0,
        [1, 2],
        [1, 2],
    )


async def test_a_topic_that_is_named_many_times_is_answered_once(world: BrokerWorld) -> None:
    """Otherwise a small request for a topic of many partitions has an answer of a thousand times its size."""
    await world.start(*topic("t", 1, (1,)), *topic("u", 2, (1,)))
    under_other_names = [MetadataRequestTopic(name=name, topic_id=topic_id(2)) for name in ("t", "", "x")]
    many = [named("u"), named("t"), identified(2), named("nowhere"), *under_other_names] * 3
    found = world.handle(metadata(*many), VERSION).topics
    assert [(t.error_code, t.name) for t in found] == [
        (0, "u"),
        (0, "t"),
        (0, "u"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nowhere"),
    ]


async def test_ids_that_come_with_empty_names_as_java_sends_them(world: BrokerWorld) -> None:
    """Each id is a topic of its own, and nobody has a topic without a name made."""
    await world.start(*topic("t", 1, (1,)), *topic("u", 2, (1,)))
    wanted = [MetadataRequestTopic(name="", topic_id=topic_id(number)) for number in (2, 9, 1)]
    found = world.handle(metadata(*wanted, create=True), VERSION).topics
    assert [(t.error_code, t.name, t.topic_id) for t in found] == [
        (0, "u", topic_id(2)),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id(9)),
        (0, "t", topic_id(1)),
    ]
    assert world.controller.calls == []


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_mean_nothing_in_the_versions_that_only_have_room_for_them(
    world: BrokerWorld, version: int
) -> None:
    await world.start(*topic("t", 1, (1,)))
    wanted = MetadataRequestTopic(name="t", topic_id=topic_id(1))
    (answer,) = world.handle(metadata(wanted, create=True), version).topics
    assert (answer.error_code, answer.name, answer.partitions) == (ErrorCode.INVALID_REQUEST, "t", [])


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("name", ["", "a b"])
async def test_a_name_that_no_topic_can_have_is_never_created(
    world: BrokerWorld, name: str, create: bool
) -> None:
    await world.start()
    answer = world.handle(metadata(named(name), create=create), VERSION)
    if asyncio.iscoroutine(answer):
        answer = await answer
    assert [(t.name, t.error_code) for t in answer.topics] == [(name, ErrorCode.INVALID_TOPIC_EXCEPTION)]
    described = world.handle(DescribeTopicPartitionsRequest(topics=[TopicRequest(name)]), 0)
    assert [(t.name, t.error_code) for t in described.topics] == [(name, ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert world.controller.calls == []


async def test_a_leader_that_cannot_be_reached_is_none(world: BrokerWorld) -> None:
    """Clients look the leader up among the brokers of the answer."""
    await world.start(*topic("t", 1, (2, 1)), *topic("u", 2, (2, 1)))
    await world.publish(led_by(1, 0, -1, isr=(2,)), BrokerChange(2, 2, fenced=True))
    for name in ("t", "u"):
        (partition,) = world.handle(metadata(named(name)), VERSION).topics[0].partitions
        assert (partition.leader_id, partition.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
        assert partition.offline_replicas == [2]


async def test_the_controller_is_a_live_broker(world: BrokerWorld) -> None:
    await world.start()
    body = MetadataRequest(topics=[])
    world.controller.leader_id = 2
    assert world.handle(body, VERSION).controller_id == 2
    world.controller.leader_id = 9  # a node that is no broker
    assert world.handle(body, VERSION).controller_id == 1
    await world.publish(BrokerChange(1, 1, fenced=True))
    assert world.handle(body, VERSION).controller_id == 2


async def test_a_missing_topic_is_created_and_waited_for(world: BrokerWorld) -> None:
    await world.start()
    answer = asyncio.ensure_future(world.handle(metadata(named("t"), create=True), VERSION))
    await world.controller.until_called(messages.CreateTopicsRequest, 1)
    assert [t.name for t in world.controller.calls[0].topics] == ["t"]
    answer.cancel()

    def create(_: messages.CreateTopicsRequest) -> messages.CreateTopicsResponse:
        world.publish_soon(*topic("t", 1, (1,)))
        return messages.CreateTopicsResponse((messages.CreateTopicResult("t", topic_id=topic_id(1)),))

    world.controller.always(messages.CreateTopicsRequest, create)
    (created,) = (await world.handle(metadata(named("t"), create=True), VERSION)).topics
    assert (created.error_code, len(created.partitions)) == (0, 1)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (RpcUnavailable("nobody"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (
            messages.CreateTopicsResponse((messages.CreateTopicResult("t", "TOPIC_ALREADY_EXISTS"),)),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            messages.CreateTopicsResponse((messages.CreateTopicResult("t", "INVALID_TOPIC_EXCEPTION"),)),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ),
        (
            messages.CreateTopicsResponse((messages.CreateTopicResult("t", "INVALID_REPLICATION_FACTOR"),)),
            ErrorCode.INVALID_REPLICATION_FACTOR,
        ),
    ],
)
async def test_why_a_topic_was_not_created(world: BrokerWorld, outcome: Any, code: ErrorCode) -> None:
    await world.start()
    world.controller.answer(messages.CreateTopicsRequest, outcome)
    (answer,) = (await world.handle(metadata(named("t"), create=True), VERSION)).topics
    assert (answer.name, answer.error_code) == ("t", code)


async def test_so_many_missing_topics_are_created_as_one_request_may_name(world: BrokerWorld) -> None:
    """A client that names more asks again for the others; names that are illegal need no controller."""
    await world.start()
    world.controller.always(
        messages.CreateTopicsRequest,
        lambda call: messages.CreateTopicsResponse(
            tuple(messages.CreateTopicResult(t.name, "INVALID_REPLICATION_FACTOR") for t in call.topics)
        ),
    )
    wanted = [named(f"t{n}") for n in range(MAX_ITEMS + 5)]
    long = "x" * 32_000
    answers = (await world.handle(metadata(named(long), named("a b"), *wanted, create=True), VERSION)).topics
    (call,) = world.controller.calls
    assert len(call.topics) == MAX_ITEMS
    assert Counter(answer.error_code for answer in answers) == {
        ErrorCode.INVALID_TOPIC_EXCEPTION: 2,
        ErrorCode.INVALID_REPLICATION_FACTOR: MAX_ITEMS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 5,
    }
    (answer,) = (await world.handle(metadata(named("a b"), create=True), VERSION)).topics
    assert (answer.name, answer.error_code) == ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert len(world.controller.calls) == 1


async def test_nothing_is_created_where_the_client_or_the_broker_forbids() -> None:
    world = BrokerWorld(properties="auto.create.topics.enable=false\n")
    await world.start()
    assert world.handle(metadata(named("t"), create=True), VERSION).topics[0].error_code
    await world.close()
    world = BrokerWorld()
    await world.start()
    assert world.handle(metadata(named("t"), create=False), VERSION).topics[0].error_code
    assert world.controller.calls == []
    await world.close()


async def test_the_cluster(world: BrokerWorld) -> None:
    await world.start(BrokerChange(3, 3, fenced=True))
    live = world.handle(DescribeClusterRequest(), 2)
    assert [b.broker_id for b in live.brokers] == [1, 2]
    every = world.handle(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(b.broker_id, b.is_fenced) for b in every.brokers] == [(1, False), (2, False), (3, True)]
    controllers = world.handle(DescribeClusterRequest(endpoint_type=2), 2)
    assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    nobody = world.handle(DescribeClusterRequest(endpoint_type=0), 2)
    assert nobody.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    assert live.cluster_authorized_operations == UNKNOWN_OPERATIONS
    asked = world.handle(DescribeClusterRequest(include_cluster_authorized_operations=True), 2)
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS


async def test_what_may_be_done_is_told_to_who_asks(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    plain = world.handle(metadata(named("t")), 8)
    assert plain.cluster_authorized_operations == UNKNOWN_OPERATIONS
    assert plain.topics[0].topic_authorized_operations == UNKNOWN_OPERATIONS
    body = metadata(named("t"))
    body.include_cluster_authorized_operations = body.include_topic_authorized_operations = True
    asked = world.handle(body, 8)
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS
    assert asked.topics[0].topic_authorized_operations == TOPIC_OPERATIONS


async def test_eligible_leader_replicas_are_told(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2, 3)))
    await world.publish(
        PartitionChange(topic_id(1), 0, isr=(1,), elr=(2,)),
        PartitionChange(topic_id(1), 0, isr=(), leader=-1, elr=(2,), last_known_elr=(1,)),
    )
    (described,) = world.handle(DescribeTopicPartitionsRequest(topics=[TopicRequest("t")]), 0).topics
    (partition,) = described.partitions
    assert (partition.isr_nodes, partition.eligible_leader_replicas, partition.last_known_elr) == (
        [],
        [2],
        [1],
    )


async def test_replicas_whose_logs_cannot_be_served_are_offline_though_their_brokers_live(
    world: BrokerWorld,
) -> None:
    await world.start(*topic("t", 1, (1, 2, 3)))
    change = PartitionChange(topic_id(1), 0, isr=(2,), leader=2, offline_replicas=(1,))
    await world.publish(change, BrokerChange(3, 3, fenced=True))
    (partition,) = world.handle(metadata(named("t")), VERSION).topics[0].partitions
    assert (partition.leader_id, partition.offline_replicas) == (2, [1, 3])
    (described,) = world.handle(DescribeTopicPartitionsRequest(topics=[TopicRequest("t")]), 0).topics
    assert described.partitions[0].offline_replicas == [1, 3]
    await world.publish(PartitionChange(topic_id(1), 0, offline_replicas=()))
    (partition,) = world.handle(metadata(named("t")), VERSION).topics[0].partitions
    assert partition.offline_replicas == [3]


async def test_partitions_come_in_pages(world: BrokerWorld) -> None:
    await world.start(*topic("a", 1, (1,), (1,), (1,)), *topic("b", 2, (1,), (1,)), *topic("c", 3, (1,)))
    seen: list[tuple[str, int]] = []
    cursor: Cursor | None = None
    for _ in range(10):
        body = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2, cursor=cursor)
        page = world.handle(body, 0)
        count = sum(len(t.partitions) for t in page.topics)
        assert count <= 2
        seen += [(t.name, p.partition_index) for t in page.topics for p in t.partitions]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]


async def test_pages_of_named_topics(world: BrokerWorld) -> None:
    await world.start(*topic("a", 1, (1,)), *topic("b", 2, (1,)))
    body = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="x"), TopicRequest(name="b"), TopicRequest(name="b")],
        response_partition_limit=2000,
    )
    page = world.handle(body, 0)
    assert [(t.name, t.error_code) for t in page.topics] == [
        ("b", 0),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
