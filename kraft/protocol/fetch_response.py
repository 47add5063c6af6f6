"""The Fetch response, whose record sets may be ranges of files and are never copied either way.

Encoding returns parts: small ones in memory, and between them each partition's records as given, so that the network
lane can send files from the page cache. Decoding gives views.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.errors import ProtocolError
from kraft.protocol.fetch_request import FIRST_FLEXIBLE_VERSION, read_topic_key, write_topic_key
from kraft.protocol.leader_hints import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    decode_leader,
    decode_node_endpoints,
    encode_leader,
    encode_node_endpoints,
)
from kraft.protocol.primitives import (
    COPY_BELOW_BYTES,
    MALFORMED,
    MAX_ELEMENTS,
    UNENCODABLE,
    ZERO_UUID,
    Buffer,
    Codec,
    Encoded,
    Segment,
    Slice,
    check_elements,
    check_tag_end,
    overrun,
    read_array_length,
    read_count,
    read_tag,
    read_tag_count,
    skip_tagged_fields,
    uvarint,
    varint_tail,
    write_count,
    write_tagged_fields,
)
from kraft.protocol.schema import EMPTY_LIST, Message, message

FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_PREFERRED_READ_REPLICA = 11
FIRST_VERSION_WITH_NODE_ENDPOINTS = 16

_BYTES_LIKE = (bytes, bytearray, memoryview)

_INT32 = Struct(">i")
_HEAD_V7 = Struct(">ihi")
_PARTITION_V4 = Struct(">ihqq")
_PARTITION_V5 = Struct(">ihqqq")
_PARTITION_V12 = Struct(">ihqqqBi")
"""The fixed fields, with null aborted transactions and the preferred read replica behind them."""
_ABORTED = Struct(">qq")
_ABORTED_WITH_TAGS = Struct(">qqx")
_EPOCH_END = Struct(">iq")
_SNAPSHOT = Struct(">qi")


@message
class EpochEndOffset(Message):
    """The point where the fetcher's log departs from the leader's: the largest epoch up to it, and its end."""

    epoch: int = -1
    end_offset: int = -1


@message
class SnapshotId(Message):
    """The snapshot to fetch instead, from a log whose start has passed the requested offset."""

    end_offset: int = -1
    epoch: int = -1


@message
class AbortedTransaction(Message):
    """Readers skip this producer's records from this offset to the next abort marker."""

    producer_id: int = 0
    first_offset: int = 0


@message
class PartitionData(Message):
    """One partition's records, or why there are none.

    `records` is None, bytes, or slices of files in order; decoded, it is None or a memoryview.
    `diverging_epoch`, `current_leader` and `snapshot_id` are None when the answer lacks them.
    """

    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    snapshot_id: SnapshotId | None = None
    aborted_transactions: list[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    records: Buffer | Sequence[Slice] | None = b""


@message
class FetchableTopicResponse(Message):
    """The partitions of one topic, named by `topic` up to version 12, by `topic_id` from 13 on."""

    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionData] = EMPTY_LIST


@message
class FetchResponse(Message):
    """The answer to Fetch (1)."""

    API_KEY: ClassVar[ApiKey] = ApiKey.FETCH

    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: list[FetchableTopicResponse] = EMPTY_LIST
    node_endpoints: list[NodeEndpoint] = EMPTY_LIST


def fetch_response_codec(version: int) -> Codec:
    """The codec of one version."""
    return Codec(partial(encode_fetch_response, version), partial(decode_fetch_response, version))


def encode_fetch_response(version: int, response: FetchResponse) -> Encoded:
    """The parts of the response in order and their total size in bytes. Raises ProtocolError.

    Slices must not change their length afterwards.
    """
    flexible = version >= FIRST_FLEXIBLE_VERSION
    parts: list[Segment] = []
    sent_bytes = 0
    out = bytearray()
    try:
        if version >= FIRST_VERSION_WITH_SESSIONS:
            out += _HEAD_V7.pack(response.throttle_time_ms, response.error_code, response.session_id)
        else:
            out += _INT32.pack(response.throttle_time_ms)
        write_count(out, len(response.responses), flexible)
        for topic in response.responses:
            write_topic_key(out, topic.topic, topic.topic_id, version)
            write_count(out, len(topic.partitions), flexible)
            for data in topic.partitions:
                _write_fields(out, data, version, flexible)
                out, part_bytes = _write_records(out, data.records, flexible, parts)
                sent_bytes += part_bytes
                if flexible:
                    if (
                        data.diverging_epoch is None
                        and data.current_leader is None
                        and data.snapshot_id is None
                    ):
                        out += b"\0"
                    else:
                        _write_partition_tags(out, data)
            if flexible:
                out += b"\0"
        if flexible:
            _write_tags(out, response, version)
    except UNENCODABLE as error:
        raise ProtocolError(f"FetchResponse v{version} cannot be encoded: {error}") from error
    if out:
        parts.append(out)
    return parts, sent_bytes + len(out)


