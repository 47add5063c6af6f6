"""Groups: JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14), DescribeGroups (15), ListGroups (16),
DeleteGroups (42), ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69).

The shard of a group decides (`kraft.coordinator.groups.shard`); its reply comes when everything that it tells of is
committed. What concerns one group goes to that group's shard; what names several is asked of each and merged in the
order of the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from kraft.broker.authorized_operations import authorized_operations
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.coordinator.groups.context import Client, MayDescribe, describes_all
from kraft.coordinator.groups.shard import (
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    GroupRequest,
    ListGroups,
)
from kraft.network.response import Deferred
from kraft.protocol.api import ResourceType
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.classic_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kraft.protocol.schemas.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kraft.protocol.schemas.consumer_groups import DescribedGroup as DescribedConsumerGroup
from kraft.protocol.schemas.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

Answered = TypeVar("Answered", bound=Message)
Refuse = Callable[[ErrorCode], Answered]

CONSUMER_PROTOCOL = "consumer"
DEAD = "Dead"
FIRST_DESCRIBE_VERSION_WITH_GROUP_ID_NOT_FOUND = 6


def ask(
    services: BrokerServices,
    request: Request[Any],
    group_id: str,
    refuse: Refuse[Answered],
    body: Any = None,
    *,
    reads: bool = False,
    may_describe: MayDescribe = describes_all,
) -> Deferred[Any, Answered]:
    """The reply of the group's shard, or what `refuse` makes of why there is none. `body` is what the shard is
    asked, if not the request's."""
    asked = group_request(request, request.body if body is None else body, may_describe)
    replied = services.groups.submit(group_id, asked, reads=reads)
    return Deferred(replied, lambda reply: refuse(reply) if isinstance(reply, ErrorCode) else reply)


def group_request(
    request: Request[Any], body: Any, may_describe: MayDescribe = describes_all
) -> GroupRequest:
    """What a shard is asked, with who asks it."""
    client = Client(request.client_id or "", f"/{request.session.peer[0]}")
    return GroupRequest(body, request.version, client, may_describe)


# -- members of classic groups


def handle_join_group(
    services: BrokerServices, request: Request[JoinGroupRequest]
) -> JoinGroupResponse | Deferred[Any, JoinGroupResponse]:
    """Answers JoinGroup when the group has come together."""
    body = request.body

    def refuse(code: ErrorCode) -> JoinGroupResponse:
        return JoinGroupResponse(error_code=code, member_id=body.member_id)

    if not body.group_id:
        return refuse(ErrorCode.INVALID_GROUP_ID)
    return ask(services, request, body.group_id, refuse)


def handle_sync_group(
    services: BrokerServices, request: Request[SyncGroupRequest]
) -> SyncGroupResponse | Deferred[Any, SyncGroupResponse]:
    """Answers SyncGroup when the leader has assigned. While the group is being loaded nobody assigns: its members have
    to join anew, which Java's consumers do for this error, and for COORDINATOR_LOAD_IN_PROGRESS they fail."""

    def refuse(code: ErrorCode) -> SyncGroupResponse:
        is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if is_loading else code)

    if not request.body.group_id:
        return refuse(ErrorCode.INVALID_GROUP_ID)
    return ask(services, request, request.body.group_id, refuse)


def handle_heartbeat(
    services: BrokerServices, request: Request[HeartbeatRequest]
) -> HeartbeatResponse | Deferred[Any, HeartbeatResponse]:
    """Answers Heartbeat. While the group is being loaded nobody knows better than the member: it goes on."""

    def refuse(code: ErrorCode) -> HeartbeatResponse:
        is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code)

    if not request.body.group_id:
        return refuse(ErrorCode.INVALID_GROUP_ID)
    return ask(services, request, request.body.group_id, refuse)


def handle_leave_group(
    services: BrokerServices, request: Request[LeaveGroupRequest]
) -> LeaveGroupResponse | Deferred[Any, LeaveGroupResponse]:
    """Answers LeaveGroup."""

    def refuse(code: ErrorCode) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=code)

    if not request.body.group_id:
        return refuse(ErrorCode.INVALID_GROUP_ID)
    return ask(services, request, request.body.group_id, refuse)


# -- members of consumer groups


