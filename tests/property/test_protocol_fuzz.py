"""Malformed bytes raise ProtocolError and nothing else, and cost memory only in proportion to their length."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.protocol import (
    SUPPORTED,
    ApiKey,
    ProtocolError,
    decode_request,
    decode_request_header,
    decode_response,
    encode_response,
)
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kraft.protocol.messages import (
    encode_request,
    request_class,
    request_codec,
    response_class,
    response_codec,
)
from kraft.protocol.primitives import MAX_ELEMENTS, MAX_REQUEST_ELEMENTS, MAX_TAGGED_FIELDS
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraft.protocol.schema import Message
from kraft.protocol.schemas.cluster import DescribeTopicPartitionsRequest, TopicRequest
from kraft.protocol.schemas.elections import ElectLeadersRequest, TopicPartitions
from kraft.protocol.schemas.metadata import MetadataResponse, MetadataResponseTopic
from tests.support.examples import examples
from tests.support.protocol_oracles import MESSAGES, filled_kio, kio_class, kio_encode, message_id

MAX_BYTES_PER_INPUT_BYTE = 64
"""The dearest element, a topic of Fetch, is three bytes on the wire and about 130 in memory."""
MAX_CONSTANT_BYTES = 32_768
"""Exceptions, tracebacks, and what a call costs however short the input is."""

LAYOUTS = list({(m[0], m[2], kio_encode(filled_kio(kio_class(*m)))): m for m in MESSAGES}.values())
"""One version of each: versions in which a filled message has the same bytes have the same decoder."""

every_message = pytest.mark.parametrize("message", LAYOUTS, ids=message_id)
FORGED = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff")
"""The largest array length, compact length and string length."""


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def decode_bounded(decode: Callable[[memoryview], object], data: bytes) -> object | None:
    """Decodes or gets a ProtocolError; fails if that took much more memory than the input."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        decoded = decode(memoryview(data))
    except ProtocolError:
        decoded = None
    _, peak = tracemalloc.get_traced_memory()
    assert peak - before <= len(data) * MAX_BYTES_PER_INPUT_BYTE + MAX_CONSTANT_BYTES
    return decoded


def decoder(message: tuple[ApiKey, int, bool]) -> Callable[[memoryview], object]:
    """The decoder of the message, compiled beforehand so that compiling is not measured."""
    api_key, version, is_request = message
    codec = (request_codec if is_request else response_codec)(api_key, version)
    return lambda data: codec.decode(data, 0)


@every_message
def test_every_truncation_is_refused(message: tuple[ApiKey, int, bool]) -> None:
    decode = decoder(message)
    data = kio_encode(filled_kio(kio_class(*message)))
    assert decode_bounded(decode, data) is not None
    for length in range(len(data)):
        assert decode_bounded(decode, data[:length]) is None, f"read a message cut to {length} bytes"


@every_message
def test_a_forged_length_at_any_place_costs_no_memory(message: tuple[ApiKey, int, bool]) -> None:
    decode = decoder(message)
    data = kio_encode(filled_kio(kio_class(*message)))
    for position in range(len(data)):
        for forged in FORGED:
            decode_bounded(decode, data[:position] + forged + data[position + 1 :])


@every_message
@settings(max_examples=6, deadline=None)
@given(data=st.binary(max_size=200), seed=st.data())
def test_random_bytes_and_random_damage(
    message: tuple[ApiKey, int, bool], data: bytes, seed: st.DataObject
) -> None:
    decode = decoder(message)
    decode_bounded(decode, data)
    damaged = bytearray(kio_encode(filled_kio(kio_class(*message))) or b"\0")
    for _ in range(seed.draw(st.integers(1, 4))):
        damaged[seed.draw(st.integers(0, len(damaged) - 1))] = seed.draw(st.integers(0, 255))
    decode_bounded(decode, bytes(damaged))


@pytest.mark.parametrize("filler", [1, 2])
@every_message
def test_a_crowd_of_tiny_elements_costs_a_bounded_multiple(
    message: tuple[ApiKey, int, bool], filler: int
) -> None:
    """Wherever a count stands, an array that really has as many elements as it says."""
    decode = decoder(message)
    data = kio_encode(filled_kio(kio_class(*message)))
    crowd = bytes([filler]) * 2_000
    for position in range(0, len(data), 2):
        decode_bounded(decode, data[:position] + b"\xe8\x07" + crowd)


def test_the_dearest_element() -> None:
    decode = decoder((ApiKey.FETCH, 12, True))
    data = encode_request(FetchRequest(topics=[FetchTopic()] * 20_000), 12)
    assert decode_bounded(decode, data) is not None


