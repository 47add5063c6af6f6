"""Produce: records are views of the frame, old versions can be refused, hints reach the client."""

from __future__ import annotations

import pytest

from kraft.protocol import (
    ApiKey,
    ErrorCode,
    ProtocolError,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kraft.protocol.messages import request_codec
from kraft.protocol.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)


def request(*records: bytes | None) -> ProduceRequest:
    partitions = [PartitionProduceData(index, data) for index, data in enumerate(records)]
    return ProduceRequest(None, -1, 30_000, [TopicProduceData("topic", partitions)])


def decoded(data: bytes | memoryview, version: int) -> ProduceRequest:
    value = decode_request(ApiKey.PRODUCE, version, data)
    assert isinstance(value, ProduceRequest)
    return value


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_records_are_not_copied(version: int) -> None:
    frame = bytearray(encode_request(request(b"a" * 600, b"b" * 20_000), version))
    value = decoded(memoryview(frame), version)
    for partition in value.topic_data[0].partition_data:
        assert isinstance(partition.records, memoryview)
        assert partition.records.obj is frame
    frame[frame.index(b"aaa")] = ord("A")
    first = value.topic_data[0].partition_data[0].records
    assert first is not None
    assert bytes(first[:2]) == b"Aa"


@pytest.mark.parametrize("version", [0, 2, 3, 8, 9, 12])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_151, 2_097_152])
def test_record_sets_of_sizes_at_which_the_length_grows(version: int, size: int) -> None:
    value = request(b"r" * size, None, b"tail")
    assert decoded(encode_request(value, version), version) == value


@pytest.mark.parametrize("version", range(13))
def test_an_empty_request(version: int) -> None:
    for value in (ProduceRequest(), ProduceRequest(topic_data=[TopicProduceData("t")])):
        assert decoded(encode_request(value, version), version) == value


def test_encoding_hands_on_large_record_sets_as_they_are() -> None:
    records = bytes(100_000)
    parts, size_bytes = request_codec(ApiKey.PRODUCE, 9).encode(request(records))
    assert any(part is records for part in parts)
    assert size_bytes == len(encode_request(request(records), 9))


def test_versions_before_batch_v2_are_read_and_answered_so_that_they_can_be_refused() -> None:
    data = bytes.fromhex("0001 000003e8 00000001 0001 74 00000001 00000005 00000003 010203")
    for version in (0, 1, 2):
        value = decoded(data, version)
        assert (value.transactional_id, value.acks, value.timeout_ms) == (None, 1, 1000)
        assert value.topic_data == [TopicProduceData("t", [PartitionProduceData(5, b"\1\2\3")])]
        assert encode_request(value, version) == data
    refusal = PartitionProduceResponse(5, ErrorCode.UNSUPPORTED_VERSION, -1)
    answer = ProduceResponse([TopicProduceResponse("t", [refusal])], throttle_time_ms=2)
    version_0 = "00000001 0001 74 00000001 00000005 0023 ffffffffffffffff"
    for version, tail in enumerate(("", " 00000002", " ffffffffffffffff 00000002")):
        parts, _ = encode_response(answer, version)
        assert b"".join(parts) == bytes.fromhex(version_0 + tail)  # type: ignore[arg-type]
        again = decode_response(ApiKey.PRODUCE, version, bytes.fromhex(version_0 + tail))
        assert isinstance(again, ProduceResponse)
        assert again.responses == answer.responses


def test_unknown_tagged_fields_are_skipped_at_every_level() -> None:
    tagged = "01 63 02 abcd"
    data = bytes.fromhex(f"00 ffff 00000001 02 02 74 02 00000007 03 aabb {tagged} {tagged} {tagged}")
    assert decoded(data, 9) == ProduceRequest(
        None, -1, 1, [TopicProduceData("t", [PartitionProduceData(7, b"\xaa\xbb")])]
    )


@pytest.mark.parametrize(
    "data",
    [
        "00 ffff 00000001 02 02 74 02 00000007 7f aabb 00 00 00",  # records longer than the rest
        "00 ffff 00000001 02 02 74 02 00000007 ff7f aabb 00 00 00",
        "00 ffff 00000001 02 02 74 02 00000007 ffffffffff aabb 00 00 00",
        "00 ffff 00000001 02 02 74 7f 00000007 03 aabb 00 00 00",  # more partitions than fit
        "00 ffff 00000001 7f 02 74 02 00000007 03 aabb 00 00 00",  # more topics than fit
        "00 ffff 00000001 00 00",  # null topics
        "00 ffff 00000001 02 00 02 00000007 03 aabb 00 00 00",  # a topic without a name
        "00 ffff 00000001 02 02 74 00 00 00 00 00 00",  # null partitions
        "00 ffff 00000001 02 02 ff 01 00 00 00",  # a name that is not UTF-8
        "00 ffff 00000001 01 01 63 05 aabb",  # a tagged field longer than the rest
    ],
)
def test_malformed_requests(data: str) -> None:
    with pytest.raises(ProtocolError):
        decoded(bytes.fromhex(data), 9)


def test_a_forged_count_is_refused_before_the_first_element_is_read() -> None:
    for version, count in ((8, "7fffffff"), (9, "ffffffff07")):
        head = "ffff" if version < 9 else "00"
        with pytest.raises(ProtocolError, match=r"topic_data needs at least \d{10,11} bytes"):
            decoded(bytes.fromhex(f"{head} ffff 00000001 {count}") + bytes(40), version)


def test_a_response_that_names_the_records_at_fault_and_the_new_leader() -> None:
    partition = PartitionProduceResponse(
        index=1,
        error_code=ErrorCode.INVALID_RECORD,
        record_errors=[BatchIndexAndErrorMessage(3, "no key"), BatchIndexAndErrorMessage(4)],
        error_message="bad records",
        current_leader=LeaderIdAndEpoch(2, 7),
    )
    value = ProduceResponse(
        [TopicProduceResponse("t", [partition])], node_endpoints=[NodeEndpoint(2, "host", 9092, "rack")]
    )
    for version in (10, 11, 12):
        parts, _ = encode_response(value, version)
        assert decode_response(ApiKey.PRODUCE, version, bytes(parts[0])) == value  # type: ignore[arg-type]


def test_hints_are_left_out_where_the_version_has_none() -> None:
    partition = PartitionProduceResponse(current_leader=LeaderIdAndEpoch(2, 7))
    bare = ProduceResponse([TopicProduceResponse("t", [PartitionProduceResponse()])])
    value = ProduceResponse([TopicProduceResponse("t", [partition])], node_endpoints=[NodeEndpoint(2)])
    for version in (3, 8, 9):
        assert encode_response(value, version) == encode_response(bare, version)
    unknown_leader = ProduceResponse(
        [TopicProduceResponse("t", [PartitionProduceResponse(current_leader=LeaderIdAndEpoch())])]
    )
    assert encode_response(unknown_leader, 12) == encode_response(bare, 12)


def test_what_cannot_be_encoded() -> None:
    with pytest.raises(ProtocolError, match="ProduceRequest v9: name must not be null"):
        encode_request(ProduceRequest(topic_data=[TopicProduceData(name=None)]), 9)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="ProduceResponse v9 cannot be encoded"):
        encode_response(ProduceResponse(throttle_time_ms=2**40), 9)
