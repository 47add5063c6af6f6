"""What a fetcher needs of one leader broker: a port, and the values that pass through it.

`kraft.broker` implements it over the Fetch and ListOffsets APIs. An endpoint stands for one broker id; it finds the
broker's address, connects, and adds this broker's ReplicaState (id and epoch, KIP-903).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
PartitionKey: TypeAlias = tuple[str, int]
"""Topic name and partition number."""

NO_EPOCH = -1
NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1


class FetchPartition(NamedTuple):
    """What is asked for one partition."""

    key: PartitionKey
    topic_id: bytes
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    """-1 for an empty log."""
    log_start_offset: int
    max_bytes: int
    generation: int
    """Tells one subscription to a partition from the next; not sent."""


class FetchRequest(NamedTuple):
    """One Fetch."""

    sequence: int
    """Grows with every request of the fetcher; not sent."""
    lane: int
    """0 or 1. Requests of different lanes may be outstanding together, and must not wait for each other."""
    partitions: tuple[FetchPartition, ...]
    """In the order in which the leader shall fill the answer; all, or what is new in the session."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int = NO_SESSION
    session_epoch: int = FINAL_EPOCH
    """0 asks for a session, -1 does without; a higher one is the next of that session (KIP-227)."""
    forgotten: tuple[tuple[PartitionKey, bytes], ...] = ()
    """What leaves the session, with the topics' ids."""

    @property
    def is_full(self) -> bool:
        """Whether it names everything that it asks for."""
        return self.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)


class FetchedPartition(NamedTuple):
    """The answer for one partition. With an error or a diverging epoch the other fields mean nothing."""

    key: PartitionKey
    error: str | None = None
    """Kafka's error name."""
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging_epoch: tuple[int, int] | None = None
    """(epoch, end offset): the largest epoch <= the last fetched one that the leader has, and its end."""
    records: Buffer = b""


class FetchResponse(NamedTuple):
    """The answer to a Fetch."""

    partitions: Sequence[FetchedPartition]
    error: str | None = None
    """Kafka's error name if the request failed as a whole."""
    session_id: int = NO_SESSION
    """The session that the leader keeps; 0 if it keeps none."""


class OffsetsQuery(NamedTuple):
    """Asks for the bounds of the leader's log, in one leader epoch."""

    key: PartitionKey
    topic_id: bytes
    current_leader_epoch: int
    generation: int
    """As in `FetchPartition`: which subscription asks; not sent."""


class LeaderOffsets(NamedTuple):
    """The bounds of the leader's log, or Kafka's error name."""

    log_start_offset: int = -1
    log_end_offset: int = -1
    error: str | None = None


class LeaderUnavailable(Exception):
    """The leader broker cannot be reached, closed the connection, did not answer in time, or answered with
    something unreadable."""


class LeaderEndpoint(Protocol):
    """One leader broker. Calls can be cancelled at any time without harm to later ones.

    Every call ends by itself: after the endpoint's request timeout (`replica.socket.timeout.ms`; a fetch's
    `max_wait_ms` later) it raises LeaderUnavailable.
    """

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Raises LeaderUnavailable."""

    async def log_offsets(self, queries: Sequence[OffsetsQuery]) -> Mapping[PartitionKey, LeaderOffsets]:
        """Asks as a replica: the end is the log's, not the high watermark. Raises LeaderUnavailable."""

    async def close(self) -> None:
        """Drops the connections; does not wait for the peer."""
