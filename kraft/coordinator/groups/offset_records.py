"""A committed offset as a record of `__consumer_offsets`: OffsetCommitKey (types 0 and 1), OffsetCommitValue 0 to 4.

Written as Kafka 4 writes it: key type 1; value version 4 with the topic's id, and version 1 where the client asked for
a retention of its own, since no later version has a field for it. Version 1 carries neither leader epoch nor topic id.
Called by `kraft.coordinator.groups.offsets`.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from kraft.coordinator.record_schema import RecordSchema
from kraft.coordinator.shard import Record
from kraft.protocol.errors import ProtocolError
from kraft.protocol.primitives import ZERO_UUID
from kraft.protocol.schema import Message, int32, int64, message, string, uuid
from kraft.protocol.schemas.group_offsets import NO_LEADER_EPOCH

NO_EXPIRY_MS = -1
"""The settings alone say how long the offset is kept."""


class Committed(NamedTuple):
    """What a group committed for one partition. Times are wall times in ms."""

    offset: int
    leader_epoch: int
    """Of the last record read; -1 if the client does not tell."""
    metadata: str
    commit_ms: int
    expire_ms: int
    """When it expires whatever the group does; -1 for nearly all."""
    topic_id: bytes
    """Zero in records of versions that do not have it."""


class Place(NamedTuple):
    """What an offset is committed for."""

    group_id: str
    topic: str
    partition: int


@message
class OffsetCommitKey(Message):
    group: str = string("0+")
    topic: str = string("0+")
    partition: int = int32("0+")


@message
class OffsetCommitValue(Message):
    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=NO_LEADER_EPOCH, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=NO_EXPIRY_MS, ignorable=True)
    topic_id: bytes = uuid("4+", tag=0, ignorable=True)


KEY_TYPES = range(2)
"""The types of keys that stand for an offset; both have the same fields."""
_VERSIONS = range(5)
_FLEXIBLE_FROM = 4
_KEY = RecordSchema(OffsetCommitKey, 1, read=KEY_TYPES, flexible_from=None)
_VALUE = RecordSchema(OffsetCommitValue, 4, read=_VERSIONS, flexible_from=_FLEXIBLE_FROM)
_VALUE_WITH_EXPIRY = RecordSchema(OffsetCommitValue, 1, read=_VERSIONS, flexible_from=_FLEXIBLE_FROM)

# Version 4 as it is nearly always: a metadata of up to 126 bytes, and the topic's id as the one tagged field.
_HEAD = Struct(">hqiB")
"""Version, offset, leader epoch, length of the metadata plus one."""
_TAIL = Struct(">q3s16s")
"""Commit time, the head of the tagged field, topic id."""
_ONLY_TOPIC_ID = b"\x01\x00\x10"
"""One tagged field: number 0, 16 bytes."""
_ONE_BYTE_LENGTHS = 128
_NEW_TUPLE = tuple.__new__
"""What Committed(...) does, less a Python frame."""


def expiring(committed: Committed) -> Committed:
    """The offset as a record with an expiry of its own can carry it."""
    return committed._replace(leader_epoch=NO_LEADER_EPOCH, topic_id=ZERO_UUID)


def encode(place: Place, committed: Committed) -> Record:
    """The record of a commit. Raises ProtocolError for a text longer than any that the protocol carries."""
    schema = _VALUE if committed.expire_ms == NO_EXPIRY_MS else _VALUE_WITH_EXPIRY
    value = OffsetCommitValue(
        committed.offset,
        committed.leader_epoch,
        committed.metadata,
        committed.commit_ms,
        committed.expire_ms,
        committed.topic_id,
    )
    return Record(_KEY.encode(OffsetCommitKey(*place)), schema.encode(value))


def encode_tombstone(place: Place) -> Record:
    """The record that deletes what is committed for the place."""
    return Record(_KEY.encode(OffsetCommitKey(*place)), None)


def decode_key(data: bytes) -> Place:
    """Raises ProtocolError."""
    key = _KEY.decode(data)
    return Place(key.group, key.topic, key.partition)


def decode_value(data: bytes, known_ids: dict[bytes, bytes]) -> Committed:
    """Raises ProtocolError. Equal topic ids become one object, which is kept in `known_ids`.

    The form that we write is read in place: a shard that loads reads a million of them.
    """
    try:
        version, offset, leader_epoch, length = _HEAD.unpack_from(data)
        if version == _FLEXIBLE_FROM and 0 < length < _ONE_BYTE_LENGTHS:
            end = _HEAD.size - 1 + length
            if len(data) == end + _TAIL.size:
                commit_ms, tags, topic_id = _TAIL.unpack_from(data, end)
                if tags == _ONLY_TOPIC_ID:
                    metadata = data[_HEAD.size : end].decode() if length > 1 else ""
                    topic_id = known_ids.setdefault(topic_id, topic_id)
                    return _NEW_TUPLE(
                        Committed, (offset, leader_epoch, metadata, commit_ms, NO_EXPIRY_MS, topic_id)
                    )
    except (StructError, UnicodeDecodeError) as error:
        raise ProtocolError(f"an OffsetCommitValue is malformed: {error}") from error
    value = _VALUE.decode(data)
    return Committed(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        known_ids.setdefault(value.topic_id, value.topic_id),
    )
