"""The history checker against a model of a cluster: what may happen is valid, what is broken is named.

The model is a list of logs. Producers lose requests and answers, retry, double and give up; leaders cut
what is not committed; topics are deleted and made anew; consumers follow, fall behind, crash and seek.
Whatever comes out is valid. Then one thing is broken at a time, and the checker must name it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kraft.chaos.checker import check_history, never
from kraft.chaos.history import History, Operation, OperationKind, OperationStatus, TopicKey, Value
from tests.support.examples import examples

OK, FAIL, INFO = OperationStatus.OK, OperationStatus.FAIL, OperationStatus.INFO
SIDE_TOPIC = "side"
WINDOW = 4
STEPS = 150

seeds = st.integers(0, 2**32)


@dataclass
class Stored:
    """A batch in a log; a marker has no values, and takes one offset."""

    base: int
    values: tuple[Value, ...]

    @property
    def end(self) -> int:
        return self.base + max(1, len(self.values))


@dataclass
class Log:
    """One partition of one topic id."""

    key: TopicKey
    topic: str
    batches: list[Stored] = field(default_factory=list)
    start: int = 0
    committed: int = 0
    end: int = 0

    def append(self, values: tuple[Value, ...]) -> Stored:
        stored = Stored(self.end, values)
        self.batches.append(stored)
        self.end = stored.end
        return stored

    def find(self, values: tuple[Value, ...]) -> Stored | None:
        return next((one for one in self.batches if one.values == values), None)

    def cut(self, offset: int) -> list[Stored]:
        """Takes the tail away."""
        gone = [one for one in self.batches if one.base >= offset]
        self.batches = [one for one in self.batches if one.base < offset]
        self.end, self.committed = offset, min(self.committed, offset)
        return gone

    def boundaries(self, low: int, high: int) -> list[int]:
        return [one.base for one in self.batches if low <= one.base <= high] + [high]


@dataclass
class Sending:
    """A batch until its producer knows, or gives up."""

    values: tuple[Value, ...]
    operation: Operation | None = None
    was_sent: bool = False


@dataclass
class Producer:
    """One client process that sends to one partition."""

    process: str
    topic: str
    partition: int
    acks: int
    idempotent: bool
    retries_apart: bool
    """Whether each attempt is an operation of its own."""
    believed: TopicKey
    window: list[Sending] = field(default_factory=list)
    settled: set[tuple[Value, ...]] = field(default_factory=set)
    numbered: int = 0


@dataclass
class Consumer:
    """One client process that follows one partition."""

    process: str
    log: Log
    position: int
    sought: bool = True


class Model:
    """A cluster without faults but those that it may have. `history` is what its clients tell."""

    def __init__(self, seed: int, *, churns: bool = True, loses: bool = False) -> None:
        """`churns`: topics are deleted, and retention works. `loses`: all
        replicas lose the tail of a log now and then; `gone` says which records.
        """
        self.rng = random.Random(seed)
        self.history = History()
        self.gone: set[tuple[TopicKey, int, Value]] = set()
        self.logs: list[Log] = []
        self.under_way: list[tuple[Producer, Log, tuple[Value, ...]]] = []
        self._current: dict[tuple[str, int], Log] = {}
        self._now_s = 0.0
        self._numbered = 0
        self._churns, self._loses = churns, loses
        for topic, partition in (("orders", 0), ("orders", 1), (SIDE_TOPIC, 0)):
            self._make_log(topic, partition)
        self.producers: list[Producer] = []
        for topic, partition in self._current:
            for acks, idempotent in ((-1, True), (-1, False), (1, False), (0, False)):
                self._add_producer(topic, partition, acks, idempotent)
        self.consumers = [self._consumer(log) for log in self._current.values() for _ in range(2)]

    def tick(self) -> float:
        self._now_s += 0.001
        return self._now_s

    def _name(self, kind: str) -> str:
        self._numbered += 1
        return f"{kind}.{self._numbered}"

    def _make_log(self, topic: str, partition: int) -> None:
        log = Log((bytes([len(self.logs)]) * 16, partition), topic)
        self.logs.append(log)
        self._current[topic, partition] = log

    def _add_producer(self, topic: str, partition: int, acks: int, idempotent: bool) -> None:
        believed = self._current[topic, partition].key
        apart = self.rng.random() < 0.5
        name = self._name("producer")
        self.producers.append(Producer(name, topic, partition, acks, idempotent, apart, believed))

    def _consumer(self, log: Log) -> Consumer:
        return Consumer(self._name("consumer"), log, self.rng.randint(log.start, log.committed))

    # -- the cluster

    def play(self, steps: int) -> None:
        deeds: list[tuple[Callable[[], None], int]] = [
            (self._begin, 12),
            (self._attempt, 30),
            (self._give_up, 1),
            (self._commit, 8),
            (self._arrive_late, 2),
            (self._poll, 20),
            (self._restart_consumer, 1),
            (self._mark, 0 if self._loses else 1),
            (self._elect, 1),
            (self._retain, 1 if self._churns else 0),
            (self._delete, 1 if self._churns else 0),
            (self._lose, 1 if self._loses else 0),
        ]
        functions, weights = zip(*deeds, strict=True)
        for deed in self.rng.choices(functions, weights, k=steps):
            deed()

    def _log(self) -> Log:
        return self.rng.choice(list(self._current.values()))

    def _commit(self) -> None:
        log = self._log()
        log.committed = self.rng.choice(log.boundaries(log.committed, log.end))

    def _mark(self) -> None:
        self._log().append(())

    def _elect(self) -> None:
        """A new leader, which has all that is committed, and perhaps more."""
        log = self._log()
        log.cut(self.rng.choice(log.boundaries(log.committed, log.end)))

    def _retain(self) -> None:
        log = self._log()
        if self.rng.random() < 0.5:
            log.start = self.rng.choice(log.boundaries(log.start, log.committed))

    def _delete(self) -> None:
        operation = self.history.invoke("churn", OperationKind.DELETE_TOPIC, self.tick(), topic=SIDE_TOPIC)
        status = self.rng.choice([OK, OK, INFO, FAIL])
        if status is OK or (status is INFO and self.rng.random() < 0.5):
            self._make_log(SIDE_TOPIC, 0)
        self.history.complete(operation, status, self.tick())

    def _lose(self) -> None:
        log = self._log()
        for stored in log.cut(self.rng.choice(log.boundaries(log.start, log.committed))):
            for offset, value in enumerate(stored.values, stored.base):
                self.gone.add((log.key, offset, value))

    # -- producers

    def _begin(self) -> None:
        producer = self.rng.choice(self.producers)
        if len(producer.window) == WINDOW:
            return
        count = self.rng.randint(1, 3)
        numbers = range(producer.numbered, producer.numbered + count)
        producer.numbered += count
        values = tuple(f"{producer.process}:{number}".encode() for number in numbers)
        sending = Sending(values)
        if not producer.retries_apart:
            sending.operation = self._invoke(producer, values)
        producer.window.append(sending)

    def _invoke(self, producer: Producer, values: tuple[Value, ...]) -> Operation:
        return self.history.invoke(
            producer.process,
            OperationKind.SEND,
            self.tick(),
            key=producer.believed,
            topic=producer.topic,
            acks=producer.acks,
            idempotent=producer.idempotent,
            values=values,
        )

    def _attempt(self) -> None:
        producer = self.rng.choice(self.producers)
        if producer.window:
            sending = self.rng.choice(producer.window)
            if producer.idempotent and producer.retries_apart:
                # The first attempts are made in the order of the batches.
                sending = next((one for one in producer.window if not one.was_sent), sending)
            self._send(producer, sending, self.rng.choice(["ok", "ok", "ok", "lost", "late", "unanswered"]))

    def _send(self, producer: Producer, sending: Sending, fate: str) -> None:
        if self.rng.random() < 0.3:
            producer.believed = self._current[producer.topic, producer.partition].key
        operation = sending.operation or self._invoke(producer, sending.values)
        sending.was_sent = True
        status, base = INFO, -1
        if fate == "late":
            log = self._current[producer.topic, producer.partition]
            self.under_way.append((producer, log, sending.values))
        elif fate != "lost":
            log = self._reached(producer)
            stored = self._store(log, producer, sending)
            if stored is not None and fate == "ok":
                if producer.acks == -1 and self.rng.random() < 0.7:
                    log.committed = max(log.committed, stored.end)
                if producer.acks != -1 or log.committed >= stored.end:
                    status, base = OK, -1 if producer.acks == 0 else stored.base
        if producer.acks == 0:
            status = OK
        if status is OK:
            producer.window.remove(sending)
            producer.settled.add(sending.values)
        if status is OK or sending.operation is None:
            self.history.complete(operation, status, self.tick(), base_offset=base)

    def _reached(self, producer: Producer) -> Log:
        """The log that a request by name reaches: a broker may not know yet that it was deleted."""
        if self.rng.random() < 0.1:
            return next(log for log in self.logs if log.key == producer.believed)
        return self._current[producer.topic, producer.partition]

    def _store(self, log: Log, producer: Producer, sending: Sending) -> Stored | None:
        if not producer.idempotent:
            return log.append(sending.values)
        stored = log.find(sending.values)
        if stored is None:
            before = producer.window[: producer.window.index(sending)]
            if all(log.find(one.values) for one in before):
                return log.append(sending.values)
        return stored

    def _arrive_late(self) -> None:
        """A request that was under way for long: an idempotent one is in sequence, or known, or refused.

        Whoever takes retries for one operation names topics by id, so that a retry cannot reach the next
        topic of the name after another one of them was answered.
        """
        if not self.under_way:
            return
        producer, sent_to, values = self.under_way.pop(self.rng.randrange(len(self.under_way)))
        log, idempotent = self._current[producer.topic, producer.partition], producer.idempotent
        if log is not sent_to and not producer.retries_apart:
            return
        in_sequence = log.find(values) is None and any(
            producer.window and producer.window[0].values == values for producer in self.producers
        )
        if in_sequence or not idempotent:
            log.append(values)

    def _give_up(self) -> None:
        """A batch of a plain producer, or an idempotent producer altogether."""
        producer = self.rng.choice(self.producers)
        if not producer.window:
            return
        given_up = producer.window if producer.idempotent else [producer.window[-1]]
        for sending in given_up:
            if sending.operation is not None:
                status = INFO if sending.was_sent else FAIL
                self.history.complete(sending.operation, status, self.tick())
        producer.window = [one for one in producer.window if one not in given_up]
        if producer.idempotent:
            self.producers.remove(producer)
            self._add_producer(producer.topic, producer.partition, producer.acks, True)

    # -- consumers

    def _poll(self) -> None:
        self._read(self.rng.choice(self.consumers), self.rng.randint(1, 4))

    def _read(self, consumer: Consumer, batches: int, *, final: bool = False) -> None:
        log = consumer.log
        if consumer.position < log.start:
            consumer.position, consumer.sought = log.start, True
        found = [one for one in log.batches if consumer.position < one.end <= log.committed][:batches]
        records = [(base, value) for one in found for base, value in enumerate(one.values, one.base)]
        next_offset = found[-1].end if found else consumer.position
        operation = self.history.invoke(
            consumer.process,
            OperationKind.POLL,
            self.tick(),
            key=log.key,
            topic=log.topic,
            position=consumer.position,
            final=final,
            sought=consumer.sought,
        )
        consumer.sought = False
        if self.rng.random() < 0.1 and not final:
            self.history.complete(operation, INFO, self.tick(), error="NETWORK_EXCEPTION")
            return
        # What is read was decoded anew: equal, and not the same object.
        kept = [(at, bytes(bytearray(value))) for at, value in records if at >= consumer.position]
        self.history.complete(operation, OK, self.tick(), records=kept, next_offset=next_offset)
        consumer.position = next_offset

    def _restart_consumer(self) -> None:
        place = self.rng.randrange(len(self.consumers))
        log = self.consumers[place].log
        if self.rng.random() < 0.5:
            log = self._current[log.topic, log.key[1]]
        self.consumers[place] = self._consumer(log)

    # -- the end

    def finish(self) -> None:
        """Everything is answered or given up, committed, and read by a fresh client."""
        for producer in list(self.producers):
            while producer.window and self.rng.random() < 0.95:
                self._send(producer, producer.window[0], "ok")
        may_be_deleted = any(
            one.kind is OperationKind.DELETE_TOPIC and one.status is not FAIL
            for one in self.history.operations
        )
        for log in self._current.values():
            log.committed = log.end
        for log in self._current.values():
            if log.topic == SIDE_TOPIC and may_be_deleted and self.rng.random() < 0.5:
                continue
            reader = Consumer("final", log, log.start)
            self._read(reader, 5, final=True)
            while reader.position < log.committed:
                self._read(reader, self.rng.randint(1, 20), final=True)
        for log in self.logs:
            self.history.log_starts[log.key] = log.start

    def is_gone(self, key: TopicKey, offset: int, value: Value) -> bool:
        return (key, offset, value) in self.gone

    def stands(self, key: TopicKey, offset: int, value: Value) -> bool:
        """Whether the log has this record, or retention has passed it."""
        log = next(log for log in self.logs if log.key == key)
        if offset < log.start:
            return True
        return any((offset, value) in enumerate(one.values, one.base) for one in log.batches)


def played(seed: int, *, steps: int = STEPS, churns: bool = True, loses: bool = False) -> Model:
    model = Model(seed, churns=churns, loses=loses)
    model.play(steps)
    model.finish()
    return model


@given(seeds, st.integers(0, 400))
@settings(max_examples=examples(250), deadline=None)
def test_whatever_a_right_cluster_does_is_valid(seed: int, steps: int) -> None:
    report = check_history(played(seed, steps=steps).history)
    assert report.anomalies == []
    assert report.excused == []
    assert report.verdict == ("valid" if report.counts["records demanded"] else "unknown")


@given(seeds, st.integers(0, 400))
@settings(max_examples=examples(250), deadline=None)
def test_what_faults_explain_is_excused(seed: int, steps: int) -> None:
    model = played(seed, steps=steps, loses=True)
    assert check_history(model.history, is_excused=model.is_gone).anomalies == []


@given(seeds, st.integers(50, 400))
@settings(max_examples=examples(250), deadline=None)
def test_without_the_excuse_everything_that_was_promised_or_shown_is_missed(seed: int, steps: int) -> None:
    model = played(seed, steps=steps, churns=False, loses=True)
    broken = False
    for operation in model.history.operations:
        if operation.status is not OK or operation.key is None:
            continue
        shown = list(operation.records)
        if operation.acks == -1 and operation.base_offset >= 0:
            shown = list(enumerate(operation.values, operation.base_offset))
        broken = broken or not all(model.stands(operation.key, *record) for record in shown)
    assert (check_history(model.history, is_excused=never).verdict == "invalid") == broken


# -- mutations of valid histories


class Mutator:
    """Breaks one thing in a valid history."""

    def __init__(self, seed: int) -> None:
        self.model = played(seed, steps=500, churns=False)
        self.history = self.model.history
        self.rng = random.Random(seed + 1)
        operations = self.history.operations
        self.sends = [one for one in operations if one.kind is OperationKind.SEND]
        self.polls = [one for one in operations if one.kind is OperationKind.POLL and one.status is OK]
        self.final = [one for one in self.polls if one.final]
        self.tails = [one for one in self.polls if not one.final]

    def pick(self, operations: list[Operation]) -> Operation:
        assume(operations)
        return self.rng.choice(operations)

    def replace(self, operation: Operation, **changes: object) -> None:
        self.history.operations[operation.index] = replace(operation, **changes)  # type: ignore[arg-type]

    def readers(self, send: Operation) -> list[Operation]:
        """The polls that read a send's first value, in whichever place of the history."""
        return [
            poll
            for poll in self.history.operations
            if poll.key == send.key and any(value == send.values[0] for _, value in poll.records)
        ]

    def read_once(self, acks: tuple[int, ...], statuses: tuple[OperationStatus, ...]) -> list[Operation]:
        """Sends, of one attempt, that the final phase read and that lie in their log once."""
        attempts: dict[bytes, list[Operation]] = {}
        for send in self.sends:
            attempts.setdefault(send.values[0], []).append(send)
        places: dict[bytes, set[int]] = {}
        for poll in self.polls:
            for offset, value in poll.records:
                places.setdefault(value, set()).add(offset)
        finals = {value for poll in self.final for _, value in poll.records}
        return [
            sends[0]
            for value, sends in attempts.items()
            if len(sends) == 1
            and len(places.get(value, ())) == 1
            and value in finals
            and sends[0].acks in acks
            and sends[0].status in statuses
        ]

    def drop(self, values: tuple[Value, ...]) -> None:
        """Nobody reads these; where they were there is a hole."""
        for poll in list(self.history.operations):
            kept = tuple(record for record in poll.records if record[1] not in values)
            if len(kept) < len(poll.records):
                self.replace(poll, records=kept)

    def add_send(self, key: TopicKey, *values: Value, status: OperationStatus, base: int = -1) -> None:
        """A send by somebody new, before everything else."""
        operation = Operation(
            index=0,
            process="somebody new",
            kind=OperationKind.SEND,
            key=key,
            invoked_s=0.0,
            values=values,
            status=status,
            base_offset=base,
            completed_s=0.0,
            topic="orders",
        )
        self.history.operations.insert(0, operation)
        for index, one in enumerate(self.history.operations):
            one.index = index

    def add_at_end(self, key: TopicKey, *values: Value) -> None:
        """The final phase reads these too, after all others."""
        last = [poll for poll in self.final if poll.key == key][-1]
        more = tuple(enumerate(values, last.next_offset))
        end = last.next_offset + len(values)
        self.replace(last, records=last.records + more, next_offset=end)

    def oracles(self) -> set[str]:
        report = check_history(self.history)
        return {anomaly.oracle for anomaly in report.anomalies}


