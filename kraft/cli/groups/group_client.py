"""Groups, as their coordinators know them: each question goes to the coordinator of its group, over Kafka's protocol.

A classic group is described by DescribeGroups, one of KIP-848 by ConsumerGroupDescribe; both look the same from here
on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from kraft.cli.shared.admin_client import AdminClient, raise_for
from kraft.cli.shared.coordinators import Coordinators, Failure, failure_of, until_settled
from kraft.protocol.consumer_protocol import assigned_partitions
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.classic_groups import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kraft.protocol.schemas.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kraft.protocol.schemas.find_coordinator import CoordinatorType
from kraft.protocol.schemas.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kraft.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from kraft.user_error import UserError
from partitions.topic_partition import TopicPartition

LIST_GROUPS_VERSION = 5
DESCRIBE_GROUPS_VERSION = 6
CONSUMER_GROUP_DESCRIBE_VERSION = 0
OFFSET_FETCH_VERSION = 9
OFFSET_COMMIT_VERSION = 9
OFFSET_DELETE_VERSION = 0
DELETE_GROUPS_VERSION = 2
LEAVE_GROUP_VERSION = 5
CLASSIC, CONSUMER = "classic", "consumer"
REASON = "removed by kraft groups remove-member"


class Member(NamedTuple):
    """`partitions` are those that it has; none of a classic member whose assignment is no consumer's."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]


class Group(NamedTuple):
    """`coordinator` is a broker's id; `assignor` None where none is chosen."""

    group: str
    type: str
    state: str
    coordinator: int
    assignor: str | None
    members: list[Member]


class Committed(NamedTuple):
    """The stored offset of a partition, and what its consumer has written to it."""

    offset: int
    metadata: str


class GroupClient:
    """Asks the coordinators of groups through one admin client."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._coordinators = Coordinators(admin, CoordinatorType.GROUP)

    async def listed(
        self, states: Sequence[str], types: Sequence[str]
    ) -> tuple[list[ListedGroup], list[UserError]]:
        """The groups of all brokers, by name, and why some brokers did not tell theirs. Empty filters: all groups."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        groups: dict[str, ListedGroup] = {}
        failures: list[UserError] = []
        for broker in (await self._admin.metadata([])).brokers:
            try:
                answer = cast("ListGroupsResponse", await self._list_of(broker.node_id, request))
                raise_for(answer.error_code, None, f"the groups of broker {broker.node_id} are not known")
            except UserError as error:
                failures.append(error)
            else:
                groups |= {group.group_id: group for group in answer.groups}
        return [groups[group_id] for group_id in sorted(groups)], failures

    async def _list_of(self, broker_id: int, request: ListGroupsRequest) -> Message:
        async def ask() -> Message:
            return await self._admin.request_of(broker_id, request, version=LIST_GROUPS_VERSION)

        return await until_settled(ask, lambda answer: cast("ListGroupsResponse", answer).error_code)

    async def described(self, group: str) -> Group:
        """The group of either protocol. Raises UserError, failed, for one that is not there."""
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        answer = await self._coordinators.ask(
            group,
            request,
            CONSUMER_GROUP_DESCRIBE_VERSION,
            ConsumerGroupDescribeResponse,
            lambda told: told.groups[0].error_code,
        )
        found = answer.groups[0]
        if found.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return await self._described_classic(group)
        raise_for(found.error_code, found.error_message, f"group {group}")
        members = [
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                sorted(
                    TopicPartition(topic.topic_name, number)
                    for topic in member.assignment.topic_partitions
                    for number in topic.partitions
                ),
            )
            for member in found.members
        ]
        assignor = found.assignor_name or None
        return Group(group, CONSUMER, found.group_state, self._coordinators.found[group], assignor, members)

    async def _described_classic(self, group: str) -> Group:
        answer = await self._coordinators.ask(
            group,
            DescribeGroupsRequest(groups=[group]),
            DESCRIBE_GROUPS_VERSION,
            DescribeGroupsResponse,
            lambda told: told.groups[0].error_code,
        )
        found = answer.groups[0]
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise UserError(f"there is no group {group}; `kraft groups list` shows those that there are")
        raise_for(found.error_code, found.error_message, f"group {group}")
        members = [
            Member(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                [TopicPartition(*one) for one in assigned_partitions(member.member_assignment)]
                if found.protocol_type == CONSUMER
                else [],
            )
            for member in found.members
        ]
        assignor = found.protocol_data or None
        return Group(group, CLASSIC, found.group_state, self._coordinators.found[group], assignor, members)

    async def committed(self, group: str) -> dict[TopicPartition, Committed]:
        """All stored offsets of a group. Raises UserError."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        answer = await self._coordinators.ask(
            group, request, OFFSET_FETCH_VERSION, OffsetFetchResponse, lambda told: told.groups[0].error_code
        )
        found = answer.groups[0]
        raise_for(found.error_code, None, f"the offsets of group {group}")
        committed: dict[TopicPartition, Committed] = {}
        for topic in found.topics:
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                raise_for(partition.error_code, None, f"the offset of group {group} in {key}")
                if partition.committed_offset >= 0:
                    committed[key] = Committed(partition.committed_offset, partition.metadata or "")
        return committed

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Failure]:
        """Stores offsets of a group without members; returns those that were refused. Raises UserError."""
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, number), offset in offsets.items():
            topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=number, committed_offset=offset, committed_metadata=""
                )
            )
        answer = await self._coordinators.ask(
            group,
            OffsetCommitRequest(group_id=group, topics=list(topics.values())),
            OFFSET_COMMIT_VERSION,
            OffsetCommitResponse,
            _first_error,
        )
        return _failures(answer)

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Failure]:
        """Forgets stored offsets; returns those that were refused. Raises UserError."""
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for name, number in partitions:
            topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name))
            topic.partitions.append(OffsetDeleteRequestPartition(partition_index=number))
        answer = await self._coordinators.ask(
            group,
            OffsetDeleteRequest(group_id=group, topics=list(topics.values())),
            OFFSET_DELETE_VERSION,
            OffsetDeleteResponse,
            lambda told: told.error_code or _first_error(told),
        )
        raise_for(answer.error_code, None, f"the offsets of group {group} were not deleted")
        return _failures(answer)

    async def delete(self, group: str) -> Failure | None:
        """Deletes a group and its offsets; returns why it was refused, if it was."""
        answer = await self._coordinators.ask(
            group,
            DeleteGroupsRequest(groups_names=[group]),
            DELETE_GROUPS_VERSION,
            DeleteGroupsResponse,
            lambda told: told.results[0].error_code,
        )
        code = answer.results[0].error_code
        return failure_of(code) if code else None

    async def remove(self, group: str, members: Iterable[MemberIdentity]) -> list[MemberResponse]:
        """Removes members; the answer names each, with an error code of its own. Raises UserError."""
        answer = await self._coordinators.ask(
            group,
            LeaveGroupRequest(group_id=group, members=list(members)),
            LEAVE_GROUP_VERSION,
            LeaveGroupResponse,
            lambda told: told.error_code,
        )
        raise_for(answer.error_code, None, f"no member of group {group} was removed")
        return answer.members


def _first_error(answer: OffsetCommitResponse | OffsetDeleteResponse) -> int:
    codes = (partition.error_code for topic in answer.topics for partition in topic.partitions)
    return next((code for code in codes if code), 0)


def _failures(answer: OffsetCommitResponse | OffsetDeleteResponse) -> dict[TopicPartition, Failure]:
    return {
        TopicPartition(topic.name, partition.partition_index): failure_of(partition.error_code)
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code
    }
