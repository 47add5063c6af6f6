"""Consumers: assigned ones, members of groups, and the final reader, through librdkafka.

An assigned consumer of a topic that has transactions reads twice: everything, for the ordinary history, and what is
committed, for the history of transactions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from kraft.chaos.experiments.evidence import FinalRead
from kraft.chaos.real.workload.client import SETTINGS, Client, error_of
from kraft.chaos.real.workload.recorder import Commit, Recorder, recorded_value

POLL_RECORDS_MAX: Final = 1_000
POLL_S: Final = 0.1
COMMIT_EVERY_S: Final = 0.5
QUESTION_S: Final = 5.0
CONSUMER: Final[dict[str, Any]] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 100,
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1_000,
    "fetch.error.backoff.ms": 100,
}
PASSING: Final = frozenset(
    (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)
)
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"

Name = tuple[str, int]
"""Topic and partition."""


def _by_partition(messages: Iterable[Any]) -> dict[Name, list[tuple[int, bytes]]]:
    """The records of a poll, in the order read."""
    found: dict[Name, list[tuple[int, bytes]]] = {}
    for message in messages:
        name = message.topic(), message.partition()
        found.setdefault(name, []).append((message.offset(), recorded_value(message.value())))
    return found


class AssignedConsumer(Client):
    """Reads all partitions of a topic from the start on."""

    def __init__(self, name: str, bootstrap: str, recorder: Recorder, topic: str, isolation: str) -> None:
        super().__init__(name, bootstrap, recorder)
        self._topic = topic
        self._isolation = isolation
        self._positions: dict[Name, int] = {}
        self._sought: set[Name] = set()

    def work(self) -> None:
        consumer = Consumer(
            {
                **SETTINGS,
                **CONSUMER,
                "bootstrap.servers": self.bootstrap,
                "client.id": self.name,
                "group.id": f"unused-{self.name}",
                "isolation.level": self._isolation,
            }
        )
        try:
            names = [(self._topic, number) for number in range(self.recorder.partitions[self._topic])]
            self._sought.update(names)
            self._positions = dict.fromkeys(names, 0)
            consumer.assign([TopicPartition(*name, OFFSET_BEGINNING) for name in names])
            while not self.stopping.is_set():
                self._poll(consumer)
        finally:
            consumer.close()

    def _poll(self, consumer: Consumer) -> None:
        began_s = self.recorder.clock()
        messages = consumer.consume(POLL_RECORDS_MAX, POLL_S)
        for name, records in _by_partition(one for one in messages if one.error() is None).items():
            self._enter(name, began_s, records)
        for message in messages:
            if message.error() is not None:
                self._handle(consumer, message)

    def _enter(self, name: Name, began_s: float, records: Sequence[tuple[int, bytes]]) -> None:
        position, next_offset = self._positions[name], records[-1][0] + 1
        if self._isolation == COMMITTED:
            self.recorder.polled_committed(self.name, *name, position, records, next_offset)
        else:
            sought = name in self._sought
            self.recorder.polled(self.name, *name, began_s, position, records, next_offset, sought=sought)
        self._sought.discard(name)
        self._positions[name] = next_offset

    def _handle(self, consumer: Consumer, message: Any) -> None:
        """A position that the log does not have (any more): it goes to where the log begins, as it may on purpose."""
        error: KafkaError = message.error()
        if error.code() != KafkaError._AUTO_OFFSET_RESET:
            if error.fatal():
                raise KafkaException(error)
            return
        name = message.topic(), message.partition()
        self._sought.add(name)
        self._positions[name] = 0
        consumer.assign(
            [
                TopicPartition(*one, OFFSET_BEGINNING if one in self._sought else position)
                for one, position in self._positions.items()
            ]
        )


class GroupMember(Client):
    """A member of a group, which commits what it has read. Each assignment is a process of its own in the history."""

    def __init__(self, name: str, bootstrap: str, recorder: Recorder, topic: str, group: str) -> None:
        super().__init__(name, bootstrap, recorder)
        self._topic = topic
        self._group = group
        self._positions: dict[Name, int] = {}
        """Of what it has read since its last assignment."""
        self._dirty: dict[Name, int] = {}
        self._generation = 0

    def work(self) -> None:
        consumer = Consumer(
            {
                **SETTINGS,
                **CONSUMER,
                "bootstrap.servers": self.bootstrap,
                "client.id": self.name,
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "isolation.level": UNCOMMITTED,
            }
        )
        try:
            consumer.subscribe(
                [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
            commit_s = time.monotonic()
            while not self.stopping.is_set():
                self._poll(consumer)
                if time.monotonic() >= commit_s + COMMIT_EVERY_S:
                    self._commit(consumer)
                    commit_s = time.monotonic()
            self._commit(consumer)
        finally:
            consumer.close()

    def _poll(self, consumer: Consumer) -> None:
        began_s = self.recorder.clock()
        messages = consumer.consume(POLL_RECORDS_MAX, POLL_S)
        process = f"{self.name}.{self._generation}"
        for name, records in _by_partition(one for one in messages if one.error() is None).items():
            known = self._positions.get(name)
            position, next_offset = records[0][0] if known is None else known, records[-1][0] + 1
            self.recorder.polled(
                process, *name, began_s, position, records, next_offset, sought=known is None
            )
            self._positions[name] = self._dirty[name] = next_offset
        for message in messages:
            if message.error() is not None and message.error().fatal():
                raise KafkaException(message.error())

    def _commit(self, consumer: Consumer) -> None:
        """Of all that it has read; what fails is tried again with the next one, unless it was moved."""
        wanted = [TopicPartition(*name, offset) for name, offset in self._dirty.items()]
        if not wanted:
            return
        try:
            answered = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            if error_of(error).fatal():
                raise
            return
        for one in answered or ():
            if one.error is None:
                name = one.topic, one.partition
                at_s = self.recorder.now()
                self.recorder.committed(Commit(self._group, self.name, *name, one.offset, at_s))
                if self._dirty.get(name) == one.offset:
                    del self._dirty[name]

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._generation += 1
        self._positions.clear()
        self._dirty.clear()

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._commit(consumer)
        self._lost(consumer, partitions)

    def _lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._positions.clear()
        self._dirty.clear()


# -- when all is over


def read_finally(
    bootstrap: str, recorder: Recorder, transactional: Iterable[str], timeout_s: float
) -> tuple[FinalRead, ...]:
    """A fresh client reads every partition from its log start to its leader's end."""
    committed = set(transactional)
    return tuple(
        _read_once_or_twice(
            bootstrap, recorder, (topic, number), timeout_s, is_transactional=topic in committed
        )
        for topic, count in recorder.partitions.items()
        for number in range(count)
    )


