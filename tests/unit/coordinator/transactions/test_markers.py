"""Which markers are sent where: the queues of a broker's coordinators, by what happens to them."""

from __future__ import annotations

import pytest

from kraft.coordinator.shard import ProducerIdAndEpoch, TransactionMarker
from kraft.coordinator.transactions.markers import (
    BACKOFF_MAX_MS,
    BACKOFF_MIN_MS,
    GONE,
    NOBODY,
    PARTITIONS_PER_REQUEST,
    Batch,
    MarkerQueues,
)
from kraft.coordinator.transactions.requests import EndMarker, SendMarkers
from kraft.protocol.errors import ErrorCode
from partitions.topic_partition import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
EPOCH = 4
OK = ErrorCode.NONE


class Broker:
    """Queues whose leaders a test moves."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int] = {A0: 1, A1: 2, B0: 2}
        self.queues = MarkerQueues(lambda key: self.leaders.get(key, GONE))

    def send(
        self,
        *partitions: TopicPartition,
        name: str = "x",
        serial: int = 1,
        number: int = 0,
        epoch: int = EPOCH,
    ) -> SendMarkers:
        sent = SendMarkers(name, EndMarker(ProducerIdAndEpoch(7, 3), True, 2), frozenset(partitions), serial)
        self.queues.add(number, epoch, sent)
        return sent

    def move(self, partition: TopicPartition, leader: int) -> None:
        self.leaders[partition] = leader
        self.queues.on_topics({partition.topic})

    def told(self) -> list[set[TopicPartition]]:
        return [set(one.partitions) for one in self.queues.take_acknowledged()]


def asked(batch: Batch) -> dict[str, tuple[TopicPartition, ...]]:
    return {one.sent.transactional_id: one.partitions for one in batch.markers}


def test_each_leader_is_asked_once_for_all_transactions() -> None:
    broker = Broker()
    x = broker.send(A0, A1, B0)
    broker.send(B0, name="y")
    assert broker.queues.ready() == [1, 2]
    first, second = broker.queues.take(1), broker.queues.take(2)
    assert asked(first) == {"x": (A0,)}
    assert asked(second) == {"x": (A1, B0), "y": (B0,)}
    assert first.markers[0].marker == TransactionMarker(ProducerIdAndEpoch(7, 3), True, EPOCH, 2)
    assert broker.queues.ready() == []
    broker.queues.answer(second, [{A1: OK, B0: OK}, {B0: OK}], 0)
    broker.queues.answer(first, [{A0: OK}], 0)
    told = broker.queues.take_acknowledged()
    assert [(one.sent.transactional_id, set(one.partitions)) for one in told] == [
        ("x", {A1, B0}),
        ("y", {B0}),
        ("x", {A0}),
    ]
    assert told[0].sent == x
    assert (told[0].number, told[0].leader_epoch) == (0, EPOCH)
    assert len(broker.queues) == 0


def test_a_broker_has_one_request_at_a_time_and_the_next_takes_what_came_meanwhile() -> None:
    broker = Broker()
    broker.send(A0)
    batch = broker.queues.take(1)
    broker.send(A0, name="y")
    broker.send(A0, name="z")
    assert broker.queues.ready() == []
    broker.queues.answer(batch, [{A0: OK}], 0)
    assert asked(broker.queues.take(1)) == {"y": (A0,), "z": (A0,)}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_what_failed_is_tried_again_after_a_while_alone(code: ErrorCode) -> None:
    broker = Broker()
    broker.send(A1, B0)
    broker.queues.answer(broker.queues.take(2), [{A1: code, B0: OK}], 1000)
    assert broker.told() == [{B0}]
    assert broker.queues.ready() == []
    assert broker.queues.next_ms == 1000 + BACKOFF_MIN_MS
    broker.queues.on_time(1000 + BACKOFF_MIN_MS)
    assert asked(broker.queues.take(2)) == {"x": (A1,)}


def test_the_backoff_grows_to_its_limit_and_never_ends() -> None:
    broker = Broker()
    broker.send(A0)
    now_ms, waits = 0, []
    for _ in range(40):
        broker.queues.fail(broker.queues.take(1), now_ms)
        due_ms = broker.queues.next_ms
        assert due_ms is not None
        waits.append(due_ms - now_ms)
        now_ms = due_ms
        broker.queues.on_time(now_ms)
    assert waits[:3] == [BACKOFF_MIN_MS, 2 * BACKOFF_MIN_MS, 4 * BACKOFF_MIN_MS]
    assert waits[-1] == BACKOFF_MAX_MS


def test_the_marker_of_an_older_coordinator_is_given_up() -> None:
    broker = Broker()
    broker.send(A1, B0)
    told = {A1: ErrorCode.TRANSACTION_COORDINATOR_FENCED, B0: OK}
    broker.queues.answer(broker.queues.take(2), [told], 0)
    assert broker.told() == [{B0}]
    assert (len(broker.queues), broker.queues.next_ms) == (0, None)


def test_a_shard_is_told_where_its_producer_is_overtaken() -> None:
    broker = Broker()
    broker.send(A1, B0)
    broker.queues.answer(broker.queues.take(2), [{A1: ErrorCode.INVALID_PRODUCER_EPOCH, B0: OK}], 0)
    told = broker.queues.take_acknowledged()
    assert [(set(one.partitions), one.is_overtaken) for one in told] == [({B0}, False), ({A1}, True)]
    assert (len(broker.queues), broker.queues.next_ms) == (0, None)


def test_what_waits_follows_the_leader() -> None:
    broker = Broker()
    broker.send(A0)
    broker.move(A0, 3)
    assert broker.queues.ready() == [3]
    broker.move(A0, NOBODY)
    assert broker.queues.ready() == []
    broker.move(A0, 1)
    assert asked(broker.queues.take(1)) == {"x": (A0,)}


def test_what_a_frozen_broker_has_goes_to_the_new_leader_at_once() -> None:
    broker = Broker()
    broker.send(A0, A1)
    frozen = broker.queues.take(1)
    broker.move(A0, 2)
    batch = broker.queues.take(2)
    assert asked(batch) == {"x": (A1, A0)}
    broker.queues.answer(batch, [{A0: OK, A1: OK}], 0)
    assert broker.told() == [{A0, A1}]
    broker.queues.fail(frozen, 10)
    assert (broker.told(), broker.queues.next_ms, len(broker.queues)) == ([], None, 0)


def test_a_late_answer_of_a_former_leader_counts_if_it_wrote_the_marker() -> None:
    broker = Broker()
    broker.send(A0)
    late = broker.queues.take(1)
    broker.move(A0, 2)
    broker.queues.answer(late, [{A0: OK}], 0)
    assert broker.told() == [{A0}]
    assert broker.queues.ready() == []


def test_a_topic_that_is_gone_needs_no_marker() -> None:
    broker = Broker()
    broker.send(A0, A1, B0)
    in_flight = broker.queues.take(1)
    broker.move(A0, GONE)
    assert broker.told() == [{A0}]
    broker.queues.answer(in_flight, [{A0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}], 0)
    assert (broker.told(), broker.queues.next_ms) == ([], None)
    broker.send(TopicPartition("never", 0), name="y")
    assert broker.told() == [{TopicPartition("never", 0)}]


def test_the_end_of_a_leadership_drops_what_its_shard_sent() -> None:
    broker = Broker()
    broker.send(A0)
    broker.send(A1, name="y", number=5)
    in_flight = broker.queues.take(1)
    broker.queues.end_leadership(0)
    broker.queues.answer(in_flight, [{A0: OK}], 0)
    assert broker.told() == []
    assert broker.queues.ready() == [2]
    broker.queues.end_leadership(5)
    assert (broker.queues.ready(), len(broker.queues)) == ([], 0)


def test_an_answer_from_before_the_next_leadership_counts_for_nothing() -> None:
    broker = Broker()
    broker.send(A0)
    old = broker.queues.take(1)
    broker.queues.end_leadership(0)
    broker.send(A0, epoch=EPOCH + 1)
    broker.queues.answer(old, [{A0: OK}], 0)
    assert broker.told() == []
    assert broker.queues.take(1).markers[0].marker.coordinator_epoch == EPOCH + 1


def test_the_next_end_of_an_id_replaces_the_one_before() -> None:
    broker = Broker()
    broker.send(A0, A1)
    old = broker.queues.take(1)
    broker.send(A0, serial=2)
    assert broker.queues.ready() == []  # broker 1 has a request, and broker 2 nothing to write any more
    broker.queues.answer(old, [{A0: OK}], 0)
    assert broker.told() == []
    assert broker.queues.take(1).markers[0].sent.serial == 2


def test_the_same_end_issued_anew_adds_what_is_not_on_its_way() -> None:
    broker = Broker()
    broker.send(A0)
    broker.queues.take(1)
    broker.send(A0, A1)
    assert broker.queues.ready() == [2]


def test_requests_are_bounded() -> None:
    broker = Broker()
    partitions = [TopicPartition("big", number) for number in range(PARTITIONS_PER_REQUEST + 5)]
    broker.leaders.update(dict.fromkeys(partitions, 3))
    broker.send(*partitions)
    broker.send(partitions[0], name="y")
    first = broker.queues.take(3)
    assert [len(one.partitions) for one in first.markers] == [PARTITIONS_PER_REQUEST]
    broker.queues.answer(first, [dict.fromkeys(partitions, OK)], 0)
    assert [len(one.partitions) for one in broker.queues.take(3).markers] == [5, 1]


def test_what_waits_is_told_for_metrics() -> None:
    broker = Broker()
    broker.send(A0, A1)
    broker.queues.answer(broker.queues.take(1), [{A0: OK}], 0)
    assert list(broker.queues.pending()) == [(0, "x", A1)]