def key_of(operation: Operation) -> TopicKey:
    assert operation.key is not None
    return operation.key


def show_another_value(m: Mutator) -> None:
    """A consumer is shown another value than the final phase at an offset."""
    at_end = {(poll.key, record) for poll in m.final for record in poll.records}
    shared = [poll for poll in m.tails if any((poll.key, record) in at_end for record in poll.records)]
    poll = m.pick(shared)
    place = m.rng.choice([n for n, record in enumerate(poll.records) if (poll.key, record) in at_end])
    records = list(poll.records)
    records[place] = (records[place][0], b"another")
    m.replace(poll, records=tuple(records))
    m.add_send(key_of(poll), b"another", status=INFO)


def misstate_an_offset(m: Mutator) -> None:
    """An idempotent producer is told the wrong offset."""
    send = m.pick([one for one in m.read_once((-1,), (OK,)) if one.idempotent])
    m.replace(send, base_offset=send.base_offset + 1)


def forget_what_was_shown(m: Mutator) -> None:
    """A value that a consumer read, sent with lower acks, is not there at the end."""
    sends = m.read_once((0, 1), (OK,))
    send = m.pick([one for one in sends if any(not poll.final for poll in m.readers(one))])
    for poll in m.readers(send):
        if poll.final:
            kept = tuple(record for record in poll.records if record[1] not in send.values)
            m.replace(poll, records=kept)


