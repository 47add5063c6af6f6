"""A shard of transactions with its log, its clocks, its clients and its markers, as golden stories and property tests
drive it.

The runtime is modelled at its simplest: records are appended in their order and committed at once, or when `commit`
is called; replies and effects come when all that was written about their id is committed. A crash loses what is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from kraft.coordinator.shard import (
    Decisions,
    Moment,
    ProducerIdAndEpoch,
    Record,
    ShardTimers,
    StoredRecord,
    Written,
)
from kraft.coordinator.timers import Timers
from kraft.coordinator.transactions import records
from kraft.coordinator.transactions.context import (
    TransactionContext,
    TransactionCounters,
    TransactionSettings,
)
from kraft.coordinator.transactions.requests import ProducerIdNeeded, SendMarkers, TransactionRequest
from kraft.coordinator.transactions.shard import TransactionShard
from kraft.coordinator.transactions.transaction import PREPARED, Transaction
from partitions.topic_partition import TopicPartition

WALL_START_MS = 1_000_000_000


class Answer(NamedTuple):
    """What the sender of a request was told."""

    client: str
    request: TransactionRequest
    response: Any


class _Due(NamedTuple):
    position: int
    """Records that have to be committed before."""
    what: Answer | SendMarkers
    token: int | None


class TransactionsWorld:
    def __init__(self, settings: TransactionSettings | None = None, level: int = 2) -> None:
        self.settings = settings or TransactionSettings()
        self.level = level
        self.now_ms = 0
        self.is_committing = True
        """Whether what is written is committed at once."""
        self.log: list[Record] = []
        self.committed = 0
        """Records of the log that are."""
        self.producer_ids: Iterator[int] = count(1)
        self.serials = count(1)
        self.counters = TransactionCounters()
        self.asked: dict[int, tuple[str, TransactionRequest]] = {}
        """Whose request a token is, until it is answered."""
        self.answers: list[Answer] = []
        self.markers: list[SendMarkers] = []
        """What is to be written, until somebody takes it."""
        self._due: list[_Due] = []
        self._tokens = count(1)
        self.shard = self._make_shard()
        self.resume()

    def _make_shard(self) -> TransactionShard:
        self.timers: ShardTimers = Timers()
        context = TransactionContext(
            self.settings, self.timers, self.counters, self.serials, lambda: self.level
        )
        return TransactionShard(context)

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms, WALL_START_MS + self.now_ms)

    # Requests

    def ask(self, client: str, request: TransactionRequest) -> int:
        token = next(self._tokens)
        self.asked[token] = client, request
        self._decide(lambda shard, now, turn: shard.handle(token, request, now, turn))
        return token

    def written(
        self, sent: SendMarkers, partitions: Set[TopicPartition], *, is_overtaken: bool = False
    ) -> None:
        self._decide(
            lambda shard, now, turn: shard.on_markers_written(
                sent, partitions, now, turn, is_overtaken=is_overtaken
            )
        )

    def delete_topics(self, names: Iterable[str]) -> None:
        self._decide(lambda shard, now, turn: shard.on_topics_deleted(list(names), now, turn))

    # Time and crashes

    def tick(self, ms: int) -> None:
        """Timers act when they are due."""
        end_ms = self.now_ms + ms
        while (next_ms := self.timers.next_ms) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            for action in self.timers.pop_due(self.now_ms):
                self._decide(lambda _shard, now, turn, action=action: action(now, turn))  # type: ignore[misc]
        self.now_ms = end_ms

    def resume(self) -> None:
        """Records can be appended: for the first time, or again."""
        self._decide(lambda shard, now, turn: shard.on_loaded(now, turn))

    def crash(self, *, is_compacted: bool = False) -> None:
        """Another coordinator loads what is committed. Who waited hears nothing, and markers are forgotten."""
        del self.log[self.committed :]
        self._due.clear()
        self.asked.clear()
        self.markers.clear()
        self.shard = self._make_shard()
        self._replay(self.shard, is_compacted)
        self.shard.on_replayed()
        self._decide(lambda shard, now, turn: shard.on_loaded(now, turn))

    def reloaded(self) -> TransactionShard:
        """What another coordinator would know, if all were committed."""
        context = TransactionContext(
            self.settings, Timers(), TransactionCounters(), count(1), lambda: self.level
        )
        shard = TransactionShard(context)
        self._replay(shard, is_compacted=True)
        return shard

    def _replay(self, shard: TransactionShard, is_compacted: bool) -> None:
        newest = {record.key: offset for offset, record in enumerate(self.log)}
        for offset, record in enumerate(self.log):
            if not is_compacted or newest[record.key] == offset:
                shard.replay(StoredRecord(offset, 0, record.key, record.value))

    def commit(self) -> None:
        """All that is written is committed."""
        self.committed = len(self.log)
        self._deliver()

    # What was decided

    def _decide(self, decide: Callable[[TransactionShard, Moment, Decisions], None]) -> None:
        turn = Decisions()
        decide(self.shard, self.now, turn)
        for written in turn.written:
            assert isinstance(written, Written)
            self.log.append(written.record)
        for effect in turn.effects:
            self._due.append(_Due(self._position(effect.about), effect.what, None))
        for reply in turn.replies:
            client, request = self.asked[reply.token]
            answer = Answer(client, request, reply.response)
            self._due.append(_Due(self._position(reply.about), answer, reply.token))
        if self.is_committing:
            self.committed = len(self.log)
        self._deliver()
        self._check()

    def _position(self, about: str | None) -> int:
        """Behind the newest record about the id, or about any."""
        if about is None:
            return len(self.log)
        key = records.tombstone(about).key
        return max((i + 1 for i, record in enumerate(self.log) if record.key == key), default=0)

    def _deliver(self) -> None:
        due = [one for one in self._due if one.position <= self.committed]
        self._due = [one for one in self._due if one.position > self.committed]
        for one in due:
            if isinstance(one.what, SendMarkers):
                self.markers.append(one.what)
                continue
            assert one.token is not None
            del self.asked[one.token]  # a token is answered once
            self.answers.append(one.what)
        for one in due:
            if isinstance(one.what, Answer) and isinstance(one.what.response, ProducerIdNeeded):
                self.answers.remove(one.what)
                self._ask_with_id(one.what)

    def _ask_with_id(self, answer: Answer) -> None:
        request: Any = answer.request
        assert request.new_producer_id is None, "it brought one"
        self.ask(answer.client, request._replace(new_producer_id=next(self.producer_ids)))

    def _check(self) -> None:
        """The log tells all that the shard knows, but for what it says it does not."""
        told = {one: _durable(known) for one, known in self.shard.transactions.items()}
        read = {one: _durable(known) for one, known in self.reloaded().transactions.items()}
        if self.level >= 1:
            assert read == told


def _durable(transaction: Transaction) -> Transaction:
    """Markers that are written are not recorded one by one."""
    partitions = set() if transaction.state in PREPARED else set(transaction.partitions)
    return replace(transaction, partitions=partitions, last=None, serial=0, prepared_ms=0, is_overtaken=False)


def producer(text: str) -> ProducerIdAndEpoch:
    """`1/0` is epoch 0 of producer id 1."""
    producer_id, _, epoch = text.partition("/")
    return ProducerIdAndEpoch(int(producer_id), int(epoch))


def partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))
