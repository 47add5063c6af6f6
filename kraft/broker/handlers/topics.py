"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37): forwarded to the active controller.

An answer waits until this broker knows the change, too (`forwarding.catch_up`). A request that is too large to be
forwarded is refused whole; why is told with the first topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from kraft.broker.handlers.forwarding import (
    MAX_REPLICAS,
    Forwarded,
    catch_up,
    forward,
    refusal,
    timeout_s,
    too_long,
    too_many,
)
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.configs import ConfigSource
from kraft.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from partitions.topic_partition import ZERO_TOPIC_ID
from quorum.rpc import messages
from quorum.rpc.envelope import RpcError

MAX_NEW_CONFIGS = 50_000
"""Configs of all topics that one request creates."""


async def handle_create_topics(
    services: BrokerServices, request: Request[CreateTopicsRequest]
) -> CreateTopicsResponse:
    """Answers CreateTopics. A name that is there twice is refused, as in Kafka."""
    body = request.body
    if problem := _creation_too_large(body.topics):
        names = dict.fromkeys(topic.name for topic in body.topics)
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=name, error_code=code, error_message=message)
                for name, code, message in _refused_whole(names, problem)
            ]
        )
    named = Counter(topic.name for topic in body.topics)
    twice = {name for name, count in named.items() if count > 1}
    wanted = tuple(_new_topic(topic) for topic in body.topics if topic.name not in twice)
    refused = [
        CreatableTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="the topic is named more than once"
        )
        for name in sorted(twice)
    ]
    call = messages.CreateTopicsRequest(wanted, body.validate_only)
    try:
        forwarded = await forward(services, call, messages.CreateTopicsResponse, timeout_s(body.timeout_ms))
    except RpcError as error:
        code, message = refusal(error)
        failed = [CreatableTopicResult(name=t.name, error_code=code, error_message=message) for t in wanted]
        return CreateTopicsResponse(topics=[*failed, *refused])
    if not body.validate_only:
        created = [result.topic_id for result in forwarded.answer.topics if result.error == messages.NO_ERROR]
        await catch_up(
            services, lambda: all(topic_id in services.metadata.image.topics for topic_id in created)
        )
    return CreateTopicsResponse(
        topics=[*(_creation_result(forwarded, result) for result in forwarded.answer.topics), *refused]
    )


def _creation_too_large(topics: Sequence[CreatableTopic]) -> tuple[ErrorCode, str] | None:
    configs = [config for topic in topics for config in topic.configs]
    texts = (text for config in configs for text in (config.name, config.value or ""))
    return (
        too_many(len(topics), "topics")
        or too_many(len(configs), "configs", MAX_NEW_CONFIGS)
        or _too_many_replicas([assignment.broker_ids for topic in topics for assignment in topic.assignments])
        or too_long(chain((topic.name for topic in topics), texts))
    )


def _too_many_replicas(assignments: Sequence[Sequence[int]]) -> tuple[ErrorCode, str] | None:
    """Of partitions whose replicas the client has chosen."""
    return too_many(len(assignments), "partitions") or too_many(
        sum(map(len, assignments)), "replicas", MAX_REPLICAS
    )


_Named = TypeVar("_Named")


def _refused_whole(
    wanted: Iterable[_Named], problem: tuple[ErrorCode, str]
) -> Iterator[tuple[_Named, ErrorCode, str | None]]:
    """The same error for each, and the sentence once."""
    code, message = problem
    for number, one in enumerate(wanted):
        yield one, code, None if number else message


def _new_topic(topic: CreatableTopic) -> messages.NewTopic:
    assignments = tuple(
        messages.PartitionAssignment(assignment.partition_index, tuple(assignment.broker_ids))
        for assignment in topic.assignments
    )
    return messages.NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignments or None,
        tuple((config.name, config.value) for config in topic.configs),
    )


