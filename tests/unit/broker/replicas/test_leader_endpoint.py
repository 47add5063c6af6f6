"""The fetcher's view of a leader, against a broker that serves the real handlers on a loopback socket."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fetcher.leader_endpoint import (
    FetchPartition,
    FetchRequest,
    LeaderOffsets,
    LeaderUnavailable,
    OffsetsQuery,
)
from kraft.broker.dispatch import Dispatcher
from kraft.broker.peer_security import PeerSecurity
from kraft.broker.replicas.leader_endpoint import RemoteLeader, _error_name
from kraft.broker.tls import follower_context, server_context
from kraft.config import load_config
from kraft.network.request import decoding
from kraft.network.server import SocketServer
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Listener
from tests.support.broker_world import LISTENER_NAME, BrokerWorld, batch, led_by, topic, topic_id

T0 = TopicPartition("t", 0)
PEM = Path(__file__).parents[2] / "network" / "localhost.pem"
TLS_CONFIG = load_config(
    "process.roles=broker\nnode.id=1\ncontroller.quorum.voters=9@localhost:9093\n"
    "controller.listener.names=CONTROLLER\nlisteners=PLAIN://:9091,SECURE://:9092\n"
    "listener.security.protocol.map=PLAIN:PLAINTEXT,SECURE:SSL,CONTROLLER:PLAINTEXT\n"
    f"inter.broker.listener.name=SECURE\nssl.keystore.location={PEM}\nssl.truststore.location={PEM}\n"
)


class Leader:
    """The broker's side: broker 1 leads; and the endpoint that follower 2 has of it."""

    def __init__(self, world: BrokerWorld, context: ssl.SSLContext | None = None) -> None:
        self.world = world
        self.server = SocketServer(
            decoding(Dispatcher(world.services)), ssl_context=context, name=LISTENER_NAME
        )
        self.address: Listener | None = None
        self.endpoints: list[RemoteLeader] = []

    async def start(self, host: str = "127.0.0.1") -> None:
        await self.server.start("127.0.0.1", 0)
        self.address = Listener(LISTENER_NAME, host, self.server.port, "PLAINTEXT")

    def endpoint(self, context: ssl.SSLContext | None = None, timeout_s: float = 5.0) -> RemoteLeader:
        made = RemoteLeader(
            1,
            2,
            broker_epoch=lambda: 2,
            address=lambda: self.address,
            request_timeout_s=timeout_s,
            security=PeerSecurity(None if context is None else lambda: context),
        )
        self.endpoints.append(made)
        return made

    async def close(self) -> None:
        for endpoint in self.endpoints:
            await endpoint.close()
        await self.server.close(0)


@pytest.fixture
async def leader(world: BrokerWorld) -> AsyncIterator[Leader]:
    await world.start(*topic("t", 1, (1, 2), (1, 2)), *topic("u", 2, (1, 2)))
    made = Leader(world)
    await made.start()
    yield made
    await made.close()


def asked(key: tuple[str, int], number: int, offset: int = 0, epoch: int = 0) -> FetchPartition:
    return FetchPartition(key, topic_id(number), epoch, offset, -1 if offset == 0 else 0, 0, 1 << 20, 1)


