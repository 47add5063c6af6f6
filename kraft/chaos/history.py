"""The history of a run: every operation of its clients and its outcome, the only input of the history checker.

A client invokes an operation. If the operation ends, it completes as ok, as fail (it certainly did not happen) or
as info (the outcome is unknown). The model is the histories of Jepsen's Kafka workload. Values are unique within a
(topic, partition), unless a plain producer's retry doubled them. Pure: times and process names come from the
caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

Value = bytes
MARKER: Final[Value] = b""
"""Stands for a transaction's marker where a judge asks about an offset; no client sends it."""
TopicKey = tuple[bytes, int]
"""Topic id and partition: a topic that was deleted and created anew is another one."""


class OperationKind(StrEnum):
    """The kinds of client operations."""

    SEND = "send"
    """One batch for one partition. Retries belong to it, or are operations of their own with the same values
    and process."""
    POLL = "poll"
    """One Fetch of one partition that moved the consumer's position, or found nothing."""
    LIST_OFFSETS = "list offsets"
    """One answer to one partition's ListOffsets: `position` is the timestamp, `next_offset` the answer."""
    CREATE_TOPIC = "create topic"
    DELETE_TOPIC = "delete topic"


class OperationStatus(StrEnum):
    """How an operation ended."""

    PENDING = "pending"
    """Not yet; at the end of a run it counts as info."""
    OK = "ok"
    FAIL = "fail"
    """Certainly without effect, now and later."""
    INFO = "info"
    """It may have happened, may happen yet, or never will."""


@dataclass(slots=True)
class Operation:
    """One operation of one process. Times are virtual seconds."""

    index: int
    process: str
    """The client incarnation. Its polls of one key follow one another; its sends may be pipelined."""
    kind: OperationKind
    key: TopicKey | None
    """None for operations on topics."""
    invoked_s: float
    acks: int = -1
    """Of a send: 0, 1 or -1."""
    idempotent: bool = False
    """Of a send: retried under one sequence, so that it must not double."""
    values: tuple[Value, ...] = ()
    """Of a send: in order of the batch."""
    records: tuple[tuple[int, Value], ...] = ()
    """Of a poll: (offset, value), in the order read."""
    markers: tuple[int, ...] = ()
    """Of a poll: the offsets that held markers of transactions."""
    position: int = -1
    """Of a poll: where it began to read; a seek (start, out of range) shows as `position` differing from
    where the process's last poll of the key ended."""
    final: bool = False
    """A poll of the final phase: a fresh client reads everything from the start to the end. There is at least one for
    every existing partition, even an empty one: an unread partition is not judged."""
    sought: bool = False
    """Of a poll: the process moved there on purpose (first poll, or the log start passed it)."""
    status: OperationStatus = OperationStatus.PENDING
    base_offset: int = -1
    """Of an acknowledged send; -1 where the broker tells none (acks=0)."""
    next_offset: int = -1
    """Of a poll: where the process reads on."""
    completed_s: float = -1.0
    error: str = ""
    """Kafka's name of the error, or the fate of the connection."""
    topic: str = ""
    """The topic's name, for every kind of operation: it tells which topic ids a deletion by name concerns."""


@dataclass
class History:
    """All operations of a run, in order of invocation; polls, which enter when they are over, in order of their
    ends."""

    operations: list[Operation] = field(default_factory=list)
    log_starts: dict[TopicKey, int] = field(default_factory=dict)
    """The log starts at the end of the run, after the final phase: no record below them is demanded, since retention
    took it. 0 if unknown."""
    unavailable: set[TopicKey] = field(default_factory=set)
    """Partitions that rightly could not be read to the end: no record behind the final phase's last read is
    demanded."""
    compacted: set[str] = field(default_factory=set)
    """Topics with keyed values (`kraft.chaos.keyed`), which may lose old records of a key."""
    lapsed: dict[TopicKey, dict[int, Value]] = field(default_factory=dict)
    """Tombstones of compacted topics, by offset, that were kept for their time and may be gone."""

    def invoke(
        self,
        process: str,
        kind: OperationKind,
        now_s: float,
        *,
        key: TopicKey | None = None,
        topic: str = "",
        acks: int = -1,
        idempotent: bool = False,
        values: Sequence[Value] = (),
        position: int = -1,
        final: bool = False,
        sought: bool = False,
    ) -> Operation:
        """Appends an operation that begins now; the caller completes it."""
        operation = Operation(
            index=len(self.operations),
            process=process,
            kind=kind,
            key=key,
            invoked_s=now_s,
            acks=acks,
            idempotent=idempotent,
            values=tuple(values),
            position=position,
            final=final,
            sought=sought,
            topic=topic,
        )
        self.operations.append(operation)
        return operation

    @staticmethod
    def complete(
        operation: Operation,
        status: OperationStatus,
        now_s: float,
        *,
        base_offset: int = -1,
        records: Sequence[tuple[int, Value]] = (),
        next_offset: int = -1,
        markers: Sequence[int] = (),
        error: str = "",
    ) -> None:
        """Ends an operation, once."""
        assert operation.status is OperationStatus.PENDING, "an operation ends once"
        assert status is not OperationStatus.PENDING, "ending means a status"
        operation.status = status
        operation.completed_s = now_s
        operation.base_offset = base_offset
        operation.records = tuple(records)
        operation.next_offset = next_offset
        operation.markers = tuple(markers)
        operation.error = error
