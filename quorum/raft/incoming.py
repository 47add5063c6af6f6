"""A snapshot on its way in: its chunks joined, then read in bounded steps while the voter goes on.

Guarantees: chunks are joined only if they are of one snapshot and without a hole; what has come survives a
broken link, so that its sender goes on from there (`received_bytes`), for as long as somebody may come back for
it; nothing counts as read that fails its checksum. One snapshot is collected at a time and one is read, each
within `MAX_SNAPSHOT_BYTES`. Owned by `transfer.py`, driven by the transport.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from quorum.raft.messages import SnapshotChunk
from quorum.raft.snapshot import Snapshot, SnapshotError, decode_snapshot
from quorum.raft.state_machine import StateMachine
from quorum.steps import Steps

MAX_SNAPSHOT_BYTES = 1024 * 1024 * 1024
RESUME_WITHIN_S = 60.0
"""So long the beginning of a snapshot is kept for a sender of whom nothing more comes."""

_Name = tuple[int, int, int, int]
"""Whose snapshot, its last index and term, its size in bytes."""


@dataclass
class _Incoming:
    """A snapshot as far as it has come."""

    name: _Name
    heard_s: float
    data: bytearray = field(default_factory=bytearray)


@dataclass
class Arrival:
    """A snapshot that is here, whole and sound, while its state is read."""

    name: _Name
    snapshot: Snapshot
    data: bytes
    steps: Steps[Any]
    state: Any = None

    @property
    def peer_id(self) -> int:
        return self.name[0]

    @property
    def last_index(self) -> int:
        return self.name[1]


class IncomingSnapshot:
    """What one voter is being sent."""

    def __init__(self, machine: StateMachine, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._machine = machine
        self._clock = clock
        self._incoming: _Incoming | None = None
        self.arrival: Arrival | None = None

    def receive(self, peer_id: int, chunk: SnapshotChunk) -> bool | None:
        """One chunk from the leader. None: more to come, or nothing new; True: the whole snapshot is here and
        can be read; False: what came does not fit to what is here."""
        name = _name(peer_id, chunk)
        if self.arrival is not None and self.arrival.name == name:
            return None
        incoming = self._incoming
        if incoming is None or incoming.name != name:
            self._incoming = None
            if chunk.position or chunk.total_bytes > MAX_SNAPSHOT_BYTES:
                return False
            incoming = self._incoming = _Incoming(name, 0.0)
        incoming.heard_s = self._clock()
        known_bytes = len(incoming.data) - chunk.position
        if known_bytes < 0 or chunk.position + len(chunk.data) > chunk.total_bytes:
            return False
        incoming.data += chunk.data[known_bytes:]
        if len(incoming.data) < chunk.total_bytes:
            return False if chunk.is_last else None
        self._incoming = None
        return self._arrive(incoming)

    def _arrive(self, incoming: _Incoming) -> bool:
        data = bytes(incoming.data)
        try:
            snapshot = decode_snapshot(data)
        except SnapshotError:
            return False
        if (snapshot.last[1], snapshot.last[2]) != incoming.name[1:3]:
            return False
        self.arrival = Arrival(incoming.name, snapshot, data, self._machine.decode_steps(snapshot.state))
        return True

    def received_bytes(self, peer_id: int, chunk: SnapshotChunk) -> int:
        """How much is here of the snapshot that the chunk belongs to: its sender goes on from there."""
        name = _name(peer_id, chunk)
        if self.arrival is not None and self.arrival.name == name:
            return chunk.total_bytes
        incoming = self._incoming
        return 0 if incoming is None or incoming.name != name else len(incoming.data)

    def read_on(self) -> bool:
        """One step of reading what has arrived; true once its state is known. Raises ValueError if it is none."""
        assert self.arrival is not None
        try:
            next(self.arrival.steps)
        except StopIteration as end:
            self.arrival.state = end.value
            return True
        return False

    def forget_arrival(self) -> None:
        """It is installed, or has become pointless."""
        self.arrival = None

    def put_back(self) -> None:
        """Whoever sent it leads no more. It is kept as it came: elected again, it goes on from there."""
        assert self.arrival is not None
        if self._incoming is None:
            self._incoming = _Incoming(self.arrival.name, self._clock(), bytearray(self.arrival.data))
        self.arrival = None

    def forget_abandoned(self) -> None:
        """Gives up the beginning of a snapshot whose sender has not come back for it."""
        if self._incoming is not None and self._clock() - self._incoming.heard_s > RESUME_WITHIN_S:
            self._incoming = None

    def forget_through(self, index: int) -> None:
        """What a snapshot through this index would bring is here already."""
        if self._incoming is not None and self._incoming.name[1] <= index:
            self._incoming = None


def _name(peer_id: int, chunk: SnapshotChunk) -> _Name:
    return peer_id, chunk.last_index, chunk.last_term, chunk.total_bytes
