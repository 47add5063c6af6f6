"""Produce to topics whose records are looked at: answers, and the order in which batches are appended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kraft.broker.handlers.produce import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from kraft.broker.replicas import appends
from kraft.network.connection import CloseConnectionError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from partitions.log.record_checks import check_records
from partitions.records.batch import iter_batches
from partitions.records.builder import build_batch
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Config, Record
from tests.support.broker_world import NOW_MS, BrokerWorld, batch, gone, led_by, topic

T0, P0 = TopicPartition("t", 0), TopicPartition("p", 0)
VERSION = 12
OLD_MS = 1000
RECENT = Config("topic", "t", "message.timestamp.before.max.ms", "1000")
IN_ZSTD = Config("topic", "t", "compression.type", "zstd")
LARGE = b"x" * 10_000


def request(*records: Any, acks: int = ACKS_LEADER) -> ProduceRequest:
    data = [PartitionProduceData(index=number, records=each) for number, each in enumerate(records)]
    return ProduceRequest(
        acks=acks, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )


def answers(response: ProduceResponse) -> list[PartitionProduceResponse]:
    return [answer for topic_ in response.responses for answer in topic_.partition_responses]


def old(*values: bytes) -> bytes:
    return build_batch([(OLD_MS, None, value, ()) for value in values])


async def started(world: BrokerWorld, *records: Record, replicas: tuple[int, ...] = (1,)) -> BrokerWorld:
    await world.start(*topic("t", 1, replicas, replicas), *records)
    return world


def stored(world: BrokerWorld) -> list[int]:
    """The records of each batch in the log."""
    log = world.replicas.partition(T0).log
    result = log.read(0, 1 << 24, up_to_offset=log.log_end_offset)
    data = b"".join(part.read() for part in result.slices)
    return [header.record_count for _, header in iter_batches(data)]


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop turn until the condition holds, which takes a few turns."""
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came about")


async def test_refused_records_are_named(world: BrokerWorld) -> None:
    await started(world, RECENT)
    (answer,) = answers(world.handle(request(old(b"a", b"b")), VERSION))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
    assert [error.batch_index for error in answer.record_errors] == [0, 1]
    assert "out of range" in (answer.record_errors[0].batch_index_error_message or "")
    (answer,) = answers(await world.handle(request(old(LARGE)), VERSION))
    assert (answer.error_code, len(answer.record_errors)) == (ErrorCode.INVALID_TIMESTAMP, 1)
    assert stored(world) == []


async def test_what_comes_later_is_appended_later(world: BrokerWorld) -> None:
    await started(world, RECENT)
    world.executor.holding = True
    first = asyncio.ensure_future(world.handle(request(batch(LARGE, b"")), VERSION))
    second = asyncio.ensure_future(world.handle(request(batch(b"small")), VERSION))
    other = world.handle(request(None, batch(b"elsewhere")), VERSION)
    assert [answer.error_code for answer in answers(other)] == [ErrorCode.INVALID_RECORD, 0]
    await asyncio.sleep(0)
    assert (stored(world), world.replicas.appends.gates.count) == ([], 2)
    world.executor.release()
    assert [answers(await waiting)[0].base_offset for waiting in (first, second)] == [0, 2]
    assert stored(world) == [2, 1]
    assert world.replicas.appends.gates.count == 0
    (answer,) = answers(world.handle(request(batch(b"small")), VERSION))
    assert answer.base_offset == 3, "nobody waits any more"


async def test_a_client_that_is_gone_takes_nothing_of_the_order_with_it(world: BrokerWorld) -> None:
    await started(world, RECENT)
    world.executor.holding = True
    first = asyncio.ensure_future(world.handle(request(batch(LARGE, b"")), VERSION))
    second = asyncio.ensure_future(world.handle(request(batch(b"small")), VERSION))
    await asyncio.sleep(0)
    first.cancel()
    world.executor.release()
    assert answers(await second)[0].base_offset == 2
    assert stored(world) == [2, 1]


