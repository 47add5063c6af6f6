"""The Fetch request, as consumers and followers send it.

A follower's id stands in `replica_id` up to version 14 and in a tagged field with its broker epoch
from 15 on (KIP-903); here both are plain fields in every version. Topics have names up to version
12 and ids from 13 on (KIP-516). Sessions and forgotten topics are KIP-227's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import ClassVar

from kraft.protocol.api import APIS, ApiKey
from kraft.protocol.errors import ProtocolError
from kraft.protocol.primitives import (
    MALFORMED,
    MAX_REQUEST_ELEMENTS,
    UNENCODABLE,
    UUID_BYTES,
    ZERO_UUID,
    Buffer,
    Codec,
    Encoded,
    check_elements,
    check_tag_end,
    check_uuid,
    read_array_length,
    read_int32_array,
    read_nullable_string,
    read_string,
    read_tag,
    read_tag_count,
    skip_tagged_fields,
    write_count,
    write_int32_array,
    write_nullable_string,
    write_string,
    write_tagged_fields,
)
from kraft.protocol.schema import EMPTY_LIST, Message, message

FIRST_FLEXIBLE_VERSION = APIS[ApiKey.FETCH].flexible_from
FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_RACK_ID = 11
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15

_INT32 = Struct(">i")
_UUID = Struct(f"{UUID_BYTES}s")
_REPLICA_STATE = Struct(">iq")
_ONLY_REPLICA_STATE = Struct(">3siqB")
_ONLY_REPLICA_STATE_START = b"\1\1\x0d"
"""One tagged field, its tag and its size: the end of a follower's request."""

# max_wait_ms, min_bytes, max_bytes, isolation_level, and from version 7 session_id, session_epoch.
_HEAD_V4 = Struct(">iiib")
_HEAD_V7 = Struct(">iiibii")

# Version 4: partition, fetch_offset, partition_max_bytes. Version 5 puts log_start_offset before the
# last, version 9 current_leader_epoch after the first, version 12 last_fetched_epoch after fetch_offset.
_PARTITION_V4 = Struct(">iqi")
_PARTITION_V5 = Struct(">iqqi")
_PARTITION_V9 = Struct(">iiqqi")
_PARTITION_V12 = Struct(">iiqiqi")
_PARTITION_V12_AND_NO_TAGS = Struct(">iiqiqix")


@message
class FetchPartition(Message):
    """The offset to read from in one partition, and the epochs that the reader knows (-1: none)."""

    partition: int = 0
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 0


@message
class FetchTopic(Message):
    """The partitions of one topic, named by `topic` up to version 12, by `topic_id` from 13 on."""

    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[FetchPartition] = EMPTY_LIST


@message
class ForgottenTopic(Message):
    """Partitions that leave the fetch session."""

    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[int] = EMPTY_LIST


@message
class FetchRequest(Message):
    """Fetch (1). `replica_id` is -1 for a consumer; `replica_epoch` is a follower's broker epoch."""

    API_KEY: ClassVar[ApiKey] = ApiKey.FETCH

    cluster_id: str | None = None
    replica_id: int = -1
    replica_epoch: int = -1
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 0x7FFFFFFF
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchTopic] = EMPTY_LIST
    forgotten_topics_data: list[ForgottenTopic] = EMPTY_LIST
    rack_id: str = ""


def fetch_request_codec(version: int) -> Codec:
    """The codec of one version."""
    return Codec(partial(encode_fetch_request, version), partial(decode_fetch_request, version))


def decode_fetch_request(version: int, buffer: Buffer, position: int) -> tuple[FetchRequest, int]:
    """Reads a request; returns it and the position behind it. Raises ProtocolError."""
    data = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    flexible = version >= FIRST_FLEXIBLE_VERSION
    replica_id, session_id, session_epoch, rack_id = -1, 0, -1, ""
    topics: list[FetchTopic] = []
    forgotten: list[ForgottenTopic] = []
    try:
        if version < FIRST_VERSION_WITH_REPLICA_STATE:
            (replica_id,) = _INT32.unpack_from(data, position)
            position += 4
        if version >= FIRST_VERSION_WITH_SESSIONS:
            head = _HEAD_V7.unpack_from(data, position)
            max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = head
            position += _HEAD_V7.size
        else:
            max_wait_ms, min_bytes, max_bytes, isolation_level = _HEAD_V4.unpack_from(data, position)
            position += _HEAD_V4.size
        count, position = read_array_length(
            data, position, 3 if flexible else 6, flexible, MAX_REQUEST_ELEMENTS
        )
        elements = count
        for _ in range(count):
            topic, position = _read_topic(data, position, version, flexible)
            topics.append(topic)
            elements += len(topic.partitions)
            if elements > MAX_REQUEST_ELEMENTS:
                check_elements(elements, MAX_REQUEST_ELEMENTS)
        if flexible and data[position] == data[position + 1] == 1:  # nothing forgotten, and no rack
            position += 2
        else:
            if version >= FIRST_VERSION_WITH_SESSIONS:
                forgotten, position = _read_forgotten(data, position, version, flexible, elements)
            if version >= FIRST_VERSION_WITH_RACK_ID:
                rack_id, position = read_string(data, position, flexible)
        request = FetchRequest(
            None, replica_id, -1, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id,
            session_epoch, topics, forgotten, rack_id,
        )  # fmt: skip
        if flexible:
            position = _read_tags(data, position, version, request)
    except MALFORMED as error:
        raise ProtocolError(f"FetchRequest v{version} is malformed: {error}") from error
    return request, position


