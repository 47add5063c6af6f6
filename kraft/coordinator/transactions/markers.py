"""Which markers are to be written where: what a broker's transaction coordinators have sent, until it is acknowledged.

A state machine that `kraft.broker.coordinators.transaction_markers` drives: effects of shards go in, requests for one
broker each come out, and what became of them goes in again. Guarantees: a marker is sent to the leader of its partition
until that acknowledges it, however long it takes, or needs none: its topic is gone, or it has seen a later epoch of the
producer; never after this broker's leadership of its shard ended. Of a broker that does not answer only its own
partitions wait. Markers of all transactions that wait for a broker share requests; how many partitions a request has is
bounded. What waits is bounded by what the shards hold: the newest end of each transactional id, and each of its
partitions once. (Kafka's TransactionMarkerChannelManager.) Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from itertools import count
from typing import Final, NamedTuple

from kraft.coordinator.shard import TransactionMarker
from kraft.coordinator.transactions.requests import SendMarkers
from kraft.protocol.errors import ErrorCode
from partitions.topic_partition import TopicPartition

NOBODY: Final = -1
"""As a leader: the partition has none that this broker can reach."""
GONE: Final = -2
"""As a leader: there is no such partition any more."""
_LATER: Final = -3
"""Where a partition is that waits for its next attempt."""
PARTITIONS_PER_REQUEST: Final = 1000
BACKOFF_MIN_MS: Final = 20
BACKOFF_MAX_MS: Final = 1000

LeaderOf = Callable[[TopicPartition], int]
_Key = tuple[int, str]
"""The shard's partition, the transactional id."""


class Batched(NamedTuple):
    """A marker, and the partitions that one request writes it into."""

    key: _Key
    leader_epoch: int
    sent: SendMarkers
    partitions: tuple[TopicPartition, ...]

    @property
    def marker(self) -> TransactionMarker:
        producer, is_commit, version = self.sent.marker
        return TransactionMarker(producer, is_commit, self.leader_epoch, version)


class Batch(NamedTuple):
    """One request for one broker."""

    broker_id: int
    markers: tuple[Batched, ...]


class Acknowledged(NamedTuple):
    """What a shard is to be told: `TransactionShard.on_markers_written`."""

    number: int
    leader_epoch: int
    sent: SendMarkers
    partitions: Set[TopicPartition]
    is_overtaken: bool = False
    """These partitions have seen a later epoch of the producer: the marker has nothing to end there."""


class _Entry:
    """The newest end of one transactional id."""

    __slots__ = ("attempts", "leader_epoch", "places", "sent")

    def __init__(self, leader_epoch: int, sent: SendMarkers) -> None:
        self.leader_epoch = leader_epoch
        self.sent = sent
        self.places: dict[TopicPartition, int] = {}
        """Where each partition is that is not acknowledged: with a broker, waiting or in flight; NOBODY; _LATER."""
        self.attempts = 0
        """That failed."""


