"""Marker queues under random leaders, answers, losses and elections: each marker reaches whoever leads until it is
acknowledged, nothing is sent for a leadership that ended, and once all answer nothing is left."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kraft.coordinator.shard import ProducerIdAndEpoch
from kraft.coordinator.transactions.markers import BACKOFF_MAX_MS, GONE, NOBODY, Batch, MarkerQueues
from kraft.coordinator.transactions.requests import EndMarker, SendMarkers
from kraft.protocol.errors import ErrorCode
from partitions.topic_partition import TopicPartition

PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("c", 0)]
BROKERS = [1, 2, 3]
NUMBERS = [0, 1]
RETRIED = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
]
LEADERS = st.sampled_from([*BROKERS, NOBODY])


class Markers(RuleBasedStateMachine):
    """`wanted` is the model: what each shard in its present leadership has sent and was not told of."""

    def __init__(self) -> None:
        super().__init__()
        self.leaders = dict.fromkeys(PARTITIONS, 1)
        self.queues = MarkerQueues(lambda key: self.leaders.get(key, GONE))
        self.epochs = dict.fromkeys(NUMBERS, 1)
        self.wanted: dict[tuple[int, str], tuple[int, set[TopicPartition]]] = {}
        self.in_flight: list[Batch] = []
        self.serial = 0
        self.now_ms = 0

    def took(self) -> None:
        """What is acknowledged leaves the model, and was wanted."""
        for number, epoch, sent, partitions, _ in self.queues.take_acknowledged():
            assert epoch == self.epochs[number]
            serial, left = self.wanted[number, sent.transactional_id]
            assert serial == sent.serial
            assert partitions <= left
            left -= partitions
            if not left:
                del self.wanted[number, sent.transactional_id]

    def send(self, number: int, name: str, serial: int, partitions: frozenset[TopicPartition]) -> None:
        self.wanted[number, name] = (serial, set(partitions))
        marker = EndMarker(ProducerIdAndEpoch(number, 0), True, 2)
        self.queues.add(number, self.epochs[number], SendMarkers(name, marker, partitions, serial))
        self.took()

    @rule(number=st.sampled_from(NUMBERS), name=st.sampled_from("xy"), data=st.data())
    def begin(self, number: int, name: str, data: st.DataObject) -> None:
        self.serial += 1
        partitions = data.draw(st.frozensets(st.sampled_from(PARTITIONS), min_size=1))
        self.send(number, name, self.serial, partitions)

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def issue_anew(self, data: st.DataObject) -> None:
        number, name = data.draw(st.sampled_from(sorted(self.wanted)))
        serial, left = self.wanted[number, name]
        self.send(number, name, serial, frozenset(left))

    @rule(number=st.sampled_from(NUMBERS))
    def lose_leadership(self, number: int) -> None:
        self.queues.end_leadership(number)
        self.epochs[number] += 1
        self.wanted = {key: value for key, value in self.wanted.items() if key[0] != number}

    @rule(partition=st.sampled_from(PARTITIONS), leader=LEADERS)
    def move(self, partition: TopicPartition, leader: int) -> None:
        self.leaders[partition] = leader
        self.queues.on_topics({partition.topic})
        self.took()

    @rule(topic=st.sampled_from("bc"))
    def delete(self, topic: str) -> None:
        self.leaders = {key: leader for key, leader in self.leaders.items() if key.topic != topic}
        self.queues.on_topics({topic})
        self.took()
        self.on_time(BACKOFF_MAX_MS)
        assert all(key.topic != topic for _, left in self.wanted.values() for key in left)

    @precondition(lambda self: self.queues.ready())
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        broker_id = data.draw(st.sampled_from(sorted(self.queues.ready())))
        assert all(batch.broker_id != broker_id for batch in self.in_flight), "one at a time"
        batch = self.queues.take(broker_id)
        for one in batch.markers:
            assert one.leader_epoch == self.epochs[one.key[0]], "the leadership ended"
            serial, left = self.wanted[one.key]
            assert serial == one.sent.serial
            assert set(one.partitions) <= left
            assert all(self.leaders.get(key) == broker_id for key in one.partitions)
        self.in_flight.append(batch)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        batch = self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1)))
        codes = st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, *RETRIED])
        told = [{key: data.draw(codes) for key in one.partitions} for one in batch.markers]
        self.queues.answer(batch, told, self.now_ms)
        self.took()

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.queues.fail(self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1))), self.now_ms)

    @rule(ms=st.integers(1, BACKOFF_MAX_MS))
    def on_time(self, ms: int) -> None:
        self.now_ms += ms
        self.queues.on_time(self.now_ms)
        self.took()

    @invariant()
    def holds_what_is_wanted(self) -> None:
        pending: dict[tuple[int, str], set[TopicPartition]] = {}
        for number, name, partition in self.queues.pending():
            pending.setdefault((number, name), set()).add(partition)
        assert pending == {key: left for key, (_, left) in self.wanted.items()}

    def teardown(self) -> None:
        """All have leaders, and all answer: everything that is wanted is written."""
        for partition in list(self.leaders):
            self.leaders[partition] = 2
        self.queues.on_topics({"a", "b", "c"})
        for batch in self.in_flight:
            self.queues.fail(batch, self.now_ms)
        for _ in range(20):
            self.on_time(BACKOFF_MAX_MS)
            for broker_id in self.queues.ready():
                batch = self.queues.take(broker_id)
                told = [dict.fromkeys(one.partitions, ErrorCode.NONE) for one in batch.markers]
                self.queues.answer(batch, told, self.now_ms)
            self.took()
        assert not self.wanted
        assert (len(self.queues), self.queues.next_ms, self.queues.ready()) == (0, None, [])


TestMarkers = Markers.TestCase