async def test_acks_all_waits_after_the_check(world: BrokerWorld) -> None:
    await started(world, IN_ZSTD, replicas=(1, 2))
    waiting = asyncio.ensure_future(world.handle(request(batch(LARGE), batch(LARGE), acks=ACKS_ALL), VERSION))
    await until(lambda: world.replicas.produce_purgatory.count == 1)
    assert stored(world) == [1]
    for number in (0, 1):
        partition = world.replicas.partition(TopicPartition("t", number))
        assert not waiting.done()
        partition.update_follower(2, 2, 1, 0, 1, world.replicas.monotonic_ms())
        assert partition.log.size_bytes < 500, "it is stored in zstd"  # type: ignore[attr-defined]
    assert [(a.error_code, a.base_offset) for a in answers(await waiting)] == [(0, 0), (0, 0)]


async def test_a_commit_before_the_wait_began_counts(world: BrokerWorld) -> None:
    await started(world, RECENT, replicas=(1, 2))
    waiting = asyncio.ensure_future(world.handle(request(batch(LARGE), acks=ACKS_ALL), VERSION))
    partition = world.replicas.partition(T0)
    await until(lambda: partition.log_end_offset == 1)
    partition.update_follower(2, 2, 1, 0, 1, world.replicas.monotonic_ms())
    async with asyncio.timeout(60):
        assert [answer.error_code for answer in answers(await waiting)] == [0]


