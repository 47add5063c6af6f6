"""From a frame to a handler and back, for every API and version that is advertised."""

from __future__ import annotations

import asyncio
import gc
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.broker.dispatch import HANDLERS, Dispatcher
from kraft.broker.request import Request
from kraft.network.connection import CloseConnectionError, Connection
from kraft.network.outbox import Outbox
from kraft.network.request import decoding
from kraft.network.request_times import RequestTimes
from kraft.network.response import Deferred, Response
from kraft.network.sender import transport_sender
from kraft.network.server import SocketServer
from kraft.network.session import Session
from kraft.protocol.api import SUPPORTED, ApiKey
from kraft.protocol.errors import ErrorCode, ProtocolError
from kraft.protocol.headers import decode_response_header
from kraft.protocol.messages import decode_response, encode_request_frame
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraft.protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraft.protocol.schemas.cluster import DescribeClusterRequest
from kraft.protocol.schemas.configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kraft.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from partitions.topic_partition import TopicPartition
from quorum.rpc import messages
from tests.support.broker_world import LISTENER_NAME, BrokerWorld, batch, topic

CONNECTION: Any = SimpleNamespace(session=Session(LISTENER_NAME, ("127.0.0.1", 5)))


def send(world: BrokerWorld, frame: bytes) -> Any:
    """Runs one frame, as it comes from a connection: without its length prefix."""
    return decoding(Dispatcher(world.services))(memoryview(frame), CONNECTION)


def frame_of(message: Any, version: int, correlation_id: int = 7) -> bytes:
    return bytes(encode_request_frame(message, version, correlation_id=correlation_id, client_id="test"))[4:]


def body_of(response: Response) -> bytes:
    data = b"".join(bytes(segment) for segment in response.segments)  # type: ignore[arg-type]
    assert len(data) == response.length
    return data


def read(response: Response, api_key: ApiKey, version: int) -> Any:
    data = memoryview(body_of(response))
    correlation_id, position = decode_response_header(api_key, version, data)
    assert correlation_id == 7
    return decode_response(api_key, version, data, position)


def test_every_advertised_api_has_a_handler() -> None:
    assert HANDLERS.keys() == SUPPORTED.keys()


@pytest.mark.parametrize(
    ("message", "key"),
    [
        (MetadataRequest(topics=[]), ApiKey.METADATA),
        (DescribeClusterRequest(), ApiKey.DESCRIBE_CLUSTER),
        (ApiVersionsRequest(client_software_name="x", client_software_version="1"), ApiKey.API_VERSIONS),
    ],
)
async def test_every_version_is_answered_in_itself(world: BrokerWorld, message: Any, key: ApiKey) -> None:
    await world.start(*topic("t", 1, (1,)))
    for version in SUPPORTED[key]:
        answer = send(world, frame_of(message, version))
        assert getattr(read(answer, key, version), "error_code", 0) == 0


async def test_api_versions_of_a_client_from_the_future(world: BrokerWorld) -> None:
    """KIP-511: error 35 in the body of version 0, so that any client can read it."""
    await world.start()
    frame = bytearray(frame_of(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4))
    frame[2:4] = (77).to_bytes(2, "big")
    data = memoryview(body_of(send(world, bytes(frame))))
    answer = decode_response(ApiKey.API_VERSIONS, 0, data, 4)
    assert isinstance(answer, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ApiKey.API_VERSIONS in [key.api_key for key in answer.api_keys]


@pytest.mark.parametrize("name", ["", "-x", "a b", "x" + "\n"])
async def test_a_software_name_that_is_none(world: BrokerWorld, name: str) -> None:
    await world.start()
    message = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    answer = read(send(world, frame_of(message, 4)), ApiKey.API_VERSIONS, 4)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_what_is_not_served_closes_the_connection(world: BrokerWorld) -> None:
    await world.start()
    good = frame_of(MetadataRequest(topics=None), 12)
    unknown_version = good[:2] + (99).to_bytes(2, "big") + good[4:]
    unknown_api = (999).to_bytes(2, "big") + good[2:]
    for frame in (unknown_version, unknown_api):
        with pytest.raises(CloseConnectionError):
            send(world, frame)


async def test_a_malformed_body_closes_the_connection(world: BrokerWorld) -> None:
    await world.start()
    good = frame_of(MetadataRequest(topics=None), 12)
    for frame in (good[:-2], b"", good[:3]):
        with pytest.raises(CloseConnectionError, match="malformed"):
            send(world, frame)


LONG = "x" * 32_767
"""The longest name that a request without compact strings can hold."""


async def test_what_quotes_a_long_name_can_be_answered(world: BrokerWorld) -> None:
    await world.start()
    for version in SUPPORTED[ApiKey.DESCRIBE_CONFIGS]:
        for kind in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER):
            resource = DescribeConfigsResource(
                resource_type=kind, resource_name=LONG, configuration_keys=None
            )
            answer = send(world, frame_of(DescribeConfigsRequest(resources=[resource]), version))
            (result,) = read(answer, ApiKey.DESCRIBE_CONFIGS, version).results
            assert (result.resource_name, len(result.error_message) < 400) == (LONG, True)
    data = PartitionProduceData(index=0, records=batch(b"x") * 2)
    message = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(LONG, [data])])
    (produced,) = read(send(world, frame_of(message, 8)), ApiKey.PRODUCE, 8).responses
    (refused,) = produced.partition_responses
    assert (produced.name, refused.error_message[-1]) == (LONG, "…")