def request(*partitions: FetchPartition, lane: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(1, lane, partitions, max_wait_ms, 1, 1 << 20)


async def test_records_arrive_as_they_are_in_the_log(leader: Leader) -> None:
    records = batch(b"a", b"b")
    leader.world.replicas.partition(T0).append_records(records, acks=1, now_ms=0)
    fetch = request(asked(("t", 0), 1), asked(("u", 0), 2), asked(("t", 1), 1))
    answers = (await leader.endpoint().fetch(fetch)).partitions
    assert [answer.key for answer in answers] == [("t", 0), ("u", 0), ("t", 1)]
    assert len(answers[0].records) == len(records)
    assert bytes(answers[0].records)[61:] == bytes(records)[61:]
    assert (answers[0].error, answers[0].high_watermark, answers[0].log_start_offset) == (None, 0, 0)
    assert bytes(answers[1].records) == b""


async def test_a_session_names_what_changes_both_ways(leader: Leader) -> None:
    endpoint, t0, t1, u0 = leader.endpoint(), ("t", 0), ("t", 1), ("u", 0)
    first = request(asked(t0, 1), asked(t1, 1), asked(u0, 2))._replace(session_epoch=0)
    answer = await endpoint.fetch(first)
    assert [fetched.key for fetched in answer.partitions] == [t0, t1, u0]
    session = request()._replace(session_id=answer.session_id, session_epoch=1)
    for number, key in ((1, t1), (2, u0)):
        leader.world.replicas.partition(TopicPartition(*key)).append_records(batch(b"a"), acks=1, now_ms=0)
        fetched = await endpoint.fetch(session._replace(session_epoch=number))
        assert key in [partition.key for partition in fetched.partitions]
        assert t0 not in [partition.key for partition in fetched.partitions]
    last = session._replace(session_epoch=3, forgotten=((t1, topic_id(1)), (u0, topic_id(2))))
    fetched = await endpoint.fetch(last)
    assert (fetched.partitions, fetched.session_id) == ([], answer.session_id)
    refused = await endpoint.fetch(last)
    assert (refused.error, refused.session_id) == ("INVALID_FETCH_SESSION_EPOCH", 0)


async def test_errors_and_divergence_have_their_names(leader: Leader) -> None:
    await leader.world.publish(led_by(1, 0, 1))
    fetch = request(
        asked(("t", 0), 1, epoch=0),
        asked(("t", 0), 9),
        asked(("t", 1), 1, offset=7)._replace(last_fetched_epoch=-1),
        asked(("u", 0), 2, epoch=4),
    )
    answers = (await leader.endpoint().fetch(fetch)).partitions
    assert [answer.error for answer in answers] == [
        "FENCED_LEADER_EPOCH", "UNKNOWN_TOPIC_ID", "OFFSET_OUT_OF_RANGE", "UNKNOWN_LEADER_EPOCH",
    ]  # fmt: skip
    leader.world.replicas.partition(T0).append_records(batch(b"a"), acks=1, now_ms=0)
    diverging = FetchPartition(("t", 0), topic_id(1), 1, 5, 1, 0, 1 << 20, 1)
    (answer,) = (await leader.endpoint().fetch(request(diverging))).partitions
    assert answer.diverging_epoch == (1, 1)


def test_an_error_of_a_newer_release_is_an_error_and_no_defect() -> None:
    assert _error_name(31_999) == "UNKNOWN_SERVER_ERROR"
    assert _error_name(74) == "FENCED_LEADER_EPOCH"


async def test_the_bounds_of_a_log_are_a_replicas(leader: Leader) -> None:
    leader.world.replicas.partition(T0).append_records(batch(b"a", b"b"), acks=1, now_ms=0)
    queries = [
        OffsetsQuery(("t", 0), topic_id(1), 0, generation=1),
        OffsetsQuery(("t", 1), topic_id(1), 3, generation=1),
        OffsetsQuery(("nowhere", 0), topic_id(5), 0, generation=1),
    ]
    assert await leader.endpoint().log_offsets(queries) == {
        ("t", 0): LeaderOffsets(0, 2),
        ("t", 1): LeaderOffsets(error="UNKNOWN_LEADER_EPOCH"),
        ("nowhere", 0): LeaderOffsets(error="UNKNOWN_TOPIC_OR_PARTITION"),
    }


async def test_a_long_poll_holds_up_no_other_lane(leader: Leader) -> None:
    endpoint = leader.endpoint()
    polling = asyncio.ensure_future(endpoint.fetch(request(asked(("t", 0), 1), max_wait_ms=60_000)))
    async with asyncio.timeout(60):
        await endpoint.fetch(request(asked(("u", 0), 2), lane=1))
        await endpoint.log_offsets([OffsetsQuery(("t", 0), topic_id(1), 0, generation=1)])
    assert not polling.done()
    assert leader.server.connection_count == 3
    leader.world.replicas.partition(T0).append_records(batch(b"a"), acks=1, now_ms=0)
    async with asyncio.timeout(60):
        await polling


async def test_a_cancelled_call_harms_no_later_one(leader: Leader) -> None:
    endpoint = leader.endpoint()
    await endpoint.fetch(request(asked(("t", 0), 1)))
    polling = asyncio.ensure_future(endpoint.fetch(request(asked(("t", 0), 1), max_wait_ms=60_000)))
    await asyncio.sleep(0)
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    async with asyncio.timeout(60):
        (answer,) = (await endpoint.fetch(request(asked(("u", 0), 2)))).partitions
    assert answer.key == ("u", 0)


async def test_a_leader_that_does_not_answer_is_given_up_in_time(leader: Leader) -> None:
    """The fetcher relies on it: it has no deadline of its own."""
    accepted = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    leader.address = Listener(LISTENER_NAME, "127.0.0.1", port, "PLAINTEXT")
    endpoint = leader.endpoint(timeout_s=0.05)
    with pytest.raises(LeaderUnavailable, match=r"within 0\.06 s"):
        await endpoint.fetch(request(asked(("t", 0), 1), max_wait_ms=10))
    with pytest.raises(LeaderUnavailable, match=r"within 0\.05 s"):
        await endpoint.log_offsets([OffsetsQuery(("t", 0), topic_id(1), 0, generation=1)])
    await asyncio.wait_for(accepted.wait(), 30)
    server.close()
    await server.wait_closed()


async def test_a_leader_that_moves_is_found_at_its_new_address(leader: Leader) -> None:
    endpoint = leader.endpoint()
    known, leader.address = leader.address, None
    with pytest.raises(LeaderUnavailable, match="no address"):
        await endpoint.fetch(request(asked(("t", 0), 1)))
    leader.address = known
    await endpoint.fetch(request(asked(("t", 0), 1)))
    await leader.server.close(0)
    with pytest.raises(LeaderUnavailable):
        await endpoint.fetch(request(asked(("t", 0), 1)))
    again = Leader(leader.world)
    await again.start()
    leader.address = again.address
    assert (await endpoint.fetch(request(asked(("t", 0), 1)))).error is None
    await endpoint.close()
    await again.close()


async def test_followers_speak_tls_where_leaders_do(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    leader = Leader(world, server_context(TLS_CONFIG, "SECURE"))
    await leader.start("localhost")
    context = follower_context(TLS_CONFIG)
    assert context is not None
    assert (await leader.endpoint(context()).fetch(request(asked(("t", 0), 1)))).error is None
    with pytest.raises(LeaderUnavailable):  # nobody vouches for the certificate
        await leader.endpoint(ssl.create_default_context()).fetch(request(asked(("t", 0), 1)))
    with pytest.raises(LeaderUnavailable):
        await leader.endpoint(timeout_s=0.5).fetch(request(asked(("t", 0), 1)))
    await leader.close()


def test_a_plain_listener_between_brokers_needs_no_context(world: BrokerWorld) -> None:
    assert follower_context(world.config) is None