def _creation_result(
    forwarded: Forwarded[messages.CreateTopicsResponse], result: messages.CreateTopicResult
) -> CreatableTopicResult:
    code, message = forwarded.outcome(result.error, result.message)
    return CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=code,
        error_message=message,
        num_partitions=result.partitions,
        replication_factor=result.replication_factor,
        configs=[
            CreatableTopicConfigs(name=key, value=value, config_source=ConfigSource.DYNAMIC_TOPIC_CONFIG)
            for key, value in result.configs
        ],
    )


async def handle_delete_topics(
    services: BrokerServices, request: Request[DeleteTopicsRequest]
) -> DeleteTopicsResponse:
    """Answers DeleteTopics, by name or by id."""
    body = request.body
    if request.version >= 6:
        wanted = tuple(
            messages.TopicToDelete(topic.name, None if topic.topic_id == ZERO_TOPIC_ID else topic.topic_id)
            for topic in body.topics
        )
    else:
        wanted = tuple(messages.TopicToDelete(name) for name in body.topic_names)
    if not services.config.get("delete.topic.enable"):
        return DeleteTopicsResponse(
            responses=[
                _deletion(topic, ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
                for topic in wanted
            ]
        )
    if problem := (
        too_many(len(wanted), "topics") or too_long(topic.name for topic in wanted if topic.name is not None)
    ):
        return DeleteTopicsResponse(responses=[_deletion(*one) for one in _refused_whole(wanted, problem)])
    call = messages.DeleteTopicsRequest(wanted)
    try:
        forwarded = await forward(services, call, messages.DeleteTopicsResponse, timeout_s(body.timeout_ms))
    except RpcError as error:
        code, message = refusal(error)
        return DeleteTopicsResponse(responses=[_deletion(topic, code, message) for topic in wanted])
    results = forwarded.answer.topics
    gone = [r.topic_id for r in results if r.error == messages.NO_ERROR and r.topic_id is not None]
    await catch_up(services, lambda: not any(topic_id in services.metadata.image.topics for topic_id in gone))
    return DeleteTopicsResponse(
        responses=[
            _deletion(
                messages.TopicToDelete(result.name, result.topic_id),
                *forwarded.outcome(result.error, result.message),
            )
            for result in results
        ]
    )


def _deletion(topic: messages.TopicToDelete, code: ErrorCode, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id or ZERO_TOPIC_ID,
        error_code=code,
        error_message=message,
    )


async def handle_create_partitions(
    services: BrokerServices, request: Request[CreatePartitionsRequest]
) -> CreatePartitionsResponse:
    """Answers CreatePartitions."""
    body = request.body
    if problem := _growth_too_large(body.topics):
        names = dict.fromkeys(topic.name for topic in body.topics)
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)
                for name, code, message in _refused_whole(names, problem)
            ]
        )
    wanted = tuple(
        messages.MorePartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else tuple(tuple(a.broker_ids) for a in topic.assignments),
        )
        for topic in body.topics
    )
    call = messages.CreatePartitionsRequest(wanted, body.validate_only)
    try:
        forwarded = await forward(
            services, call, messages.CreatePartitionsResponse, timeout_s(body.timeout_ms)
        )
    except RpcError as error:
        code, message = refusal(error)
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
                for topic in wanted
            ]
        )
    results = forwarded.answer.topics
    if not body.validate_only:
        counts = {topic.name: topic.count for topic in wanted}
        grown = {r.name: counts[r.name] for r in results if r.error == messages.NO_ERROR}
        await catch_up(services, lambda: all(_partitions(services, n) >= count for n, count in grown.items()))
    outcomes = [(result.name, *forwarded.outcome(result.error, result.message)) for result in results]
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)
            for name, code, message in outcomes
        ]
    )


def _growth_too_large(topics: Sequence[CreatePartitionsTopic]) -> tuple[ErrorCode, str] | None:
    return (
        too_many(len(topics), "topics")
        or _too_many_replicas([chosen.broker_ids for topic in topics for chosen in topic.assignments or ()])
        or too_long(topic.name for topic in topics)
    )


def _partitions(services: BrokerServices, name: str) -> int:
    topic = services.metadata.image.topic(name)
    return 0 if topic is None else len(topic.partitions)
