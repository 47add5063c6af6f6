"""The Produce response: for each partition an error, or the offset of the first record.

From version 8 a refused batch can name the records at fault (KIP-467); from version 10 the answer
of a former leader can name the new one (KIP-951).
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.errors import ProtocolError
from kraft.protocol.leader_hints import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    decode_leader,
    decode_node_endpoints,
    encode_leader,
    encode_node_endpoints,
)
from kraft.protocol.primitives import (
    MALFORMED,
    MAX_ELEMENTS,
    UNENCODABLE,
    Buffer,
    Codec,
    Encoded,
    check_elements,
    check_tag_end,
    read_array_length,
    read_nullable_string,
    read_string,
    read_tag,
    read_tag_count,
    skip_tagged_fields,
    write_count,
    write_nullable_string,
    write_string,
    write_tagged_fields,
)
from kraft.protocol.produce_request import FIRST_FLEXIBLE_VERSION
from kraft.protocol.schema import EMPTY_LIST, Message, message
from kraft.protocol.texts import MESSAGE_CHARACTERS, shortened

FIRST_VERSION_WITH_THROTTLE_TIME = 1
FIRST_VERSION_WITH_RECORD_ERRORS = 8
FIRST_VERSION_WITH_LEADER_HINTS = 10

_INT32 = Struct(">i")


@message
class BatchIndexAndErrorMessage(Message):
    """The fault of one record of a refused batch."""

    batch_index: int = 0
    batch_index_error_message: str | None = None


@message
class PartitionProduceResponse(Message):
    """`log_append_time_ms` is -1 unless the topic's timestamps are those of the append."""

    index: int = 0
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: list[BatchIndexAndErrorMessage] = EMPTY_LIST
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None


@message
class TopicProduceResponse(Message):
    """The partitions of one topic."""

    name: str = ""
    partition_responses: list[PartitionProduceResponse] = EMPTY_LIST


@message
class ProduceResponse(Message):
    """The answer to Produce (0); there is none to acks=0."""

    API_KEY: ClassVar[ApiKey] = ApiKey.PRODUCE

    responses: list[TopicProduceResponse] = EMPTY_LIST
    throttle_time_ms: int = 0
    node_endpoints: list[NodeEndpoint] = EMPTY_LIST


def produce_response_codec(version: int) -> Codec:
    """The codec of one version."""
    return Codec(partial(encode_produce_response, version), partial(decode_produce_response, version))


def _fixed_fields(version: int) -> Struct:
    """index, error_code, base_offset, log_append_time_ms (2+), log_start_offset (5+)."""
    if version >= 5:
        return _FIXED_FIELDS_V5
    return _FIXED_FIELDS_V2 if version >= 2 else _FIXED_FIELDS_V0


_FIXED_FIELDS_V0 = Struct(">ihq")
_FIXED_FIELDS_V2 = Struct(">ihqq")
_FIXED_FIELDS_V5 = Struct(">ihqqq")
_NO_ERRORS_NOR_TAGS = b"\1\0\0"
"""An empty compact array, a null compact string, no tagged fields."""


