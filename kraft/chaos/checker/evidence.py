"""The evidence of a history, by partition: the sends, the promises, and the records read at each offset.

Two passes gather everything that the oracles look up. Evidence is:

* every record of a poll that is ok, with any acks of its send: it lay below the high watermark;
* the offset of an acknowledged send with acks=-1 (a *claim*). An acknowledgement with acks=1 or 0 is no evidence:
  another leader may rightly put another record there.

Produce names topics, not topic ids. Once a client asks to delete a topic, a send may reach a new topic of the same
name, or one whose deletion a broker did not know yet. So from then on acknowledgements of that name claim nothing,
its records are not demanded, and a value that was sent to one of the name's topics may be read in another.

In a compacted topic, every record of a key may be gone if a later one is known, read or acknowledged. So the last
acknowledged one, or one behind it, has to be there. A tombstone may go by itself only after it was kept for its time
(`History.lapsed`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from kraft.chaos.checker.report import IsExcused
from kraft.chaos.history import MARKER, History, Operation, OperationKind, OperationStatus, TopicKey, Value
from kraft.chaos.keyed import key_of


class MalformedHistoryError(ValueError):
    """The history contradicts itself: its writer is broken, not the cluster."""


@dataclass(slots=True)
class SentBatch:
    """Values of one partition that are sent together, once, or again as retries."""

    values: tuple[Value, ...]
    attempts: list[Operation]
    """In order of invocation; all of one process, with equal acks."""
    claims: list[Operation] = field(default_factory=list)
    """The attempts whose acknowledgement is evidence."""

    @property
    def is_idempotent(self) -> bool:
        return self.attempts[0].idempotent

    @property
    def acks(self) -> int:
        return self.attempts[0].acks

    @property
    def is_failed(self) -> bool:
        """Whether it certainly had no effect."""
        return all(attempt.status is OperationStatus.FAIL for attempt in self.attempts)


class Partition:
    """The clients' view of one partition of one topic id."""

    def __init__(self, key: TopicKey, log_start: int) -> None:
        self.key = key
        self.log_start = log_start
        """The offset below which no record is demanded."""
        self.topic = ""
        self.label = f"{key[0].hex()[:8]}-{key[1]}"
        self.may_be_deleted = False
        self.is_unavailable = False
        """Whether the final phase rightly had to stop here; it still had to find the records before."""
        self.is_compacted = False
        self.lapsed: dict[int, Value] = {}
        """Tombstones that may be gone, by offset."""
        self.batches: list[SentBatch] = []
        self.writer: dict[Value, SentBatch] = {}
        self.polls: list[Operation] = []
        """All polls, ok or not, in the order of the history."""
        self.seen: dict[int, Value] = {}
        """The value that was read first at each offset."""
        self.contested: dict[int, dict[Value, None]] = {}
        """The values at offsets that showed more than one."""
        self.offset_of: dict[Value, int] = {}
        """The offset at which each value was read first."""
        self.copies: dict[Value, dict[int, None]] = {}
        """All offsets of the values that were read at more than one."""
        self.marker_offsets: set[int] = set()
        """Where polls saw the marker of a transaction."""
        self.final_offsets: set[int] = set()
        """Offsets that the final phase read."""
        self.final_began_s = -1.0
        self.is_read_finally = False
        """Whether the final phase came to its end here, unless `is_unavailable`."""

    @cached_property
    def highest_read(self) -> int:
        """-1 if nothing was read. Of evidence that is complete."""
        return max(self.seen, default=-1)

    def values_at(self, offset: int) -> list[Value]:
        """What polls saw at an offset."""
        contested = self.contested.get(offset)
        if contested is not None:
            return list(contested)
        return [self.seen[offset]] if offset in self.seen else []

    def rivals_at(self, offset: int) -> list[Value]:
        """What polls saw at an offset, also the marker of a transaction."""
        markers = [MARKER] if offset in self.marker_offsets else []
        return self.values_at(offset) + markers

    def offsets_of(self, value: Value) -> list[int]:
        """Where polls saw a value."""
        copies = self.copies.get(value)
        if copies is not None:
            return list(copies)
        return [self.offset_of[value]] if value in self.offset_of else []

    def may_be_compacted(self, offset: int, value: Value) -> bool:
        """Whether compaction may have removed this value from this offset (-1: unknown)."""
        if not self.is_compacted:
            return False
        return offset < self._newest.get(key_of(value), -1) or self.lapsed.get(offset) == value

    def may_be_gone(self, offset: int, is_excused: IsExcused) -> bool:
        """Whether every value read at an offset may be gone: faults may have taken the first, and compaction the one
        that got the offset next. False if nothing was read there.
        """
        values = self.values_at(offset)
        return bool(values) and all(
            self.may_be_compacted(offset, one) or is_excused(self.key, offset, one) for one in values
        )

    @cached_property
    def _newest(self) -> dict[bytes, int]:
        """The highest offset of each key at which a record was read or acknowledged, or a tombstone lapsed."""
        newest: dict[bytes, int] = {}
        known = [*((value, at) for at, value in self.seen.items()), *self.offset_of.items(), *self.claimed]
        known += [(value, at) for at, value in self.lapsed.items()]
        for value, offset in known:
            key = key_of(value)
            newest[key] = max(offset, newest.get(key, -1))
        return newest

    @cached_property
    def claimed(self) -> list[tuple[Value, int]]:
        """The acknowledged values and their offsets."""
        return [
            (value, send.base_offset + n)
            for batch in self.batches
            for send in batch.claims
            if send.base_offset >= 0
            for n, value in enumerate(batch.values)
        ]

    def demands(self, send: Operation, offset: int) -> bool:
        """Whether the final phase had to read this send's record at this offset (-1: unknown)."""
        return (
            not self.may_be_deleted
            and send.completed_s <= self.final_began_s
            and self.was_read_finally(offset)
        )

    def was_read_finally(self, offset: int) -> bool:
        """Whether the final phase looked at this offset: it came to its end, or this far before it stopped."""
        return _holds(self._covered_finally, offset) if self.is_unavailable else self.is_read_finally

    def covered(self, offset: int) -> bool:
        """Whether some poll read past this offset, and so looked at it."""
        return _holds(self._covered, offset)

    @cached_property
    def _covered(self) -> list[tuple[int, int]]:
        return _merged(span(poll) for poll in self.polls if is_ok(poll))

    @cached_property
    def _covered_finally(self) -> list[tuple[int, int]]:
        return _merged(span(poll) for poll in self.polls if is_ok(poll) and poll.final)

    def was_looked_at(self, offset: int, send: Operation, is_excused: IsExcused) -> bool:
        """Whether a poll must have read this send's record at this offset, if it is there.

        A poll that read past the offset while another record was there, or a marker, since lost, does not count.
        """
        if self.demands(send, offset):
            return True
        rivals = self.rivals_at(offset)
        return self.covered(offset) and not any(is_excused(self.key, offset, one) for one in rivals)

    def reads_of(self, offset: int, value: Value) -> list[Operation]:
        """The polls that saw this record. Linear in the polls: for anomalies only."""
        return [poll for poll in self.polls if is_ok(poll) and (offset, value) in poll.records]

    def take_send(self, operation: Operation) -> None:
        """Takes a send to this partition. Raises MalformedHistoryError."""
        if not operation.values:
            return
        batch = self.writer.get(operation.values[0])
        if batch is not None and batch.values == operation.values:
            batch.attempts.append(operation)
            return
        batch = SentBatch(operation.values, [operation])
        for value in operation.values:
            if self.writer.setdefault(value, batch) is not batch:
                raise MalformedHistoryError(f"operation {operation.index} sends {value!r} in another batch")
        if len(set(operation.values)) != len(operation.values):
            raise MalformedHistoryError(f"operation {operation.index} sends a value twice")
        self.batches.append(batch)

    def take_poll(self, operation: Operation) -> None:
        """Takes a poll of this partition."""
        self.polls.append(operation)
        if operation.final:
            if self.final_began_s < 0:
                self.final_began_s = operation.invoked_s
            self.is_read_finally = is_ok(operation)
        if not is_ok(operation):
            return
        if operation.final:
            self.final_offsets.update([offset for offset, _ in operation.records])
        self.marker_offsets.update(operation.markers)
        seen, offset_of = self.seen, self.offset_of
        for offset, value in operation.records:
            known = seen.setdefault(offset, value)
            if known is not value and known != value:
                self.contested.setdefault(offset, {known: None})[value] = None
            first = offset_of.setdefault(value, offset)
            if first != offset:
                self.copies.setdefault(value, {first: None})[offset] = None


