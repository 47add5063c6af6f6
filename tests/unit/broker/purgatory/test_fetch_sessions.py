"""Fetch sessions over real logs: what an incremental answer names, what wakes a wait, what a leader learns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from partitions import fetch_session
from partitions.fetch_session import SessionPartition
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import PartitionChange
from tests.support.broker_world import BrokerWorld, batch, broker, gone, led_by, topic, topic_id

VERSION = 16
BY_NAME = 12
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
LONG_MS = 60_000


def at(offset: int, partition: int = 0, epoch: int = -1, **fields: int) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        fetch_offset=offset,
        current_leader_epoch=epoch,
        **{"partition_max_bytes": 1 << 20, **fields},
    )


class Reader:
    """One reader of topic "t", and its session."""

    def __init__(self, world: BrokerWorld, *, follower: bool = False, version: int = VERSION) -> None:
        self.world = world
        self.version = version
        self.replica_id = 2 if follower else -1
        self.replica_epoch = 2 if follower else -1
        self.session_id, self.epoch = 0, 0

    def request(self, *wanted: FetchPartition, forget: tuple[int, ...] = (), **fields: Any) -> FetchRequest:
        body = FetchRequest(
            replica_id=self.replica_id,
            replica_epoch=self.replica_epoch,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic("t", topic_id(1), list(wanted))] if wanted else [],
            forgotten_topics_data=[ForgottenTopic("t", topic_id(1), list(forget))] if forget else [],
        )
        for name, value in fields.items():
            setattr(body, name, value)
        return body

    def fetch(self, *wanted: FetchPartition, **fields: Any) -> Any:
        """The answer, or what has to be awaited for it."""
        result = self.world.handle(self.request(*wanted, **fields), self.version)
        if isinstance(result, FetchResponse):
            return self.took(result)
        self.epoch += 1
        return result

    def took(self, response: FetchResponse) -> FetchResponse:
        if response.error_code == 0:
            self.session_id = response.session_id
            self.epoch = self.epoch + 1 if response.session_id else 0
        return response

    def long_poll(self, *wanted: FetchPartition, **fields: Any) -> asyncio.Future[FetchResponse]:
        """An incremental request that has to wait."""
        answer: asyncio.Future[FetchResponse] = asyncio.ensure_future(
            self.fetch(*wanted, **{"max_wait_ms": LONG_MS, **fields})
        )
        return answer


def data(response: FetchResponse) -> list[PartitionData]:
    return [answer for topic_ in response.responses for answer in topic_.partitions]


def named(response: FetchResponse) -> list[int]:
    return [answer.partition_index for answer in data(response)]


def size(answer: PartitionData) -> int:
    records: Any = answer.records
    return sum(part.length for part in records) if not isinstance(records, bytes) else len(records)


def append(world: BrokerWorld, key: TopicPartition, value: bytes = b"v") -> None:
    partition = world.replicas.partition(key)
    partition.append_records(batch(value), acks=1, now_ms=world.replicas.monotonic_ms())


def count_reads(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> list[TopicPartition]:
    """Which partitions are asked for from now on."""
    asked: list[TopicPartition] = []
    original = world.replicas.partition

    def partition(key: TopicPartition) -> Any:
        asked.append(key)
        return original(key)

    monkeypatch.setattr(world.replicas, "partition", partition)
    return asked


@pytest.mark.parametrize("version", [7, BY_NAME, 13, VERSION])
async def test_an_incremental_answer_names_what_has_news(world: BrokerWorld, version: int) -> None:
    await world.start(*topic("t", 1, (1,), (1,), (1,)))
    reader = Reader(world, version=version)
    first = reader.fetch(at(0, 0), at(0, 1), at(0, 2))
    assert (named(first), first.session_id > 0) == ([0, 1, 2], True)
    nothing = reader.fetch()
    assert (named(nothing), nothing.session_id, nothing.error_code) == ([], first.session_id, 0)
    append(world, T1)
    (news,) = data(reader.fetch())
    assert (news.partition_index, size(news) > 0) == (1, True)
    assert named(reader.fetch()) == [1], "not read on: it is told again"
    assert named(reader.fetch(at(1, 1))) == []


async def test_an_idle_partition_costs_a_request_nothing(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start(*topic("t", 1, (1, 2), (1, 2), (1, 2)))
    reader = Reader(world, follower=True)
    reader.fetch(at(0, 0, 0), at(0, 1, 0), at(0, 2, 0))
    asked = count_reads(world, monkeypatch)
    for _ in range(3):
        assert named(reader.fetch()) == []
    assert asked == []
    poll = reader.long_poll()
    await asyncio.sleep(0)
    assert world.replicas.fetch_purgatory.count == 1
    append(world, T1)
    asked.clear()
    async with asyncio.timeout(60):
        assert named(await poll) == [1]
    assert asked == [T1]


async def test_a_followers_session_hears_of_the_high_watermark(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2, 3)))
    reader = Reader(world, follower=True)
    reader.fetch(at(0, 0, 0))
    append(world, T0)
    reader.fetch()
    assert named(reader.fetch(at(1, 0, 0, last_fetched_epoch=0))) == []
    other = Reader(world, follower=True)
    other.replica_id = other.replica_epoch = 3
    other.fetch(at(1, 0, 0, last_fetched_epoch=0), session_epoch=-1)
    (news,) = data(reader.fetch())
    assert (news.high_watermark, size(news)) == (1, 0)
    assert named(reader.fetch()) == []


async def test_errors_are_told_until_they_end(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), (1, 2)))
    reader = Reader(world)
    reader.fetch(at(0, 0, 0), at(0, 1))
    await world.publish(led_by(1, 0, 1))
    for _ in range(2):
        (answer,) = data(reader.fetch(max_wait_ms=LONG_MS))
        assert (answer.partition_index, answer.error_code) == (0, ErrorCode.FENCED_LEADER_EPOCH)
    (answer,) = data(reader.fetch(at(0, 0, 1)))
    assert (answer.error_code, answer.high_watermark) == (0, 0)
    assert named(reader.fetch()) == []


async def test_an_unknown_topic_id_is_its_own_partitions_error(world: BrokerWorld) -> None:
    await world.start(*topic("u", 2, (1,)))
    reader = Reader(world)
    body = reader.request(at(0))
    body.topics.append(FetchTopic("", topic_id(2), [at(0)]))
    response = reader.took(world.handle(body, VERSION))
    assert [answer.error_code for answer in data(response)] == [ErrorCode.UNKNOWN_TOPIC_ID, 0]
    assert [topic_.topic_id for topic_ in response.responses] == [topic_id(1), topic_id(2)]
    assert [answer.error_code for answer in data(reader.fetch())] == [ErrorCode.UNKNOWN_TOPIC_ID]
    await world.publish(*topic("t", 1, (1,)))
    (answer,) = data(reader.fetch())
    assert (answer.error_code, answer.high_watermark) == (0, 0)
    append(world, T0)
    assert named(reader.fetch()) == [0]


async def test_a_topic_that_goes_is_told(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    reader = Reader(world)
    reader.fetch(at(0))
    poll = reader.long_poll()
    await asyncio.sleep(0)
    await world.publish(gone(1))
    async with asyncio.timeout(60):
        (answer,) = data(await poll)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_what_is_forgotten_is_not_told_and_wakes_nobody(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), (1,)))
    reader = Reader(world)
    reader.fetch(at(0, 0), at(0, 1))
    assert named(reader.fetch(forget=(0,))) == []
    append(world, T0)
    poll = reader.long_poll()
    await asyncio.sleep(0)
    append(world, T0)
    assert not poll.done()
    append(world, T1)
    async with asyncio.timeout(60):
        assert named(await poll) == [1]
    sessions = world.replicas.fetch_purgatory.sessions
    assert (sessions.watched_by(T0), sessions.watched_by(T1)) == (0, 1)


async def test_a_wait_adds_up_what_the_sessions_partitions_have(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), (1,)))
    reader = Reader(world)
    reader.fetch(at(0, 0), at(0, 1))
    append(world, T0)
    poll = reader.long_poll(min_bytes=2 * len(batch(b"v")))
    await asyncio.sleep(0)
    assert world.replicas.fetch_purgatory.count == 1
    append(world, T1)
    async with asyncio.timeout(60):
        assert named(await poll) == [0, 1]
    assert world.replicas.fetch_purgatory.count == 0


async def test_a_full_request_waits_and_is_answered_in_full(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), (1,)))
    reader = Reader(world)
    poll = reader.long_poll(at(0, 0), at(0, 1))
    await asyncio.sleep(0)
    append(world, T1)
    async with asyncio.timeout(60):
        response = await poll
    assert (named(response), response.session_id > 0) == ([0, 1], True)


async def test_sessions_end_as_asked(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    sessions = world.replicas.fetch_purgatory.sessions
    reader = Reader(world)
    reader.fetch(at(0))
    old = reader.session_id
    assert named(reader.fetch(at(0), session_epoch=0)) == [0], "a full request replaces it"
    assert (reader.session_id != old, len(sessions.cache)) == (True, 1)
    lost = world.handle(reader.request(session_id=old, session_epoch=1), VERSION)
    assert lost.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    closing = world.handle(reader.request(session_epoch=-1), VERSION)
    assert (closing.error_code, closing.session_id, len(sessions.cache)) == (0, 0, 0)
    assert sessions.watched_by(T0) == 0


async def test_a_request_that_forgets_everything_ends_its_session(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    reader = Reader(world)
    reader.fetch(at(0))
    response = reader.fetch(forget=(0,), max_wait_ms=LONG_MS)
    assert (response.session_id, named(response)) == (0, [])


@pytest.mark.parametrize(
    ("fields", "version", "code"),
    [
        ({"session_epoch": 7}, VERSION, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ({"session_id": 4711}, VERSION, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ({"replica_id": 2, "replica_epoch": 2}, VERSION, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ({}, BY_NAME, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
async def test_requests_that_do_not_fit(
    world: BrokerWorld, fields: dict[str, Any], version: int, code: ErrorCode
) -> None:
    await world.start(*topic("t", 1, (1,)))
    reader = Reader(world)
    reader.fetch(at(0))
    response = world.handle(reader.request(**fields), version)
    assert (response.error_code, response.session_id, data(response)) == (code, 0, [])
    assert reader.fetch().error_code == 0, "the session is as it was"


async def test_a_younger_request_makes_a_waiting_one_void(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    reader = Reader(world)
    reader.fetch(at(0))
    poll = reader.long_poll()
    await asyncio.sleep(0)
    assert reader.fetch().error_code == 0
    async with asyncio.timeout(60):
        assert (await poll).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_without_a_slot_there_is_no_session(world: BrokerWorld) -> None:
    broker_without = BrokerWorld(properties="max.incremental.fetch.session.cache.slots=0\n")
    await broker_without.start(*topic("t", 1, (1,)))
    reader = Reader(broker_without)
    response = reader.fetch(at(0))
    assert (response.error_code, response.session_id, named(response)) == (0, 0, [0])
    await broker_without.close()


async def test_deleted_records_are_told(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    append(world, T0)
    append(world, T0)
    reader = Reader(world)
    reader.fetch(at(2))
    assert named(reader.fetch()) == []
    world.replicas.partition(T0).delete_records(1)
    (answer,) = data(reader.fetch())
    assert answer.log_start_offset == 1
    assert named(reader.fetch()) == []


async def test_limits_starve_nobody(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), (1,), (1,)))
    for key in (T0, T1, T2):
        for _ in range(3):
            append(world, key)
    reader = Reader(world)
    offsets = {0: 0, 1: 0, 2: 0}
    wanted = [at(0, 0), at(0, 1), at(0, 2)]
    served = []
    for _ in range(9):
        response = reader.fetch(*wanted, max_bytes=1)
        (got,) = [answer.partition_index for answer in data(response) if size(answer)]
        served.append(got)
        offsets[got] += 1
        wanted = [at(offsets[got], got)]
    assert served == [0, 1, 2] * 3


async def test_a_registration_that_changes_is_noticed(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    reader = Reader(world, follower=True)
    reader.replica_epoch = 20
    (refused,) = data(reader.fetch(at(0, 0, 0)))
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    reader = Reader(world, follower=True)
    reader.fetch(at(0, 0, 0))
    assert named(reader.fetch()) == []
    world.metadata.registered_epoch = lambda broker_id: 99  # type: ignore[method-assign]
    (refused,) = data(reader.fetch())
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_an_idle_follower_stays_in_sync_through_its_session(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long idle, then an append: the session's last request was a fetch of this partition, too."""
    await world.start(*topic("t", 1, (1, 2)))
    now_ms = world.replicas.monotonic_ms() + 1_000_000
    monkeypatch.setattr(world.replicas, "monotonic_ms", lambda: now_ms)
    reader = Reader(world, follower=True)
    reader.fetch(at(0, 0, 0))
    now_ms += 100_000
    reader.fetch()
    now_ms += 1_000
    append(world, T0)
    leading = world.replicas.partition(T0).leadership
    assert leading is not None
    assert leading.next_lag_deadline_ms(1, now_ms) == now_ms - 1_000 + 30_000 + 1