def append_twice(m: Mutator) -> None:
    """A batch of an idempotent producer lies in the log twice."""
    send = m.pick([one for one in m.read_once((-1,), (OK, INFO)) if one.idempotent])
    m.add_at_end(key_of(send), *send.values)


def keep_what_failed(m: Mutator) -> None:
    """A batch whose send failed is in the log."""
    key = key_of(m.pick(m.final))
    m.add_at_end(key, b"failed", b"too")
    m.add_send(key, b"failed", b"too", status=FAIL)


def invent(m: Mutator) -> None:
    """A value is in the log that nobody sent."""
    m.add_at_end(key_of(m.pick(m.final)), b"invented")


def lose(m: Mutator) -> None:
    """An acknowledged batch is gone before anybody read it; later ones are there."""
    sends = [one for one in m.read_once((-1,), (OK,)) if one.idempotent]
    ends = {poll.key: poll.records[-1][0] for poll in m.final if poll.records}
    send = m.pick([one for one in sends if one.base_offset + len(one.values) <= ends[key_of(one)]])
    m.drop(send.values)


def lose_the_tail_that_was_read(m: Mutator) -> None:
    """The final phase ends before a record that a consumer had read; it was acknowledged with acks=-1."""
    sends = [one for one in m.read_once((-1,), (OK,)) if any(not p.final for p in m.readers(one))]
    send = m.pick(sends)
    for poll in [one for one in m.final if one.key == send.key]:
        kept = tuple(record for record in poll.records if record[0] < send.base_offset)
        span = {"position": poll.position, "next_offset": poll.next_offset}
        m.replace(poll, records=kept, **{name: min(at, send.base_offset) for name, at in span.items()})


