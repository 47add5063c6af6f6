"""From frame to message and back, and the answer to a client that is newer than this broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraft.protocol import (
    SUPPORTED,
    ApiKey,
    ErrorCode,
    ProtocolError,
    RequestHeader,
    UnsupportedVersion,
    decode_request,
    decode_request_header,
    decode_response,
    decode_response_header,
    encode_request,
    encode_request_frame,
    encode_response_frame,
)
from kraft.protocol.fetch import FetchRequest, FetchTopic, ForgottenTopic
from kraft.protocol.primitives import uvarint
from kraft.protocol.produce import ProduceRequest, TopicProduceData
from kraft.protocol.schema import Message
from kraft.protocol.schemas.api_versions import (
    UNSUPPORTED_VERSION_ANSWER_VERSION,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
    supported_api_versions,
    unsupported_version_response,
)
from kraft.protocol.schemas.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraft.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest


def test_a_request_and_its_answer_through_frames() -> None:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    frame = encode_request_frame(request, 12, correlation_id=4, client_id="me")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = decode_request_header(memoryview(frame)[4:])
    assert header == RequestHeader(ApiKey.METADATA, 12, 4, "me")
    assert decode_request(header.api_key, header.api_version, memoryview(frame)[4:], position) == request

    answer = MetadataResponse(
        cluster_id="c", topics=[MetadataResponseTopic(name=f"t{n}") for n in range(500)]
    )
    parts, size_bytes = encode_response_frame(answer, 12, correlation_id=4)
    data = b"".join(parts)  # type: ignore[arg-type]
    assert size_bytes == len(data) == int.from_bytes(data[:4], "big") + 4
    correlation_id, position = decode_response_header(ApiKey.METADATA, 12, data[4:])
    assert correlation_id == 4
    assert decode_response(ApiKey.METADATA, 12, data, 4 + position) == answer


def test_bytes_behind_a_message_are_ignored() -> None:
    assert decode_request(ApiKey.API_VERSIONS, 0, b"trailing") == ApiVersionsRequest()


def test_a_client_from_the_future_is_told_our_versions_in_version_0() -> None:
    frame = encode_request_frame(ApiVersionsRequest("client", "9"), 4, correlation_id=8, client_id=None)
    from_the_future = frame[4:6] + (5).to_bytes(2, "big") + frame[8:]
    header, position = decode_request_header(from_the_future)
    assert header.api_version == 5
    with pytest.raises(UnsupportedVersion):
        decode_request(header.api_key, header.api_version, from_the_future, position)
    parts, _ = encode_response_frame(
        unsupported_version_response(),
        UNSUPPORTED_VERSION_ANSWER_VERSION,
        correlation_id=header.correlation_id,
    )
    data = b"".join(parts)  # type: ignore[arg-type]
    apis = len(SUPPORTED).to_bytes(4, "big").hex(" ")
    assert data[4:16].hex(" ") == f"00 00 00 08 00 23 {apis} 00 00"  # header v0, error 35, the APIs, Produce
    answer = decode_response(ApiKey.API_VERSIONS, 0, data, 8)
    assert isinstance(answer, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    own = next(api for api in answer.api_keys if api.api_key == ApiKey.API_VERSIONS)
    assert (own.min_version, own.max_version) == (0, 4)


def test_every_served_api_is_listed_in_order() -> None:
    listed = supported_api_versions()
    assert [api.api_key for api in listed] == sorted(SUPPORTED)
    assert all(
        range(api.min_version, api.max_version + 1) == SUPPORTED[ApiKey(api.api_key)] for api in listed
    )


def test_features_are_tagged_fields_from_version_3_on() -> None:
    value = ApiVersionsResponse(supported_features=[SupportedFeatureKey("transaction.version", 0, 2)])
    for version, kept in ((2, []), (3, value.supported_features), (4, value.supported_features)):
        parts, _ = encode_response_frame(value, version, correlation_id=1)
        answer = decode_response(ApiKey.API_VERSIONS, version, b"".join(parts), 8)  # type: ignore[arg-type]
        assert isinstance(answer, ApiVersionsResponse)
        assert answer.supported_features == kept


def test_a_metadata_answer_byte_for_byte() -> None:
    answer = MetadataResponse(
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name="t",
                topic_id=bytes(15) + b"\x07",
                partitions=[MetadataResponsePartition(0, 2, 1, 5, [1, 2], [1], [2])],
            )
        ],
    )
    parts, _ = encode_response_frame(answer, 12, correlation_id=1)
    assert b"".join(parts) == bytes.fromhex(  # type: ignore[arg-type]
        "0000004e 00000001 00"  # length, correlation id, tags
        "00000000 01 00 00000001 02"  # throttle time, no brokers, no cluster id, controller, one topic
        "0000 02 74 00000000000000000000000000000007 00 02"  # error, name, id, internal, one partition
        "0000 00000002 00000001 00000005 03 00000001 00000002 02 00000001 02 00000002 00"
        "80000000 00 00"  # authorized operations, tags of the topic and of the message
    )


@pytest.mark.parametrize(
    "made",
    [
        lambda text: ProduceRequest(transactional_id=text),
        lambda text: ProduceRequest(topic_data=[TopicProduceData(name=text)]),
        lambda text: FetchRequest(topics=[FetchTopic(topic=text)]),
        lambda text: FetchRequest(forgotten_topics_data=[ForgottenTopic(topic=text)]),
        lambda text: FetchRequest(rack_id=text),
        lambda text: FetchRequest(cluster_id=text),
        lambda text: MetadataRequest(topics=[MetadataRequestTopic(name=text)]),
        lambda text: CreateTopicsRequest(topics=[CreatableTopic(name=text)]),
    ],
)
def test_no_request_has_a_string_that_is_longer_than_kafkas(made: Callable[[str], Message]) -> None:
    longest = made("x" * 32_767)
    key, version = longest.API_KEY, 12 if longest.API_KEY != ApiKey.CREATE_TOPICS else 7
    data = encode_request(longest, version)
    assert decode_request(key, version, data) == longest
    with pytest.raises(ProtocolError, match="32768 bytes, above the limit of 32767"):
        encode_request(made("x" * 32_768), version)
    forged = data.replace(uvarint(32_768) + b"x" * 32_767, uvarint(4_000_001) + b"x" * 4_000_000)
    with pytest.raises(ProtocolError, match="4000000 bytes, above the limit of 32767"):
        decode_request(key, version, forged)
