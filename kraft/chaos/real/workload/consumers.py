"""Consumers: assigned ones, members of groups, and the final reader, through librdkafka.

An assigned consumer of a topic that has transactions reads twice: everything, for the ordinary history, and what is
committed, for the history of transactions.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from kraft.chaos.experiments.evidence import FinalRead
from kraft.chaos.group_history import GroupAction, GroupOperation, GroupProtocol, Sender
from kraft.chaos.history import OperationStatus
from kraft.chaos.real.brokers import Brokers
from kraft.chaos.real.workload.client import SETTINGS, Client, error_of
from kraft.chaos.real.workload.recorder import Recorder, recorded_value

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
NO_GENERATION: Final = -1
NOT_COMMITTED: Final = -1
FINAL_MEMBER: Final = "final"
_METADATA_PREFIX: Final = b"CGMDv2:"
_GENERATION: Final = struct.Struct("=i")
"""How librdkafka writes down a member: prefix, generation, then group, member id and instance id, each with a zero byte
behind it."""

Name = tuple[str, int]
"""Topic and partition."""
LeaderEnd = Callable[[str, int], int | None]
"""Where the log of a partition's leader ends; None: nobody tells."""


def _by_partition(messages: Iterable[Any]) -> dict[Name, list[tuple[int, bytes]]]:
    """The records of a poll, in the order read."""
    found: dict[Name, list[tuple[int, bytes]]] = {}
    for message in messages:
        name = message.topic(), message.partition()
        found.setdefault(name, []).append((message.offset(), recorded_value(message.value())))
    return found