def handle_consumer_group_heartbeat(
    services: BrokerServices, request: Request[ConsumerGroupHeartbeatRequest]
) -> ConsumerGroupHeartbeatResponse | Deferred[Any, ConsumerGroupHeartbeatResponse]:
    """Answers ConsumerGroupHeartbeat (KIP-848)."""

    def refuse(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(error_code=code)

    if not services.groups.serves_consumer_protocol:
        return refuse(ErrorCode.UNSUPPORTED_VERSION)
    judge = services.judge(request)
    may_describe = describes_all if judge is None else partial(judge.shows, ResourceType.TOPIC)
    return ask(services, request, request.body.group_id, refuse, may_describe=may_describe)


async def handle_consumer_group_describe(
    services: BrokerServices, request: Request[ConsumerGroupDescribeRequest]
) -> ConsumerGroupDescribeResponse:
    """Answers ConsumerGroupDescribe."""
    if not services.groups.serves_consumer_protocol:
        code = ErrorCode.UNSUPPORTED_VERSION
        refused = [
            DescribedConsumerGroup(group_id=group_id, error_code=code) for group_id in request.body.group_ids
        ]
        return ConsumerGroupDescribeResponse(groups=refused)

    def describe(group_id: str) -> Awaitable[DescribedConsumerGroup]:
        def refuse(code: ErrorCode) -> DescribedConsumerGroup:
            return DescribedConsumerGroup(group_id=group_id, error_code=code)

        if not group_id:
            return at_once(services, refuse(ErrorCode.INVALID_GROUP_ID))
        return ask(services, request, group_id, refuse, DescribeConsumerGroup(group_id), reads=True)

    groups = await _each(request.body.group_ids, describe)
    if request.body.include_authorized_operations:
        for group in groups:
            group.authorized_operations = authorized_operations(
                services, request.session, ResourceType.GROUP, group.group_id
            )
    return ConsumerGroupDescribeResponse(groups=groups)


# -- administrators


async def handle_describe_groups(
    services: BrokerServices, request: Request[DescribeGroupsRequest]
) -> DescribeGroupsResponse:
    """Answers DescribeGroups. A group that does not exist is dead for clients of old versions (KIP-1043)."""
    tells_unknown = request.version >= FIRST_DESCRIBE_VERSION_WITH_GROUP_ID_NOT_FOUND

    def describe(group_id: str) -> Awaitable[DescribedGroup]:
        def refuse(code: ErrorCode) -> DescribedGroup:
            if code is ErrorCode.GROUP_ID_NOT_FOUND:
                told = code if tells_unknown else ErrorCode.NONE
                message = f"Group {group_id} not found." if tells_unknown else None
                return DescribedGroup(
                    group_id=group_id, error_code=told, error_message=message, group_state=DEAD
                )
            return DescribedGroup(group_id=group_id, error_code=code)

        return ask(services, request, group_id, refuse, DescribeGroup(group_id), reads=True)

    groups = await _each(request.body.groups, describe)
    if request.body.include_authorized_operations:
        for group in groups:
            group.authorized_operations = authorized_operations(
                services, request.session, ResourceType.GROUP, group.group_id
            )
    return DescribeGroupsResponse(groups=groups)


async def handle_list_groups(
    services: BrokerServices, request: Request[ListGroupsRequest]
) -> ListGroupsResponse:
    """Answers ListGroups with the groups that this broker coordinates."""
    asked = group_request(
        request, ListGroups(tuple(request.body.states_filter), tuple(request.body.types_filter))
    )
    runtime = services.groups.runtime
    replies = [runtime.submit(number, asked, reads=True) for number in runtime.hosted]
    groups: list[ListedGroup] = []
    error = ErrorCode.NONE
    for reply in replies:
        listed = await reply
        if not isinstance(listed, ErrorCode):
            groups += listed
        elif listed is not ErrorCode.NOT_COORDINATOR:  # such a partition has just gone elsewhere
            error = listed
    if error:
        return ListGroupsResponse(error_code=error)
    return ListGroupsResponse(groups=groups)


async def handle_delete_groups(
    services: BrokerServices, request: Request[DeleteGroupsRequest]
) -> DeleteGroupsResponse:
    """Answers DeleteGroups."""

    def delete(group_id: str) -> Awaitable[DeletableGroupResult]:
        def refuse(code: ErrorCode) -> DeletableGroupResult:
            return DeletableGroupResult(group_id=group_id, error_code=code)

        return ask(services, request, group_id, refuse, DeleteGroup(group_id))

    return DeleteGroupsResponse(results=await _each(dict.fromkeys(request.body.groups_names), delete))


async def _each(
    group_ids: Sequence[str] | dict[str, None], of: Callable[[str], Awaitable[Answered]]
) -> list[Answered]:
    """The answers for each group: all are asked before the first is waited for."""
    return [await answer for answer in [of(group_id) for group_id in group_ids]]


def at_once(services: BrokerServices, answer: Answered) -> asyncio.Future[Answered]:
    """An answer that nobody has to wait for."""
    future: asyncio.Future[Answered] = services.loop.create_future()
    future.set_result(answer)
    return future