def read_topic_key(data: memoryview, position: int, version: int) -> tuple[str, bytes, int]:
    """A topic's name (up to version 12) or id (from 13 on), and the position behind it."""
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return "", _UUID.unpack_from(data, position)[0], position + UUID_BYTES
    name, position = read_string(data, position, version >= FIRST_FLEXIBLE_VERSION)
    return name, ZERO_UUID, position


def write_topic_key(out: bytearray, name: str, topic_id: bytes, version: int) -> None:
    """Appends a topic's name (up to version 12) or id (from 13 on)."""
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        out += topic_id if len(topic_id) == UUID_BYTES else check_uuid(topic_id)
    else:
        write_string(out, name, version >= FIRST_FLEXIBLE_VERSION)


def _partition_fields(version: int) -> Struct:
    """The fixed fields of a partition in versions that are not flexible."""
    if version >= 9:
        return _PARTITION_V9
    return _PARTITION_V5 if version >= 5 else _PARTITION_V4


def _read_topic(data: memoryview, position: int, version: int, flexible: bool) -> tuple[FetchTopic, int]:
    name, topic_id, position = read_topic_key(data, position, version)
    if not flexible:
        partitions, position = _legacy_partitions(data, position, version)
        return FetchTopic(name, topic_id, partitions), position
    unpack, size = _PARTITION_V12.unpack_from, _PARTITION_V12.size
    count, position = read_array_length(data, position, size, True, MAX_REQUEST_ELEMENTS)
    partitions = []
    for _ in range(count):
        partitions.append(FetchPartition(*unpack(data, position)))
        position += size
        position = position + 1 if data[position] == 0 else skip_tagged_fields(data, position)
    position = position + 1 if data[position] == 0 else skip_tagged_fields(data, position)
    return FetchTopic(name, topic_id, partitions), position


def _legacy_partitions(data: memoryview, position: int, version: int) -> tuple[list[FetchPartition], int]:
    fields = _partition_fields(version)
    count, position = read_array_length(data, position, fields.size, False, MAX_REQUEST_ELEMENTS)
    partitions = []
    for _ in range(count):
        values = fields.unpack_from(data, position)
        position += fields.size
        if version >= 9:
            index, epoch, offset, log_start_offset, max_bytes = values
            partition = FetchPartition(index, epoch, offset, -1, log_start_offset, max_bytes)
        elif version >= 5:
            index, offset, log_start_offset, max_bytes = values
            partition = FetchPartition(index, -1, offset, -1, log_start_offset, max_bytes)
        else:
            index, offset, max_bytes = values
            partition = FetchPartition(index, -1, offset, -1, -1, max_bytes)
        partitions.append(partition)
    return partitions, position


def _read_forgotten(
    data: memoryview, position: int, version: int, flexible: bool, elements: int
) -> tuple[list[ForgottenTopic], int]:
    """Reads the forgotten topics; `elements` counts the request's elements so far."""
    count, position = read_array_length(data, position, 3 if flexible else 6, flexible, MAX_REQUEST_ELEMENTS)
    forgotten = []
    elements += count
    for _ in range(count):
        name, topic_id, position = read_topic_key(data, position, version)
        partitions, position = read_int32_array(data, position, flexible, MAX_REQUEST_ELEMENTS)
        if flexible:
            position = skip_tagged_fields(data, position)
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
        elements += len(partitions)
        check_elements(elements, MAX_REQUEST_ELEMENTS)
    return forgotten, position


