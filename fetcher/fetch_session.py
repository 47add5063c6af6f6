"""A follower's half of a fetch session: what the leader knows, and what its next request is (KIP-227).

An incremental request names exactly the partitions whose state the leader does not know yet, and those that leave.
After any failure the next request is a full one, which also ends the session that was. The leader's half is
`partitions.fetch_session`. `FetchStates` owns one, for the lane of the long poll. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fetcher.leader_endpoint import INITIAL_EPOCH, NO_SESSION, FetchPartition, PartitionKey

EPOCH_MAX: Final = 0x7FFFFFFF
SESSION_ID_NOT_FOUND: Final = "FETCH_SESSION_ID_NOT_FOUND"
SESSION_ERRORS: Final = frozenset(
    {SESSION_ID_NOT_FOUND, "INVALID_FETCH_SESSION_EPOCH", "FETCH_SESSION_TOPIC_ID_ERROR"}
)
"""Answers to an incremental request after which a full one is sent at once; nobody has failed."""


class FetchSession:
    """One session at a time; `id` and `epoch` are those of the next request."""

    __slots__ = ("_in_flight", "_known", "epoch", "id")

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self._known: dict[PartitionKey, FetchPartition] = {}
        self._in_flight: int | None = None

    def __len__(self) -> int:
        return len(self._known)

    @property
    def is_full(self) -> bool:
        """Whether the next request has to name everything."""
        return self.epoch == INITIAL_EPOCH

    @property
    def is_in_flight(self) -> bool:
        return self._in_flight is not None

    def is_current(self, sequence: int) -> bool:
        """Whether the request of that sequence is the one in flight."""
        return self._in_flight == sequence

    def get(self, key: PartitionKey) -> FetchPartition | None:
        """What the leader knows of a partition: what it answers, it answers to that."""
        return self._known.get(key)

    def covers(self, asked: FetchPartition) -> bool:
        """Whether a request in flight asks for exactly that."""
        return self._in_flight is not None and self._known.get(asked.key) == asked

    def send(
        self, sequence: int, named: Iterable[FetchPartition], forgotten: Iterable[PartitionKey] = ()
    ) -> None:
        """The next request is on its way; a full one names everything there is."""
        assert self._in_flight is None, "one request after the other"
        if self.is_full:
            self._known = {}
        for key in forgotten:
            self._known.pop(key, None)
        self._known.update((asked.key, asked) for asked in named)
        self._in_flight = sequence

    def answered(self, session_id: int) -> None:
        """The answer to the request in flight came, with the session that the leader keeps."""
        self._in_flight = None
        if session_id == NO_SESSION:
            self.id, self.epoch = NO_SESSION, INITIAL_EPOCH
        elif self.is_full:
            self.id, self.epoch = session_id, 1
        elif session_id != self.id:
            self.lost()
        else:
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def lost(self, error: str | None = None) -> None:
        """The request in flight, or its answer, may be lost, or was refused with `error`."""
        self._in_flight = None
        self.epoch = INITIAL_EPOCH
        if error == SESSION_ID_NOT_FOUND:
            self.id = NO_SESSION