def _write_fields(out: bytearray, data: PartitionData, version: int, flexible: bool) -> None:
    """Appends the fields before the records."""
    aborted = data.aborted_transactions
    if flexible and aborted is None:
        out += _PARTITION_V12.pack(
            data.partition_index,
            data.error_code,
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            0,
            data.preferred_read_replica,
        )
        return
    fields = (data.partition_index, data.error_code, data.high_watermark, data.last_stable_offset)
    if version >= 5:
        out += _PARTITION_V5.pack(*fields, data.log_start_offset)
    else:
        out += _PARTITION_V4.pack(*fields)
    write_count(out, -1 if aborted is None else len(aborted), flexible)
    pack = _ABORTED_WITH_TAGS.pack if flexible else _ABORTED.pack
    for transaction in aborted or ():
        out += pack(transaction.producer_id, transaction.first_offset)
    if version >= FIRST_VERSION_WITH_PREFERRED_READ_REPLICA:
        out += _INT32.pack(data.preferred_read_replica)
    elif data.preferred_read_replica != -1:
        raise ProtocolError(f"FetchResponse v{version} cannot name a preferred read replica")
    if not flexible and (data.diverging_epoch or data.snapshot_id):
        raise ProtocolError(f"FetchResponse v{version} cannot carry a diverging epoch or a snapshot id")


def _write_records(
    out: bytearray, records: Buffer | Sequence[Slice] | None, flexible: bool, parts: list[Segment]
) -> tuple[bytearray, int]:
    """Appends a record set: to `out` if it is short or null, else behind it as parts of their own.

    Returns the buffer to go on with, and how many bytes of parts have been closed.
    """
    if records is None:
        length = -1
    elif isinstance(records, _BYTES_LIKE):
        length = len(records)
    else:
        length = sum([piece.length for piece in records])
    out += uvarint(length + 1) if flexible else _INT32.pack(length)
    if records is None or length == 0:
        return out, 0
    if not isinstance(records, _BYTES_LIKE):
        parts += (out, *records)
    elif length < COPY_BELOW_BYTES:
        out += records
        return out, 0
    else:
        parts += (out, records)
    return bytearray(), len(out) + length


def _write_partition_tags(out: bytearray, data: PartitionData) -> None:
    diverging, leader, snapshot = data.diverging_epoch, data.current_leader, data.snapshot_id
    tags = []
    if diverging is not None and diverging != EpochEndOffset():
        tags.append((0, _EPOCH_END.pack(diverging.epoch, diverging.end_offset) + b"\0"))
    if leader is not None and leader != LeaderIdAndEpoch():
        tags.append((1, encode_leader(leader)))
    if snapshot is not None and snapshot != SnapshotId():
        tags.append((2, _SNAPSHOT.pack(snapshot.end_offset, snapshot.epoch) + b"\0"))
    write_tagged_fields(out, tags)


def _write_tags(out: bytearray, response: FetchResponse, version: int) -> None:
    if response.node_endpoints and version >= FIRST_VERSION_WITH_NODE_ENDPOINTS:
        write_tagged_fields(out, [(0, encode_node_endpoints(response.node_endpoints))])
    else:
        out += b"\0"


def decode_fetch_response(version: int, buffer: Buffer, position: int) -> tuple[FetchResponse, int]:
    """Reads a response; returns it and the position behind it. Raises ProtocolError."""
    data = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    flexible = version >= FIRST_FLEXIBLE_VERSION
    error_code = session_id = 0
    topics: list[FetchableTopicResponse] = []
    try:
        if version >= FIRST_VERSION_WITH_SESSIONS:
            throttle_time_ms, error_code, session_id = _HEAD_V7.unpack_from(data, position)
            position += _HEAD_V7.size
        else:
            (throttle_time_ms,) = _INT32.unpack_from(data, position)
            position += _INT32.size
        count, position = read_array_length(data, position, 3 if flexible else 6, flexible)
        elements = count
        for _ in range(count):
            name, topic_id, position = read_topic_key(data, position, version)
            inner, position = read_array_length(data, position, 24, flexible)
            elements += inner
            if elements > MAX_ELEMENTS:
                check_elements(elements)
            partitions: list[PartitionData] = []
            for _ in range(inner):
                if flexible:
                    partition, position = _read_partition(data, position)
                else:
                    partition, position = _read_legacy_partition(data, position, version)
                partitions.append(partition)
            if flexible:
                position = position + 1 if data[position] == 0 else skip_tagged_fields(data, position)
            topics.append(FetchableTopicResponse(name, topic_id, partitions))
        response = FetchResponse(throttle_time_ms, error_code, session_id, topics)
        if flexible:
            position = _read_tags(data, position, version, response)
    except MALFORMED as error:
        raise ProtocolError(f"FetchResponse v{version} is malformed: {error}") from error
    return response, position


