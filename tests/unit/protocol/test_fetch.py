"""Fetch: record sets leave as file slices or views, and a follower's identity fits every version."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kraft.protocol import (
    SUPPORTED,
    ApiKey,
    ProtocolError,
    Segment,
    decode_request,
    decode_response,
    decode_response_header,
    encode_request,
    encode_response,
    encode_response_frame,
)
from kraft.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from kraft.protocol.primitives import COPY_BELOW_BYTES

VERSIONS = list(SUPPORTED[ApiKey.FETCH])
TOPIC_ID = bytes(range(16))


class FakeSlice:
    """Stands for a range of a file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def length(self) -> int:
        return len(self.data)


def contents(parts: Sequence[Segment]) -> bytes:
    return b"".join(part.data if isinstance(part, FakeSlice) else part for part in parts)  # type: ignore[misc]


def response(*partitions: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse("topic", TOPIC_ID, list(partitions))])


def decoded_response(data: bytes, version: int) -> FetchResponse:
    value = decode_response(ApiKey.FETCH, version, data)
    assert isinstance(value, FetchResponse)
    return value


@pytest.mark.parametrize("version", VERSIONS)
def test_file_slices_are_handed_on_in_order(version: int) -> None:
    slices = [FakeSlice(b"a" * 100_000), FakeSlice(b"b" * 10), FakeSlice(b"c" * 100_000)]
    value = response(
        PartitionData(0, records=slices[:2]),
        PartitionData(1, records=b""),
        PartitionData(2, records=slices[2:]),
    )
    in_memory = response(
        PartitionData(0, records=b"a" * 100_000 + b"b" * 10),
        PartitionData(1, records=b""),
        PartitionData(2, records=b"c" * 100_000),
    )
    parts, size_bytes = encode_response(value, version)
    assert [part for part in parts if isinstance(part, FakeSlice)] == slices
    assert contents(parts) == contents(encode_response(in_memory, version)[0])
    assert size_bytes == len(contents(parts))


@pytest.mark.parametrize("version", VERSIONS)
def test_large_record_sets_are_not_copied_and_small_ones_are_not_parts(version: int) -> None:
    large, small = bytes(COPY_BELOW_BYTES), bytes(COPY_BELOW_BYTES - 1)
    view = memoryview(bytearray(50_000))
    partitions = [PartitionData(i, records=records) for i, records in enumerate((large, small, view, None))]
    parts, size_bytes = encode_response(response(*partitions), version)
    assert parts[1] is large
    assert parts[3] is view
    assert len(parts) == 5
    data = contents(parts)
    assert size_bytes == len(data)
    assert [p.records for p in decoded_response(data, version).responses[0].partitions] == [
        large,
        small,
        view,
        None,
    ]


