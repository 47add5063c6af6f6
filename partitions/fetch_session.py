"""What a broker remembers of a reader's fetches, so that neither names partitions with nothing new (KIP-227).

Guarantees: together, the incremental answers of a session tell its reader what answers that name every
partition would tell; and a partition that stands still costs a request nothing. For that a session keeps
the partitions that may have news (`pending`, oldest first). Whoever changes a partition marks it
(`FetchSession.mark`); it is taken out when a request's look finds neither news nor anything left to read.
One that was given records goes to the end, so that limits starve nobody. An error is told at each request
until it is over; of very many (`failing`), some at each, in turn. Owned by `fetch_session_cache`, filled by
the broker's fetch handler. Pure; times are monotonic milliseconds.

A follower's request is a fetch of every partition of its session, at the offset that was named last. A
leader learns from a partition's own look what needs learning; that the follower was still there at a later
request it asks of `SessionPartition.last_fetch_ms`, when it comes to matter (`partitions.replica`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeAlias

from partitions.topic_partition import TopicPartition

INITIAL_EPOCH: Final = 0
"""A full request, which asks for a new session."""
FINAL_EPOCH: Final = -1
"""A full request without a session; one that the request names ends."""
NO_SESSION: Final = 0
"""The session id of a request or an answer without one."""
EPOCH_MAX: Final = 0x7FFFFFFF
UNKNOWN_OFFSET: Final = -1
RETRIED_MAX: Final = 1_000
"""Partitions in error that a request looks at again. It may be tiny and they, perhaps, do not even exist."""

Topic: TypeAlias = str | bytes
"""A topic's name, or its id in sessions that use ids."""
SessionKey: TypeAlias = tuple[Topic, int]


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one of `epoch`: it grows, skips 0 when it wraps, and -1 is for ever."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == EPOCH_MAX else epoch + 1


class WantedPartition(Protocol):
    """What a reader wants of one partition; a decoded request's partition fits."""

    @property
    def partition(self) -> int: ...
    @property
    def current_leader_epoch(self) -> int: ...
    @property
    def fetch_offset(self) -> int: ...
    @property
    def last_fetched_epoch(self) -> int: ...
    @property
    def log_start_offset(self) -> int:
        """Where a follower's own log begins; -1 from a consumer."""

    @property
    def partition_max_bytes(self) -> int: ...


class Reader(NamedTuple):
    """On what an answer depends besides the partitions; if any of it changes, everything is looked at anew."""

    replica_id: int = -1
    replica_epoch: int = -1
    is_registered: bool = False
    """Whether this is the follower's present registration (KIP-903), as far as this broker knows."""
    isolation_level: int = 0
    rack_id: str = ""

    @property
    def is_follower(self) -> bool:
        return self.replica_id >= 0

    def is_same_as(self, other: Reader) -> bool:
        """Whether both come from one incarnation of one broker, or both from a consumer."""
        return (self.replica_id, self.replica_epoch) == (other.replica_id, other.replica_epoch)


class Found(NamedTuple):
    """What a look at a partition found."""

    size_bytes: int
    high_watermark: int
    log_start_offset: int
    is_drained: bool
    """Whether the reader is at the end of what it may read, and the look taught all that it could."""
    is_exceptional: bool = False
    """An error, a diverging epoch or a preferred replica: the reader is told each time it asks."""
    is_error: bool = False


class SessionPartition:
    """One partition of a session. Compared by identity."""

    __slots__ = (
        "_counted_until_ms",
        "_counts",
        "high_watermark",
        "log_start_offset",
        "session",
        "topic",
        "topic_partition",
        "wanted",
    )  # fmt: skip

    def __init__(self, session: FetchSession, topic: Topic, wanted: WantedPartition) -> None:
        self.session = session
        self.topic = topic
        self.wanted = wanted
        self.topic_partition: TopicPartition | None = None
        """By name, once it is known."""
        self.high_watermark = UNKNOWN_OFFSET
        """As the reader was told last; so is `log_start_offset`, the leader's."""
        self.log_start_offset = UNKNOWN_OFFSET
        self._counts = False
        self._counted_until_ms = -1

    @property
    def fetch_offset(self) -> int:
        """Where its reader reads, as it named it last."""
        return self.wanted.fetch_offset

    @property
    def last_fetch_ms(self) -> int:
        """When a request fetched it last, named or not; -1 if none did with success."""
        return self.session.last_fetch_ms if self._counts else self._counted_until_ms

    def look_again(self) -> None:
        """The session's next request looks at it, named or not, if it is in the session still."""
        if self.session.get(self.topic, self.wanted.partition) is self:
            self.session.mark(self)

    def count(self, succeeded: bool) -> None:
        """Whether this request and those that follow count as fetches of it; before `FetchSession.fetched`."""
        if self._counts and not succeeded:
            self._counted_until_ms = self.session.last_fetch_ms
        self._counts = succeeded

    def is_news(self, found: Found) -> bool:
        """Whether an incremental answer has to name it."""
        return (
            found.size_bytes > 0
            or found.is_exceptional
            or found.high_watermark != self.high_watermark
            or found.log_start_offset != self.log_start_offset
        )

    def told(self, found: Found) -> None:
        """The answer names it. After an error it will be named again when all is well."""
        self.high_watermark = UNKNOWN_OFFSET if found.is_error else found.high_watermark
        self.log_start_offset = found.log_start_offset
        self.session.told(self, found)

    def __repr__(self) -> str:
        return f"SessionPartition({self.topic!r}, {self.wanted.partition}, {self.wanted.fetch_offset})"