def promise_without_writing(m: Mutator) -> None:
    """A send is acknowledged at the end of the log, where nothing is."""
    last = m.final[-1]
    m.add_send(key_of(last), b"promised", status=OK, base=last.next_offset + 1000)


def skip(m: Mutator) -> None:
    """A consumer is not given a batch that others read."""
    final = {(poll.key, record) for poll in m.final for record in poll.records}
    poll = m.pick([p for p in m.tails if any((p.key, record) in final for record in p.records)])
    missed = m.rng.choice([record for record in poll.records if (poll.key, record) in final])
    m.replace(poll, records=tuple(record for record in poll.records if record != missed))


def step_back(m: Mutator) -> None:
    """A consumer is given a record again, in its next poll or in the same."""
    poll = m.pick([one for one in m.polls if one.records])
    later = [
        one
        for one in m.polls
        if (one.process, one.key) == (poll.process, poll.key) and one.index > poll.index and not one.sought
    ]
    again = poll.records[-1:]
    if later and m.rng.random() < 0.5 and not later[0].final:
        m.replace(later[0], records=again + later[0].records)
    else:
        m.replace(poll, records=poll.records + again)


def exchange_two_sends(m: Mutator) -> None:
    """Of two sends of a process the later one lies before the other."""
    by_process: dict[str, list[Operation]] = {}
    for send in m.read_once((-1,), (OK,)):
        by_process.setdefault(send.process, []).append(send)
    pairs = [
        (one, other)
        for sends in by_process.values()
        for one, other in pairwise(sends)
        if one.base_offset < other.base_offset and (one.idempotent or one.completed_s < other.invoked_s)
    ]
    assume(pairs)
    one, other = m.rng.choice(pairs)
    m.replace(one, values=other.values, base_offset=other.base_offset)
    m.replace(other, values=one.values, base_offset=one.base_offset)