@dataclass
class Evidence:
    """All partitions of a history, in the order in which they were first named."""

    partitions: dict[TopicKey, Partition] = field(default_factory=dict)

    namesakes: dict[TopicKey, list[Partition]] = field(default_factory=dict)
    """The namesakes of a partition: the same partition of other topics of the name."""


def gather(history: History) -> Evidence:
    """Reads a history. Raises MalformedHistoryError."""
    evidence = Evidence()
    partitions = evidence.partitions
    deleted_from_s: dict[str, float] = {}
    for operation in history.operations:
        key, kind = operation.key, operation.kind
        if kind is OperationKind.DELETE_TOPIC and operation.status is not OperationStatus.FAIL:
            known_s = deleted_from_s.get(operation.topic, operation.invoked_s)
            deleted_from_s[operation.topic] = min(known_s, operation.invoked_s)
        if key is None or kind not in (OperationKind.SEND, OperationKind.POLL):
            continue
        partition = partitions.get(key)
        if partition is None:
            partition = partitions[key] = Partition(key, history.log_starts.get(key, 0))
            partition.is_unavailable = key in history.unavailable
            partition.lapsed = history.lapsed.get(key, {})
        if operation.topic and not partition.topic:
            partition.topic = operation.topic
            partition.is_compacted = operation.topic in history.compacted
        if kind is OperationKind.SEND:
            partition.take_send(operation)
        else:
            partition.take_poll(operation)
    for partition in partitions.values():
        gone_from_s = deleted_from_s.get(partition.topic) if partition.topic else None
        partition.may_be_deleted = gone_from_s is not None
        for batch in partition.batches:
            batch.claims = [send for send in batch.attempts if _is_claim(send, gone_from_s)]
    _name(evidence)
    return evidence