def _read_partition(data: memoryview, position: int) -> tuple[PartitionData, int]:
    """Reads one partition of a flexible version."""
    fields = _PARTITION_V12.unpack_from(data, position)
    index, error_code, high_watermark, last_stable_offset, log_start_offset, aborted_length, preferred = (
        fields
    )
    aborted = None
    if aborted_length == 0:  # null, as nearly always
        position += _PARTITION_V12.size
    else:
        aborted, position = _read_aborted(data, position + _PARTITION_V5.size, True)
        (preferred,) = _INT32.unpack_from(data, position)
        position += _INT32.size
    length = data[position]
    position += 1
    if length > 127:
        length, position = varint_tail(data, position, length)
    records, position = _read_records(data, position, length - 1, index)
    partition = PartitionData(
        index, error_code, high_watermark, last_stable_offset, log_start_offset,
        None, None, None, aborted, preferred, records,
    )  # fmt: skip
    return partition, position + 1 if data[position] == 0 else _read_partition_tags(data, position, partition)


def _read_legacy_partition(data: memoryview, position: int, version: int) -> tuple[PartitionData, int]:
    fields = _PARTITION_V5 if version >= 5 else _PARTITION_V4
    partition = PartitionData(*fields.unpack_from(data, position))
    partition.aborted_transactions, position = _read_aborted(data, position + fields.size, False)
    if version >= FIRST_VERSION_WITH_PREFERRED_READ_REPLICA:
        (partition.preferred_read_replica,) = _INT32.unpack_from(data, position)
        position += _INT32.size
    (length,) = _INT32.unpack_from(data, position)
    index = partition.partition_index
    partition.records, position = _read_records(data, position + _INT32.size, length, index)
    return partition, position


def _read_records(data: memoryview, position: int, length: int, index: int) -> tuple[memoryview | None, int]:
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise overrun(f"the record set of partition {index}", length, len(data) - position)
    return data[position:end], end


def _read_aborted(
    data: memoryview, position: int, flexible: bool
) -> tuple[list[AbortedTransaction] | None, int]:
    if flexible and data[position] == 0:
        return None, position + 1
    count, position = read_count(data, position, _ABORTED.size, flexible)
    if count < 0:
        return None, position
    aborted = []
    for _ in range(count):
        aborted.append(AbortedTransaction(*_ABORTED.unpack_from(data, position)))
        position += _ABORTED.size
        if flexible:
            position = skip_tagged_fields(data, position)
    return aborted, position


def _read_partition_tags(data: memoryview, position: int, partition: PartitionData) -> int:
    count, position = read_tag_count(data, position)
    for _ in range(count):
        tag, position, end = read_tag(data, position)
        if tag == 0:
            partition.diverging_epoch = EpochEndOffset(*_EPOCH_END.unpack_from(data, position))
            position = skip_tagged_fields(data, position + _EPOCH_END.size)
        elif tag == 1:
            partition.current_leader, position = decode_leader(data, position)
        elif tag == 2:
            partition.snapshot_id = SnapshotId(*_SNAPSHOT.unpack_from(data, position))
            position = skip_tagged_fields(data, position + _SNAPSHOT.size)
        else:
            position = end
        check_tag_end("FetchResponse.partitions", position, end)
    return position


def _read_tags(data: memoryview, position: int, version: int, response: FetchResponse) -> int:
    if data[position] == 0:
        return position + 1
    count, position = read_tag_count(data, position)
    for _ in range(count):
        tag, position, end = read_tag(data, position)
        if tag == 0 and version >= FIRST_VERSION_WITH_NODE_ENDPOINTS:
            response.node_endpoints, position = decode_node_endpoints(data, position)
            check_tag_end("FetchResponse.node_endpoints", position, end)
        position = end
    return position
