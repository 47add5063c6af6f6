"""OffsetCommit (8), OffsetFetch (9), TxnOffsetCommit (28), OffsetDelete (47): the offsets of groups, at their
coordinators.

What is said of a transaction, by its coordinator or by the log, is told in words that the version's clients go on from:
as Kafka does, and where its older clients would give up for what passes, as one that loads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from kraft.broker.authorization import Judge
from kraft.broker.handlers.groups import ask, at_once, group_request
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.coordinator.groups.offset_fetch import asked_groups, merged
from kraft.coordinator.groups.shard import FetchOffsets
from kraft.coordinator.groups.txn_offset_commit import refused
from kraft.network.response import Deferred
from kraft.protocol.api import ResourceType
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

FIRST_TXN_VERSION_WITH_LOADING: Final = 2
"""Of TxnOffsetCommit: older clients fail for COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
FIRST_TXN_VERSION_WITH_ABORTABLE: Final = 4
"""TRANSACTION_ABORTABLE (KIP-890); older clients know INVALID_TXN_STATE."""
FIRST_TXN_VERSION_WITH_CONCURRENT: Final = 5
"""Whose clients may begin a transaction while the markers of the one before are written."""
_TOLD: Final = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


def handle_offset_commit(
    services: BrokerServices, request: Request[OffsetCommitRequest]
) -> Deferred[Any, OffsetCommitResponse]:
    """Answers OffsetCommit; where there is no coordinator each partition is told why."""
    topics = request.body.topics

    def refuse(code: ErrorCode) -> OffsetCommitResponse:
        refused = [
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [OffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions],
            )
            for topic in topics
        ]
        return OffsetCommitResponse(topics=refused)

    return ask(services, request, request.body.group_id, refuse)


async def handle_txn_offset_commit(
    services: BrokerServices, request: Request[TxnOffsetCommitRequest]
) -> TxnOffsetCommitResponse:
    """Answers TxnOffsetCommit; where it is not taken each partition is told why."""
    if not request.body.group_id:
        return refused(request.body, ErrorCode.INVALID_GROUP_ID)
    answer = await services.groups.commit_in_transaction(group_request(request, request.body))
    if isinstance(answer, ErrorCode):
        return refused(request.body, txn_offset_commit_error(answer, request.version))
    return answer


def txn_offset_commit_error(code: ErrorCode, version: int) -> ErrorCode:
    """What a client of this version of TxnOffsetCommit is told."""
    told = _TOLD.get(code, code)
    if told is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_TXN_VERSION_WITH_CONCURRENT:
        told = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if told is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_TXN_VERSION_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if told is ErrorCode.INVALID_TXN_STATE and version >= FIRST_TXN_VERSION_WITH_ABORTABLE:
        return ErrorCode.TRANSACTION_ABORTABLE
    if told is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_TXN_VERSION_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return told


async def handle_offset_fetch(
    services: BrokerServices, request: Request[OffsetFetchRequest]
) -> OffsetFetchResponse:
    """Answers OffsetFetch: each group's part comes from its own coordinator, which need not be here."""
    body, version = request.body, request.version
    judge = services.judge(request)
    fetch: Callable[..., Awaitable[OffsetFetchResponseGroup]]
    fetch = _fetch if judge is None else partial(_fetch_seen, judge)
    answers = [fetch(services, request, group, body.require_stable) for group in asked_groups(body, version)]
    return merged(body, version, [await answer for answer in answers])


def _fetch_seen(
    judge: Judge,
    services: BrokerServices,
    request: Request[OffsetFetchRequest],
    group: OffsetFetchRequestGroup,
    require_stable: bool,
) -> Awaitable[OffsetFetchResponseGroup]:
    """What the client may see of a group. Topics that it names and may not see are refused, others left out."""
    code = judge.refusal(ResourceType.GROUP, group.group_id)
    if code:
        return at_once(services, OffsetFetchResponseGroup(group.group_id, error_code=code))

    def sees(topic: OffsetFetchRequestTopics | OffsetFetchResponseTopics) -> bool:
        name = topic.name or services.metadata.topic_name(topic.topic_id)
        return name is None or judge.shows(ResourceType.TOPIC, name)

    refused: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        refused = [_unseen(topic) for topic in group.topics if not sees(topic)]
        group.topics = [topic for topic in group.topics if sees(topic)]
    fetched = _fetch(services, request, group, require_stable)

    def finish(outcome: Any) -> OffsetFetchResponseGroup:
        answer = fetched.finish(outcome)
        if not answer.error_code:
            answer.topics = [topic for topic in answer.topics if sees(topic)] + refused
        return answer

    return Deferred(fetched.future, finish)


def _unseen(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=number, committed_offset=-1, error_code=code)
            for number in topic.partition_indexes
        ],
    )


def _fetch(
    services: BrokerServices,
    request: Request[OffsetFetchRequest],
    group: OffsetFetchRequestGroup,
    require_stable: bool,
) -> Deferred[Any, OffsetFetchResponseGroup]:
    def refuse(code: ErrorCode) -> OffsetFetchResponseGroup:
        # Java's consumers before 3.9 take COORDINATOR_NOT_AVAILABLE for fatal here; Kafka tells them this instead.
        is_away = code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        return OffsetFetchResponseGroup(
            group.group_id, error_code=ErrorCode.NOT_COORDINATOR if is_away else code
        )

    return ask(services, request, group.group_id, refuse, FetchOffsets(group, require_stable), reads=True)


def handle_offset_delete(
    services: BrokerServices, request: Request[OffsetDeleteRequest]
) -> OffsetDeleteResponse | Deferred[Any, OffsetDeleteResponse]:
    """Answers OffsetDelete."""

    def refuse(code: ErrorCode) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(error_code=code)

    if not request.body.group_id:
        return refuse(ErrorCode.INVALID_GROUP_ID)
    return ask(services, request, request.body.group_id, refuse)