def _read_tags(data: memoryview, position: int, version: int, request: FetchRequest) -> int:
    if data[position] == 0:
        return position + 1
    if version >= FIRST_VERSION_WITH_REPLICA_STATE and len(data) - position >= _ONLY_REPLICA_STATE.size:
        start, replica_id, replica_epoch, tags_inside = _ONLY_REPLICA_STATE.unpack_from(data, position)
        if start == _ONLY_REPLICA_STATE_START and not tags_inside:
            request.replica_id, request.replica_epoch = replica_id, replica_epoch
            return position + _ONLY_REPLICA_STATE.size
    count, position = read_tag_count(data, position)
    for _ in range(count):
        tag, position, end = read_tag(data, position)
        if tag == 0:
            request.cluster_id, position = read_nullable_string(data, position, True)
            check_tag_end("FetchRequest.cluster_id", position, end)
        elif tag == 1 and version >= FIRST_VERSION_WITH_REPLICA_STATE:
            request.replica_id, request.replica_epoch = _REPLICA_STATE.unpack_from(data, position)
            position = skip_tagged_fields(data, position + _REPLICA_STATE.size)
            check_tag_end("FetchRequest.replica_state", position, end)
        position = end
    return position


def encode_fetch_request(version: int, request: FetchRequest) -> Encoded:
    """One part and its size in bytes. Raises ProtocolError."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    out = bytearray()
    try:
        _write_head(out, request, version)
        write_count(out, len(request.topics), flexible)
        for topic in request.topics:
            write_topic_key(out, topic.topic, topic.topic_id, version)
            write_count(out, len(topic.partitions), flexible)
            if flexible:
                _write_flexible_partitions(out, topic.partitions)
                out += b"\0"
            else:
                _write_legacy_partitions(out, topic.partitions, version)
        if flexible and len(request.forgotten_topics_data) == 0 and request.rack_id == "":
            out += b"\1\1"
        else:
            if version >= FIRST_VERSION_WITH_SESSIONS:
                _write_forgotten(out, request.forgotten_topics_data, version, flexible)
            if version >= FIRST_VERSION_WITH_RACK_ID:
                write_string(out, request.rack_id, flexible)
        if flexible:
            _write_tags(out, request, version)
    except UNENCODABLE as error:
        raise ProtocolError(f"FetchRequest v{version} cannot be encoded: {error}") from error
    return [out], len(out)


def _write_head(out: bytearray, request: FetchRequest, version: int) -> None:
    if version < FIRST_VERSION_WITH_REPLICA_STATE:
        out += _INT32.pack(request.replica_id)
    if version >= FIRST_VERSION_WITH_SESSIONS:
        out += _HEAD_V7.pack(
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation_level,
            request.session_id,
            request.session_epoch,
        )
    else:
        out += _HEAD_V4.pack(
            request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level
        )


def _write_flexible_partitions(out: bytearray, partitions: Sequence[FetchPartition]) -> None:
    pack = _PARTITION_V12_AND_NO_TAGS.pack
    for p in partitions:
        out += pack(
            p.partition,
            p.current_leader_epoch,
            p.fetch_offset,
            p.last_fetched_epoch,
            p.log_start_offset,
            p.partition_max_bytes,
        )


def _write_legacy_partitions(out: bytearray, partitions: Sequence[FetchPartition], version: int) -> None:
    pack = _partition_fields(version).pack
    for p in partitions:
        if version >= 9:
            tail = (p.fetch_offset, p.log_start_offset, p.partition_max_bytes)
            out += pack(p.partition, p.current_leader_epoch, *tail)
        elif version >= 5:
            out += pack(p.partition, p.fetch_offset, p.log_start_offset, p.partition_max_bytes)
        else:
            out += pack(p.partition, p.fetch_offset, p.partition_max_bytes)


def _write_forgotten(out: bytearray, topics: Sequence[ForgottenTopic], version: int, flexible: bool) -> None:
    write_count(out, len(topics), flexible)
    for topic in topics:
        write_topic_key(out, topic.topic, topic.topic_id, version)
        write_int32_array(out, topic.partitions, flexible)
        if flexible:
            out += b"\0"


def _write_tags(out: bytearray, request: FetchRequest, version: int) -> None:
    state = (request.replica_id, request.replica_epoch)
    tags = []
    if request.cluster_id is not None:
        cluster_id = bytearray()
        write_nullable_string(cluster_id, request.cluster_id, True)
        tags.append((0, bytes(cluster_id)))
    elif state == (-1, -1):
        out += b"\0"
        return
    elif version >= FIRST_VERSION_WITH_REPLICA_STATE:
        out += _ONLY_REPLICA_STATE.pack(_ONLY_REPLICA_STATE_START, *state, 0)
        return
    if version >= FIRST_VERSION_WITH_REPLICA_STATE and state != (-1, -1):
        tags.append((1, _REPLICA_STATE.pack(*state) + b"\0"))
    write_tagged_fields(out, tags)