def tear(m: Mutator) -> None:
    """A part of a batch with acks=1 is missing everywhere."""
    send = m.pick([one for one in m.read_once((0, 1), (OK,)) if len(one.values) > 1])
    m.drop((m.rng.choice(send.values),))


def tear_an_unanswered_one(m: Mutator) -> None:
    """The same of a send with acks=-1 that nobody answered; what comes after it is there."""
    sends = [one for one in m.read_once((-1,), (INFO,)) if len(one.values) > 1]
    send = m.pick(sends)
    m.drop(send.values[:1])


def shuffle_a_batch(m: Mutator) -> None:
    """The values of a batch lie in another order."""
    send = m.pick([one for one in m.read_once((0, 1), (OK,)) if len(one.values) > 1])
    turned = dict(zip(send.values, reversed(send.values), strict=True))
    for poll in list(m.history.operations):
        records = tuple((offset, turned.get(value, value)) for offset, value in poll.records)
        if records != poll.records:
            m.replace(poll, records=records)


@pytest.mark.parametrize(
    ("mutate", "named", "may_be_named"),
    [
        (show_another_value, "inconsistent-offsets", set()),
        (misstate_an_offset, "inconsistent-offsets", {"non-monotonic-send"}),
        (forget_what_was_shown, "inconsistent-offsets", {"poll-skip"}),
        (append_twice, "duplicate", set()),
        (keep_what_failed, "aborted-read", set()),
        (invent, "unsent-read", set()),
        (lose, "lost-write", {"poll-skip"}),
        (lose_the_tail_that_was_read, "lost-write", {"unseen", "inconsistent-offsets"}),
        (promise_without_writing, "unseen", set()),
        (skip, "poll-skip", set()),
        (step_back, "non-monotonic-poll", set()),
        (exchange_two_sends, "non-monotonic-send", set()),
        (tear, "torn-batch", set()),
        (tear_an_unanswered_one, "torn-batch", {"lost-write"}),
        (shuffle_a_batch, "torn-batch", set()),
    ],
)
@given(seed=seeds)
@settings(max_examples=12, deadline=None)
def test_what_is_broken_is_named(
    mutate: Callable[[Mutator], None], named: str, may_be_named: set[str], seed: int
) -> None:
    mutator = Mutator(seed)
    assert mutator.oracles() == set()
    mutate(mutator)
    oracles = mutator.oracles()
    assert named in oracles
    assert oracles - {named} <= may_be_named