@settings(max_examples=examples(100), deadline=None)
@given(data=st.binary(max_size=60), api_key=st.sampled_from([int(key) for key in ApiKey] + [-1, 999]))
def test_request_headers(data: bytes, api_key: int) -> None:
    decode_bounded(decode_request_header, data)
    decode_bounded(decode_request_header, api_key.to_bytes(2, "big", signed=True) + data)


def test_a_fifteen_byte_request_with_a_forged_array_length() -> None:
    for version in range(1, 14):
        data = b"\x7f\xff\xff\xff" + bytes(11) if version < 9 else b"\xff\xff\xff\xff\x07" + bytes(10)
        with pytest.raises(ProtocolError, match="remain"):
            decode_request(ApiKey.METADATA, version, data)


def test_more_tagged_fields_than_any_struct_has() -> None:
    tagged = b"\xe8\x07" + b"\x64\x00" * 1000
    with pytest.raises(ProtocolError, match=f"limit of {MAX_TAGGED_FIELDS}"):
        decode_request(ApiKey.DESCRIBE_CLUSTER, 0, b"\0" + tagged)
    with pytest.raises(ProtocolError, match=f"limit of {MAX_TAGGED_FIELDS}"):
        decode_request(ApiKey.PRODUCE, 9, encode_request(request_class(ApiKey.PRODUCE)(), 9)[:-1] + tagged)


def _request_of(elements: int) -> Iterator[tuple[Message, int]]:
    """Requests with so many structs, or structs and numbers, in all their arrays, and versions."""
    yield DescribeTopicPartitionsRequest(topics=[TopicRequest()] * elements), 0
    numbers = list(range(elements - 2))
    parts = [TopicPartitions(topic="t", partitions=numbers[:9]), TopicPartitions(partitions=numbers[9:])]
    yield ElectLeadersRequest(topic_partitions=parts), 2
    fetched = [FetchPartition()] * (elements - 2)
    produced = [PartitionProduceData(records=b"")] * (elements - 2)
    for version in (11, 12):
        yield FetchRequest(topics=[FetchTopic()] * elements), version
        yield FetchRequest(topics=[FetchTopic(partitions=fetched), FetchTopic()]), version
        forgotten = [ForgottenTopic(partitions=numbers[:9]), ForgottenTopic(partitions=numbers[9:])]
        yield FetchRequest(forgotten_topics_data=forgotten), version
        forgotten = [ForgottenTopic(partitions=numbers[: elements // 2])]
        topics = [FetchTopic(partitions=fetched[elements // 2 :])]
        yield FetchRequest(topics=topics, forgotten_topics_data=forgotten), version
    for version in (8, 9):
        yield ProduceRequest(topic_data=[TopicProduceData()] * elements), version
        topic_data = [TopicProduceData("t", produced), TopicProduceData()]
        yield ProduceRequest(topic_data=topic_data), version


def test_more_elements_than_any_request_has() -> None:
    """Each costs a broker's handler much more than its decoder, and the event loop serves nobody else meanwhile."""
    tracemalloc.stop()  # so many elements are slow to trace
    for message, version in _request_of(MAX_REQUEST_ELEMENTS + 1):
        data = encode_request(message, version)
        with pytest.raises(ProtocolError, match=f"limit of {MAX_REQUEST_ELEMENTS}"):
            decode_request(message.API_KEY, version, data)
    for message, version in _request_of(MAX_REQUEST_ELEMENTS):
        assert decode_request(message.API_KEY, version, encode_request(message, version)) == message


def test_answers_may_have_more_elements_than_requests() -> None:
    """As the metadata of a large cluster has."""
    tracemalloc.stop()
    topics = [MetadataResponseTopic()] * (MAX_REQUEST_ELEMENTS + 1)
    (data,), _ = encode_response(MetadataResponse(topics=topics), 12)
    assert len(decode_response(ApiKey.METADATA, 12, data).topics) == len(topics)  # type: ignore[arg-type,attr-defined]
    (data,), _ = encode_response(MetadataResponse(topics=[MetadataResponseTopic()] * (MAX_ELEMENTS + 1)), 12)
    with pytest.raises(ProtocolError, match=f"limit of {MAX_ELEMENTS}"):
        decode_response(ApiKey.METADATA, 12, data)  # type: ignore[arg-type]


def test_every_advertised_version_has_both_codecs() -> None:
    tracemalloc.stop()
    for api_key, versions in SUPPORTED.items():
        for version in versions:
            request, response = request_class(api_key)(), response_class(api_key)()
            assert decode_request(api_key, version, encode_request(request, version)) == request
            parts, _ = encode_response(response, version)
            assert decode_response(api_key, version, b"".join(parts)) == response  # type: ignore[arg-type]