@pytest.mark.parametrize("create", [False, True])
async def test_metadata_of_a_topic_without_a_name(world: BrokerWorld, create: bool) -> None:
    """Versions 10 and 11 can ask so, and cannot be answered so: Kafka's answer has an empty name."""
    await world.start()
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=None)], allow_auto_topic_creation=create)
    for version, name in ((10, ""), (11, ""), (12, None)):
        (found,) = read(send(world, frame_of(asked, version)), ApiKey.METADATA, version).topics
        assert (found.error_code, found.name) == (ErrorCode.INVALID_REQUEST, name)


async def test_an_answer_that_cannot_be_encoded_is_not_the_clients_fault(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error reaches the connection as that of a defect, which is logged with its traceback."""
    await world.start()

    def answer(services: Any, request: Any) -> MetadataResponse:
        return MetadataResponse(cluster_id=LONG + "x")

    monkeypatch.setattr("kraft.broker.dispatch.HANDLERS", {**HANDLERS, ApiKey.METADATA: answer})
    with pytest.raises(ProtocolError, match="cannot be encoded"):
        send(world, frame_of(MetadataRequest(topics=None), 4))


async def test_no_answer_is_none(world: BrokerWorld) -> None:
    await world.start()
    assert send(world, frame_of(ProduceRequest(acks=0, timeout_ms=1), 9)) is None


async def test_an_answer_may_come_later(world: BrokerWorld) -> None:
    await world.start()
    message = MetadataRequest(topics=None)
    assert isinstance(send(world, frame_of(message, 12)), Response)
    message = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    waiting = asyncio.ensure_future(send(world, frame_of(message, 12)))
    await world.controller.until_called(messages.CreateTopicsRequest, 1)
    assert not waiting.done()
    waiting.cancel()


class Pipe(asyncio.Transport):
    """A transport whose other end the test plays."""

    def write(self, data: object) -> None:
        """Whatever it is."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is held back."""


async def ask_and_leave(world: BrokerWorld, message: Any, version: int) -> None:
    """A client sends a request, and its connection is lost in the very turn of the loop that takes it up."""
    server = SocketServer(decoding(Dispatcher(world.services)))
    connection = Connection(server, asyncio.get_running_loop())
    connection.connection_made(Pipe())
    frame = encode_request_frame(message, version, correlation_id=7, client_id="test")
    memoryview(connection.get_buffer(len(frame)))[: len(frame)] = frame
    connection.buffer_updated(len(frame))
    connection.connection_lost(None)
    await asyncio.wait(list(server._leaving))


async def test_what_was_not_begun_when_its_client_left_is_never_begun(world: BrokerWorld) -> None:
    await world.start()
    message = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        await ask_and_leave(world, message, 12)
        gc.collect()
    assert warned == []
    assert world.controller.calls_of(messages.CreateTopicsRequest) == []


async def test_nor_is_what_would_have_waited_for_a_replica(world: BrokerWorld) -> None:
    await world.start()
    world.executor.holding = True
    await world.publish(*topic("t", 1, (1,)))
    await asyncio.sleep(0)
    data = PartitionProduceData(index=0, records=batch(b"x"))
    message = ProduceRequest(
        acks=0, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )
    await ask_and_leave(world, message, 9)
    assert world.replicas.pending.count == 0
    world.executor.release()
    await world.replicas.settled()
    assert world.replicas.partition(TopicPartition("t", 0)).log_end_offset == 0


async def test_a_connection_has_one_session_that_knows_its_client(world: BrokerWorld) -> None:
    await world.start()
    session = Session(LISTENER_NAME, ("127.0.0.1", 5))
    connection: Any = SimpleNamespace(session=session)
    handle = decoding(Dispatcher(world.services))
    assert (session.principal, session.client_software_name) == ("User:ANONYMOUS", "unknown")
    bad = ApiVersionsRequest(client_software_name="-x", client_software_version="1")
    handle(memoryview(frame_of(bad, 3)), connection)
    assert session.client_software_name == "unknown"
    good = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.2")
    handle(memoryview(frame_of(good, 3)), connection)
    assert (session.client_software_name, session.client_software_version) == ("a-client", "1.2")


async def test_a_gate_answers_in_the_handlers_place(world: BrokerWorld) -> None:
    await world.start()
    asked: list[tuple[Session, ApiKey]] = []

    def gate(session: Session, key: ApiKey, request: Request[Any]) -> Any:
        asked.append((session, key))
        if key is ApiKey.METADATA:
            return MetadataResponse(cluster_id="nothing for you")
        return None

    handle = decoding(Dispatcher(world.services, gate))
    refused = handle(memoryview(frame_of(MetadataRequest(topics=None), 12)), CONNECTION)
    assert isinstance(refused, Response)
    assert read(refused, ApiKey.METADATA, 12).cluster_id == "nothing for you"
    passed = handle(memoryview(frame_of(DescribeClusterRequest(), 1)), CONNECTION)
    assert isinstance(passed, Response)
    assert read(passed, ApiKey.DESCRIBE_CLUSTER, 1).cluster_id == world.services.cluster_id
    assert asked == [(CONNECTION.session, ApiKey.METADATA), (CONNECTION.session, ApiKey.DESCRIBE_CLUSTER)]


class Ticking:
    """A clock that is a second later at each look."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


async def test_times_of_a_request_by_phase(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    clock, dispatcher = Ticking(), Dispatcher(world.services)
    dispatcher._clock_s = clock
    handle = decoding(dispatcher)
    session = CONNECTION.session
    session.arrived_s, session.now_s = 97.0, 100.0
    message = MetadataRequest(topics=[])
    at_once = handle(memoryview(frame_of(message, 12)), CONNECTION)
    times = world.services.request_times[ApiKey.METADATA]
    assert (times.count, times.queue.sum_s, times.local.sum_s, times.remote.sum_s) == (1, 3.0, 1.0, 0.0)
    assert isinstance(at_once, Response)
    assert (at_once.times, at_once.ready_s, session.now_s) == (times, 101.0, 101.0)

    data = PartitionProduceData(index=0, records=batch(b"x"))
    produced = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData("t", [data])])
    waits = handle(memoryview(frame_of(produced, 9)), CONNECTION)
    times = world.services.request_times[ApiKey.PRODUCE]
    assert (times.count, times.queue.sum_s, times.local.sum_s, times.remote.sum_s) == (1, 4.0, 1.0, 0.0)
    world.replicas.partition(TopicPartition("t", 0)).update_follower(2, 2, 1, 0, 1, 0)
    clock.now_s = 110.0
    assert isinstance(waits, Deferred)
    answer = waits.finish(waits.future.result())
    assert (times.remote.sum_s, answer.times, answer.ready_s) == (9.0, times, 111.0)


async def test_the_time_until_an_answer_has_left(world: BrokerWorld) -> None:
    await world.start()
    clock, times = Ticking(), RequestTimes()
    outbox = Outbox(Pipe(), transport_sender, lambda: None, lambda _: None, clock)
    outbox.add(Response([b"x"], 1, times, 90.0))
    outbox.add(Response([b"y"], 1))
    outbox.add(Response([b"z"], 1, times, 95.0))
    assert times.send.sum_s == 0.0
    outbox.flush()
    assert times.send.sum_s == 11.0 + 6.0
    outbox.flush()
    assert times.send.sum_s == 17.0
