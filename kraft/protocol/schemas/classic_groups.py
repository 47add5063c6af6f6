"""JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14): the classic protocol of groups.

Static members are KIP-345, member ids that a client must take first KIP-394, assignments that a leader must skip
KIP-814, reasons KIP-800, protocol type and name in answers KIP-559.
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import Message, array, binary, boolean, int16, int32, message, string


@message
class JoinGroupRequestProtocol(Message):
    name: str = string("0+")
    metadata: bytes = binary("0+")


@message
class JoinGroupRequest(Message):
    """Without `rebalance_timeout_ms` (version 0) the session timeout stands for it."""

    API_KEY: ClassVar[ApiKey] = ApiKey.JOIN_GROUP

    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


@message
class JoinGroupResponseMember(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = binary("0+")


@message
class JoinGroupResponse(Message):
    """`members` are told to the leader only."""

    API_KEY: ClassVar[ApiKey] = ApiKey.JOIN_GROUP

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")


@message
class HeartbeatRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.HEARTBEAT

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


@message
class HeartbeatResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.HEARTBEAT

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")


@message
class MemberIdentity(Message):
    """An empty `member_id` with an instance id is an administrator's removal of whoever holds it."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@message
class LeaveGroupRequest(Message):
    """One member up to version 2, several from version 3 on."""

    API_KEY: ClassVar[ApiKey] = ApiKey.LEAVE_GROUP

    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@message
class MemberResponse(Message):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    error_code: int = int16("3+")


@message
class LeaveGroupResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.LEAVE_GROUP

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    members: list[MemberResponse] = array(MemberResponse, "3+")


@message
class SyncGroupRequestAssignment(Message):
    member_id: str = string("0+")
    assignment: bytes = binary("0+")


@message
class SyncGroupRequest(Message):
    """`assignments` come from the leader only."""

    API_KEY: ClassVar[ApiKey] = ApiKey.SYNC_GROUP

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")


@message
class SyncGroupResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.SYNC_GROUP

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = binary("0+")