class AssignedConsumer(Client):
    """Reads all partitions of a topic from the start on."""

    def __init__(self, name: str, brokers: Brokers, recorder: Recorder, topic: str, isolation: str) -> None:
        super().__init__(name, brokers, recorder)
        self._topic = topic
        self._isolation = isolation
        self._positions: dict[Name, int] = {}
        self._sought: set[Name] = set()

    def work(self) -> None:
        consumer = Consumer(
            {
                **SETTINGS,
                **CONSUMER,
                **self.brokers.settings,
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


def member_of(metadata: bytes) -> tuple[int, str]:
    """A member's generation and id, as librdkafka hands them to a transactional producer; -1 while it is in none.
    Raises ValueError for another form."""
    if not metadata.startswith(_METADATA_PREFIX):
        raise ValueError(f"a member's metadata do not begin with {_METADATA_PREFIX!r}: {metadata[:20]!r}")
    (generation,) = _GENERATION.unpack_from(metadata, len(_METADATA_PREFIX))
    _, member_id, _ = metadata[len(_METADATA_PREFIX) + _GENERATION.size :].split(b"\0", 2)
    return generation, member_id.decode()


class GroupMember(Client):
    """A member of a group, which commits what it has read, and asks what is committed. Each assignment is a process of
    its own in the history; what the group tells it is in the history of groups. Each commit has a text of its own, by
    which whoever is told of it knows it."""

    def __init__(self, name: str, brokers: Brokers, recorder: Recorder, topic: str, group: str) -> None:
        super().__init__(name, brokers, recorder)
        self._topic = topic
        self._group = group
        self._positions: dict[Name, int] = {}
        """Of what it has read since its last assignment."""
        self._dirty: dict[Name, int] = {}
        self._assignments = 0
        self._commits = 0

    def work(self) -> None:
        consumer = Consumer(
            {
                **SETTINGS,
                **CONSUMER,
                **self.brokers.settings,
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
                    self._ask(consumer, list(self._positions))
                    commit_s = time.monotonic()
            self._commit(consumer)
        finally:
            consumer.close()

    def _poll(self, consumer: Consumer) -> None:
        began_s = self.recorder.clock()
        messages = consumer.consume(POLL_RECORDS_MAX, POLL_S)
        process = f"{self.name}.{self._assignments}"
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
        """Of all that it has read; what fails is tried again with the next one, unless it was moved. Whether a commit
        that failed was written is not known: librdkafka may have asked more than once."""
        sender = self._sender(consumer)
        if not self._dirty or sender is None:
            return
        asked = {name: self._asked_commit(sender, name, offset) for name, offset in self._dirty.items()}
        wanted = [TopicPartition(*name, one.offset, one.tag) for name, one in asked.items()]
        answered: Sequence[TopicPartition] = ()
        told = "it is not among the answers"
        try:
            answered = consumer.commit(offsets=wanted, asynchronous=False) or ()
        except KafkaException as error:
            told = error_of(error).name()
            if error_of(error).fatal():
                raise
        for one in answered:
            name = one.topic, one.partition
            if one.error is None:
                self.recorder.answered(asked.pop(name), OperationStatus.OK)
                if self._dirty.get(name) == one.offset:
                    del self._dirty[name]
        for operation in asked.values():
            self.recorder.answered(operation, OperationStatus.INFO, error=told)

    def _asked_commit(self, sender: Sender, name: Name, offset: int) -> GroupOperation:
        self._commits += 1
        tag = f"{self.name}:{self._commits}"
        return self.recorder.asked(GroupAction.COMMIT, sender, name, offset=offset, tag=tag)

    def _ask(self, consumer: Consumer, names: Sequence[Name]) -> None:
        """What is committed of these partitions, as its coordinator tells it now."""
        sender = self._sender(consumer)
        if names and sender is not None:
            ask_committed(consumer, self.recorder, sender, names, QUESTION_S)

    def _sender(self, consumer: Consumer) -> Sender | None:
        """Who it is to its coordinator now; None: no member."""
        generation, member_id = member_of(consumer.consumer_group_metadata())
        if generation == NO_GENERATION or not member_id:
            return None
        return Sender(self._group, GroupProtocol.CLASSIC, member_id, generation)

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._assignments += 1
        self._positions.clear()
        self._dirty.clear()
        names = [(one.topic, one.partition) for one in partitions]
        sender = self._sender(consumer)
        if sender is not None:  # else the group has gone on without it meanwhile
            operation = self.recorder.asked(GroupAction.ASSIGNED, sender)
            keys = [self.recorder.key(*name) for name in names]
            self.recorder.answered(operation, OperationStatus.OK, owned=keys)
        self._ask(consumer, names)

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._commit(consumer)
        self._lost(consumer, partitions)

    def _lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._positions.clear()
        self._dirty.clear()


# -- when all is over


def read_finally(
    brokers: Brokers,
    recorder: Recorder,
    transactional: Iterable[str],
    leader_end: LeaderEnd,
    timeout_s: float,
) -> tuple[FinalRead, ...]:
    """A fresh client reads every partition from its log start to its leader's end: a high watermark that does not come
    to that end would hide what stands behind it."""
    committed = set(transactional)
    return tuple(
        _read_once_or_twice(
            brokers, recorder, (topic, number), leader_end, timeout_s, is_transactional=topic in committed
        )
        for topic, count in recorder.partitions.items()
        for number in range(count)
    )


def _read_once_or_twice(
    brokers: Brokers,
    recorder: Recorder,
    name: Name,
    leader_end: LeaderEnd,
    timeout_s: float,
    *,
    is_transactional: bool,
) -> FinalRead:
    """Everything, and then what is committed, if there are transactions: both must come to the end."""
    everything = _Final(brokers, recorder, name, leader_end, UNCOMMITTED).read(timeout_s)
    if not is_transactional:
        return everything
    committed = _Final(brokers, recorder, name, leader_end, COMMITTED).read(timeout_s)
    if everything.problem or not committed.problem:
        return everything
    return replace(everything, problem=f"of what is committed, {committed.problem}")


class _Final:
    """Reads one partition once."""

    def __init__(
        self, brokers: Brokers, recorder: Recorder, name: Name, leader_end: LeaderEnd, isolation: str
    ) -> None:
        self._recorder = recorder
        self._name = name
        self._leader_end = leader_end
        self._isolation = isolation
        self._consumer = Consumer(
            {
                **SETTINGS,
                **CONSUMER,
                **brokers.settings,
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
            if end >= 0:
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
        """The log's start and its leader's end; -1: nobody tells. Raises KafkaException."""
        while True:
            is_late = time.monotonic() >= deadline_s
            try:
                low, _ = self._consumer.get_watermark_offsets(TopicPartition(*self._name), QUESTION_S)
            except KafkaException:
                if is_late:
                    raise
                continue
            end = self._leader_end(*self._name)
            if end is not None or is_late:
                return int(low), -1 if end is None else end
            time.sleep(POLL_S)

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


def ask_committed(
    consumer: Consumer, recorder: Recorder, sender: Sender, names: Sequence[Name], timeout_s: float
) -> list[Name]:
    """Asks what is committed of some partitions, and enters the answers; returns the partitions without one."""
    asked = {name: recorder.asked(GroupAction.FETCH, sender, name) for name in names}
    told = "it is not among the answers"
    try:
        answered = consumer.committed([TopicPartition(*name) for name in names], timeout_s)
    except KafkaException as error:
        answered, told = [], error_of(error).name()
    for one in answered:
        if one.error is None:
            operation = asked.pop((one.topic, one.partition))
            offset = max(one.offset, NOT_COMMITTED)
            recorder.answered(operation, OperationStatus.OK, offset=offset, tag=one.metadata or "")
    for operation in asked.values():
        recorder.answered(operation, OperationStatus.INFO, error=told)
    return list(asked)


def ask_finally(
    brokers: Brokers, recorder: Recorder, group: str, names: Sequence[Name], timeout_s: float
) -> list[Name]:
    """A fresh client asks what a group has committed; returns the partitions without an answer."""
    consumer = Consumer({**SETTINGS, **brokers.settings, "group.id": group})
    try:
        sender = Sender(group, GroupProtocol.CLASSIC, FINAL_MEMBER, NO_GENERATION)
        return ask_committed(consumer, recorder, sender, names, timeout_s)
    finally:
        consumer.close()
