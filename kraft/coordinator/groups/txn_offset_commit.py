"""TxnOffsetCommit in the forms of OffsetCommit: both are decided alike (`kraft.coordinator.groups.offsets`).

Pure. Topics go by name in every version; there is no retention of a commit's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponseTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def as_commit(request: TxnOffsetCommitRequest) -> OffsetCommitRequest:
    """What the request would commit outside of a transaction."""
    return OffsetCommitRequest(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                topic.name,
                partitions=[
                    OffsetCommitRequestPartition(
                        one.partition_index,
                        one.committed_offset,
                        one.committed_leader_epoch,
                        one.committed_metadata,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def as_response(topics: Iterable[OffsetCommitResponseTopic]) -> TxnOffsetCommitResponse:
    """The answer that says the same as one to an OffsetCommit."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(one.partition_index, one.error_code)
                    for one in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """The answer that tells each partition the same error."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [TxnOffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )
