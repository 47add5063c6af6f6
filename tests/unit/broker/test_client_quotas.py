"""What a broker counts of its clients, whom it mutes, and what it tells them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kraft.broker.client_quotas import THROTTLE_MAX_MS
from kraft.broker.dispatch import Dispatcher
from kraft.network.request import RequestContext
from kraft.network.response import Deferred, Response, Segment
from kraft.network.sender import read_whole
from kraft.network.session import Session
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kraft.protocol.headers import RequestHeader, decode_response_header
from kraft.protocol.messages import decode_response, encode_request
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraft.protocol.schema import Message
from kraft.protocol.schemas.client_quotas import (
    AlterationData,
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from kraft.protocol.schemas.metadata import MetadataRequest
from kraft.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kraft.protocol.schemas.transactions import WriteTxnMarkersRequest
from quorum.metadata.records import ClientQuota
from quorum.rpc import messages
from tests.support.broker_world import LISTENER_NAME, BrokerWorld, batch, topic

ANYBODY = (("user", ""),)
RECORDS = bytes(batch(b"x" * 1000))


class Client:
    """One connection, whose muting and clock a test sees."""

    def __init__(self, world: BrokerWorld, client_id: str = "app", user: str = "alice") -> None:
        self.world = world
        self.client_id = client_id
        self.now_s = 1000.0
        self.muted_until_s = 0.0
        self.session = Session(LISTENER_NAME, ("127.0.0.1", 5), self._mute)
        self.session.principal = f"User:{user}"
        world.quotas.clock_s = lambda: self.now_s

    def _mute(self, at_s: float) -> None:
        self.muted_until_s = max(self.muted_until_s, at_s)

    @property
    def muted_ms(self) -> int:
        return max(0, round((self.muted_until_s - self.now_s) * 1000))

    async def ask(self, body: Message, version: int, *, busy_s: float = 0.0) -> Any:
        self.session.now_s = self.now_s - busy_s
        frame = memoryview(encode_request(body, version))
        header = RequestHeader(body.API_KEY, version, 7, self.client_id)
        dispatcher = Dispatcher(self.world.services)
        dispatcher._clock_s = lambda: self.now_s
        answer: Any = dispatcher(RequestContext(header, frame, self.session))
        if isinstance(answer, Deferred):
            answer = await answer
        if answer is None:
            return None
        assert isinstance(answer, Response)
        data = memoryview(b"".join(map(_bytes_of, answer.segments)))
        _, position = decode_response_header(body.API_KEY, version, data)
        return decode_response(body.API_KEY, version, data, position)


def _bytes_of(segment: Segment) -> bytes:
    return (
        bytes(segment)
        if isinstance(segment, bytes | bytearray | memoryview)
        else b"".join(read_whole(segment))
    )


def produce(acks: int = 1) -> ProduceRequest:
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=RECORDS)])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def fetch(offset: int = 0, *, replica_id: int = -1, max_wait_ms: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10**6)
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=10**6,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    await world.start(*topic("t", 1, (1,)))
    yield world
    await world.close()


async def limit(world: BrokerWorld, **values: float | None) -> None:
    await world.publish(*(ClientQuota(ANYBODY, key, value) for key, value in values.items()))


async def test_without_quotas_nothing_is_counted(world: BrokerWorld) -> None:
    client = Client(world)
    assert (await client.ask(produce(), 9)).throttle_time_ms == 0
    assert not world.quotas.is_limiting
    assert client.muted_until_s == 0


async def test_who_produces_too_much_is_answered_and_muted(world: BrokerWorld) -> None:
    await limit(world, producer_byte_rate=100.0)
    client = Client(world)
    told = await client.ask(produce(), 9)
    assert told.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert (
        700 < told.throttle_time_ms < 2500
    )  # somewhat more than 1000 bytes, of which a second's 100 pass, ten at once
    assert client.muted_ms == told.throttle_time_ms
    client.now_s = client.muted_until_s
    again = await client.ask(produce(), 9)
    assert again.throttle_time_ms == pytest.approx(10_000 + told.throttle_time_ms, abs=2)
    await limit(world, producer_byte_rate=None)
    assert (await client.ask(produce(), 9)).throttle_time_ms == 0


async def test_a_produce_without_answer_is_muted_all_the_same(world: BrokerWorld) -> None:
    await limit(world, producer_byte_rate=10.0)
    client = Client(world)
    assert await client.ask(produce(acks=0), 9) is None
    assert client.muted_ms == THROTTLE_MAX_MS


async def test_a_late_answer_tells_what_is_left(world: BrokerWorld) -> None:
    """Muted since the request, answered when its records are committed."""
    await world.publish(*topic("t2", 2, (1, 2)))
    await limit(world, producer_byte_rate=100.0)
    client = Client(world)
    request = produce(acks=-1)
    request.topic_data[0].name = "t2"
    asked = asyncio.ensure_future(client.ask(request, 9))
    await asyncio.sleep(0)
    muted_ms = client.muted_ms
    assert muted_ms > 700
    client.now_s += 0.5
    response = await asked  # nobody follows: it is answered when its second has passed
    assert response.throttle_time_ms == pytest.approx(muted_ms - 500, abs=1)


async def test_a_consumer_gets_no_records_before_its_time(world: BrokerWorld) -> None:
    client = Client(world)
    for _ in range(3):
        await client.ask(produce(), 9)
    await limit(world, consumer_byte_rate=100.0)
    one = await client.ask(fetch(), 12)  # one batch, though it exceeds the quota by itself
    size = len(one.responses[0].partitions[0].records)
    assert size == len(RECORDS)
    assert one.throttle_time_ms == client.muted_ms == pytest.approx((size - 1000) * 10, abs=1)
    other = Client(world, "another connection of the user")
    none = await other.ask(fetch(1), 12)
    assert (none.error_code, none.responses) == (ErrorCode.NONE, [])
    assert none.throttle_time_ms == other.muted_ms == one.throttle_time_ms
    other.now_s = other.muted_until_s
    assert len((await other.ask(fetch(1), 12)).responses) == 1


async def test_a_session_goes_on_where_a_throttled_fetch_left_it(world: BrokerWorld) -> None:
    client = Client(world)
    await client.ask(produce(), 9)
    opening = fetch(1)
    opening.session_epoch = 0
    session_id = (await client.ask(opening, 12)).session_id
    assert session_id != 0
    await client.ask(produce(), 9)
    await limit(world, consumer_byte_rate=100.0)
    world.quotas.clients.fetch.record("alice", "app", 1500, client.now_s * 1000)
    goes_on = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=10**6,
        session_id=session_id,
        session_epoch=1,
        topics=[],
    )
    none = await client.ask(goes_on, 12)
    assert (none.error_code, none.session_id, none.responses) == (ErrorCode.NONE, session_id, [])
    assert none.throttle_time_ms == 5000
    client.now_s += 5
    goes_on.session_epoch = 2
    found = await client.ask(goes_on, 12)
    assert len(found.responses[0].partitions[0].records) == len(RECORDS)


async def test_a_session_that_opens_throttled_is_not_kept(world: BrokerWorld) -> None:
    client = Client(world)
    await client.ask(produce(), 9)
    await limit(world, consumer_byte_rate=100.0)
    world.quotas.clients.fetch.record("alice", "app", 1500, client.now_s * 1000)
    opening = fetch()
    opening.session_epoch = 0
    none = await client.ask(opening, 12)
    assert (none.session_id, none.throttle_time_ms, none.responses) == (0, 5000, [])
    assert len(world.replicas.fetch_purgatory.sessions.cache) == 0


async def test_followers_and_markers_are_exempt(world: BrokerWorld) -> None:
    await limit(world, consumer_byte_rate=1.0, request_percentage=0.01)
    client = Client(world)
    for body, version in ((fetch(replica_id=2), 12), (WriteTxnMarkersRequest(markers=[]), 1)):
        await client.ask(body, version, busy_s=5.0)
    assert client.muted_until_s == 0
    assert world.quotas.snapshot().sensors == {"produce": 0, "fetch": 0, "request": 0}


async def test_who_costs_the_loop_too_much_waits(world: BrokerWorld) -> None:
    await limit(world, request_percentage=10.0)
    client = Client(world)
    assert (await client.ask(MetadataRequest(topics=[]), 9, busy_s=1.0)).throttle_time_ms == 0
    told = await client.ask(MetadataRequest(topics=[]), 9, busy_s=0.05)
    assert told.throttle_time_ms == client.muted_ms == 500
    assert world.quotas.throttled["request"].requests == 1
    assert world.quotas.throttled["request"].time_ms == 500


async def test_a_change_of_topics_is_charged_to_its_client(world: BrokerWorld) -> None:
    client = Client(world, "admin", "bob")
    result = messages.CreateTopicResult("new", "THROTTLING_QUOTA_EXCEEDED", "wait")
    world.controller.always(
        messages.CreateTopicsRequest, lambda call: messages.CreateTopicsResponse((result,), 3000)
    )
    for version, strict in ((5, False), (6, True)):
        told = await client.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name="new")], timeout_ms=1000), version
        )
        assert world.controller.calls[-1].mutator == messages.Mutator("bob", "admin", strict)
        assert told.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert told.throttle_time_ms == client.muted_ms == 3000


# Describing and altering


def entity_of(entry: Any) -> dict[str, str | None]:
    return {part.entity_type: part.entity_name for part in entry.entity}


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, ["app", "both", "ip", "default"]),
        ([ComponentData("user", 0, "alice")], False, ["both"]),
        ([ComponentData("user", 0, "alice")], True, []),
        ([ComponentData("user", 0, "alice"), ComponentData("client-id", 0, "app")], True, ["both"]),
        ([ComponentData("user", 2, None)], False, ["both", "default"]),
        ([ComponentData("user", 1, None)], True, ["default"]),
        ([ComponentData("client-id", 2, None)], True, ["app"]),
        ([ComponentData("ip", 0, "10.0.0.1")], True, ["ip"]),
    ],
)
async def test_describing(
    world: BrokerWorld, components: list[ComponentData], strict: bool, found: list[str]
) -> None:
    entities = {
        "app": (("client-id", "app"),),
        "both": (("client-id", "app"), ("user", "alice")),
        "default": ANYBODY,
        "ip": (("ip", "10.0.0.1"),),
    }
    await world.publish(*(ClientQuota(entity, "some_rate", 1.0) for entity in entities.values()))
    response = world.handle(DescribeClientQuotasRequest(components, strict), 1)
    assert response.error_code == ErrorCode.NONE
    assert [entity_of(entry) for entry in response.entries] == [
        {kind: name or None for kind, name in entities[key]} for key in found
    ]
    assert all(
        [(value.key, value.value) for value in entry.values] == [("some_rate", 1.0)]
        for entry in response.entries
    )


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([ComponentData("group", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([ComponentData("user", 2, None), ComponentData("user", 1, None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 1, "alice")], ErrorCode.INVALID_REQUEST),
        ([ComponentData("user", 9, None)], ErrorCode.INVALID_REQUEST),
        ([ComponentData("ip", 2, None), ComponentData("user", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_filters_that_make_no_sense(
    world: BrokerWorld, components: list[ComponentData], code: ErrorCode
) -> None:
    response = world.handle(DescribeClientQuotasRequest(components), 1)
    assert (response.error_code, response.entries) == (code, None)
    assert response.error_message


async def test_altering(world: BrokerWorld) -> None:
    refused = messages.ClientQuotaResult("INVALID_REQUEST", "no")
    world.controller.answer(
        messages.AlterClientQuotasRequest,
        messages.AlterClientQuotasResponse((messages.ClientQuotaResult(), refused)),
    )
    entries = [
        AlterationData(
            [EntityData("user", "alice"), EntityData("client-id", None)],
            [OpData("a", 1.0), OpData("b", remove=True)],
        ),
        AlterationData([EntityData("user", "")], [OpData("a", 1.0)]),
        AlterationData([EntityData("user", "bob")], [OpData("a", float("nan"))]),
        AlterationData([EntityData("ip", None)], [OpData("c", 2.0)]),
    ]
    response = await world.handle(AlterClientQuotasRequest(entries, validate_only=True), 1)
    assert world.controller.calls == [
        messages.AlterClientQuotasRequest(
            (
                messages.ClientQuotaAlteration(
                    (("client-id", ""), ("user", "alice")),
                    (messages.QuotaChange("a", 1.0), messages.QuotaChange("b", None)),
                ),
                messages.ClientQuotaAlteration((("ip", ""),), (messages.QuotaChange("c", 2.0),)),
            ),
            validate_only=True,
        )
    ]
    codes = [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert [entry.error_code for entry in response.entries] == codes
    assert [entry.entity for entry in response.entries] == [entry.entity for entry in entries]
    assert [entry.error_message for entry in response.entries] == [
        None, "Empty user not supported", "a is to be a number, not nan", "no"
    ]  # fmt: skip
