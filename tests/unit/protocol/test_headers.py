"""Request and response headers, byte for byte."""

from __future__ import annotations

import io

import pytest
from kio.schema.request_header.v1 import RequestHeader as KioRequestHeaderV1
from kio.schema.request_header.v2 import RequestHeader as KioRequestHeaderV2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from kraft.protocol import (
    SUPPORTED,
    ApiKey,
    ProtocolError,
    RequestHeader,
    UnsupportedVersion,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from kraft.protocol.api import is_flexible
from kraft.protocol.headers import encode_response_start

EVERY_VERSION = [(api_key, version) for api_key, versions in SUPPORTED.items() for version in versions]


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
@pytest.mark.parametrize("client_id", [None, "", "client", "ü" * 100])
def test_request_headers_are_kios(api_key: ApiKey, version: int, client_id: str | None) -> None:
    of = KioRequestHeaderV2 if is_flexible(api_key, version) else KioRequestHeaderV1
    buffer = io.BytesIO()
    theirs = of(
        request_api_key=i16(int(api_key)),
        request_api_version=i16(version),
        correlation_id=i32(-7),
        client_id=client_id,
    )
    entity_writer(of)(buffer, theirs)
    header = RequestHeader(api_key, version, -7, client_id)
    assert encode_request_header(header) == buffer.getvalue()
    frame = memoryview(buffer.getvalue() + b"body")
    assert decode_request_header(frame) == (header, len(frame) - 4)


def test_the_client_id_of_a_flexible_header_has_a_two_byte_length() -> None:
    header = RequestHeader(ApiKey.METADATA, 12, 1, "ab")
    assert encode_request_header(header).hex(" ") == "00 03 00 0c 00 00 00 01 00 02 61 62 00"


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    frame = bytes.fromhex("0003 000c 00000001 ffff 02 05 02 aaaa 8901 00") + b"body"
    header, position = decode_request_header(frame)
    assert header == RequestHeader(ApiKey.METADATA, 12, 1, None)
    assert frame[position:] == b"body"


def test_an_api_versions_request_from_the_future_has_a_header_that_can_be_read() -> None:
    frame = bytes.fromhex("0012 0063 00000005 0001 61 00")
    header, position = decode_request_header(frame)
    assert header == RequestHeader(ApiKey.API_VERSIONS, 99, 5, "a")
    assert position == len(frame)


@pytest.mark.parametrize("start", ["0034 0001", "0309 0000", "ffff 0000", "0003 ffff"])
def test_an_api_that_is_not_served_is_refused_with_the_correlation_id(start: str) -> None:
    with pytest.raises(UnsupportedVersion) as refusal:
        decode_request_header(bytes.fromhex(start + "0000002a 0000 00"))
    assert refusal.value.correlation_id == 42


@pytest.mark.parametrize(
    "frame", ["", "0003", "0003 0001 00000001", "0003 0001 00000001 0005 61", "0003 000c 00000001 ffff"]
)
def test_short_request_headers(frame: str) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(bytes.fromhex(frame))


def test_a_client_id_that_is_not_utf8() -> None:
    with pytest.raises(ProtocolError, match="request header is malformed"):
        decode_request_header(bytes.fromhex("0003 0001 00000001 0002 ff fe"))


def test_a_client_id_that_is_too_long() -> None:
    with pytest.raises(ProtocolError, match="cannot be encoded"):
        encode_request_header(RequestHeader(ApiKey.METADATA, 1, 1, "x" * 40_000))


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_response_headers(api_key: ApiKey, version: int) -> None:
    flexible = is_flexible(api_key, version) and api_key != ApiKey.API_VERSIONS
    data = encode_response_header(api_key, version, 258)
    assert data == (b"\0\0\1\2\0" if flexible else b"\0\0\1\2")
    assert decode_response_header(api_key, version, data + b"body") == (258, len(data))
    start = encode_response_start(api_key, version, 258, 1000)
    assert start == (1000 + len(data)).to_bytes(4, "big") + data


def test_the_answer_to_api_versions_has_the_old_header_in_any_version() -> None:
    for version in (0, 3, 4, 99):
        assert encode_response_header(ApiKey.API_VERSIONS, version, 1) == b"\0\0\0\1"


def test_short_response_headers() -> None:
    for frame in (b"", b"\0\0\0", b"\0\0\0\1"):
        with pytest.raises(ProtocolError):
            decode_response_header(ApiKey.METADATA, 12, frame)
