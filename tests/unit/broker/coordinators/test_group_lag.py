"""A round over the groups of a broker: logs here and elsewhere, what is remembered, and what fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from fetcher.leader_endpoint import LeaderUnavailable
from kraft.broker.coordinators.group_lag import (
    FETCH_MAX_BYTES,
    FETCHES_MAX,
    PARTITION_MAX_BYTES,
    TIMES_KEPT_S,
    GroupLag,
    LeaderLogs,
    LocalLogs,
    RemoteLogs,
)
from kraft.broker.dispatch import Dispatcher
from kraft.broker.replicas.peer_connection import PeerConnection
from kraft.coordinator.groups.lag import PARTITIONS_PER_FETCH, Led, LogStart, PartitionLag, TimeSearch, Unread
from kraft.coordinator.groups.offset_records import NO_EXPIRY_MS, Committed, Place, encode
from kraft.coordinator.groups.shard import GroupShard
from kraft.coordinator.shard import StoredRecord
from kraft.network.request import decoding
from kraft.network.server import SocketServer
from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import FetchableTopicResponse, FetchRequest, PartitionData
from kraft.protocol.fetch import FetchResponse as WireFetchResponse
from kraft.protocol.schema import Message
from kraft.protocol.schemas.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Listener
from tests.support.broker_world import LISTENER_NAME, NOW_MS, BrokerWorld, batch, led_by, topic, topic_id

EPOCH = 0
GROUP = "g"


def led(partition: int = 0, *, leader: int = 1, epoch: int = EPOCH) -> Led:
    return Led("t", topic_id(1), partition, leader, epoch)


@pytest.fixture(params=["here", "elsewhere"])
async def logs(request: pytest.FixtureRequest, world: BrokerWorld) -> AsyncIterator[LeaderLogs]:
    """The logs of broker 1, as itself looks at them, and as another broker asks for them."""
    await world.start(*topic("t", 1, *((1,) for _ in range(5)), (1, 2)))
    if request.param == "here":
        yield LocalLogs(world.replicas, world.executor)
        return
    server = SocketServer(decoding(Dispatcher(world.services)), name=LISTENER_NAME)
    await server.start("127.0.0.1", 0)
    address = Listener(LISTENER_NAME, "127.0.0.1", server.port, "PLAINTEXT")
    remote = RemoteLogs(PeerConnection(1, lambda: address, client_id="test"))
    yield remote
    remote.close()
    await server.close(0)


def append(world: BrokerWorld, partition: int, *values: bytes) -> None:
    """Each value in a batch of its own."""
    for value in values:
        replica = world.replicas.partition(TopicPartition("t", partition))
        replica.append_records(batch(value), acks=1, now_ms=0)


async def test_ends_are_those_of_the_leadership_that_was_asked(world: BrokerWorld, logs: LeaderLogs) -> None:
    append(world, 0, b"a", b"b")
    asked = [led(0), led(5), led(2, epoch=7), led(9), led()._replace(topic="nowhere")]
    assert await logs.ends(asked) == {led(0): 2, led(5): 0}
    await world.publish(led_by(1, 5, 2))
    assert await logs.ends([led(5)]) == {}, "another broker leads it now"


async def test_a_fetch_tells_batches_starts_and_errors(world: BrokerWorld, logs: LeaderLogs) -> None:
    for number in (0, 1, 2):
        append(world, number, b"a", b"b", b"c")
    world.replicas.partition(TopicPartition("t", 1)).delete_records(2)
    asked = [(Unread(led(0), 1), 1), (Unread(led(1), 0), 0), (Unread(led(2, epoch=7), 0), 0)]
    answers = await logs.fetch(asked)
    assert answers[led(1)] == LogStart(2)
    assert answers[led(2, epoch=7)] is None
    search = TimeSearch({Unread(led(0), 1): 3})
    search.take(search.next_fetch(), answers)
    assert search.found == {Unread(led(0), 1): NOW_MS}


async def test_batches_larger_than_a_fetch_are_found_one_by_one(world: BrokerWorld, logs: LeaderLogs) -> None:
    large = b"x" * (FETCH_MAX_BYTES - 1024)
    for number in range(5):
        append(world, number, large)
    assert len(large) > PARTITION_MAX_BYTES
    search = TimeSearch({Unread(led(number), 0): 1 for number in range(5)})
    fetches = 0
    while asked := search.next_fetch():
        search.take(asked, await logs.fetch(asked))
        fetches += 1
    assert len(search.found) == 5
    assert fetches <= 5


async def test_a_connection_that_is_refused_is_an_unavailable_leader(world: BrokerWorld) -> None:
    connection = PeerConnection(2, lambda: None, client_id="test")
    with pytest.raises(LeaderUnavailable, match="no address"):
        await RemoteLogs(connection).ends([led()])


class Peer:
    """Broker 2, which leads what it does and says what it is told to."""

    def __init__(self) -> None:
        self.end = 10
        self.asked: list[Message] = []
        self.closed = 0
        self.failure: Exception | None = None

    async def request(self, body: Message, version: int, *, timeout_s: float) -> Message:
        self.asked.append(body)
        if self.failure is not None:
            raise self.failure
        if isinstance(body, ListOffsetsRequest):
            return ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        one.name,
                        [
                            ListOffsetsPartitionResponse(p.partition_index, offset=self.end)
                            for p in one.partitions
                        ],
                    )
                    for one in body.topics
                ]
            )
        assert isinstance(body, FetchRequest)
        return WireFetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic_id=one.topic_id,
                    partitions=[
                        PartitionData(
                            p.partition, high_watermark=self.end, records=memoryview(batch(*[b"x"] * 10))
                        )
                        for p in one.partitions
                    ],
                )
                for one in body.topics
            ]
        )

    def close(self) -> None:
        self.closed += 1


class Round:
    """A broker that coordinates what the test gives its shard 0."""

    def __init__(self, world: BrokerWorld) -> None:
        self.world = world
        self.peer = Peer()
        self.shard: GroupShard = world.groups._make_shard(0)
        self.shards = {0: self.shard}
        self.now_s = 0.0
        groups: Any = SimpleNamespace(
            runtime=SimpleNamespace(shards=lambda: iter(self.shards.items())), partition_of=lambda group_id: 0
        )
        environment: Any = SimpleNamespace(executor=world.executor, now_ms=lambda: NOW_MS + 4_000)
        loop: Any = SimpleNamespace(
            time=lambda: self.now_s, create_task=asyncio.get_running_loop().create_task
        )
        peer: Any = self._peer
        self.lag = GroupLag(
            1, groups, world.metadata, world.replicas, environment, loop, peer, interval_ms=1, listed_max=100
        )

    def _peer(self, broker_id: int) -> Peer:
        assert broker_id == 2, "no other leads anything"
        return self.peer

    def commit(self, offsets: Mapping[int, int]) -> None:
        for number, offset in offsets.items():
            committed = Committed(offset, -1, "", NOW_MS, NO_EXPIRY_MS, topic_id(1))
            record = encode(Place(GROUP, "t", number), committed)
            self.shard.replay(StoredRecord(0, NOW_MS, record.key, record.value))

    async def rows(self) -> dict[int, tuple[Any, ...]]:
        """Measures; offset, end, lag and age by partition."""
        await self.lag.measure()
        return {row.partition: row[3:] for row in self.lag.of_group(GROUP) or ()}


@pytest.fixture
async def one_round(world: BrokerWorld) -> Round:
    """Partitions 0 and 1 are led here, 2 and 3 by broker 2; nobody leads 4."""
    await world.start(*topic("t", 1, (1,), (1,), (2,), (2,), (3,)))
    await world.publish(led_by(1, 4, -1))
    return Round(world)


async def test_partitions_here_and_elsewhere(world: BrokerWorld, one_round: Round) -> None:
    append(world, 0, b"a", b"b")
    one_round.commit({0: 1, 1: 0, 2: 3, 3: 10, 4: 0})
    assert await one_round.rows() == {
        0: (1, 2, 1, 4.0),
        1: (0, 0, 0, None),
        2: (3, 10, 7, 4.0),
        3: (10, 10, 0, None),
        4: (0, None, None, None),
    }
    assert one_round.lag.measured_ms == NOW_MS + 4_000
    assert [type(body) for body in one_round.peer.asked] == [ListOffsetsRequest, FetchRequest]
    fetch = one_round.peer.asked[1]
    assert isinstance(fetch, FetchRequest)
    assert (fetch.replica_id, fetch.max_wait_ms, fetch.session_epoch) == (-1, 0, -1), "a consumer's, at once"
    assert [p.partition for one in fetch.topics for p in one.partitions] == [2], "what is behind only"
    assert one_round.peer.closed == 1
    view = one_round.lag.view()
    assert (view.offsets, len(view.listed), [one.lag for one in view.topics]) == (5, 5, [8])


async def test_without_committed_offsets_nobody_is_asked(one_round: Round) -> None:
    assert await one_round.rows() == {}
    assert one_round.peer.asked == []
    assert one_round.lag.of_group(GROUP) is None


async def test_a_time_stays_known_while_the_group_stays(one_round: Round) -> None:
    one_round.commit({2: 3})

    async def asked() -> list[type[Message]]:
        one_round.peer.asked.clear()
        assert (await one_round.rows())[2][3] == 4.0
        return [type(body) for body in one_round.peer.asked]

    assert await asked() == [ListOffsetsRequest, FetchRequest]
    assert await asked() == [ListOffsetsRequest]
    one_round.commit({2: 4})
    assert await asked() == [ListOffsetsRequest, FetchRequest]
    one_round.now_s += TIMES_KEPT_S
    assert await asked() == [ListOffsetsRequest, FetchRequest]


async def test_what_fails_leaves_no_value_of_before(world: BrokerWorld, one_round: Round) -> None:
    append(world, 0, b"a")
    one_round.commit({0: 0, 2: 3})
    assert (await one_round.rows())[2] == (3, 10, 7, 4.0)
    one_round.peer.failure = LeaderUnavailable("broker 2 is gone")
    assert await one_round.rows() == {0: (0, 1, 1, 4.0), 2: (3, None, None, None)}
    assert one_round.peer.closed == 2


async def test_an_error_of_one_partition_is_its_own(one_round: Round) -> None:
    one_round.commit({2: 3, 3: 3})
    real = one_round.peer.request

    async def request(body: Message, version: int, *, timeout_s: float) -> Message:
        told = await real(body, version, timeout_s=timeout_s)
        if isinstance(told, ListOffsetsResponse):
            told.topics[0].partitions[0].error_code = ErrorCode.FENCED_LEADER_EPOCH
        return told

    one_round.peer.request = request  # type: ignore[method-assign]
    assert await one_round.rows() == {2: (3, None, None, None), 3: (3, 10, 7, 4.0)}


async def test_a_shard_that_left_is_not_told_of(one_round: Round) -> None:
    one_round.commit({2: 3})
    await one_round.rows()
    one_round.shards.clear()
    assert one_round.lag.of_group(GROUP) is None
    assert one_round.lag.view()[:4] == ({}, 0, [], [])


async def test_a_defect_costs_the_round_and_not_the_broker(one_round: Round) -> None:
    one_round.commit({2: 3})
    await one_round.rows()
    lag, peer, ended = one_round.lag, one_round.peer, asyncio.Queue[None]()
    measure, answer = lag.measure, peer.request

    async def measuring() -> None:
        try:
            await measure()
        finally:
            ended.put_nowait(None)

    async def broken(body: Message, version: int, *, timeout_s: float) -> Message:
        raise ZeroDivisionError

    lag.measure, peer.request = measuring, broken  # type: ignore[method-assign]
    lag.start()
    async with asyncio.timeout(60):  # the log shows the defect with all that was known: that takes its time
        await ended.get()
        assert lag.view().offsets == 0
        peer.request = answer  # type: ignore[method-assign]
        await ended.get()  # it may have begun before
        await ended.get()
        assert lag.view().offsets == 1
    await lag.close()


async def test_a_round_asks_for_so_much_and_the_next_for_the_rest(world: BrokerWorld) -> None:
    """Of a leader that has more places than a round may ask for, all are found in the end."""
    count = FETCHES_MAX * PARTITIONS_PER_FETCH + 10
    await world.start(*topic("t", 1, *((2,) for _ in range(count))))
    one_round = Round(world)
    one_round.commit(dict.fromkeys(range(count), 3))

    def known(rows: dict[int, tuple[Any, ...]]) -> int:
        return sum(row[3] is not None for row in rows.values())

    assert known(await one_round.rows()) == count - 10
    fetches = sum(isinstance(body, FetchRequest) for body in one_round.peer.asked)
    assert fetches == FETCHES_MAX
    assert known(await one_round.rows()) == count
    listed = one_round.lag.view().listed
    assert len(listed) == 100
    assert all(isinstance(row, PartitionLag) for row in listed)
