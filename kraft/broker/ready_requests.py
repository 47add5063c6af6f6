"""Which requests wait for replicas that are being made ready here, for which partitions, and how long.

Produce, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, and Fetch of consumers: `answer_when_ready` calls the
handler at once, or has the request wait first (`PendingReplicas`). A follower asks again by itself, and one
fetch of it stands for many partitions: it never waits. Called by the dispatcher while anything is pending.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from kraft.broker.purgatory.pending_replicas import WAIT_MAX_S, PendingWait
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.network.response import Deferred
from kraft.protocol.api import ApiKey
from kraft.protocol.fetch import FetchRequest
from kraft.protocol.produce import ProduceRequest
from kraft.protocol.schema import Message
from kraft.protocol.schemas.delete_records import DeleteRecordsRequest
from kraft.protocol.schemas.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from partitions.topic_partition import TopicPartition

HandlerResult = Message | None | Deferred[Any, Message] | Awaitable[Message | None]
Handler = Callable[[BrokerServices, Request[Any]], HandlerResult]
"""Answers one request: a message now or later, None where the request has no answer (acks=0)."""


def answer_when_ready(handler: Handler, services: BrokerServices, request: Request[Any]) -> HandlerResult:
    """What the handler answers, once the replicas that are pending here are ready, or have had their time."""
    wait = _wait(services, request)
    if wait is None:
        return handler(services, request)
    task = services.loop.create_task(_later(wait, handler, services, request))
    # One that is cancelled before its first step never comes to its own end of the wait.
    task.add_done_callback(lambda _: wait.end())
    return task


async def _later(
    wait: PendingWait, handler: Handler, services: BrokerServices, request: Request[Any]
) -> Message | None:
    await wait.done
    try:
        result = handler(services, request)
    finally:
        wait.end()  # those behind need not wait for the answer
    return result if result is None or isinstance(result, Message) else await result


def _wait(services: BrokerServices, request: Request[Any]) -> PendingWait | None:
    partitions = _PARTITIONS_OF.get(request.body.API_KEY)
    if partitions is None:
        return None
    body = request.body
    return services.replicas.pending.wait(
        partitions(services, body), _timeout_s(body), appends=isinstance(body, ProduceRequest)
    )


def _timeout_s(body: Any) -> float:
    if isinstance(body, ProduceRequest | DeleteRecordsRequest):
        return body.timeout_ms / 1000
    if isinstance(body, FetchRequest):
        return body.max_wait_ms / 1000
    return WAIT_MAX_S


def _to_produce(services: BrokerServices, body: ProduceRequest) -> Iterator[TopicPartition]:
    for topic in body.topic_data:
        for data in topic.partition_data:
            yield TopicPartition(topic.name, data.index)


def _to_fetch(services: BrokerServices, body: FetchRequest) -> Iterator[TopicPartition]:
    if body.replica_id >= 0:
        return
    for topic in body.topics:
        name = topic.topic or services.metadata.topic_name(topic.topic_id)
        if name:
            for wanted in topic.partitions:
                yield TopicPartition(name, wanted.partition)


def _to_list(services: BrokerServices, body: ListOffsetsRequest) -> Iterator[TopicPartition]:
    if body.replica_id >= 0:
        return
    for topic in body.topics:
        for wanted in topic.partitions:
            yield TopicPartition(topic.name, wanted.partition_index)


def _to_tell_epochs_of(
    services: BrokerServices, body: OffsetForLeaderEpochRequest
) -> Iterator[TopicPartition]:
    if body.replica_id >= 0:
        return
    for topic in body.topics:
        for wanted in topic.partitions:
            yield TopicPartition(topic.topic, wanted.partition)


def _to_delete_from(services: BrokerServices, body: DeleteRecordsRequest) -> Iterator[TopicPartition]:
    for topic in body.topics:
        for wanted in topic.partitions:
            yield TopicPartition(topic.name, wanted.partition_index)


_PARTITIONS_OF: Mapping[ApiKey, Callable[[BrokerServices, Any], Iterator[TopicPartition]]] = {
    ApiKey.PRODUCE: _to_produce,
    ApiKey.FETCH: _to_fetch,
    ApiKey.LIST_OFFSETS: _to_list,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _to_tell_epochs_of,
    ApiKey.DELETE_RECORDS: _to_delete_from,
}