class FetchSession:
    """One reader's partitions. `cached_size` and what says to whom it gives way are the cache's."""

    __slots__ = (
        "_partitions",
        "by_id",
        "cached_size",
        "created_ms",
        "epoch",
        "failing",
        "gives_way_to_all",
        "gives_way_to_privileged",
        "has_ended",
        "id",
        "is_privileged",
        "last_fetch_ms",
        "last_used_ms",
        "pending",
        "reader",
    )

    def __init__(self, *, reader: Reader, is_privileged: bool, by_id: bool, now_ms: int) -> None:
        """`by_id`: its requests name topics by id. A privileged session is a follower's."""
        self.id = NO_SESSION
        """Once the cache has taken it in, a random number."""
        self.epoch = next_epoch(INITIAL_EPOCH)
        """Of the request that comes next."""
        self.reader = reader
        self.is_privileged = is_privileged
        self.by_id = by_id
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.last_fetch_ms = -1
        self.pending: dict[SessionPartition, None] = {}
        self.failing: dict[SessionPartition, None] = {}
        """Those whose reader was told an error, the one that was told longest ago first; not pending meanwhile."""
        self._partitions: dict[SessionKey, SessionPartition] = {}
        self.cached_size = 0
        self.gives_way_to_all = False
        self.gives_way_to_privileged = False
        self.has_ended = False
        """Whether the cache has let it go."""

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def partitions(self) -> Iterable[SessionPartition]:
        return self._partitions.values()

    def get(self, topic: Topic, number: int) -> SessionPartition | None:
        return self._partitions.get((topic, number))

    def update(
        self, wanted: Iterable[tuple[Topic, WantedPartition]], forgotten: Iterable[SessionKey]
    ) -> list[SessionPartition]:
        """Takes over what a request names, then drops what it forgets; returns what was dropped."""
        for topic, partition in wanted:
            key = (topic, partition.partition)
            known = self._partitions.get(key)
            if known is None:
                known = self._partitions[key] = SessionPartition(self, topic, partition)
            else:
                known.wanted = partition
            self.mark(known)
        dropped: list[SessionPartition] = []
        for key in forgotten:
            gone = self._partitions.pop(key, None)
            if gone is not None:
                gone.count(succeeded=False)
                self.pending.pop(gone, None)
                self.failing.pop(gone, None)
                dropped.append(gone)
        return dropped

    def read_by(self, reader: Reader) -> None:
        """Who asks this time; what was true for another reader is found out anew, errors in their turn."""
        if reader != self.reader:
            self.reader = reader
            for partition in self._partitions.values():
                if partition not in self.failing:
                    self.pending[partition] = None

    def mark(self, partition: SessionPartition) -> None:
        """Something about it changed. It keeps its place if it waits already."""
        if self.failing:
            self.failing.pop(partition, None)
        self.pending[partition] = None

    def retry_failing(self) -> None:
        """A request begins: it is the turn of some of those in error."""
        for partition in list(islice(self.failing, RETRIED_MAX)):
            self.mark(partition)

    def told(self, partition: SessionPartition, found: Found) -> None:
        """An answer names it: it goes to the end of those that were read, or of those in error."""
        if partition not in self.pending or not (found.is_error or found.size_bytes > 0):
            return
        del self.pending[partition]
        (self.failing if found.is_error else self.pending)[partition] = None

    def settle(self, partition: SessionPartition, found: Found) -> None:
        """After a request's first look and its answer, if there was one: nothing is left to say or to read."""
        if found.is_drained and not partition.is_news(found):
            self.pending.pop(partition, None)

    def fetched(self, now_ms: int) -> None:
        """A request of a registered follower, or of a consumer, has looked at what was pending."""
        self.last_fetch_ms = now_ms

    def end(self) -> None:
        """It is no longer in the cache: nothing counts any more."""
        self.has_ended = True
        for partition in self._partitions.values():
            partition.count(succeeded=False)
