"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37): forwarded to the active controller.

An answer waits until this broker knows the change, too. A request that is too large to be forwarded is refused whole;
why is told with the first topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from kraft.broker.client_quotas import CONTROLLER_MUTATION
from kraft.broker.handlers.forwarding import (
    MAX_REPLICAS,
    Forwarded,
    Refusal,
    Split,
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
from kraft.security.quotas.entities import user_of
from partitions.topic_partition import ZERO_TOPIC_ID
from quorum.rpc import messages

MAX_NEW_CONFIGS = 50_000
"""Configs of all topics that one request creates."""
STRICT_FROM = {CreateTopicsRequest: 6, DeleteTopicsRequest: 5, CreatePartitionsRequest: 3}
"""The versions whose clients know of THROTTLING_QUOTA_EXCEEDED (KIP-599); older ones are made to wait afterwards."""
_NAMED_TWICE = Refusal(ErrorCode.INVALID_REQUEST, "the topic is named more than once")


def _mutator(request: Request[Any]) -> messages.Mutator:
    """Whose quota a change of topics is taken from."""
    strict = request.version >= STRICT_FROM[type(request.body)]
    return messages.Mutator(user_of(request.session.principal), request.client_id or "", strict)


class _Throttle:
    """How long the controller has a client wait."""

    def __init__(self, services: BrokerServices, request: Request[Any]) -> None:
        self._services = services
        self._request = request
        self.time_ms = 0

    def note(self, wait_ms: int) -> None:
        """The controller has answered: the connection is muted from now on."""
        self.time_ms = self._services.quotas.throttle(self._request.session, CONTROLLER_MUTATION, wait_ms)


async def handle_create_topics(
    services: BrokerServices, request: Request[CreateTopicsRequest]
) -> CreateTopicsResponse:
    """Answers CreateTopics. A name that is there twice is refused, behind all others, as in Kafka."""
    body = request.body
    named = Counter(topic.name for topic in body.topics)
    if problem := _creation_too_large(body.topics):
        return CreateTopicsResponse(topics=_refuse_creation(named, problem))
    split = Split(
        sorted(named, key=lambda name: (named[name] > 1, name if named[name] > 1 else "")),
        lambda name: _NAMED_TWICE if named[name] > 1 else None,
        _refuse_creation,
    )
    topics = {topic.name: topic for topic in body.topics}
    call = messages.CreateTopicsRequest(
        tuple(_new_topic(topics[name]) for name in split.allowed), body.validate_only, _mutator(request)
    )
    throttle = _Throttle(services, request)

    def creations(
        forwarded: Forwarded[messages.CreateTopicsResponse],
    ) -> Iterator[CreatableTopicResult]:
        throttle.note(forwarded.response.throttle_time_ms)
        return _creations(forwarded)

    results = await split.forward(
        services, call, timeout_s(body.timeout_ms), creations, changes=not body.validate_only
    )
    return CreateTopicsResponse(throttle_time_ms=throttle.time_ms, topics=results)


def _refuse_creation(names: Iterable[str], refusal: Refusal) -> list[CreatableTopicResult]:
    return [
        CreatableTopicResult(name=name, error_code=code, error_message=message)
        for name, code, message in refusal.of(names)
    ]


def _creation_too_large(topics: Sequence[CreatableTopic]) -> Refusal | None:
    configs = [config for topic in topics for config in topic.configs]
    texts = (text for config in configs for text in (config.name, config.value or ""))
    return (
        too_many(len(topics), "topics")
        or too_many(len(configs), "configs", MAX_NEW_CONFIGS)
        or _too_many_replicas([assignment.broker_ids for topic in topics for assignment in topic.assignments])
        or too_long(chain((topic.name for topic in topics), texts))
    )


def _too_many_replicas(assignments: Sequence[Sequence[int]]) -> Refusal | None:
    """Of partitions whose replicas the client has chosen."""
    return too_many(len(assignments), "partitions") or too_many(
        sum(map(len, assignments)), "replicas", MAX_REPLICAS
    )


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


def _creations(forwarded: Forwarded[messages.CreateTopicsResponse]) -> Iterator[CreatableTopicResult]:
    for result in forwarded.response.topics:
        code, message = forwarded.outcome(result.error, result.message)
        yield CreatableTopicResult(
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
        wanted = [
            messages.TopicToDelete(topic.name, None if topic.topic_id == ZERO_TOPIC_ID else topic.topic_id)
            for topic in body.topics
        ]
    else:
        wanted = [messages.TopicToDelete(name) for name in body.topic_names]
    problem = too_many(len(wanted), "topics") or too_long(
        topic.name for topic in wanted if topic.name is not None
    )
    if not services.config.get("delete.topic.enable"):
        problem = Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    if problem:
        return DeleteTopicsResponse(responses=_refuse_deletion(wanted, problem))
    split = Split(wanted, lambda _: None, _refuse_deletion)
    throttle = _Throttle(services, request)

    def deletions(
        forwarded: Forwarded[messages.DeleteTopicsResponse],
    ) -> Iterator[DeletableTopicResult | None]:
        """The controller answers once for each topic, however often it is named in the same way."""
        throttle.note(forwarded.response.throttle_time_ms)
        results = iter(forwarded.response.topics)
        answered: set[messages.TopicToDelete] = set()
        for topic in split.allowed:
            if topic in answered:
                yield None
                continue
            result = next(results, None)
            if result is None:
                return
            answered.add(topic)
            yield _deletion(
                messages.TopicToDelete(result.name, result.topic_id),
                *forwarded.outcome(result.error, result.message),
            )

    call = messages.DeleteTopicsRequest(tuple(split.allowed), _mutator(request))
    results = await split.forward(services, call, timeout_s(body.timeout_ms), deletions)
    return DeleteTopicsResponse(throttle_time_ms=throttle.time_ms, responses=results)


def _refuse_deletion(
    topics: Iterable[messages.TopicToDelete], refusal: Refusal
) -> list[DeletableTopicResult]:
    return [_deletion(*told) for told in refusal.of(topics)]


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
        each_name = {topic.name: topic for topic in body.topics}
        return CreatePartitionsResponse(results=_refuse_growth(each_name.values(), problem))
    split = Split(body.topics, lambda _: None, _refuse_growth)
    call = messages.CreatePartitionsRequest(
        tuple(
            messages.MorePartitions(
                topic.name,
                topic.count,
                None if topic.assignments is None else tuple(tuple(a.broker_ids) for a in topic.assignments),
            )
            for topic in split.allowed
        ),
        body.validate_only,
        _mutator(request),
    )
    throttle = _Throttle(services, request)

    def growths(
        forwarded: Forwarded[messages.CreatePartitionsResponse],
    ) -> Iterator[CreatePartitionsTopicResult]:
        throttle.note(forwarded.response.throttle_time_ms)
        return _growths(forwarded)

    results = await split.forward(
        services, call, timeout_s(body.timeout_ms), growths, changes=not body.validate_only
    )
    return CreatePartitionsResponse(throttle_time_ms=throttle.time_ms, results=results)


def _growths(
    forwarded: Forwarded[messages.CreatePartitionsResponse],
) -> Iterator[CreatePartitionsTopicResult]:
    for result in forwarded.response.topics:
        code, message = forwarded.outcome(result.error, result.message)
        yield CreatePartitionsTopicResult(name=result.name, error_code=code, error_message=message)


def _refuse_growth(
    topics: Iterable[CreatePartitionsTopic], refusal: Refusal
) -> list[CreatePartitionsTopicResult]:
    return [
        CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
        for topic, code, message in refusal.of(topics)
    ]


def _growth_too_large(topics: Sequence[CreatePartitionsTopic]) -> Refusal | None:
    return (
        too_many(len(topics), "topics")
        or _too_many_replicas([chosen.broker_ids for topic in topics for chosen in topic.assignments or ()])
        or too_long(topic.name for topic in topics)
    )
