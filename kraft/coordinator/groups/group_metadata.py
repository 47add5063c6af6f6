"""The record of a classic group: Kafka's GroupMetadataKey (type 2) and GroupMetadataValue.

Versions 0 to 4 of the value are read. Version 3 is written, as Kafka 4 does: the newest that is not flexible.
"""

from __future__ import annotations

from kraft.coordinator.record_schema import RecordSchema
from kraft.protocol.schema import Message, array, binary, int32, int64, message, string

KEY_TYPE = 2
NO_TIMESTAMP = -1


@message
class GroupMetadataKey(Message):
    group: str = string("2")


@message
class MemberMetadata(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32("0+")
    subscription: bytes = binary("0+")
    assignment: bytes = binary("0+")


@message
class GroupMetadataValue(Message):
    """`protocol` and `leader` are None of a group without members; timestamps are wall time in ms."""

    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+", default=None)
    leader: str | None = string("0+", nullable="0+", default=None)
    current_state_timestamp: int = int64("2+", default=NO_TIMESTAMP, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")


KEY = RecordSchema(GroupMetadataKey, KEY_TYPE, read=range(KEY_TYPE, KEY_TYPE + 1), flexible_from=None)
VALUE = RecordSchema(GroupMetadataValue, 3, read=range(5), flexible_from=4)
