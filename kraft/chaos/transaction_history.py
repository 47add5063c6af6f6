"""What transactional clients did and what readers of committed records saw, for the judges of transactions.

A transaction's batches are sends of the ordinary history, too; here stands which of them belong together, and how the
transaction ended. Workloads enter it; `kraft.chaos.checker.transactions` judges it. Pure: times and names come from
the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kraft.chaos.history import TopicKey, Value

NOT_ASKED = -1.0
NO_OFFSET = -1

Source = tuple[TopicKey, int]
"""A record that was read: partition and offset."""


class TransactionEnd(StrEnum):
    """How a transaction ended, as far as its client knows."""

    OPEN = "open"
    """Not yet, or its client is gone."""
    COMMITTED = "committed"
    """The coordinator said so."""
    ABORTED = "aborted"
    """The coordinator said so, or refused the only commit that was asked."""
    UNKNOWN = "unknown"
    """A commit was asked, and nobody knows its outcome."""


@dataclass(slots=True)
class Write:
    """One batch of a transaction."""

    key: TopicKey
    values: tuple[Value, ...]
    sources: tuple[Source, ...] = ()
    """Of a processor: the record that each value was made of."""
    base_offset: int = NO_OFFSET
    """As acknowledged."""


@dataclass(slots=True)
class Transaction:
    """One transaction of one process."""

    index: int
    transactional_id: str
    process: str
    begun_s: float
    group: str = ""
    """Of a processor: the group whose offsets it commits."""
    writes: list[Write] = field(default_factory=list)
    consumed: dict[TopicKey, int] = field(default_factory=dict)
    """Of a processor: the offset that it commits for each partition that it has read."""
    tags: list[str] = field(default_factory=list)
    """The texts of its commits of offsets."""
    commit_asked_s: float = NOT_ASKED
    """When the commit was asked first."""
    end: TransactionEnd = TransactionEnd.OPEN

    @property
    def cannot_be_committed(self) -> bool:
        """Whether no reader may ever see it."""
        return self.end is TransactionEnd.ABORTED or self.commit_asked_s == NOT_ASKED

    @property
    def acknowledged(self) -> list[tuple[TopicKey, int, Value]]:
        """Its acknowledged records."""
        return [
            (write.key, write.base_offset + n, value)
            for write in self.writes
            if write.base_offset != NO_OFFSET
            for n, value in enumerate(write.values)
        ]


@dataclass(frozen=True, slots=True)
class CommittedPoll:
    """One Fetch of one partition by a reader of committed records, which moved its position."""

    process: str
    key: TopicKey
    at_s: float
    """When it was answered."""
    position: int
    next_offset: int
    records: tuple[tuple[int, Value], ...]
    final: bool = False
    """Of the final phase, which reads everything."""


@dataclass(frozen=True, slots=True)
class OffsetTold:
    """A group's offset that was told to a client that wants none of open transactions (KIP-447)."""

    tag: str
    at_s: float


@dataclass
class TransactionHistory:
    """All transactions of a run, in the order in which they began."""

    transactions: list[Transaction] = field(default_factory=list)
    polls: list[CommittedPoll] = field(default_factory=list)
    told: list[OffsetTold] = field(default_factory=list)
    names: dict[bytes, str] = field(default_factory=dict)
    """Of topics, by id."""
    log_starts: dict[TopicKey, int] = field(default_factory=dict)
    """By partition that the final phase read to its end: the log start of then."""

    def begin(self, transactional_id: str, process: str, now_s: float, *, group: str = "") -> Transaction:
        """A transaction begins."""
        transaction = Transaction(len(self.transactions), transactional_id, process, now_s, group)
        self.transactions.append(transaction)
        return transaction

    def polled(
        self,
        process: str,
        key: TopicKey,
        now_s: float,
        position: int,
        records: Sequence[tuple[int, Value]],
        next_offset: int,
        *,
        final: bool = False,
    ) -> None:
        """A reader of committed records has read from `position` to `next_offset`."""
        self.polls.append(CommittedPoll(process, key, now_s, position, next_offset, tuple(records), final))
