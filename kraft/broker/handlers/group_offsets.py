"""OffsetCommit (8), OffsetFetch (9), OffsetDelete (47): the offsets of groups, at their coordinators."""

from __future__ import annotations

from typing import Any

from kraft.broker.handlers.groups import ask
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.coordinator.groups.offset_fetch import asked_groups, merged
from kraft.coordinator.groups.shard import FetchOffsets
from kraft.network.response import Deferred
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
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)


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


async def handle_offset_fetch(
    services: BrokerServices, request: Request[OffsetFetchRequest]
) -> OffsetFetchResponse:
    """Answers OffsetFetch: each group's part comes from its own coordinator, which need not be here."""
    body, version = request.body, request.version
    answers = [_fetch(services, request, group, body.require_stable) for group in asked_groups(body, version)]
    return merged(body, version, [await answer for answer in answers])


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