def checks_held(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Checks of records wait until the event is set; no other job does."""
    run, may_check = world.executor.run, asyncio.Event()

    async def held(job: Any, *args: Any) -> Any:
        if getattr(job, "func", None) is check_records:
            await may_check.wait()
        return await run(job, *args)

    monkeypatch.setattr(world.executor, "run", held)
    return may_check


def two_topics() -> ProduceRequest:
    """A record for a topic whose records nobody looks at, and one that is checked beside the loop."""
    data = {"p": batch(b"mine"), "t": batch(LARGE)}
    return ProduceRequest(
        acks=ACKS_ALL,
        timeout_ms=60_000,
        topic_data=[
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
            for name, records in data.items()
        ],
    )


async def checked_and_committed(world: BrokerWorld) -> None:
    world.executor.release()
    checked = world.replicas.partition(T0)
    await until(lambda: checked.log_end_offset == 1)
    checked.update_follower(2, 2, 1, 0, 1, world.replicas.monotonic_ms())


async def test_an_append_of_an_earlier_leadership_is_not_acknowledged(world: BrokerWorld) -> None:
    await started(world, RECENT, *topic("p", 2, (1, 2)), replicas=(1, 2))
    partition = world.replicas.partition(P0)
    world.executor.holding = True
    waiting = asyncio.ensure_future(world.handle(two_topics(), VERSION))
    await until(lambda: partition.log_end_offset == 1)
    # Broker 2 leads without the record; this one cuts it, copies another, and leads again.
    world.publish_soon(led_by(2, 0, 2))
    partition.truncate_to(0, leader_epoch=1)
    partition.append_as_follower(
        batch(b"somebody else's", leader_epoch=1),
        leader_epoch=1,
        leader_high_watermark=1,
        leader_log_start_offset=0,
    )
    world.publish_soon(led_by(2, 0, 1))
    assert (partition.is_leader, partition.high_watermark) == (True, 1)
    await checked_and_committed(world)
    plain, checked = answers(await waiting)
    assert (plain.error_code, plain.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert (checked.error_code, checked.base_offset) == (0, 0)


async def test_a_topic_made_anew_meanwhile_does_not_answer_for_the_old_one(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(world, RECENT, *topic("p", 2, (1, 2)), replicas=(1, 2))
    may_check = checks_held(world, monkeypatch)
    waiting = asyncio.ensure_future(world.handle(two_topics(), VERSION))
    await until(lambda: world.replicas.partition(P0).log_end_offset == 1)
    await world.publish(gone(2), *topic("p", 3, (1,)))
    world.replicas.partition(P0).append_records(batch(b"new"), acks=ACKS_LEADER, now_ms=0)
    assert world.replicas.partition(P0).high_watermark == 1
    may_check.set()
    await checked_and_committed(world)
    plain, checked = answers(await waiting)
    assert (plain.error_code, checked.error_code) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)


@pytest.mark.parametrize(
    ("replicas", "isr", "code"),
    [((2, 1), (2, 1), ErrorCode.NOT_LEADER_OR_FOLLOWER), ((1, 2), (1,), ErrorCode.NOT_ENOUGH_REPLICAS)],
)
async def test_nothing_is_opened_that_would_be_refused_unseen(
    world: BrokerWorld, replicas: tuple[int, ...], isr: tuple[int, ...], code: ErrorCode
) -> None:
    min_isr = Config("topic", "t", "min.insync.replicas", "2")
    await world.start(*topic("t", 1, replicas, isr=isr), RECENT, min_isr)
    world.executor.holding = True
    (answer,) = answers(world.handle(request(old(LARGE), acks=ACKS_ALL), VERSION))
    assert answer.error_code == code


async def test_a_leader_that_lost_its_role_meanwhile_appends_nothing(world: BrokerWorld) -> None:
    await started(world, RECENT, replicas=(1, 2))
    world.executor.holding = True
    waiting = asyncio.ensure_future(world.handle(request(batch(LARGE)), VERSION))
    await asyncio.sleep(0)
    await world.publish(led_by(1, 0, 2))
    world.executor.release()
    assert answers(await waiting)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stored(world) == []


async def test_a_topic_deleted_meanwhile_is_answered(world: BrokerWorld) -> None:
    await started(world, RECENT)
    world.executor.holding = True
    waiting = asyncio.ensure_future(world.handle(request(batch(LARGE)), VERSION))
    await asyncio.sleep(0)
    await world.publish(gone(1))
    world.executor.release()
    assert answers(await waiting)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_records_that_were_checked_by_earlier_rules_are_judged_by_those_of_now(
    world: BrokerWorld,
) -> None:
    await started(world, RECENT)
    world.executor.holding = True
    values = (LARGE, b"behind it, and needs no check")
    waiting = [asyncio.ensure_future(world.handle(request(batch(value)), VERSION)) for value in values]
    await asyncio.sleep(0)
    await world.publish(Config("topic", "t", "cleanup.policy", "compact"))
    world.executor.release()
    codes = [answers(await each)[0].error_code for each in waiting]
    assert codes == [ErrorCode.INVALID_RECORD] * 2, "records without a key, in a compacted topic"
    assert stored(world) == []


async def test_records_whose_rules_change_meanwhile_keep_their_place(world: BrokerWorld) -> None:
    """A producer whose second batch were appended, and first refused, could never send the first again."""

    def numbered(sequence: int, value: bytes) -> bytes:
        records = [(NOW_MS, None, value, ())]
        return build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)

    await started(world, RECENT)
    world.executor.holding = True
    waiting = []
    for sequence, value in enumerate((LARGE, b"second", b"third")):
        asked = request(numbered(sequence, value), acks=ACKS_LEADER)
        waiting.append(asyncio.ensure_future(world.handle(asked, VERSION)))
        await asyncio.sleep(0)
        await world.publish(Config("topic", "t", "retention.ms", str(10**12 + sequence)))
    world.executor.release()
    got = [answers(await each)[0] for each in waiting]
    assert [(answer.error_code, answer.base_offset) for answer in got] == [(0, 0), (0, 1), (0, 2)]


async def test_rules_that_change_during_each_check_are_caught_up_with(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(world, RECENT)
    run, judged = world.executor.run, []

    async def changing(job: Any, *args: Any) -> Any:
        result = await run(job, *args)
        if getattr(job, "func", None) is check_records and len(judged) < 3:
            judged.append(job)
            limit = Config("topic", "t", "message.timestamp.before.max.ms", str(1000 + len(judged)))
            await world.publish(limit)
        return result

    monkeypatch.setattr(world.executor, "run", changing)
    (answer,) = answers(await world.handle(request(batch(LARGE)), VERSION))
    assert (answer.error_code, len(judged), stored(world)) == (0, 3, [1])
    assert world.replicas.appends.gates.count == 0


async def test_a_topic_made_anew_gets_nothing_that_waited_for_the_old_one(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(world, RECENT)
    may_check = checks_held(world, monkeypatch)
    values = (LARGE, b"behind it, and needs no check")
    waiting = [asyncio.ensure_future(world.handle(request(batch(value)), VERSION)) for value in values]
    await asyncio.sleep(0)
    await world.publish(gone(1), *topic("t", 2, (1,), (1,)), RECENT)
    may_check.set()
    codes = [answers(await each)[0].error_code for each in waiting]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert stored(world) == []


async def test_without_acknowledgement_a_refusal_closes_the_connection(world: BrokerWorld) -> None:
    await started(world, RECENT)
    assert await world.handle(request(batch(LARGE), acks=ACKS_NONE), VERSION) is None
    assert stored(world) == [1]
    with pytest.raises(CloseConnectionError, match="INVALID_TIMESTAMP"):
        await world.handle(request(old(LARGE), acks=ACKS_NONE), VERSION)


async def test_checks_that_wait_are_bounded(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "WAITING_MAX", 1)
    await started(world, RECENT)
    world.executor.holding = True
    first = asyncio.ensure_future(world.handle(request(batch(LARGE)), VERSION))
    await asyncio.sleep(0)
    (answer,) = answers(world.handle(request(batch(LARGE)), VERSION))
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    world.executor.release()
    assert answers(await first)[0].error_code == 0


async def test_the_bytes_that_wait_for_a_check_are_bounded(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appends, "WAITING_MAX_BYTES", 5 * len(LARGE))
    await started(world, RECENT)
    world.executor.holding = True
    huge = batch(LARGE * 6)
    alone = asyncio.ensure_future(world.handle(request(huge), VERSION))
    await asyncio.sleep(0)
    (answer,) = answers(world.handle(request(batch(LARGE)), VERSION))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert f"1 batches of {len(huge)} bytes wait" in (answer.error_message or "")
    world.executor.release()
    assert answers(await alone)[0].error_code == 0, "what finds nothing waiting is taken, however large"
    assert (world.replicas.appends.gates.count, world.replicas.appends.gates.size_bytes) == (0, 0)
    (answer,) = answers(await world.handle(request(batch(LARGE)), VERSION))
    assert answer.error_code == 0


async def test_a_broker_that_stops_ends_the_checks(world: BrokerWorld) -> None:
    await started(world, RECENT)
    world.executor.holding = True
    waiting = [asyncio.ensure_future(world.handle(request(batch(LARGE)), VERSION)) for _ in range(2)]
    await asyncio.sleep(0)
    await world.replicas.appends.close()
    assert all(
        isinstance(e, asyncio.CancelledError) for e in await asyncio.gather(*waiting, return_exceptions=True)
    )
    assert (world.replicas.appends.gates.count, world.replicas.appends.gates.size_bytes) == (0, 0)


async def test_zstd_is_refused_from_clients_that_cannot_read_it(world: BrokerWorld) -> None:
    await started(world)
    packed = build_batch([(NOW_MS, None, b"v", ())], codec=4)
    (answer, other) = answers(world.handle(request(packed, batch(b"plain")), 6))
    assert answer.error_code == other.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    (answer,) = answers(world.handle(request(packed), 7))
    assert answer.error_code == 0
