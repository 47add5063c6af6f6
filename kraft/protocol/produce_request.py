"""The Produce request, decoded without copying a record.

`PartitionProduceData.records` is a view of the frame and keeps the frame alive. Versions 0 to 2, which carry record
formats older than batch v2, are decoded so that they can be refused partition by partition.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import ClassVar

from kraft.protocol.api import APIS, ApiKey
from kraft.protocol.errors import ProtocolError
from kraft.protocol.primitives import (
    MALFORMED,
    MAX_REQUEST_ELEMENTS,
    UNENCODABLE,
    Buffer,
    Codec,
    Encoded,
    check_elements,
    overrun,
    read_array_length,
    read_nullable_string,
    read_string,
    skip_tagged_fields,
    uvarint,
    varint_tail,
    write_count,
    write_nullable_string,
    write_string,
)
from kraft.protocol.schema import EMPTY_LIST, Message, message

FIRST_FLEXIBLE_VERSION = APIS[ApiKey.PRODUCE].flexible_from
FIRST_VERSION_WITH_TRANSACTIONAL_ID = 3

MIN_PARTITION_BYTES = 6
"""A partition index, the length of an empty record set, no tagged fields."""

_ACKS_AND_TIMEOUT = Struct(">hi")
_INDEX_AND_LENGTH = Struct(">ii")
_INDEX_AND_TWO_BYTES = Struct(">iBB")
_INT32 = Struct(">i")


@message
class PartitionProduceData(Message):
    """The record batches for one partition."""

    index: int = 0
    records: Buffer | None = None


@message
class TopicProduceData(Message):
    """The partitions of one topic to write to."""

    name: str = ""
    partition_data: list[PartitionProduceData] = EMPTY_LIST


@message
class ProduceRequest(Message):
    """Produce (0). `acks` is 0, 1, or -1 for all of the ISR."""

    API_KEY: ClassVar[ApiKey] = ApiKey.PRODUCE

    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[TopicProduceData] = EMPTY_LIST


def produce_request_codec(version: int) -> Codec:
    """The codec of one version."""
    return Codec(partial(encode_produce_request, version), partial(decode_produce_request, version))


def decode_produce_request(version: int, buffer: Buffer, position: int) -> tuple[ProduceRequest, int]:
    """Reads a request; returns it and the position behind it. Raises ProtocolError."""
    data = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    flexible = version >= FIRST_FLEXIBLE_VERSION
    transactional_id = None
    try:
        if flexible and data[position] == 0:  # null, as of all but transactional producers
            position += 1
        elif version >= FIRST_VERSION_WITH_TRANSACTIONAL_ID:
            transactional_id, position = read_nullable_string(data, position, flexible)
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(data, position)
        position += _ACKS_AND_TIMEOUT.size
        count, position = read_array_length(
            data, position, 3 if flexible else 6, flexible, MAX_REQUEST_ELEMENTS
        )
        topics: list[TopicProduceData] = []
        elements = count
        for _ in range(count):
            name, position = read_string(data, position, flexible)
            if flexible:
                partitions, position = _compact_partitions(data, position)
            else:
                partitions, position = _legacy_partitions(data, position)
            topics.append(TopicProduceData(name, partitions))
            elements += len(partitions)
            if elements > MAX_REQUEST_ELEMENTS:
                check_elements(elements, MAX_REQUEST_ELEMENTS)
        if flexible:
            position = position + 1 if data[position] == 0 else skip_tagged_fields(data, position)
    except MALFORMED as error:
        raise ProtocolError(f"ProduceRequest v{version} is malformed: {error}") from error
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def _compact_partitions(data: memoryview, position: int) -> tuple[list[PartitionProduceData], int]:
    """Reads a topic's partitions and its tagged fields; the loop that every batch passes."""
    count, position = read_array_length(data, position, MIN_PARTITION_BYTES, True, MAX_REQUEST_ELEMENTS)
    end = len(data)
    unpack = _INDEX_AND_TWO_BYTES.unpack_from
    new = PartitionProduceData.__new__
    partitions = []
    for _ in range(count):
        index, length, second = unpack(data, position)
        position += 5
        if length > 127:  # lengths of two bytes, up to 16 KiB, are decoded without a call
            if second < 128:
                length += (second << 7) - 128
                position += 1
            else:
                length, position = varint_tail(data, position, length)
        partition = new(PartitionProduceData)
        partition.index = index
        if length:
            stop = position + length - 1
            if stop > end:
                raise overrun(f"the record set of partition {index}", length - 1, end - position)
            partition.records = data[position:stop]
            position = stop
        else:
            partition.records = None
        partitions.append(partition)
        position = skip_tagged_fields(data, position) if data[position] else position + 1
    return partitions, skip_tagged_fields(data, position) if data[position] else position + 1


def _legacy_partitions(data: memoryview, position: int) -> tuple[list[PartitionProduceData], int]:
    count, position = read_array_length(data, position, 8, False, MAX_REQUEST_ELEMENTS)
    end = len(data)
    partitions = []
    for _ in range(count):
        index, length = _INDEX_AND_LENGTH.unpack_from(data, position)
        position += 8
        stop = position + max(length, 0)
        if stop > end:
            raise overrun(f"the record set of partition {index}", length, end - position)
        partitions.append(PartitionProduceData(index, data[position:stop] if length >= 0 else None))
        position = stop
    return partitions, position


def encode_produce_request(version: int, request: ProduceRequest) -> Encoded:
    """The parts of the request in order, record sets as they are, and their total size in bytes."""
    flexible = version >= FIRST_FLEXIBLE_VERSION
    out = bytearray()
    parts: list[Buffer] = []
    try:
        if version >= FIRST_VERSION_WITH_TRANSACTIONAL_ID:
            write_nullable_string(out, request.transactional_id, flexible)
        out += _ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms)
        write_count(out, len(request.topic_data), flexible)
        for topic in request.topic_data:
            write_string(out, topic.name, flexible)
            write_count(out, len(topic.partition_data), flexible)
            for partition in topic.partition_data:
                out += _INT32.pack(partition.index)
                out = _write_records(out, partition.records, flexible, parts)
            if flexible:
                out += b"\0"
        if flexible:
            out += b"\0"
    except UNENCODABLE as error:
        raise ProtocolError(f"ProduceRequest v{version} cannot be encoded: {error}") from error
    parts.append(out)
    return list(parts), sum(len(part) for part in parts)


def _write_records(out: bytearray, records: Buffer | None, flexible: bool, parts: list[Buffer]) -> bytearray:
    """Appends a record set as a part of its own; returns the buffer to go on with."""
    length = -1 if records is None else len(records)
    out += uvarint(length + 1) if flexible else _INT32.pack(length)
    if records:
        parts += (out, records)
        out = bytearray()
    if flexible:
        out += b"\0"
    return out
