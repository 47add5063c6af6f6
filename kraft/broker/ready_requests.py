"""Which requests wait for replicas that are being made ready here, for which partitions, and how long.

Those that a broker serves from the partitions that they name (`kraft.protocol.api`): `answer_when_ready` calls the
handler at once, or has the request wait first (`PendingReplicas`). A follower asks again by itself, and one
fetch of it stands for many partitions: it never waits. Called by the dispatcher while anything is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kraft.broker.purgatory.pending_replicas import WAIT_MAX_S, PendingWait
from kraft.broker.request import HandlerResult, Request
from kraft.broker.services import BrokerServices
from kraft.protocol.api import APIS, NamedPartition, ServedBy
from kraft.protocol.fetch import FetchRequest
from kraft.protocol.produce import ProduceRequest
from kraft.protocol.schema import Message
from kraft.protocol.schemas.delete_records import DeleteRecordsRequest
from partitions.topic_partition import TopicPartition

Handler = Callable[[BrokerServices, Request[Any]], HandlerResult]
"""Answers one request."""


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
        wait.end()  # those behind it need not wait for the answer
    return result if result is None or isinstance(result, Message) else await result


def _wait(services: BrokerServices, request: Request[Any]) -> PendingWait | None:
    body: Any = request.body
    api = APIS[body.API_KEY]
    if api.served_by is not ServedBy.BROKER or api.partitions is None or getattr(body, "replica_id", -1) >= 0:
        return None
    partitions = _with_names(services, api.partitions(body))
    return services.replicas.pending.wait(
        partitions, _timeout_s(body), appends=isinstance(body, ProduceRequest)
    )


def _timeout_s(body: Any) -> float:
    if isinstance(body, ProduceRequest | DeleteRecordsRequest):
        return body.timeout_ms / 1000
    if isinstance(body, FetchRequest):
        return body.max_wait_ms / 1000
    return WAIT_MAX_S


def _with_names(services: BrokerServices, partitions: Iterator[NamedPartition]) -> Iterator[TopicPartition]:
    """Those of topics that exist, where a topic is named by its id."""
    for topic, number in partitions:
        name = topic if isinstance(topic, str) else services.metadata.topic_name(topic)
        if name:
            yield TopicPartition(name, number)
