"""Produce in transactions: what is verified, what waits for it, and what clients are told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraft.broker.handlers.produce import ACKS_LEADER
from kraft.broker.handlers.produce_transactions import produce_error
from kraft.broker.replicas import appends
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from partitions.records.builder import build_batch
from partitions.topic_partition import TopicPartition
from quorum.metadata.records import Config, FeatureLevel
from tests.support.broker_world import NOW_MS, BrokerWorld, batch, led_by, topic
from tests.support.transactions import ABORT, marker_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
P, Q = 7, 8
ADDING = FeatureLevel("transaction.version", 2)


def part(producer: int = P, sequence: int = 0, *, epoch: int = 0, key: bytes | None = None) -> Any:
    return build_batch(
        [(NOW_MS, key, b"v", ())],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def produce(
    world: BrokerWorld, *data: tuple[int, Any], version: int = 11, transactional_id: str | None = "tx"
) -> Any:
    return world.handle(
        ProduceRequest(
            transactional_id=transactional_id,
            acks=ACKS_LEADER,
            timeout_ms=60_000,
            topic_data=[
                TopicProduceData(
                    name="t",
                    partition_data=[PartitionProduceData(index=n, records=records) for n, records in data],
                )
            ],
        ),
        version,
    )


async def told(answer: Any) -> list[ErrorCode]:
    response: ProduceResponse = await answer if asyncio.iscoroutine(answer) else answer
    return [ErrorCode(one.error_code) for found in response.responses for one in found.partition_responses]


def begin(answer: Any) -> asyncio.Future[list[ErrorCode]]:
    return asyncio.ensure_future(told(answer))


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def end_transaction(world: BrokerWorld, producer: int = P, epoch: int = 0) -> None:
    world.replicas.appends.append(T0, marker_of(producer, ABORT, epoch=epoch), acks=1, origin="coordinator")


async def test_only_what_opens_a_transaction_is_verified(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), (1,)))
    assert await told(produce(world, (0, part()), (1, part()))) == [ErrorCode.NONE] * 2
    asked = [("tx", (P, 0), T0, False), ("tx", (P, 0), T1, False)]
    assert world.verifier.asked == asked
    answer = produce(world, (0, part(sequence=1)))
    assert isinstance(answer, ProduceResponse), "it goes on at once"
    assert await told(answer) == [ErrorCode.NONE]
    end_transaction(world)
    assert await told(produce(world, (0, part(sequence=2)))) == [ErrorCode.NONE]
    assert world.verifier.asked == [*asked, asked[0]]


@pytest.mark.parametrize(("version", "adds"), [(11, False), (12, True)])
async def test_clients_of_version_12_have_their_partitions_added(
    world: BrokerWorld, version: int, adds: bool
) -> None:
    await world.start(*topic("t", 1, (1,)), ADDING)
    await told(produce(world, (0, part()), version=version))
    assert [one[3] for one in world.verifier.asked] == [adds]


async def test_nothing_is_added_below_transaction_version_2(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    await told(produce(world, (0, part()), version=12))
    assert [one[3] for one in world.verifier.asked] == [False]


@pytest.mark.parametrize("version", [10, 11])
async def test_a_batch_whose_transaction_is_aborted_meanwhile_opens_none(
    world: BrokerWorld, version: int
) -> None:
    """The coordinator confirmed it before it aborted: when it is asked again it does not."""
    await world.start(*topic("t", 1, (1,)))
    world.verifier.may_answer.clear()
    late = begin(produce(world, (0, part()), version=version))
    await turns()
    end_transaction(world)
    answered, world.verifier.may_answer = world.verifier.may_answer, asyncio.Event()
    answered.set()
    await turns()
    assert len(world.verifier.asked) == 2
    world.verifier.code = ErrorCode.TRANSACTION_ABORTABLE
    world.verifier.may_answer.set()
    assert await late == [produce_error(ErrorCode.TRANSACTION_ABORTABLE, version)]
    partition = world.replicas.partition(T0)
    assert partition.last_stable_offset == partition.high_watermark == 1


async def test_the_marker_of_the_transaction_before_does_not_refuse_the_next(world: BrokerWorld) -> None:
    """A producer goes on when its commit is decided, before the markers are written."""
    await world.start(*topic("t", 1, (1,)), ADDING)
    assert await told(produce(world, (0, part()), version=12)) == [ErrorCode.NONE]
    world.verifier.may_answer.clear()
    following = begin(produce(world, (0, part(epoch=1)), version=12))
    await turns()
    end_transaction(world, epoch=1)
    world.verifier.may_answer.set()
    assert await following == [ErrorCode.NONE]
    assert [one[1].epoch for one in world.verifier.asked] == [0, 1, 1]
    assert world.replicas.partition(T0).last_stable_offset == 2


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
async def test_a_batch_is_asked_for_a_few_times_only(
    world: BrokerWorld, version: int, code: ErrorCode
) -> None:
    await world.start(*topic("t", 1, (1,)))
    world.verifier.may_answer.clear()
    late = begin(produce(world, (0, part()), version=version))
    for _ in range(appends.ASKED_AT_MOST):
        await turns()
        end_transaction(world)
        answered, world.verifier.may_answer = world.verifier.may_answer, asyncio.Event()
        answered.set()
    assert await late == [code]
    assert len(world.verifier.asked) == appends.ASKED_AT_MOST
    partition = world.replicas.partition(T0)
    assert partition.last_stable_offset == partition.high_watermark == appends.ASKED_AT_MOST


async def test_a_leadership_that_is_lost_meanwhile_is_retried(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1, 2)))
    world.verifier.may_answer.clear()
    late = begin(produce(world, (0, part())))
    await turns()
    await world.publish(led_by(1, 0, 2))
    await world.publish(led_by(1, 0, 1))
    world.verifier.may_answer.set()
    assert await late == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert world.replicas.partition(T0).log_end_offset == 0


async def test_a_coordinator_that_does_not_answer_holds_up_its_producer_alone(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    assert await told(produce(world, (0, part(Q)), transactional_id="other")) == [ErrorCode.NONE]
    world.verifier.may_answer.clear()
    waiting = [begin(produce(world, (0, part(sequence=number)))) for number in range(5)]
    await turns()
    assert await told(produce(world, (0, batch(b"plain")), transactional_id=None)) == [ErrorCode.NONE]
    idempotent = batch(b"x", producer_id=9, producer_epoch=0, base_sequence=0)
    assert await told(produce(world, (0, idempotent), transactional_id=None)) == [ErrorCode.NONE]
    assert await told(produce(world, (0, part(Q, 1)), transactional_id="other")) == [ErrorCode.NONE]
    assert not any(one.done() for one in waiting)
    world.verifier.may_answer.set()
    assert [await one for one in waiting] == [[ErrorCode.NONE]] * 5
    assert len(world.verifier.asked) == 2, "four of five went on with what the first had opened"
    assert world.replicas.partition(T0).log_end_offset == 9
    assert isinstance(produce(world, (0, part(sequence=5))), ProduceResponse), "nothing waits any more"


async def test_what_is_refused_does_not_let_the_next_batch_overtake(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    world.verifier.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    first = begin(produce(world, (0, part())))
    assert await first == [ErrorCode.NOT_ENOUGH_REPLICAS]
    world.verifier.code = ErrorCode.NONE
    assert await told(produce(world, (0, part(sequence=1)))) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert await told(produce(world, (0, part()))) == [ErrorCode.NONE]
    assert await told(produce(world, (0, part(sequence=1)))) == [ErrorCode.NONE]


async def test_records_that_have_to_be_opened_pass_both_gates_in_order(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)), Config("topic", "t", "cleanup.policy", "compact"))
    large = build_batch(
        [(NOW_MS, b"k", b"v" * 20_000, ())],
        producer_id=P,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    world.verifier.may_answer.clear()
    waiting = [begin(produce(world, (0, large))), begin(produce(world, (0, part(sequence=1, key=b"k"))))]
    without_key = begin(produce(world, (0, part(sequence=2))))
    await turns()
    world.verifier.may_answer.set()
    assert [await one for one in waiting] == [[ErrorCode.NONE]] * 2
    assert await without_key == [ErrorCode.INVALID_RECORD]
    assert world.replicas.partition(T0).log_end_offset == 2


async def test_what_waits_is_bounded(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.start(*topic("t", 1, (1,)))
    monkeypatch.setattr(appends, "WAITING_MAX", 2)
    world.verifier.may_answer.clear()
    waiting = [begin(produce(world, (0, part(sequence=number)))) for number in range(3)]
    assert await waiting[2] == [ErrorCode.REQUEST_TIMED_OUT]
    world.verifier.may_answer.set()
    assert [await one for one in waiting[:2]] == [[ErrorCode.NONE]] * 2


async def test_verification_can_be_switched_off_but_not_what_adds_partitions() -> None:
    world = BrokerWorld(properties="transaction.partition.verification.enable=false\n")
    try:
        await world.start(*topic("t", 1, (1,)), ADDING)
        assert await told(produce(world, (0, part()))) == [ErrorCode.NONE]
        assert world.verifier.asked == []
        assert await told(produce(world, (0, part(Q)), version=12)) == [ErrorCode.NONE]
        assert world.verifier.asked == [("tx", (Q, 0), T0, True)]
    finally:
        await world.close()


async def test_a_request_and_its_batches_agree(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,), (1,)))
    nameless = produce(world, (0, part()), transactional_id=None)
    assert await told(nameless) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    two = produce(world, (0, part(P)), (1, part(Q)))
    assert await told(two) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert world.verifier.asked == []
    assert await told(produce(world, (0, batch(b"plain")))) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("said", "old", "new"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        *(
            (code, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS)
            for code in (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.NETWORK_EXCEPTION,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.OPERATION_NOT_ATTEMPTED,
            )
        ),
        *(
            (code, code, code)
            for code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        ),
    ],
)
async def test_what_a_client_is_told(
    world: BrokerWorld, said: ErrorCode, old: ErrorCode, new: ErrorCode
) -> None:
    assert [produce_error(said, version) for version in (3, 10, 11, 12)] == [old, old, new, new]
    await world.start(*topic("t", 1, (1,)))
    world.verifier.code = said
    assert await told(produce(world, (0, part()), version=10)) == [old]
    assert world.replicas.partition(T0).log_end_offset == 0
