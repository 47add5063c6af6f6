"""OffsetFetch in its two forms: one group up to version 7, several groups from version 8 on (KIP-709).

Pure. The handler asks the coordinator of each group for its part, and merges the parts here into what the version says.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.group_offsets import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_GROUP_ERROR = 2
"""Version 1 has no error of the group: each of its partitions gets it."""


def asked_groups(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    """What is asked of each group, in the form of version 8 and later."""
    if version >= FIRST_VERSION_WITH_GROUPS:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(request.group_id, topics=topics)]


def merged(
    request: OffsetFetchRequest, version: int, parts: Sequence[OffsetFetchResponseGroup]
) -> OffsetFetchResponse:
    """The answer made of the groups' parts, which are in the order of `asked_groups`."""
    if version >= FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(groups=list(parts))
    (part,) = parts
    if part.error_code and version < FIRST_VERSION_WITH_GROUP_ERROR:
        return OffsetFetchResponse(topics=_all_failed(request, ErrorCode.of(part.error_code)))
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    partition.partition_index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.metadata,
                    partition.error_code,
                )
                for partition in topic.partitions
            ],
        )
        for topic in part.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=part.error_code)


def _all_failed(request: OffsetFetchRequest, error: ErrorCode) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(index, NO_OFFSET, NO_LEADER_EPOCH, "", error)
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
