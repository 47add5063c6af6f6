"""A shard: one partition of an internal topic as a pure state machine, and what it decides.

A shard takes requests, records of its log, changes of topics, and time; it decides on records to append and on
replies to send. Its state changes when it decides: there is no second copy for what is not committed yet. The runtime
(`kraft.coordinator.runtime`) therefore sends a reply only when the high watermark has passed all records that the
reply tells of, and drops a shard, to load it anew, where an append failed after the decision. What can be refused is
refused before a shard is asked: leadership, too small an ISR. (DESIGN of Kafka's CoordinatorShard and
CoordinatorRuntime, without its timelines.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from kraft.coordinator.timers import Timers

Request = TypeVar("Request", contravariant=True)


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


class StoredRecord(NamedTuple):
    """A record of the log, as a shard that loads gets it."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


class Written(NamedTuple):
    about: str
    record: Record


class Replied(NamedTuple):
    about: str | None
    token: int
    response: Any


class Decisions:
    """What a shard decided in one turn. Records are appended in their order, those of one turn together."""

    __slots__ = ("replies", "written")

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.replies: list[Replied] = []

    def write(self, about: str, record: Record) -> None:
        """`about` is the id (of a group, of a transaction) that the record is part of."""
        self.written.append(Written(about, record))

    def reply(self, about: str | None, token: int, response: Any) -> None:
        """Answers the request of `token` when all that was written about `about` so far is committed; None: when
        all that was written is. A token is answered once."""
        self.replies.append(Replied(about, token, response))

    def extend(self, later: Decisions) -> None:
        """What was decided after this, in the same turn."""
        self.written += later.written
        self.replies += later.replies


Action: TypeAlias = Callable[[Moment, Decisions], None]
"""What a timer does."""
ShardTimers: TypeAlias = Timers[Action]


class Shard(Protocol, Generic[Request]):
    """One partition's state machine. Nothing that it is given makes it raise."""

    timers: ShardTimers

    def replay(self, record: StoredRecord) -> None:
        """Takes in the next record of the log. A record that cannot be read is left out, and logged."""

    def on_replayed(self) -> None:
        """The log was read to its end, and all of it is committed: reads come from now on."""

    def on_loaded(self, now: Moment, decisions: Decisions) -> None:
        """Records can be appended, for the first time or again: sessions begin now."""

    def handle(self, token: int, request: Request, now: Moment, decisions: Decisions) -> None:
        """Decides on a request. Its reply may be among this turn's decisions, or among those of a later turn."""