async def test_a_follower_that_does_not_come_any_more_falls_behind(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start(*topic("t", 1, (1, 2), (1, 2)))
    started_ms = now_ms = world.replicas.monotonic_ms() + 1_000_000
    monkeypatch.setattr(world.replicas, "monotonic_ms", lambda: now_ms)
    reader = Reader(world, follower=True)
    reader.fetch(at(0, 0, 0), at(0, 1, 0))
    now_ms += 10_000
    reader.fetch(forget=(0,))
    now_ms += 100_000
    reader.fetch()
    for key, fetched_ms in ((T0, started_ms), (T1, now_ms)):
        append(world, key)
        leading = world.replicas.partition(key).leadership
        assert leading is not None
        assert leading.next_lag_deadline_ms(1, now_ms) == fetched_ms + 30_001


async def test_retention_is_told_to_readers_and_to_the_leader() -> None:
    world = BrokerWorld(properties="log.retention.bytes=0\nlog.segment.bytes=200\n")
    await world.start(*topic("t", 1, (1,), (2, 1)))
    for _ in range(3):
        append(world, T0, b"v" * 100)
    followed = world.followed(T1)
    assert followed is not None
    followed.log.append_as_follower(
        batch(b"v" * 100) + batch(b"v" * 100, base_offset=1) + batch(b"v" * 100, base_offset=2),
        leader_epoch=0,
        leader_high_watermark=3,
        leader_log_start_offset=0,
    )
    touched: list[Any] = []
    world.fetchers.touch = touched.append  # type: ignore[method-assign]
    reader = Reader(world)
    reader.fetch(at(3))
    assert named(reader.fetch()) == []
    await world.replicas.delete_old_segments(max_logs=10)
    (answer,) = data(reader.fetch())
    assert (answer.partition_index, answer.log_start_offset) == (0, 3)
    assert touched == [T0, T1]
    await world.close()


async def test_a_fetch_beside_the_session_takes_nothing_from_it(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    now_ms = world.replicas.monotonic_ms() + 1_000_000
    monkeypatch.setattr(world.replicas, "monotonic_ms", lambda: now_ms)
    reader = Reader(world, follower=True)
    reader.fetch(at(0, 0, 0))
    world.handle(reader.request(at(0, 0, 0), session_id=0, session_epoch=-1), VERSION)
    now_ms += 100_000
    reader.fetch()
    append(world, T0)
    leading = world.replicas.partition(T0).leadership
    assert leading is not None
    assert leading.next_lag_deadline_ms(1, now_ms) == now_ms + 30_001


@pytest.mark.parametrize("late_epoch", [-1, 0], ids=["other lane", "lost session"])
async def test_a_fetch_that_comes_late_is_put_right_by_the_session(
    world: BrokerWorld, late_epoch: int
) -> None:
    """It was sent before the session went on, which has no reason to name the partition ever again."""
    await world.start(*topic("t", 1, (1, 2, 3)))
    two, three = Reader(world, follower=True), Reader(world, follower=True)
    three.replica_id = three.replica_epoch = 3
    append(world, T0)
    two.fetch(at(0, 0, 0))
    two.fetch(at(1, 0, 0, last_fetched_epoch=0))
    world.handle(two.request(at(0, 0, 0), session_id=0, session_epoch=late_epoch), VERSION)
    three.fetch(at(1, 0, 0, last_fetched_epoch=0))
    partition = world.replicas.partition(T0)
    assert partition.high_watermark == 0
    two.fetch()
    assert partition.high_watermark == 1


async def test_a_replica_that_was_offline_joins_by_what_it_fetches_from_then_on(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2, 3)))
    append(world, T0)
    two, three = Reader(world, follower=True), Reader(world, follower=True)
    three.replica_id = three.replica_epoch = 3
    for reader in (two, three):
        reader.fetch(at(0, 0, 0))
        reader.fetch(at(1, 0, 0, last_fetched_epoch=0))
    partition = world.replicas.partition(T0)
    await world.publish(PartitionChange(topic_id(1), 0, isr=(1, 3), offline_replicas=(2,)))
    await world.publish(PartitionChange(topic_id(1), 0, offline_replicas=()))
    await world.publish(*broker(4))
    assert partition.pending_proposal is None, "its log may have been made anew"
    two.fetch(at(0, 0, 0))
    assert partition.pending_proposal is None
    two.fetch(at(1, 0, 0, last_fetched_epoch=0))
    assert partition.maximal_isr == (1, 3, 2)


