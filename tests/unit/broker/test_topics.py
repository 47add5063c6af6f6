"""CreateTopics, DeleteTopics and CreatePartitions: what reaches the controller, and what comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraft.broker.handlers import forwarding
from kraft.broker.handlers.forwarding import MAX_FORWARDED_CHARACTERS, MAX_ITEMS, MAX_REPLICAS
from kraft.broker.handlers.topics import MAX_NEW_CONFIGS
from kraft.protocol.api import ApiKey
from kraft.protocol.errors import ErrorCode
from kraft.protocol.messages import decode_request, encode_request
from kraft.protocol.schema import Message
from kraft.protocol.schemas.producers import InitProducerIdRequest
from kraft.protocol.schemas.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from partitions.topic_partition import ZERO_TOPIC_ID
from quorum.rpc import messages
from quorum.rpc.envelope import RpcError, RpcUnavailable
from tests.support.broker_world import BrokerWorld, gone, topic, topic_id


def creation(*names: str, **fields: Any) -> CreateTopicsRequest:
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=wanted, timeout_ms=1_000, **fields)


async def test_a_topic_is_asked_for_as_the_client_wants_it(world: BrokerWorld) -> None:
    await world.start()
    world.controller.answer(
        messages.CreateTopicsRequest,
        messages.CreateTopicsResponse((messages.CreateTopicResult("t", "POLICY_VIOLATION", "no"),)),
    )
    wanted = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 1])],
        configs=[CreatableTopicConfig(name="retention.ms", value="5")],
    )
    response = await world.handle(CreateTopicsRequest(topics=[wanted], timeout_ms=1_000), 7)
    (call,) = world.controller.calls
    assert call.topics == (
        messages.NewTopic("t", -1, -1, (messages.PartitionAssignment(0, (2, 1)),), (("retention.ms", "5"),)),
    )
    (result,) = response.topics
    assert (result.name, result.error_code, result.error_message) == ("t", ErrorCode.POLICY_VIOLATION, "no")


async def test_the_answer_waits_until_this_broker_knows_the_topic(world: BrokerWorld) -> None:
    await world.start()
    done = messages.CreateTopicResult("t", topic_id=topic_id(1), partitions=1, replication_factor=1)
    world.controller.answer(messages.CreateTopicsRequest, messages.CreateTopicsResponse((done,)))
    world.controller.offset = world.image.offset + 1
    answer = asyncio.ensure_future(world.handle(creation("t"), 7))
    await world.controller.until_called(messages.CreateTopicsRequest, 1)
    await asyncio.sleep(0)
    assert not answer.done()
    await world.publish(*topic("t", 1, (1,)))
    async with world.loader._progress:
        world.loader._progress.notify_all()
    assert (await answer).topics[0].topic_id == topic_id(1)


async def test_names_that_are_there_twice_are_refused_once_each(world: BrokerWorld) -> None:
    await world.start()
    world.controller.always(
        messages.CreateTopicsRequest,
        lambda call: messages.CreateTopicsResponse(
            tuple(messages.CreateTopicResult(t.name, "POLICY_VIOLATION") for t in call.topics)
        ),
    )
    response = await world.handle(creation("a", "b", "a", "c", "b"), 7)
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("c", ErrorCode.POLICY_VIOLATION),
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.INVALID_REQUEST),
    ]


async def test_many_names_cost_no_more_than_they_are(world: BrokerWorld) -> None:
    """A comparison of each with each would hold the event loop up for minutes."""
    await world.start()
    world.controller.always(messages.CreateTopicsRequest, lambda call: messages.CreateTopicsResponse(()))
    await world.handle(creation(*(f"t{n}" for n in range(MAX_ITEMS)), validate_only=True), 7)


MANY = range(MAX_ITEMS + 1)
LONG = ["x" * 32_000 + str(n) for n in range(MAX_FORWARDED_CHARACTERS // 32_000 + 1)]
CROWDS = [[1] * 10] * (MAX_REPLICAS // 10 + 1), [[1] * (MAX_REPLICAS // 2 + 1)] * 2


def assigned(*replicas: list[int]) -> CreateTopicsRequest:
    assignments = [CreatableReplicaAssignment(number, ids) for number, ids in enumerate(replicas)]
    return CreateTopicsRequest(topics=[CreatableTopic(name="t", assignments=assignments)])


def configured(*configs: CreatableTopicConfig) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic("t", configs=list(configs)), CreatableTopic("u")])


def growth(*topics: CreatePartitionsTopic) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=list(topics))


def grown(*replicas: list[int]) -> CreatePartitionsRequest:
    assignments = [CreatePartitionsAssignment(ids) for ids in replicas]
    return growth(CreatePartitionsTopic("t", 5, assignments))


@pytest.mark.parametrize(
    ("body", "version", "count"),
    [
        (creation(*(f"t{n}" for n in MANY)), 7, len(MANY)),
        (creation(*LONG), 7, len(LONG)),
        (configured(*(CreatableTopicConfig("k", f"{n}") for n in range(MAX_NEW_CONFIGS + 1))), 7, 2),
        (configured(*(CreatableTopicConfig("k", value) for value in LONG)), 7, 2),
        (configured(*(CreatableTopicConfig(name, None) for name in LONG)), 7, 2),
        *((assigned(*crowd), 7, 1) for crowd in CROWDS),
        (DeleteTopicsRequest(topics=[DeleteTopicState(f"t{n}") for n in MANY]), 6, len(MANY)),
        (DeleteTopicsRequest(topics=[DeleteTopicState(None, topic_id(n)) for n in MANY]), 6, len(MANY)),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name) for name in LONG]), 6, len(LONG)),
        (DeleteTopicsRequest(topic_names=LONG), 5, len(LONG)),
        (growth(*(CreatePartitionsTopic(f"t{n}", 2) for n in MANY)), 3, len(MANY)),
        (growth(*(CreatePartitionsTopic(name, 2) for name in LONG)), 3, len(LONG)),
        *((grown(*crowd), 3, 1) for crowd in CROWDS),
    ],
)
async def test_what_is_too_large_to_be_forwarded_is_refused_whole(
    world: BrokerWorld, body: Message, version: int, count: int
) -> None:
    """Each topic is answered; why is told once, lest the answer be larger than the request."""
    await world.start()
    response = await world.handle(body, version)
    results = response.topics if isinstance(body, CreateTopicsRequest) else None
    if results is None:
        results = response.responses if isinstance(body, DeleteTopicsRequest) else response.results
    assert [result.error_code for result in results] == [ErrorCode.POLICY_VIOLATION] * count
    assert "send it in parts" in results[0].error_message
    assert not any(result.error_message for result in results[1:])
    assert world.controller.calls == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RpcUnavailable("nobody"), ErrorCode.REQUEST_TIMED_OUT),
        (RpcError("THROTTLING_QUOTA_EXCEEDED", "later"), ErrorCode.THROTTLING_QUOTA_EXCEEDED),
    ],
)
async def test_a_call_that_fails_is_told_for_every_topic(
    world: BrokerWorld, error: RpcError, code: ErrorCode
) -> None:
    await world.start()
    for kind in (
        messages.CreateTopicsRequest,
        messages.DeleteTopicsRequest,
        messages.CreatePartitionsRequest,
    ):
        world.controller.answer(kind, error)
    created = await world.handle(creation("a", "b"), 7)
    assert [t.error_code for t in created.topics] == [code, code]
    deleted = await world.handle(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1), 6)
    assert [t.error_code for t in deleted.responses] == [code]
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=2)], timeout_ms=1)
    assert [t.error_code for t in (await world.handle(more, 3)).results] == [code]


@pytest.mark.parametrize("in_doubt", [False, True])
async def test_nobody_is_told_that_its_own_request_is_in_the_way(world: BrokerWorld, in_doubt: bool) -> None:
    """After an attempt that may have been carried out, as when the controller died before it answered."""
    await world.start()
    world.controller.in_doubt = in_doubt
    world.controller.answer(
        messages.CreateTopicsRequest,
        messages.CreateTopicsResponse(
            (
                messages.CreateTopicResult("a", "TOPIC_ALREADY_EXISTS", "it exists"),
                messages.CreateTopicResult("b", "INVALID_PARTITIONS", "it is 0"),
            )
        ),
    )
    world.controller.answer(
        messages.DeleteTopicsRequest,
        messages.DeleteTopicsResponse(
            (messages.DeleteTopicResult("a", None, "UNKNOWN_TOPIC_OR_PARTITION", "there is none"),)
        ),
    )
    world.controller.answer(
        messages.CreatePartitionsRequest,
        messages.CreatePartitionsResponse((messages.CreatePartitionsResult("a", "INVALID_PARTITIONS", "2"),)),
    )
    created = (await world.handle(creation("a", "b"), 7)).topics
    body = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1)
    deleted = (await world.handle(body, 6)).responses
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=2)], timeout_ms=1)
    grown = (await world.handle(more, 3)).results
    told = [result.error_code for result in (created[0], deleted[0], grown[0])]
    if in_doubt:
        assert told == [ErrorCode.REQUEST_TIMED_OUT] * 3
        assert "may have been made by this very request: it exists" in created[0].error_message
    else:
        assert told == [
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_PARTITIONS,
        ]
    assert created[1].error_code == ErrorCode.INVALID_PARTITIONS, "no attempt of its own can cause that"


async def test_deleting_by_name_or_by_id(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))

    def delete(_: messages.DeleteTopicsRequest) -> messages.DeleteTopicsResponse:
        world.publish_soon(gone(1))
        return messages.DeleteTopicsResponse((messages.DeleteTopicResult("t", topic_id(1)),))

    world.controller.always(messages.DeleteTopicsRequest, delete)
    body = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name="t", topic_id=ZERO_TOPIC_ID),
            DeleteTopicState(name=None, topic_id=topic_id(2)),
            DeleteTopicState(name="t", topic_id=topic_id(2)),
        ],
        timeout_ms=1_000,
    )
    response = await world.handle(body, 6)
    assert world.controller.calls[0].topics == (
        messages.TopicToDelete("t", None),
        messages.TopicToDelete(None, topic_id(2)),
        messages.TopicToDelete("t", topic_id(2)),  # the controller refuses both at once
    )
    assert (response.responses[0].name, response.responses[0].topic_id) == ("t", topic_id(1))
    await world.replicas.settled()


async def test_deleting_can_be_forbidden() -> None:
    world = BrokerWorld(properties="delete.topic.enable=false\n")
    await world.start(*topic("t", 1, (1,)))
    response = await world.handle(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5)
    assert response.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert world.controller.calls == []
    await world.close()


async def test_adding_partitions(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    world.controller.always(
        messages.CreatePartitionsRequest,
        lambda _: messages.CreatePartitionsResponse((messages.CreatePartitionsResult("t"),)),
    )
    body = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=1, assignments=None)], timeout_ms=1_000
    )
    assert (await world.handle(body, 3)).results[0].error_code == 0


def test_a_clients_timeout_is_bounded_both_ways() -> None:
    assert forwarding.timeout_s(-5) > 0
    assert forwarding.timeout_s(0) > 0
    assert forwarding.timeout_s(30_000) == 30
    assert forwarding.timeout_s(2**31 - 1) == forwarding.TIMEOUT_MAX_S


# InitProducerId


async def test_producer_ids_come_from_blocks_and_never_twice(world: BrokerWorld) -> None:
    await world.start()
    blocks = iter(range(1000, 100_000, 1000))
    world.controller.always(
        messages.AllocateProducerIdsRequest,
        lambda _: messages.AllocateProducerIdsResponse(next(blocks), 3),
    )
    body = InitProducerIdRequest(transactional_id=None)
    answers = await asyncio.gather(*(world.handle(body, 5) for _ in range(7)))
    assert sorted(a.producer_id for a in answers) == [1000, 1001, 1002, 2000, 2001, 2002, 3000]
    assert {a.producer_epoch for a in answers} == {0}
    assert len(world.controller.calls) == 3


@pytest.mark.parametrize(
    "failure",
    [
        RpcUnavailable("nobody"),
        RpcError("STALE_BROKER_EPOCH", "registers anew"),
        messages.AllocateProducerIdsResponse(5, 0),
    ],
)
async def test_a_producer_is_told_to_ask_again(world: BrokerWorld, failure: Any) -> None:
    """STALE_BROKER_EPOCH would be the end of it, COORDINATOR_NOT_AVAILABLE would send it to FindCoordinator."""
    await world.start()
    world.controller.answer(messages.AllocateProducerIdsRequest, failure)
    world.controller.answer(messages.AllocateProducerIdsRequest, messages.AllocateProducerIdsResponse(5, 1))
    body = InitProducerIdRequest(transactional_id=None)
    refused = await world.handle(body, 5)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        -1,
        -1,
    )
    assert (await world.handle(body, 5)).producer_id == 5


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "x"}, ErrorCode.NOT_COORDINATOR),
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_producers_that_are_not_served(world: BrokerWorld, fields: Any, code: ErrorCode) -> None:
    await world.start()
    assert (await world.handle(InitProducerIdRequest(**fields), 5)).error_code == code


def test_a_request_that_reaches_every_bound_can_be_read() -> None:
    """Otherwise who exceeds one loses the connection, and is not told why."""
    replicas, configs = MAX_REPLICAS // MAX_ITEMS, MAX_NEW_CONFIGS // MAX_ITEMS
    topics = [
        CreatableTopic(
            f"t{number}",
            assignments=[CreatableReplicaAssignment(0, list(range(replicas)))],
            configs=[CreatableTopicConfig(f"c{key}", "1") for key in range(configs)],
        )
        for number in range(MAX_ITEMS)
    ]
    data = encode_request(CreateTopicsRequest(topics=topics), 7)
    assert len(decode_request(ApiKey.CREATE_TOPICS, 7, data).topics) == MAX_ITEMS
