"""Our bytes are the bytes of kio, for every served API and version, both ways."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft.protocol import ApiKey, Message, decode_request, decode_response, encode_request, encode_response
from kraft.protocol.messages import request_codec, response_codec
from tests.support.protocol_oracles import (
    MESSAGES,
    kio_class,
    kio_decode,
    kio_encode,
    kio_values,
    message_id,
    our_class,
    to_ours,
)

CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]
every_message = pytest.mark.parametrize("message", MESSAGES, ids=message_id)


def our_encode(value: Message, version: int, is_request: bool) -> bytes:
    if is_request:
        return encode_request(value, version)
    parts, size_bytes = encode_response(value, version)
    data = b"".join(parts)  # type: ignore[arg-type]  # no slices here
    assert len(data) == size_bytes
    return data


def our_decode(api_key: ApiKey, version: int, is_request: bool, data: bytes) -> Message:
    codec = (request_codec if is_request else response_codec)(api_key, version)
    decoded, end = codec.decode(memoryview(data), 0)
    assert end == len(data)
    through_api = (decode_request if is_request else decode_response)(api_key, version, data)
    assert decoded == through_api
    assert isinstance(decoded, Message)
    return decoded


@every_message
@settings(max_examples=10, deadline=None, suppress_health_check=CHECKS)
@given(data=st.data())
def test_kio_reads_what_we_write_and_we_read_what_kio_writes(
    message: tuple[ApiKey, int, bool], data: st.DataObject
) -> None:
    api_key, version, is_request = message
    of = kio_class(*message)
    theirs = data.draw(kio_values(of))
    ours = to_ours(theirs, our_class(api_key, is_request))
    expected = kio_encode(theirs)
    encoded = our_encode(ours, version, is_request)
    assert encoded == expected
    assert our_decode(api_key, version, is_request, expected) == ours
    assert kio_decode(of, encoded) == theirs