def is_ok(operation: Operation) -> bool:
    return operation.status is OperationStatus.OK


def span(poll: Operation) -> tuple[int, int]:
    """The first offset that a successful poll read, and the offset behind its last."""
    records = poll.records
    if not records:
        return max(poll.position, 0), max(poll.position, poll.next_offset)
    start = poll.position if poll.position >= 0 else records[0][0]
    return start, max(poll.next_offset, records[-1][0] + 1)


def _is_claim(send: Operation, gone_from_s: float | None) -> bool:
    if send.status is not OperationStatus.OK or send.acks != -1:
        return False
    return gone_from_s is None or send.completed_s < gone_from_s


def _name(evidence: Evidence) -> None:
    """Names partitions for people, with the topic id where a name has more than one, and finds namesakes."""
    of_name: dict[tuple[str, int], list[Partition]] = {}
    for partition in evidence.partitions.values():
        if partition.topic:
            of_name.setdefault((partition.topic, partition.key[1]), []).append(partition)
    for (topic, number), partitions in of_name.items():
        for partition in partitions:
            partition.label = f"{topic}-{number}"
            if len(partitions) > 1:
                partition.label += f" (topic id {partition.key[0].hex()[:8]})"
                evidence.namesakes[partition.key] = [one for one in partitions if one is not partition]


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of half-open spans, in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif start < end:
            merged.append((start, end))
    return merged


def _holds(spans: list[tuple[int, int]], offset: int) -> bool:
    """Whether one of these merged spans contains the offset."""
    found = bisect_right(spans, offset, key=lambda span: span[0]) - 1
    return found >= 0 and offset < spans[found][1]
