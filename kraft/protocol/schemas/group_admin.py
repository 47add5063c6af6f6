"""DescribeGroups (15), ListGroups (16), DeleteGroups (42): what administrators ask of groups.

Filters by state are KIP-518, types KIP-848, the error of a group that does not exist KIP-1043.
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import (
    STRING,
    Message,
    array,
    binary,
    boolean,
    int16,
    int32,
    message,
    sentence,
    string,
)

OPERATIONS_NOT_ASKED_FOR = -(2**31)


@message
class DescribeGroupsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_GROUPS

    groups: list[str] = array(STRING, "0+")
    include_authorized_operations: bool = boolean("3+")


@message
class DescribedGroupMember(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = binary("0+")
    member_assignment: bytes = binary("0+")


@message
class DescribedGroup(Message):
    """`protocol_data` is the protocol in use, and members' metadata is told, only of a stable group."""

    error_code: int = int16("0+")
    error_message: str | None = sentence("6+", ignorable=True)
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=OPERATIONS_NOT_ASKED_FOR)


@message
class DescribeGroupsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_GROUPS

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


@message
class ListGroupsRequest(Message):
    """An empty filter lets all groups through."""

    API_KEY: ClassVar[ApiKey] = ApiKey.LIST_GROUPS

    states_filter: list[str] = array(STRING, "4+")
    types_filter: list[str] = array(STRING, "5+")


@message
class ListedGroup(Message):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


@message
class ListGroupsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.LIST_GROUPS

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array(ListedGroup, "0+")


@message
class DeleteGroupsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DELETE_GROUPS

    groups_names: list[str] = array(STRING, "0+")


@message
class DeletableGroupResult(Message):
    group_id: str = string("0+")
    error_code: int = int16("0+")


@message
class DeleteGroupsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DELETE_GROUPS

    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")
