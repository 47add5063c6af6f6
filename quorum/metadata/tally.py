"""The number of partitions in each state, kept up with changes so that a metrics page need not count.

Guarantees: after each `set`, `count` equals the result of a walk over all partitions. Partitions in none of the states
take no memory. The controllers' `PartitionCounts` and the brokers' `LedPartitions` feed it, the metrics pages read it.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from quorum.metadata.image import MetadataImage, PartitionId, PartitionImage
from quorum.metadata.records import Partition, PartitionChange, Record, RemoveTopic

_NONE: Final = 0


class PartitionTally:
    """States are bits: 1, 2, 4, … Every bit given to `set` is counted by itself. The partitions in one of the
    states `listed` can be listed, too."""

    __slots__ = ("_bits_of", "_counts", "_listed", "_members")

    def __init__(self, listed: int = _NONE) -> None:
        self._listed = listed
        self._members: dict[PartitionId, None] = {}
        self._bits_of: dict[PartitionId, int] = {}
        self._counts: dict[int, int] = {}

    def set(self, key: PartitionId, bits: int) -> None:
        """Puts the partition in these states, and in no others. O(states)."""
        before = self._bits_of.get(key, _NONE)
        if before == bits:
            return
        for bit in _each(before & ~bits):
            self._counts[bit] -= 1
        for bit in _each(bits & ~before):
            self._counts[bit] = self._counts.get(bit, 0) + 1
        if bits:
            self._bits_of[key] = bits
        else:
            del self._bits_of[key]
        if bits & self._listed:
            self._members[key] = None
        else:
            self._members.pop(key, None)

    def count(self, bit: int) -> int:
        """How many partitions are in this state."""
        return self._counts.get(bit, 0)

    def listed(self) -> Iterator[PartitionId]:
        """The partitions in one of the states to be listed; O(their number)."""
        return iter(self._members)

    def clear(self) -> None:
        """Takes every partition out of every state."""
        self._bits_of.clear()
        self._members.clear()
        self._counts.clear()


@cache  # of a handful of states
def _each(bits: int) -> tuple[int, ...]:
    return tuple(1 << place for place in range(bits.bit_length()) if bits >> place & 1)


class PartitionCounts:
    """The counts of a controller: all partitions, and those that need attention."""

    EXISTS, OFFLINE, NOT_PREFERRED = 1, 2, 4

    def __init__(self) -> None:
        self._tally = PartitionTally()

    @property
    def partitions(self) -> int:
        return self._tally.count(self.EXISTS)

    @property
    def offline(self) -> int:
        """The partitions without a leader."""
        return self._tally.count(self.OFFLINE)

    @property
    def not_preferred(self) -> int:
        """The partitions whose first replica does not lead, or that have no leader."""
        return self._tally.count(self.NOT_PREFERRED)

    def committed(self, before: MetadataImage, after: MetadataImage, records: Sequence[Record]) -> None:
        """Follows records that led from one image to the other. O(partitions that they name)."""
        for record in records:
            if isinstance(record, Partition | PartitionChange):
                self._update((record.topic_id, record.partition), after)
            elif isinstance(record, RemoveTopic):
                topic = before.topics.get(record.topic_id)
                for number in range(0 if topic is None else len(topic.partitions)):
                    self._tally.set((record.topic_id, number), _NONE)

    def recount(self, image: MetadataImage) -> None:
        """Counts anew for an image that came whole. O(partitions)."""
        self._tally.clear()
        for topic_id, topic in image.topics.items():
            for number in range(len(topic.partitions)):
                self._update((topic_id, number), image)

    def _update(self, key: PartitionId, image: MetadataImage) -> None:
        state = image.partition(*key)
        self._tally.set(key, _NONE if state is None else self._bits(state))

    def _bits(self, state: PartitionImage) -> int:
        bits = self.EXISTS
        if not state.has_leader:
            bits |= self.OFFLINE
        if state.leader != state.replicas[0]:
            bits |= self.NOT_PREFERRED
        return bits


class LedPartitions:
    """The partitions that one broker leads with fewer replicas in sync than they should have."""

    LED, UNDER_REPLICATED, UNDER_MIN_ISR, AT_MIN_ISR, REASSIGNING = 1, 2, 4, 8, 16
    INCOMPLETE = 32
    """A replica is out of the ISR, even if it is only being added."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._tally = PartitionTally(listed=self.INCOMPLETE)

    def update(self, key: PartitionId, state: PartitionImage | None, min_isr: int) -> None:
        """Takes a partition's new state (None: it is gone) and its topic's min.insync.replicas. O(replicas)."""
        self._tally.set(key, _NONE if state is None else self._bits(state, min_isr))

    def count(self, state: int) -> int:
        """How many led partitions are in one of the states above."""
        return self._tally.count(state)

    def incomplete(self) -> Iterator[PartitionId]:
        """The partitions with a replica out of the ISR. O(their number)."""
        return self._tally.listed()

    def _bits(self, state: PartitionImage, min_isr: int) -> int:
        if state.leader != self._broker_id:
            return _NONE
        bits, in_sync = self.LED, len(state.isr)
        if in_sync < len(state.replicas):
            bits |= self.INCOMPLETE
        # As in Kafka: while a partition moves, replicas that are being added are not missing yet.
        if in_sync < len(state.replicas) - len(state.adding_replicas):
            bits |= self.UNDER_REPLICATED
        effective_min_isr = min(min_isr, len(state.replicas))
        if in_sync < effective_min_isr:
            bits |= self.UNDER_MIN_ISR
        elif in_sync == effective_min_isr:
            bits |= self.AT_MIN_ISR
        if state.adding_replicas or state.removing_replicas:
            bits |= self.REASSIGNING
        return bits