def encode_produce_response(version: int, response: ProduceResponse) -> Encoded:
    """One part and its size in bytes. Raises ProtocolError."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    out = bytearray()
    try:
        write_count(out, len(response.responses), flexible)
        for topic in response.responses:
            write_string(out, topic.name, flexible)
            write_count(out, len(topic.partition_responses), flexible)
            for partition in topic.partition_responses:
                _write_partition(out, partition, version, flexible)
            if flexible:
                out += b"\0"
        if version >= FIRST_VERSION_WITH_THROTTLE_TIME:
            out += _INT32.pack(response.throttle_time_ms)
        if flexible:
            if response.node_endpoints and version >= FIRST_VERSION_WITH_LEADER_HINTS:
                write_tagged_fields(out, [(0, encode_node_endpoints(response.node_endpoints))])
            else:
                out += b"\0"
    except UNENCODABLE as error:
        raise ProtocolError(f"ProduceResponse v{version} cannot be encoded: {error}") from error
    return [out], len(out)


def _write_partition(
    out: bytearray, partition: PartitionProduceResponse, version: int, flexible: bool
) -> None:
    fixed = (partition.index, partition.error_code, partition.base_offset)
    if (
        flexible
        and len(partition.record_errors) == 0
        and partition.error_message is None
        and partition.current_leader is None
    ):
        out += _FIXED_FIELDS_V5.pack(*fixed, partition.log_append_time_ms, partition.log_start_offset)
        out += _NO_ERRORS_NOR_TAGS
        return
    if version >= 5:
        out += _FIXED_FIELDS_V5.pack(*fixed, partition.log_append_time_ms, partition.log_start_offset)
    elif version >= 2:
        out += _FIXED_FIELDS_V2.pack(*fixed, partition.log_append_time_ms)
    else:
        out += _FIXED_FIELDS_V0.pack(*fixed)
    if version >= FIRST_VERSION_WITH_RECORD_ERRORS:
        write_count(out, len(partition.record_errors), flexible)
        for record_error in partition.record_errors:
            out += _INT32.pack(record_error.batch_index)
            _write_message(out, record_error.batch_index_error_message, flexible)
            if flexible:
                out += b"\0"
        _write_message(out, partition.error_message, flexible)
    if flexible:
        leader = partition.current_leader
        if leader is None or version < FIRST_VERSION_WITH_LEADER_HINTS or leader == LeaderIdAndEpoch():
            out += b"\0"
        else:
            write_tagged_fields(out, [(0, encode_leader(leader))])


def _write_message(out: bytearray, text: str | None, flexible: bool) -> None:
    write_nullable_string(out, None if text is None else shortened(text, MESSAGE_CHARACTERS), flexible)


def decode_produce_response(version: int, buffer: Buffer, position: int) -> tuple[ProduceResponse, int]:
    """Reads a response; returns it and the position behind it. Raises ProtocolError."""
    data = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    flexible = version >= FIRST_FLEXIBLE_VERSION
    topics: list[TopicProduceResponse] = []
    throttle_time_ms = 0
    try:
        count, position = read_array_length(data, position, 3 if flexible else 6, flexible)
        elements = count
        for _ in range(count):
            topic, position = _read_topic(data, position, version, flexible)
            topics.append(topic)
            elements += len(topic.partition_responses)
            if elements > MAX_ELEMENTS:
                check_elements(elements)
        if version >= FIRST_VERSION_WITH_THROTTLE_TIME:
            (throttle_time_ms,) = _INT32.unpack_from(data, position)
            position += 4
        response = ProduceResponse(topics, throttle_time_ms)
        if flexible:
            position = _read_tags(data, position, version, response)
    except MALFORMED as error:
        raise ProtocolError(f"ProduceResponse v{version} is malformed: {error}") from error
    return response, position


def _read_tags(data: memoryview, position: int, version: int, response: ProduceResponse) -> int:
    if data[position] == 0:
        return position + 1
    count, position = read_tag_count(data, position)
    for _ in range(count):
        tag, position, end = read_tag(data, position)
        if tag == 0 and version >= FIRST_VERSION_WITH_LEADER_HINTS:
            response.node_endpoints, position = decode_node_endpoints(data, position)
            check_tag_end("ProduceResponse.node_endpoints", position, end)
        position = end
    return position


def _read_topic(
    data: memoryview, position: int, version: int, flexible: bool
) -> tuple[TopicProduceResponse, int]:
    name, position = read_string(data, position, flexible)
    fixed = _fixed_fields(version)
    count, position = read_array_length(data, position, fixed.size, flexible)
    partitions: list[PartitionProduceResponse] = []
    for _ in range(count):
        partition = PartitionProduceResponse(*fixed.unpack_from(data, position))
        position += fixed.size
        if version >= FIRST_VERSION_WITH_RECORD_ERRORS:
            if flexible and data[position : position + 3] == _NO_ERRORS_NOR_TAGS:  # nearly always
                partitions.append(partition)
                position += 3
                continue
            position = _read_record_errors(data, position, flexible, partition)
        if flexible:
            position = _read_partition_tags(data, position, version, partition)
        partitions.append(partition)
    if flexible:
        position = position + 1 if data[position] == 0 else skip_tagged_fields(data, position)
    return TopicProduceResponse(name, partitions), position


def _read_record_errors(
    data: memoryview, position: int, flexible: bool, partition: PartitionProduceResponse
) -> int:
    count, position = read_array_length(data, position, 6, flexible)
    for _ in range(count):
        (batch_index,) = _INT32.unpack_from(data, position)
        text, position = read_nullable_string(data, position + 4, flexible)
        if flexible:
            position = skip_tagged_fields(data, position)
        partition.record_errors.append(BatchIndexAndErrorMessage(batch_index, text))
    partition.error_message, position = read_nullable_string(data, position, flexible)
    return position


def _read_partition_tags(
    data: memoryview, position: int, version: int, partition: PartitionProduceResponse
) -> int:
    count, position = read_tag_count(data, position)
    for _ in range(count):
        tag, position, end = read_tag(data, position)
        if tag == 0 and version >= FIRST_VERSION_WITH_LEADER_HINTS:
            partition.current_leader, position = decode_leader(data, position)
            check_tag_end("PartitionProduceResponse.current_leader", position, end)
        position = end
    return position