class MarkerQueues:
    """All markers of one broker's shards. `leader_of` is asked for a partition's leader as it is now, or NOBODY, or
    GONE; `in_flight_max` for how many requests may be on their way to a broker at once."""

    def __init__(
        self, leader_of: LeaderOf, in_flight_max: Callable[[int], int] = lambda broker_id: 1
    ) -> None:
        self._leader_of = leader_of
        self._in_flight_max = in_flight_max
        self._entries: dict[_Key, _Entry] = {}
        self._waiting: dict[int, dict[_Key, dict[TopicPartition, None]]] = {}
        """By broker, NOBODY too: what its next requests are made of."""
        self._in_flight: dict[int, int] = {}
        """Requests by broker."""
        self._later: list[tuple[int, int, _Key, int, tuple[TopicPartition, ...]]] = []
        """A heap: when, in which order, and what is to be tried again; and the serial it is of."""
        self._order = count()
        self._acknowledged: list[Acknowledged] = []

    # -- what is to be written

    def add(self, number: int, leader_epoch: int, sent: SendMarkers) -> None:
        """A shard has markers written. A larger serial of a transactional id replaces what was sent before; the same
        one adds partitions."""
        key = (number, sent.transactional_id)
        entry = self._entries.get(key)
        if entry is not None and (entry.leader_epoch, entry.sent.serial) != (leader_epoch, sent.serial):
            self._remove(key)
            entry = None
        if entry is None:
            entry = self._entries[key] = _Entry(leader_epoch, sent)
        for partition in sorted(sent.partitions):
            if partition not in entry.places:
                self._route(key, entry, partition)
        self._forget_if_done(key, entry)

    def end_leadership(self, number: int) -> None:
        """This broker does not lead the shard any more: nothing that is not on its way yet is sent."""
        for key in [key for key in self._entries if key[0] == number]:
            self._remove(key)

    def on_topics(self, names: Collection[str]) -> None:
        """Something changed with these topics: what waits for a partition of theirs goes where its leader is now, and
        so does what is on its way to a former leader, since a log takes a marker once."""
        for key, entry in list(self._entries.items()):
            for partition, place in list(entry.places.items()):
                if partition.topic in names and place != _LATER and self._leader_of(partition) != place:
                    self._unqueue(key, partition, place)
                    self._route(key, entry, partition)
            self._forget_if_done(key, entry)

    # -- requests

    def ready(self) -> list[int]:
        """The brokers that a request may be sent to now."""
        return [
            broker_id
            for broker_id in self._waiting
            if broker_id != NOBODY and self._in_flight.get(broker_id, 0) < self._in_flight_max(broker_id)
        ]

    def take(self, broker_id: int) -> Batch:
        """The next request for a broker that is ready; it is in flight until `answer` or `fail`."""
        waiting = self._waiting[broker_id]
        markers: list[Batched] = []
        left = PARTITIONS_PER_REQUEST
        while waiting and left:
            key = next(iter(waiting))
            queued = waiting[key]
            partitions = tuple(queued)[:left]
            left -= len(partitions)
            for partition in partitions:
                del queued[partition]
            if not queued:
                del waiting[key]
            entry = self._entries[key]
            markers.append(Batched(key, entry.leader_epoch, entry.sent, partitions))
        if not waiting:
            del self._waiting[broker_id]
        self._in_flight[broker_id] = self._in_flight.get(broker_id, 0) + 1
        return Batch(broker_id, tuple(markers))

    def answer(self, batch: Batch, codes: Sequence[Mapping[TopicPartition, ErrorCode]], now_ms: int) -> None:
        """What became of each marker of a request, in its order; a partition that is left out failed."""
        self._land(batch)
        for batched, told in zip(batch.markers, codes, strict=True):
            entry = self._entry_of(batched)
            if entry is None:
                continue
            written: set[TopicPartition] = set()
            overtaken: set[TopicPartition] = set()
            failed: list[TopicPartition] = []
            for partition in batched.partitions:
                code = told.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
                place = entry.places.get(partition)
                if place is None:
                    continue  # another leader acknowledged it meanwhile
                if code is ErrorCode.NONE:
                    self._unqueue(batched.key, partition, place)
                    del entry.places[partition]
                    written.add(partition)
                elif place != batch.broker_id:
                    continue  # it is with another leader now
                elif code is ErrorCode.INVALID_PRODUCER_EPOCH:
                    del entry.places[partition]
                    overtaken.add(partition)
                elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                    del entry.places[partition]  # whoever leads the shard by now has it written
                else:
                    failed.append(partition)
            self._acknowledge(batched.key, entry, written)
            self._acknowledge(batched.key, entry, overtaken, is_overtaken=True)
            self._try_later(batched, entry, failed, now_ms)
            self._forget_if_done(batched.key, entry)

    def fail(self, batch: Batch, now_ms: int) -> None:
        """The broker did not answer a request."""
        self._land(batch)
        for batched in batch.markers:
            entry = self._entry_of(batched)
            if entry is not None:
                failed = [one for one in batched.partitions if entry.places.get(one) == batch.broker_id]
                self._try_later(batched, entry, failed, now_ms)

    def take_acknowledged(self) -> list[Acknowledged]:
        """What shards have not been told yet."""
        acknowledged, self._acknowledged = self._acknowledged, []
        return acknowledged

    # -- time

    @property
    def next_ms(self) -> int | None:
        """When `on_time` is due."""
        return self._later[0][0] if self._later else None

    def on_time(self, now_ms: int) -> None:
        """What has waited long enough goes to its leader again."""
        while self._later and self._later[0][0] <= now_ms:
            _, _, key, serial, partitions = heapq.heappop(self._later)
            entry = self._entries.get(key)
            if entry is None or entry.sent.serial != serial:
                continue
            for partition in partitions:
                if entry.places.get(partition) == _LATER:
                    self._route(key, entry, partition)
            self._forget_if_done(key, entry)

    # -- to look at

    def __len__(self) -> int:
        """Transactions with markers that are not acknowledged."""
        return len(self._entries)

    def pending(self) -> Iterator[tuple[int, str, TopicPartition]]:
        """Each marker that is not acknowledged: the shard's partition, the transactional id, where it belongs."""
        for (number, transactional_id), entry in self._entries.items():
            for partition in entry.places:
                yield number, transactional_id, partition

    # -- parts

    def _route(self, key: _Key, entry: _Entry, partition: TopicPartition) -> None:
        """Has it wait for its leader as it is now."""
        leader = self._leader_of(partition)
        if leader == GONE:
            entry.places.pop(partition, None)
            self._acknowledge(key, entry, {partition})
            return
        entry.places[partition] = leader
        self._waiting.setdefault(leader, {}).setdefault(key, {})[partition] = None

    def _unqueue(self, key: _Key, partition: TopicPartition, place: int) -> None:
        """It does not wait there any more; it may be on its way."""
        waiting = self._waiting.get(place)
        queued = None if waiting is None else waiting.get(key)
        if waiting is None or queued is None:
            return
        queued.pop(partition, None)
        if not queued:
            del waiting[key]
            if not waiting:
                del self._waiting[place]

    def _remove(self, key: _Key) -> None:
        for partition, place in self._entries.pop(key).places.items():
            self._unqueue(key, partition, place)

    def _forget_if_done(self, key: _Key, entry: _Entry) -> None:
        if not entry.places and self._entries.get(key) is entry:
            del self._entries[key]

    def _entry_of(self, batched: Batched) -> _Entry | None:
        """What a request's marker still is about."""
        entry = self._entries.get(batched.key)
        if entry is None or (entry.leader_epoch, entry.sent.serial) != (
            batched.leader_epoch,
            batched.sent.serial,
        ):
            return None
        return entry

    def _acknowledge(
        self, key: _Key, entry: _Entry, partitions: set[TopicPartition], *, is_overtaken: bool = False
    ) -> None:
        if partitions:
            told = Acknowledged(key[0], entry.leader_epoch, entry.sent, partitions, is_overtaken)
            self._acknowledged.append(told)

    def _try_later(
        self, batched: Batched, entry: _Entry, partitions: Sequence[TopicPartition], now_ms: int
    ) -> None:
        if not partitions:
            return
        backoff_ms = min(BACKOFF_MIN_MS << min(entry.attempts, 10), BACKOFF_MAX_MS)
        entry.attempts += 1
        for partition in partitions:
            self._unqueue(batched.key, partition, entry.places[partition])
            entry.places[partition] = _LATER
        due = (now_ms + backoff_ms, next(self._order), batched.key, entry.sent.serial, tuple(partitions))
        heapq.heappush(self._later, due)

    def _land(self, batch: Batch) -> None:
        left = self._in_flight[batch.broker_id] - 1
        if left:
            self._in_flight[batch.broker_id] = left
        else:
            del self._in_flight[batch.broker_id]
