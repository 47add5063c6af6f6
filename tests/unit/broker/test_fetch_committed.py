"""Fetch and ListOffsets of clients that read committed records only, over real logs."""

from __future__ import annotations

import asyncio

from kraft.protocol.errors import ErrorCode
from kraft.protocol.fetch import AbortedTransaction
from kraft.protocol.schemas.offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.support.broker_world import NOW_MS, BrokerWorld, topic
from tests.support.transactions import ABORT, COMMIT, marker_of, transactional
from tests.unit.broker.test_fetch import T0, VERSION, append, at, data, request, size

READ_COMMITTED = 1
LATER_MS = NOW_MS + 1000
"""After every other record's timestamp."""


def write(world: BrokerWorld, *batches: bytes) -> int:
    """Appends as a coordinator does; the bytes."""
    records = b"".join(batches)
    world.replicas.partition(T0).append_records(
        records, acks=1, now_ms=world.replicas.monotonic_ms(), origin="coordinator"
    )
    return len(records)


def copied(world: BrokerWorld, offset: int) -> None:
    """The follower has everything below `offset`."""
    asked = at(offset, current_leader_epoch=0, last_fetched_epoch=0)
    world.handle(request(asked, follower=True), VERSION)


def listed(world: BrokerWorld, timestamp: int, level: int = READ_COMMITTED) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    body = ListOffsetsRequest(isolation_level=level, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    answer: ListOffsetsPartitionResponse = world.handle(body, 7).topics[0].partitions[0]
    assert answer.error_code == 0
    return answer


async def test_open_transactions_are_not_read(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    plain_bytes = append(world, T0, b"0")
    open_bytes = write(world, transactional(7, b"1"))
    (committed,) = data(world.handle(request(at(0), isolation_level=READ_COMMITTED), VERSION))
    assert (size(committed), committed.high_watermark, committed.last_stable_offset) == (plain_bytes, 2, 1)
    assert committed.aborted_transactions == []
    (everything,) = data(world.handle(request(at(0)), VERSION))
    assert (size(everything), everything.last_stable_offset) == (plain_bytes + open_bytes, 1)
    assert everything.aborted_transactions is None
    (nothing,) = data(world.handle(request(at(1), isolation_level=READ_COMMITTED), VERSION))
    assert (size(nothing), nothing.error_code, nothing.aborted_transactions) == (0, 0, [])


async def test_aborted_transactions_are_named_to_those_who_read_their_range(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    write(world, transactional(7, b"0"), transactional(8, b"1"), transactional(9, b"2"))
    write(world, marker_of(8, ABORT), marker_of(9, COMMIT), marker_of(7, ABORT))
    write(world, transactional(8, b"6"), marker_of(8, ABORT))

    def aborted(offset: int, max_bytes: int = 1 << 20) -> list[AbortedTransaction] | None:
        asked = at(offset, partition_max_bytes=max_bytes)
        (answer,) = data(world.handle(request(asked, isolation_level=READ_COMMITTED), VERSION))
        return answer.aborted_transactions

    first, second, third = AbortedTransaction(8, 1), AbortedTransaction(7, 0), AbortedTransaction(8, 6)
    assert aborted(0) == [first, second, third]
    assert aborted(0, 1) == [second]
    assert aborted(1, 1) == [first, second]
    assert aborted(4) == [second, third]
    assert aborted(6) == [third]


async def test_a_marker_counts_once_it_is_replicated(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    write(world, transactional(7, b"0"))
    copied(world, 1)
    write(world, marker_of(7, COMMIT))
    partition = world.replicas.partition(T0)
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    (held,) = data(world.handle(request(at(0), isolation_level=READ_COMMITTED), VERSION))
    assert (size(held), held.last_stable_offset) == (0, 0)
    copied(world, 2)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)


async def test_a_waiting_reader_goes_on_with_the_marker(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    size_bytes = write(world, transactional(7, b"0"))
    copied(world, 1)
    body = request(at(0), isolation_level=READ_COMMITTED, max_wait_ms=60_000)
    answer = world.handle(body, VERSION)
    size_bytes += write(world, marker_of(7, ABORT))
    purgatory = world.replicas.fetch_purgatory
    assert purgatory.count == 1
    copied(world, 2)
    async with asyncio.timeout(60):
        (found,) = data(await answer)
    assert (size(found), found.last_stable_offset) == (size_bytes, 2)
    assert found.aborted_transactions == [AbortedTransaction(7, 0)]


async def test_a_divergence_and_an_error_name_no_transactions(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    write(world, transactional(7, b"0"), marker_of(7, ABORT))
    (beyond,) = data(world.handle(request(at(9), isolation_level=READ_COMMITTED), VERSION))
    assert (beyond.error_code, beyond.last_stable_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert beyond.aborted_transactions is None


async def test_to_such_a_reader_the_log_ends_at_the_last_stable_offset(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    append(world, T0, b"0")
    write(world, transactional(7, b"1", timestamp=LATER_MS))
    assert listed(world, LATEST_TIMESTAMP).offset == 1
    assert listed(world, LATEST_TIMESTAMP, level=0).offset == 2
    assert listed(world, LATER_MS).offset == -1
    assert listed(world, LATER_MS, level=0).offset == 1
    write(world, marker_of(7, COMMIT))
    assert listed(world, LATEST_TIMESTAMP).offset == 3
    assert listed(world, LATER_MS).offset == 1


async def test_the_last_stable_offset_is_not_below_the_logs_start(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    write(world, transactional(7, b"0", b"1", b"2"))
    partition = world.replicas.partition(T0)
    partition.delete_records(2)
    assert (partition.log_start_offset, partition.last_stable_offset) == (2, 2)