def _read_once_or_twice(
    bootstrap: str, recorder: Recorder, name: Name, timeout_s: float, *, is_transactional: bool
) -> FinalRead:
    """Everything, and then what is committed, if there are transactions: both must come to the end."""
    everything = _Final(bootstrap, recorder, name, UNCOMMITTED).read(timeout_s)
    if not is_transactional:
        return everything
    committed = _Final(bootstrap, recorder, name, COMMITTED).read(timeout_s)
    if everything.problem or not committed.problem:
        return everything
    return replace(everything, problem=f"of what is committed, {committed.problem}")


class _Final:
    """Reads one partition once."""

    def __init__(self, bootstrap: str, recorder: Recorder, name: Name, isolation: str) -> None:
        self._recorder = recorder
        self._name = name
        self._isolation = isolation
        self._consumer = Consumer(
            {
                **SETTINGS,
                **CONSUMER,
                "bootstrap.servers": bootstrap,
                "client.id": "final",
                "group.id": "unused-final",
                "isolation.level": isolation,
                "enable.partition.eof": True,
            }
        )

    def read(self, timeout_s: float) -> FinalRead:
        deadline_s = time.monotonic() + timeout_s
        start = end = -1
        read_to, problem = -1, "its ends could not be asked for"
        try:
            start, end = self._ends(deadline_s)
            self._consumer.assign([TopicPartition(*self._name, start)])
            read_to, problem = self._read(start, end, deadline_s)
        except KafkaException as error:
            problem = f"{problem}: {error_of(error).str()}" if start < 0 else error_of(error).str()
        finally:
            self._consumer.close()
        key = self._recorder.key(*self._name)
        if not problem and self._isolation == COMMITTED:
            self._recorder.transactions.log_starts[key] = start
        elif self._isolation == UNCOMMITTED:
            self._recorder.history.log_starts[key] = max(start, 0)
        return FinalRead(*self._name, start, end, read_to, start, 0, problem)

    def _ends(self, deadline_s: float) -> tuple[int, int]:
        """The log's start and its end. Raises KafkaException."""
        while True:
            try:
                low, high = self._consumer.get_watermark_offsets(TopicPartition(*self._name), QUESTION_S)
            except KafkaException:
                if time.monotonic() >= deadline_s:
                    raise
                continue
            return int(low), int(high)

    def _read(self, start: int, end: int, deadline_s: float) -> tuple[int, str]:
        """Where it came to, and why not to the end."""
        position, is_at_end = start, False
        process = f"final-{self._isolation}"
        while not (is_at_end and position >= end):
            if time.monotonic() >= deadline_s:
                return position, f"the read stands at offset {position} of {end}"
            began_s = self._recorder.clock()
            messages = self._consumer.consume(POLL_RECORDS_MAX, POLL_S)
            ends = [
                one.offset()
                for one in messages
                if one.error() and one.error().code() == KafkaError._PARTITION_EOF
            ]
            is_at_end = bool(ends)
            records = _by_partition(one for one in messages if one.error() is None).get(self._name, [])
            next_offset = max([position, *(offset + 1 for offset, _ in records), *ends])
            for message in messages:
                error = message.error()
                if error is not None and (error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET):
                    return position, error.str()
            if records or is_at_end:
                self._enter(process, began_s, position, records, next_offset)
            position = next_offset
        return position, ""

    def _enter(
        self,
        process: str,
        began_s: float,
        position: int,
        records: Sequence[tuple[int, bytes]],
        next_offset: int,
    ) -> None:
        recorder = self._recorder
        if self._isolation == COMMITTED:
            recorder.polled_committed(process, *self._name, position, records, next_offset, final=True)
        else:
            recorder.polled(
                process, *self._name, began_s, position, records, next_offset, sought=True, final=True
            )


def committed_offsets(bootstrap: str, group: str, names: Sequence[Name], timeout_s: float) -> dict[Name, int]:
    """What a group has committed; partitions without an answer are left out."""
    consumer = Consumer({**SETTINGS, "bootstrap.servers": bootstrap, "group.id": group})
    try:
        answered = consumer.committed([TopicPartition(*name) for name in names], timeout_s)
    except KafkaException:
        return {}
    finally:
        consumer.close()
    return {(one.topic, one.partition): one.offset for one in answered if one.error is None}
