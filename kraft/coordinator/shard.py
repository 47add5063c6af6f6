"""A shard: one partition of an internal topic as a pure state machine, and what it decides.

A shard takes requests, records of its log, changes of topics, and time; it decides on records to append and on
replies to send. Its state changes when it decides: there is no second copy for what is not committed yet. The runtime
(`kraft.coordinator.runtime`) therefore sends a reply only when the high watermark has passed all records that the
reply tells of, and drops a shard, to load it anew, where an append failed after the decision. What can be refused is
refused before a shard is asked: leadership, too small an ISR. A record may be part of a producer's transaction, and a
marker among the records ends one (KIP-98). What a shard has done elsewhere once a decision stands is an effect. (DESIGN
of Kafka's CoordinatorShard and CoordinatorRuntime, without its timelines.)
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from kraft.coordinator.timers import Timers

Request = TypeVar("Request", contravariant=True)

NO_PRODUCER_ID: Final = -1


class Moment(NamedTuple):
    """A time on both clocks."""

    monotonic_ms: int
    """For sessions and timeouts."""
    wall_ms: int
    """Milliseconds since the Unix epoch: for what is recorded, and for expiry."""


class Record(NamedTuple):
    """A record to append; without a value it is a tombstone."""

    key: bytes
    value: bytes | None


class ProducerIdAndEpoch(NamedTuple):
    """Which incarnation of a producer."""

    producer_id: int
    epoch: int


class TransactionMarker(NamedTuple):
    """What ends a producer's transaction in one partition (KIP-98)."""

    producer: ProducerIdAndEpoch
    is_commit: bool
    coordinator_epoch: int
    """Leader epoch of the partition of the transaction log whose leader wrote it."""
    transaction_version: int
    """By which rules the epoch is judged (KIP-1228); it is not in the log."""


class StoredRecord(NamedTuple):
    """A record of the log, as a shard that loads gets it."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    """Whose transaction it is part of; -1 outside of any."""


class StoredMarker(NamedTuple):
    """A marker of the log, as a shard that loads gets it."""

    offset: int
    producer_id: int
    is_commit: bool


class Written(NamedTuple):
    about: str
    record: Record
    producer: ProducerIdAndEpoch | None
    """Whose transaction it is part of."""


class Marked(NamedTuple):
    about: Set[str]
    marker: TransactionMarker


class Replied(NamedTuple):
    about: str | None
    token: int
    response: Any


class Effect(NamedTuple):
    about: str
    what: Any


class Decisions:
    """What a shard decided in one turn. Records are appended in their order, those of one turn together."""

    __slots__ = ("effects", "replies", "written")

    def __init__(self) -> None:
        self.written: list[Written | Marked] = []
        self.replies: list[Replied] = []
        self.effects: list[Effect] = []

    def write(self, about: str, record: Record, producer: ProducerIdAndEpoch | None = None) -> None:
        """`about` is the id (of a group, of a transaction) that the record is part of. With `producer` the record
        is part of that producer's open transaction: the shard is given it as such when it loads."""
        self.written.append(Written(about, record, producer))

    def mark(self, about: Set[str], marker: TransactionMarker) -> None:
        """Ends a producer's transaction; `about` are the ids of which something changes with that."""
        self.written.append(Marked(about, marker))

    def then(self, about: str, what: Any) -> None:
        """Has the runtime's owner do `what` when all that was written about `about` so far is committed, however long
        that takes. A shard that is dropped before loads anew, and decides on it again."""
        self.effects.append(Effect(about, what))

    def reply(self, about: str | None, token: int, response: Any) -> None:
        """Answers the request of `token` when all that was written about `about` so far is committed; None: when
        all that was written is. A token is answered once."""
        self.replies.append(Replied(about, token, response))

    def extend(self, later: Decisions) -> None:
        """What was decided after this, in the same turn."""
        self.written += later.written
        self.replies += later.replies
        self.effects += later.effects


Action: TypeAlias = Callable[[Moment, Decisions], None]
"""What a timer does."""
ShardTimers: TypeAlias = Timers[Action]


class Shard(Protocol, Generic[Request]):
    """One partition's state machine. Nothing that it is given makes it raise."""

    timers: ShardTimers

    def replay(self, record: StoredRecord) -> None:
        """Takes in the next record of the log. A record that cannot be read is left out, and logged."""

    def replay_marker(self, marker: StoredMarker) -> None:
        """Takes in the next marker of the log."""

    def on_replayed(self) -> None:
        """The log was read to its end, and all of it is committed: reads come from now on."""

    def on_loaded(self, now: Moment, decisions: Decisions) -> None:
        """Records can be appended, for the first time or again: sessions begin now."""

    def handle(self, token: int, request: Request, now: Moment, decisions: Decisions) -> None:
        """Decides on a request. Its reply may be among this turn's decisions, or among those of a later turn."""