async def test_back_in_one_step_of_the_leaders_metadata_is_a_new_leader_epoch(world: BrokerWorld) -> None:
    """The leader never saw the replica offline: the controller's record says that all begins anew."""
    await world.start(*topic("t", 1, (1, 2)))
    append(world, T0)
    two = Reader(world, follower=True)
    two.fetch(at(0, 0, 0))
    two.fetch(at(1, 0, 0, last_fetched_epoch=0))
    partition = world.replicas.partition(T0)
    await world.publish(
        PartitionChange(topic_id(1), 0, isr=(1,), offline_replicas=(2,)),
        PartitionChange(topic_id(1), 0, leader=1, offline_replicas=()),
    )
    await world.publish(*broker(4))
    (refused,) = data(two.fetch())
    assert refused.error_code == ErrorCode.FENCED_LEADER_EPOCH, (
        "a fetch of the log before, under way till now"
    )
    assert partition.pending_proposal is None


def numbered_follower(world: BrokerWorld, number: int) -> Reader:
    reader = Reader(world, follower=True)
    reader.replica_id = reader.replica_epoch = number
    return reader


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_session_that_gives_way_has_its_waiting_request_answered(is_full: bool) -> None:
    world = BrokerWorld(properties="max.incremental.fetch.session.cache.slots=1\n")
    await world.start(*topic("t", 1, (1, 2), isr=(1,)))
    consumer = Reader(world)
    if not is_full:
        consumer.fetch(at(0))
    poll = consumer.long_poll(*([at(0)] if is_full else []))
    await asyncio.sleep(0)
    numbered_follower(world, 2).fetch(at(0, 0, 0))
    async with asyncio.timeout(60):
        response = await poll
    assert (response.error_code, response.session_id) == (0, 0), "the next request is a full one"
    assert named(response) == ([0] if is_full else [])
    sessions = world.replicas.fetch_purgatory.sessions
    assert (world.replicas.fetch_purgatory.count, sessions.watched_by(T0)) == (0, 1)
    await world.close()


