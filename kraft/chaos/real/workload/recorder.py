"""What the clients of a real run did and saw, as histories that the checkers judge. Its methods may be called from any
thread. Times are those of this process's clock until `finish`, and then seconds since the workload began.

A record's value is unique: who sent it, where, its number and its size, then `|` and a filling. A history holds what
is before the filling, once the filling was found whole; so a record that was changed on its way is one that nobody
sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kraft.chaos.experiments.evidence import Sample
from kraft.chaos.group_history import NO_EPOCH, GroupAction, GroupHistory, GroupOperation, Sender
from kraft.chaos.history import History, Operation, OperationKind, OperationStatus, TopicKey
from kraft.chaos.transaction_history import NOT_ASKED, Transaction, TransactionHistory, Write

FILLING_MARK: Final = b"|"
FILLING: Final = b"x"


def made_value(process: str, partition: int, number: int, size_bytes: int) -> tuple[bytes, bytes]:
    """What a history holds of a new record, and the value that is sent, of at least this size."""
    head = f"{process}:{partition}:{number}:{size_bytes}".encode()
    return head, head + FILLING_MARK + FILLING * (size_bytes - len(head) - 1)


def recorded_value(value: bytes | None) -> bytes:
    """What a history holds of a value that was read; the value itself if it is none of ours, or was changed."""
    value = value or b""
    head, mark, filling = value.partition(FILLING_MARK)
    size = head.rpartition(b":")[2]
    is_whole = mark and size.isdigit() and len(value) == max(int(size), len(head) + 1)
    return head if is_whole and filling == FILLING * len(filling) else value


class Recorder:
    """The histories of one run."""

    def __init__(self, topic_ids: Mapping[str, bytes], partitions: Mapping[str, int]) -> None:
        """`partitions`: how many each topic has."""
        self.history = History()
        self.transactions = TransactionHistory(names={one: name for name, one in topic_ids.items()})
        self.partitions = dict(partitions)
        self.problems: list[str] = []
        """What ended a client that should have gone on, in words."""
        self.groups = GroupHistory()
        self.asked_s: dict[int, float] = {}
        """By the place of a question in the history of groups: when it was asked."""
        self.transaction_samples: list[Sample] = []
        self._topic_ids = dict(topic_ids)
        self._lock = threading.Lock()
        self.origin_s = self.unix_origin_s = 0.0
        self.begin_now()

    def begin_now(self) -> None:
        """The workload begins now, for all that counts: what clients did before was to get going."""
        self.origin_s, self.unix_origin_s = time.monotonic(), time.time()

    @staticmethod
    def clock() -> float:
        """The clock of operations, in seconds."""
        return time.monotonic()

    def now(self) -> float:
        """Seconds since the workload began."""
        return time.monotonic() - self.origin_s

    def finish(self) -> None:
        """Nothing is recorded any more: all times become seconds since the workload began."""
        origin_s = self.origin_s
        for one in self.history.operations:
            one.invoked_s -= origin_s
            if one.status is not OperationStatus.PENDING:
                one.completed_s -= origin_s
        for transaction in self.transactions.transactions:
            transaction.begun_s -= origin_s
            if transaction.commit_asked_s != NOT_ASKED:
                transaction.commit_asked_s -= origin_s
        self.asked_s = {place: at_s - origin_s for place, at_s in self.asked_s.items()}
        polls = self.transactions.polls
        polls[:] = [replace(poll, at_s=poll.at_s - origin_s) for poll in polls]
        self.transaction_samples = [
            replace(one, began_s=one.began_s - origin_s, ended_s=(one.ended_s or origin_s) - origin_s)
            for one in self.transaction_samples
        ]

    def key(self, topic: str, partition: int) -> TopicKey:
        return self._topic_ids[topic], partition

    def problem(self, text: str) -> None:
        """Something that the workload should not have met."""
        with self._lock:
            self.problems.append(text)

    # -- what has begun

    def acknowledged(self) -> set[tuple[str, int]]:
        """The partitions that have acknowledged something to somebody who waits for that."""
        with self._lock:
            return {
                (one.topic, one.key[1])
                for one in self.history.operations
                if one.key
                and one.acks
                and one.kind is OperationKind.SEND
                and one.status is OperationStatus.OK
            }

    def assigned(self) -> set[str]:
        """The groups of which some member was given something to read."""
        with self._lock:
            return {
                one.sender.group
                for one in self.groups.operations
                if one.action is GroupAction.ASSIGNED and one.owned
            }

    # -- sends

    def send(
        self,
        process: str,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        *,
        acks: int,
        idempotent: bool,
    ) -> Operation:
        """A send begins."""
        with self._lock:
            return self.history.invoke(
                process,
                OperationKind.SEND,
                self.clock(),
                key=self.key(topic, partition),
                topic=topic,
                acks=acks,
                idempotent=idempotent,
                values=values,
            )

    def sent(
        self, operation: Operation, status: OperationStatus, base_offset: int = -1, error: str = ""
    ) -> None:
        """A send ends; base_offset -1: nobody told."""
        with self._lock:
            History.complete(operation, status, self.clock(), base_offset=base_offset, error=error)

    # -- polls

    def polled(
        self,
        process: str,
        topic: str,
        partition: int,
        began_s: float,
        position: int,
        records: Sequence[tuple[int, bytes]],
        next_offset: int,
        *,
        sought: bool = False,
        final: bool = False,
    ) -> None:
        """A poll has read records, from `position` on, and reads on at `next_offset`."""
        with self._lock:
            operation = self.history.invoke(
                process,
                OperationKind.POLL,
                began_s,
                key=self.key(topic, partition),
                topic=topic,
                position=position,
                final=final,
                sought=sought,
            )
            History.complete(
                operation, OperationStatus.OK, self.clock(), records=records, next_offset=next_offset
            )

    def polled_committed(
        self,
        process: str,
        topic: str,
        partition: int,
        position: int,
        records: Sequence[tuple[int, bytes]],
        next_offset: int,
        *,
        final: bool = False,
    ) -> None:
        """A reader of committed records has read."""
        with self._lock:
            self.transactions.polled(
                process, self.key(topic, partition), self.clock(), position, records, next_offset, final=final
            )

    # -- transactions

    def begin(self, transactional_id: str, process: str) -> Transaction:
        with self._lock:
            return self.transactions.begin(transactional_id, process, self.clock())

    def write(self, transaction: Transaction, topic: str, partition: int, values: Sequence[bytes]) -> Write:
        """A batch of a transaction, whose offset is not known yet."""
        write = Write(self.key(topic, partition), tuple(values))
        with self._lock:
            transaction.writes.append(write)
        return write

    def ended(self, transaction: Transaction, topic: str, status: OperationStatus, error: str = "") -> None:
        """What its client knows is in the transaction; here is what availability is told from."""
        with self._lock:
            self.transaction_samples.append(
                Sample(
                    "transaction",
                    transaction.process,
                    topic,
                    transaction.writes[0].key[1] if transaction.writes else 0,
                    -1,
                    transaction.begun_s,
                    self.clock(),
                    status.value,
                    sum(len(write.values) for write in transaction.writes),
                    error,
                )
            )

    # -- groups

    def asked(
        self,
        action: GroupAction,
        sender: Sender,
        name: tuple[str, int] | None = None,
        *,
        offset: int = -1,
        tag: str = "",
    ) -> GroupOperation:
        """A member asks something of its coordinator. Which leader epoch that is of is found out afterwards."""
        key = None if name is None else self.key(*name)
        with self._lock:
            operation = self.groups.ask(action, sender, NO_EPOCH, key=key, offset=offset, tag=tag)
            self.asked_s[operation.asked] = self.clock()
            return operation

    def answered(
        self,
        operation: GroupOperation,
        status: OperationStatus,
        *,
        offset: int | None = None,
        tag: str | None = None,
        owned: Sequence[TopicKey] = (),
        error: str = "",
    ) -> None:
        """It was answered, or never will be."""
        with self._lock:
            self.groups.answer(operation, status, offset=offset, tag=tag, owned=owned, error=error)
