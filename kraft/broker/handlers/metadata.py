"""Metadata (3) and DescribeTopicPartitions (75): the cluster as clients see it.

Brokers are the unfenced ones that have the listener the client came through, and for a moment, where topics
are named, those whose sessions have just ended (`recently_fenced`); no Metadata answer is without an unfenced one.
Asking for an unknown topic by name creates it where the client and `auto.create.topics.enable` allow
that (`kraft.broker.membership.topic_creation`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from kraft.broker.authorized_operations import authorized_operations, cluster_operations
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.network.connection import CloseConnectionError
from kraft.protocol.api import AclOperation, ResourceType
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.cluster import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kraft.protocol.schemas.metadata import (
    UNKNOWN_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraft.security.quotas.entities import user_of
from partitions.topic_partition import ZERO_TOPIC_ID
from quorum.controller.topic_names import is_internal, topic_name_problem
from quorum.metadata.image import PartitionImage, TopicImage
from quorum.metadata.records import NO_LEADER
from quorum.rpc.messages import Mutator, NewTopic

DESCRIBE_PARTITIONS_MAX = 2_000
FIRST_VERSION_WITH_IDS = 12
"""Of Metadata: the two before have the field, and nobody may use it (KIP-516)."""


def handle_metadata(
    services: BrokerServices, request: Request[MetadataRequest]
) -> MetadataResponse | Awaitable[MetadataResponse]:
    """Answers Metadata; at once unless topics have to be created first.

    Raises CloseConnectionError while there is no broker to name.
    """
    missing = _to_create(services, request)
    if missing:
        return _create_then_answer(services, request, missing)
    return _answer(services, request, {})


async def _create_then_answer(
    services: BrokerServices, request: Request[MetadataRequest], missing: list[str]
) -> MetadataResponse:
    internal = {
        topic.name: topic for topic in (services.groups.topic.as_new(), services.transactions.topic.as_new())
    }
    mutator = Mutator(user_of(request.session.principal), request.client_id or "", strict=True)
    failures = await services.topic_creation.ensure(
        (internal.get(name, NewTopic(name)) for name in missing), mutator=mutator
    )
    return _answer(services, request, failures)


def _answer(
    services: BrokerServices, request: Request[MetadataRequest], failures: dict[str, ErrorCode]
) -> MetadataResponse:
    wanted, judge = request.body.topics, services.judge(request)
    brokers = _brokers(services, request.session.listener_name, with_recent=bool(wanted))
    if wanted is None or (request.version == 0 and not wanted):
        topics = [
            _topic(services, request, topic)
            for topic in services.metadata.topics_by_name()
            if judge is None or judge.shows(ResourceType.TOPIC, topic.name)
        ]
    else:
        topics = [_wanted_topic(services, request, topic, failures) for topic in _once_each(wanted)]
    with_operations = request.body.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=brokers,
        cluster_id=services.cluster_id,
        controller_id=services.metadata.admin_broker(services.controller.leader_id, services.broker_id),
        topics=topics,
        cluster_authorized_operations=cluster_operations(services, request)
        if with_operations
        else UNKNOWN_OPERATIONS,
    )


def _brokers(
    services: BrokerServices, listener_name: str, *, with_recent: bool
) -> list[MetadataResponseBroker]:
    """The brokers of an answer, at least one; `with_recent` for who asks for the leaders of certain topics.

    Raises CloseConnectionError while all are fenced, as when all nodes start or stop at once: clients forget
    the brokers that an answer does not name, and librdkafka (since 2.13) may find none again, ever. Who is
    cut off keeps those that it knows, and asks them.
    """
    brokers = _reachable(services, listener_name, (b.broker_id for b in services.metadata.live_brokers()))
    if not brokers:
        raise CloseConnectionError("this broker knows of none that is unfenced")
    return brokers + _reachable(
        services, listener_name, services.recently_fenced.ids() if with_recent else ()
    )


def _reachable(
    services: BrokerServices, listener_name: str, broker_ids: Iterable[int]
) -> list[MetadataResponseBroker]:
    """Those of the brokers that have such a listener."""
    reachable = []
    for broker_id in broker_ids:
        endpoint = services.metadata.endpoint(broker_id, listener_name)
        if endpoint is not None:
            rack = services.metadata.image.brokers[broker_id].rack
            reachable.append(
                MetadataResponseBroker(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=rack)
            )
    return reachable


def _to_create(services: BrokerServices, request: Request[MetadataRequest]) -> list[str]:
    """The named topics that do not exist, where creating them is allowed, and allowed to the client."""
    body = request.body
    if (
        not body.topics
        or not body.allow_auto_topic_creation
        or not services.config.get("auto.create.topics.enable")
    ):
        return []
    known = services.metadata.image.topic_ids
    named = {topic.name for topic in body.topics if topic.name and topic.topic_id == ZERO_TOPIC_ID}
    judge = services.judge(request)
    return sorted(
        name
        for name in named - known.keys()
        if judge is None or not judge.refusal(ResourceType.TOPIC, name)  # neither DESCRIBE nor CREATE
    )


def _once_each(wanted: Iterable[MetadataRequestTopic]) -> Iterable[MetadataRequestTopic]:
    """The topics in their order, each once however often it is named, as in Kafka: lest a small request has an
    answer of many times its size. An id that is not zero decides alone, as it does in the answer: Java sends it
    with an empty name."""
    named: dict[str | bytes | None, MetadataRequestTopic] = {}
    for topic in wanted:
        named.setdefault(topic.name if topic.topic_id == ZERO_TOPIC_ID else topic.topic_id, topic)
    return named.values()


def _wanted_topic(
    services: BrokerServices,
    request: Request[MetadataRequest],
    wanted: MetadataRequestTopic,
    failures: dict[str, ErrorCode],
) -> MetadataResponseTopic:
    image = services.metadata.image
    name, topic_id, has_ids = wanted.name, wanted.topic_id, request.version >= FIRST_VERSION_WITH_IDS
    answer = MetadataResponseTopic(name=name, topic_id=topic_id)
    if topic_id != ZERO_TOPIC_ID and has_ids:
        topic = image.topics.get(topic_id)
        answer.error_code, answer.name = ErrorCode.UNKNOWN_TOPIC_ID, None
    elif topic_id != ZERO_TOPIC_ID or name is None:
        topic = None
        answer.error_code = ErrorCode.INVALID_REQUEST
        answer.name = name if has_ids else name or ""  # the answers before have no null, as in Kafka
    else:
        topic = image.topic(name)
        if topic is None:
            answer.error_code = failures.get(name) or _unknown(name)
            refused = _refusal(services, request, name, exists=False)
            answer.error_code = refused or answer.error_code
    if topic is None:
        return answer
    refused = _refusal(services, request, topic.name, exists=True)
    if refused:  # of an id: no name is told, as in Kafka
        answer.error_code = refused
        return answer
    return _topic(services, request, topic)


def _refusal(
    services: BrokerServices, request: Request[MetadataRequest], name: str, *, exists: bool
) -> ErrorCode:
    """Why nothing is told of a topic. Whether it exists is not told either, unless that is why it cannot be made."""
    judge = services.judge(request)
    if judge is None:
        return ErrorCode.NONE
    code = judge.refusal(ResourceType.TOPIC, name, AclOperation.DESCRIBE)
    if not code and not exists and services.config.get("auto.create.topics.enable"):
        code = judge.refusal(ResourceType.TOPIC, name, AclOperation.CREATE)
    return code


def _unknown(name: str) -> ErrorCode:
    """Why there is no topic of that name, as Kafka says it."""
    is_illegal = topic_name_problem(name) is not None
    return ErrorCode.INVALID_TOPIC_EXCEPTION if is_illegal else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic(
    services: BrokerServices, request: Request[MetadataRequest], topic: TopicImage
) -> MetadataResponseTopic:
    with_operations = request.body.include_topic_authorized_operations
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        topic_authorized_operations=authorized_operations(
            services, request.session, ResourceType.TOPIC, topic.name
        )
        if with_operations
        else UNKNOWN_OPERATIONS,
        partitions=[
            MetadataResponsePartition(
                error_code=_partition_error(
                    services, request.session.listener_name, partition, request.version
                ),
                partition_index=number,
                leader_id=_reachable_leader(services, request.session.listener_name, partition),
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=_offline_replicas(services, partition),
            )
            for number, partition in enumerate(topic.partitions)
        ],
    )


def _partition_error(
    services: BrokerServices, listener_name: str, partition: PartitionImage, version: int = 6
) -> ErrorCode:
    if not partition.has_leader or not services.metadata.is_live(partition.leader):
        return ErrorCode.LEADER_NOT_AVAILABLE
    if services.metadata.endpoint(partition.leader, listener_name) is None:
        return ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE


def _reachable_leader(services: BrokerServices, listener_name: str, partition: PartitionImage) -> int:
    """The leader if the brokers of the answer contain it, else -1: clients look its address up there."""
    failed = _partition_error(services, listener_name, partition) != ErrorCode.NONE
    return NO_LEADER if failed else partition.leader


def _offline_replicas(services: BrokerServices, partition: PartitionImage) -> list[int]:
    """Replicas that nobody can use: their broker is away, or alive and cannot serve the log."""
    offline = partition.offline_replicas
    return [
        broker_id
        for broker_id in partition.replicas
        if broker_id in offline or not services.metadata.is_live(broker_id)
    ]


def handle_describe_topic_partitions(
    services: BrokerServices, request: Request[DescribeTopicPartitionsRequest]
) -> DescribeTopicPartitionsResponse:
    """Answers DescribeTopicPartitions, a page at a time, topics in the order of their names."""
    body, image, judge = request.body, services.metadata.image, services.judge(request)
    names = sorted({topic.name for topic in body.topics}) if body.topics else sorted(image.topic_ids)
    if judge is not None and not body.topics:
        names = [name for name in names if judge.shows(ResourceType.TOPIC, name)]
    first_partition = 0
    if body.cursor is not None:
        start = body.cursor.topic_name
        names = [name for name in names if name >= start]
        if names and names[0] == start:
            first_partition = max(0, body.cursor.partition_index)
    room = max(1, min(body.response_partition_limit, DESCRIBE_PARTITIONS_MAX))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        topic = image.topic(name)
        refused = ErrorCode.NONE if judge is None else judge.refusal(ResourceType.TOPIC, name)
        if refused or topic is None:
            code = refused or _unknown(name)
            topics.append(DescribeTopicPartitionsResponseTopic(error_code=code, name=name))
            continue
        if room == 0:
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(topic_name=name))
        end = min(len(topic.partitions), first_partition + room)
        topics.append(_described(services, request, topic, range(first_partition, end)))
        room -= max(0, end - first_partition)
        if end < len(topic.partitions):
            cursor = Cursor(topic_name=name, partition_index=end)
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)
        first_partition = 0
    return DescribeTopicPartitionsResponse(topics=topics)


def _described(
    services: BrokerServices,
    request: Request[DescribeTopicPartitionsRequest],
    topic: TopicImage,
    numbers: range,
) -> DescribeTopicPartitionsResponseTopic:
    listener_name = request.session.listener_name
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        topic_authorized_operations=authorized_operations(
            services, request.session, ResourceType.TOPIC, topic.name
        ),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=_partition_error(services, listener_name, partition),
                partition_index=number,
                leader_id=_reachable_leader(services, listener_name, partition),
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=_offline_replicas(services, partition),
            )
            for number in numbers
            for partition in (topic.partitions[number],)
        ],
    )