async def test_a_session_that_has_ended_watches_nothing(world: BrokerWorld) -> None:
    """Its last request looks once more, at a topic whose name was not known before."""
    await world.start(*topic("u", 2, (1,)))
    reader = Reader(world)
    reader.fetch(at(0))
    sessions = world.replicas.fetch_purgatory.sessions
    session = sessions.cache.get(reader.session_id)
    assert session is not None
    sessions.cache.close(reader.session_id)
    sessions.watch(next(iter(session.partitions)), T0)
    assert sessions.watched_by(T0) == 0


async def test_an_append_costs_each_session_that_waits_the_same(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many others wait for the partition, too."""
    await world.start(*topic("t", 1, (1,)))
    looked_at = 0
    slot: Any = vars(SessionPartition)["session"]

    def session(partition: SessionPartition) -> Any:
        nonlocal looked_at
        looked_at += 1
        return slot.__get__(partition)

    monkeypatch.setattr(SessionPartition, "session", property(session, slot.__set__))
    costs = []
    for count in (10, 30):
        readers = [Reader(world) for _ in range(count)]
        for reader in readers:
            reader.fetch(at(world.replicas.partition(T0).high_watermark))
            reader.fetch()
        polls = [reader.long_poll(min_bytes=1 << 20) for reader in readers]
        await asyncio.sleep(0)
        looked_at = 0
        append(world, T0)
        costs.append(looked_at / count)
        for poll, reader in zip(polls, readers, strict=True):
            poll.cancel()
            world.replicas.fetch_purgatory.sessions.cache.close(reader.session_id)
    assert costs[0] == costs[1] > 0


async def test_of_very_many_errors_a_request_looks_at_some_in_turn(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tiny request must not cost what its session's invented partitions would."""
    monkeypatch.setattr(fetch_session, "RETRIED_MAX", 2)
    await world.start(*topic("t", 1, (1,)))
    reader = Reader(world)
    assert named(reader.fetch(at(0), *(at(0, number) for number in range(1, 6)))) == [0, 1, 2, 3, 4, 5]
    asked = count_reads(world, monkeypatch)
    told = [named(reader.fetch(max_wait_ms=LONG_MS)) for _ in range(5)]
    assert told == [[1, 2], [3, 4], [5, 1], [2, 3], [4, 5]]
    assert len(asked) == 10, "the healthy one has no news, and of the others only those are looked at"
    assert named(reader.fetch(rack_id="b")) == [1, 2], "another rack does not ask for all of them"
    append(world, T0)
    assert named(reader.fetch(at(0, 5), forget=(3, 4))) == [0, 5, 1, 2]


async def test_an_error_that_ends_in_its_turn_is_told(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_session, "RETRIED_MAX", 1)
    await world.start()
    reader = Reader(world)
    assert named(reader.fetch(at(0), at(0, 1), at(0, 2))) == [0, 1, 2]
    await world.publish(*topic("t", 1, (1,), (1,), (1,)))
    for number, max_wait_ms in ((0, LONG_MS), (1, LONG_MS), (2, 0)):
        answer, *others = data(reader.fetch(max_wait_ms=max_wait_ms))  # nobody waits while some are left
        assert (answer.partition_index, answer.error_code, answer.high_watermark) == (number, 0, 0)
        assert others == []
    append(world, T1)
    assert named(reader.fetch()) == [1]


@pytest.mark.parametrize(
    ("selector", "kept"),
    [("", ""), ("replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector\n", "b")],
)
async def test_a_rack_is_kept_only_where_it_matters(selector: str, kept: str) -> None:
    world = BrokerWorld(properties=selector)
    await world.start(*topic("t", 1, (1,)))
    reader = Reader(world)
    reader.fetch(at(0), rack_id="b")
    session = world.replicas.fetch_purgatory.sessions.cache.get(reader.session_id)
    assert session is not None
    assert session.reader.rack_id == kept
    await world.close()