def test_an_empty_sequence_of_slices_is_an_empty_record_set() -> None:
    for version in VERSIONS:
        empty = encode_response(response(PartitionData(records=[])), version)
        assert empty == encode_response(response(PartitionData(records=b"")), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_is_the_header_and_the_parts(version: int) -> None:
    value = response(PartitionData(records=[FakeSlice(b"r" * 5_000)]))
    parts, size_bytes = encode_response_frame(value, version, correlation_id=9)
    data = contents(parts)
    assert len(data) == size_bytes
    assert int.from_bytes(data[:4], "big") == size_bytes - 4
    correlation_id, position = decode_response_header(ApiKey.FETCH, version, data[4:])
    assert correlation_id == 9
    assert data[4 + position :] == contents(encode_response(value, version)[0])
    assert len(parts) == len(encode_response(value, version)[0])


def test_decoded_records_are_views() -> None:
    data = contents(encode_response(response(PartitionData(records=b"r" * 5_000)), 12)[0])
    records = decoded_response(data, 12).responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is data


def test_everything_that_a_partition_can_say() -> None:
    partition = PartitionData(
        partition_index=1,
        error_code=6,
        high_watermark=100,
        last_stable_offset=90,
        log_start_offset=10,
        diverging_epoch=EpochEndOffset(3, 50),
        current_leader=LeaderIdAndEpoch(2, 7),
        snapshot_id=SnapshotId(40, 2),
        aborted_transactions=[AbortedTransaction(1000, 5), AbortedTransaction(1001, 6)],
        preferred_read_replica=3,
        records=b"records",
    )
    value = response(partition)
    value.node_endpoints = [NodeEndpoint(2, "host", 9092), NodeEndpoint(3, "other", 9093, "rack")]
    data = contents(encode_response(value, 16)[0])
    value.responses[0].topic = ""
    assert decoded_response(data, 16) == value


def test_structs_of_defaults_are_absent() -> None:
    explicit = PartitionData(
        diverging_epoch=EpochEndOffset(), current_leader=LeaderIdAndEpoch(), snapshot_id=SnapshotId()
    )
    assert encode_response(response(explicit), 16) == encode_response(response(PartitionData()), 16)


def test_an_old_reader_gets_no_answer_that_lacks_what_it_must_know() -> None:
    for partition in (
        PartitionData(diverging_epoch=EpochEndOffset(3, 50)),
        PartitionData(snapshot_id=SnapshotId(40, 2)),
    ):
        with pytest.raises(ProtocolError, match="cannot be sent in version 11"):
            encode_response(response(partition), 11)
    with pytest.raises(ProtocolError, match="preferred_read_replica cannot be sent in version 10"):
        encode_response(response(PartitionData(preferred_read_replica=1)), 10)
    hint = response(PartitionData(current_leader=LeaderIdAndEpoch(2, 7)))
    assert encode_response(hint, 11) == encode_response(response(PartitionData()), 11)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_followers_identity_stands_where_the_version_has_it(version: int) -> None:
    request = FetchRequest(replica_id=3, replica_epoch=77)
    again = decode_request(ApiKey.FETCH, version, encode_request(request, version))
    assert isinstance(again, FetchRequest)
    assert again.replica_id == 3
    assert again.replica_epoch == (77 if version >= 15 else -1)
    consumer = decode_request(ApiKey.FETCH, version, encode_request(FetchRequest(), version))
    assert isinstance(consumer, FetchRequest)
    assert (consumer.replica_id, consumer.replica_epoch) == (-1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_have_names_or_ids(version: int) -> None:
    request = FetchRequest(
        cluster_id="cluster" if version >= 12 else None,
        session_id=5,
        session_epoch=6,
        topics=[FetchTopic("topic", TOPIC_ID, [FetchPartition(1, fetch_offset=5)])],
        forgotten_topics_data=[ForgottenTopic("gone", TOPIC_ID, [1, 2])],
        rack_id="rack",
    )
    again = decode_request(ApiKey.FETCH, version, encode_request(request, version))
    assert isinstance(again, FetchRequest)
    topic = again.topics[0]
    assert (topic.topic, topic.topic_id) == (("", TOPIC_ID) if version >= 13 else ("topic", bytes(16)))
    assert topic.partitions[0] == FetchPartition(1, fetch_offset=5)
    if version >= 7:
        assert (again.session_id, again.session_epoch) == (5, 6)
        assert again.forgotten_topics_data[0].partitions == [1, 2]
    else:
        assert (again.session_id, again.session_epoch, again.forgotten_topics_data) == (0, -1, [])
    assert again.rack_id == ("rack" if version >= 11 else "")
    assert again.cluster_id == request.cluster_id


def test_values_that_do_not_fit() -> None:
    with pytest.raises(ProtocolError, match="a UUID has 16 bytes, not 3"):
        encode_response(FetchResponse(responses=[FetchableTopicResponse(topic_id=b"abc")]), 13)
    with pytest.raises(ProtocolError, match="FetchResponse v12 cannot be encoded"):
        encode_response(response(PartitionData(high_watermark=2**63)), 12)
    with pytest.raises(ProtocolError, match="FetchRequest v12: rack_id must not be null"):
        encode_request(FetchRequest(rack_id=None), 12)  # type: ignore[arg-type]
