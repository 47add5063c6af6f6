"""WriteTxnMarkers over real logs: what is written, what was written before, and when it is answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraft.broker.coordinators.marker_writes import MarkerWrite, write_markers
from kraft.coordinator.shard import ProducerIdAndEpoch, TransactionMarker
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from partitions.records.batch import iter_batches
from partitions.records.markers import read_marker
from partitions.topic_partition import TopicPartition
from quorum.controller.topic_names import CONSUMER_OFFSETS
from quorum.metadata.records import Config
from tests.support.broker_world import NOW_MS, BrokerWorld, led_by, topic
from tests.support.transactions import ABORT, COMMIT, transactional

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
VERSION = 2
P, Q = 7, 8
NONE = ErrorCode.NONE
EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH


def marker(
    producer: int = P,
    epoch: int = 0,
    *partitions: int,
    commits: bool = True,
    coordinator_epoch: int = 0,
    version: int = 0,
    name: str = "t",
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=commits,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=list(partitions or (0,)))],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def begin(world: BrokerWorld, *markers: WritableTxnMarker, version: int = VERSION) -> asyncio.Future[Any]:
    answer: asyncio.Future[Any] = asyncio.ensure_future(
        world.handle(WriteTxnMarkersRequest(markers=list(markers)), version)
    )
    return answer


def told(response: WriteTxnMarkersResponse) -> list[tuple[int, list[ErrorCode]]]:
    return [
        (one.producer_id, [ErrorCode(r.error_code) for found in one.topics for r in found.partitions])
        for one in response.markers
    ]


async def codes(world: BrokerWorld, *markers: WritableTxnMarker) -> list[ErrorCode]:
    return [code for _, found in told(await begin(world, *markers)) for code in found]


def put(world: BrokerWorld, key: TopicPartition, *batches: bytes) -> None:
    for one in batches:
        world.replicas.appends.append(key, one, acks=1, origin="coordinator")


def copied(world: BrokerWorld, offset: int, key: TopicPartition = T0) -> None:
    world.replicas.partition(key).update_follower(2, 2, offset, 0, offset, world.replicas.monotonic_ms())


async def test_several_producers_are_ended_in_several_partitions_at_once(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), (1,), (2, 1)))
    put(world, T0, transactional(P, b"a"), transactional(Q, b"b"))
    put(world, T1, transactional(P, b"c"))
    response = await begin(
        world,
        marker(P, 0, 0, 1, 2, 9, commits=False, coordinator_epoch=4),
        marker(Q, 0, 0),
    )
    assert told(response) == [
        (P, [NONE, NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        (Q, [NONE]),
    ]
    partition = world.replicas.partition(T0)
    assert partition.last_stable_offset == partition.log_end_offset == 4
    data = b"".join(
        part.read() for part in partition.log.read(0, 1 << 20, up_to_offset=partition.log_end_offset).slices
    )
    markers = [
        (header, read_marker(data, at, header)) for at, header in iter_batches(data) if header.is_control
    ]
    assert [(header.producer_id, header.max_timestamp) for header, _ in markers] == [(P, NOW_MS), (Q, NOW_MS)]
    assert [(end.kind, end.coordinator_epoch) for _, end in markers if end] == [(ABORT, 4), (COMMIT, 0)]


async def test_it_is_answered_when_it_is_committed_also_when_it_comes_again(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    put(world, T0, transactional(P, b"a"))
    first = begin(world, marker(P, 1, version=2))
    await asyncio.sleep(0)
    again = begin(world, marker(P, 1, version=2))
    for _ in range(5):
        await asyncio.sleep(0)
    assert world.replicas.partition(T0).log_end_offset == 2, "it is written once"
    assert not first.done()
    assert not again.done()
    copied(world, 2)
    assert [told(await one) for one in (first, again)] == [[(P, [NONE])]] * 2


async def test_a_late_marker_does_not_end_the_next_transaction(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    put(world, T0, transactional(P, b"a"))
    assert await codes(world, marker(P, 1, version=2)) == [NONE]
    put(world, T0, transactional(P, b"b", epoch=1))
    partition = world.replicas.partition(T0)
    assert await codes(world, marker(P, 1, version=2)) == [EPOCH]
    assert (partition.log_end_offset, partition.last_stable_offset) == (3, 2)
    assert await codes(world, marker(P, 1, version=1)) == [NONE], "before version 2 nobody could tell"
    assert partition.last_stable_offset == 4


async def test_a_request_of_version_1_is_judged_as_before(world: BrokerWorld) -> None:
    """The transaction version travels since version 2."""
    await world.start(*topic("t", 1, (1,)))
    put(world, T0, transactional(P, b"a", epoch=1))
    assert told(await begin(world, marker(P, 1), version=1)) == [(P, [NONE])]


async def test_older_producers_and_coordinators_are_fenced(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    put(world, T0, transactional(P, b"a", epoch=3))
    assert await codes(world, marker(P, 2)) == [EPOCH]
    assert await codes(world, marker(P, 3, coordinator_epoch=5)) == [NONE]
    put(world, T0, transactional(P, b"b", epoch=3))
    assert await codes(world, marker(P, 3, coordinator_epoch=4)) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert world.replicas.partition(T0).last_stable_offset == 2


@pytest.mark.parametrize(("producer", "epoch"), [(-1, 0), (-7, 3), (P, -1)])
async def test_nobody_that_cannot_be_is_ended(world: BrokerWorld, producer: int, epoch: int) -> None:
    await world.start(*topic("t", 1, (1,)))
    assert await codes(world, marker(producer, epoch)) == [ErrorCode.INVALID_REQUEST]
    assert world.replicas.partition(T0).log_end_offset == 0


async def test_no_marker_is_written_where_it_could_not_be_committed(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2), isr=(1,)), Config("topic", "t", "min.insync.replicas", "2"))
    assert await codes(world, marker()) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert world.replicas.partition(T0).log_end_offset == 0


async def test_a_leadership_that_ends_is_told(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    waiting = begin(world, marker())
    for _ in range(5):
        await asyncio.sleep(0)
    await world.publish(led_by(1, 0, 2))
    assert told(await waiting) == [(P, [ErrorCode.NOT_LEADER_OR_FOLLOWER])]


async def test_what_is_not_committed_in_time_is_to_be_asked_again(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    end = TransactionMarker(ProducerIdAndEpoch(P, 0), True, 0, 0)
    results = await write_markers(world.replicas.appends, world.groups, [MarkerWrite(end, [T0])], 0.0)
    assert results == [{T0: ErrorCode.REQUEST_TIMED_OUT}]


async def test_a_marker_waits_for_no_records_that_are_checked(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    never = asyncio.Event()
    put(world, T0, transactional(P, b"a"))
    appends = world.replicas.appends
    behind = appends.gates.pass_then(T0, never.wait, lambda _: pytest.fail("it never passes"), 10)
    assert await codes(world, marker()) == [NONE]
    assert not behind.done()


class Groups:
    """The group coordinator, as far as markers go."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, TransactionMarker]] = []
        self.ended: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def end_transaction(self, number: int, end: TransactionMarker) -> asyncio.Future[ErrorCode]:
        self.asked.append((number, end))
        return self.ended


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (NONE, NONE),
        (EPOCH, EPOCH),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (None, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_the_offsets_of_groups_are_ended_by_their_coordinator(
    world: BrokerWorld, said: ErrorCode | None, code: ErrorCode
) -> None:
    await world.start(*topic("t", 1, (1,)))
    groups, offsets = Groups(), TopicPartition(CONSUMER_OFFSETS, 3)
    if said is not None:
        groups.ended.set_result(said)
    end = TransactionMarker(ProducerIdAndEpoch(P, 0), True, 4, 2)
    results = await write_markers(
        world.replicas.appends,
        groups,  # type: ignore[arg-type]
        [MarkerWrite(end, [offsets, T0])],
        0.01,
    )
    assert results == [{offsets: code, T0: NONE}]
    assert groups.asked == [(3, end)]
