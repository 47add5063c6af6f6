"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: our bytes are those of kio, both ways. kafka-python lacks both."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft.protocol.api import ApiKey
from kraft.protocol.compiler import compile_codec
from kraft.protocol.schema import Message
from kraft.protocol.schemas import consumer_groups
from tests.support.protocol_oracles import kio_class, kio_decode, kio_encode, kio_values, message_id, to_ours

CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]
STEMS = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "ConsumerGroupHeartbeat",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "ConsumerGroupDescribe",
}
MESSAGES = [
    (api_key, version, is_request) for api_key in STEMS for version in (0, 1) for is_request in (True, False)
]


def name_of(api_key: ApiKey, is_request: bool) -> str:
    return STEMS[api_key] + ("Request" if is_request else "Response")


@pytest.mark.parametrize("message", MESSAGES, ids=message_id)
@settings(max_examples=20, deadline=None, suppress_health_check=CHECKS)
@given(data=st.data())
def test_kio_reads_what_we_write_and_we_read_what_kio_writes(
    message: tuple[ApiKey, int, bool], data: st.DataObject
) -> None:
    api_key, version, is_request = message
    of: type[Message] = getattr(consumer_groups, name_of(api_key, is_request))
    codec = compile_codec(of, version, flexible=True, is_request=is_request)
    theirs = data.draw(kio_values(kio_class(*message)))
    ours = to_ours(theirs, of)
    expected = kio_encode(theirs)
    segments, size_bytes = codec.encode(ours)
    encoded = b"".join(segments)  # type: ignore[arg-type]  # no slices here
    assert (encoded, size_bytes) == (expected, len(expected))
    assert codec.decode(memoryview(expected), 0) == (ours, len(expected))
    assert kio_decode(kio_class(*message), encoded) == theirs
