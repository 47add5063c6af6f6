"""A snapshot that a leader sends: its chunks, joined as they come, then read in bounded steps.

Guarantees: chunks are joined only if they belong to one snapshot and leave no hole. Received bytes survive a broken
link, so that the sender goes on from there (`received_bytes`), as long as it may still come back. Bytes that fail
their checksum count as unread. One snapshot is collected and one is read at a time, each within
`MAX_SNAPSHOT_BYTES`. `transfer.py` owns this, the transport drives it.
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
"""How long the beginning of a snapshot is kept for a sender that has fallen silent."""

_Name = tuple[int, int, int, int]
"""Its sender, last index and term, and size in bytes."""


@dataclass
class _Incoming:
    """The part of a snapshot that has come."""

    name: _Name
    heard_s: float
    data: bytearray = field(default_factory=bytearray)


@dataclass
class Arrival:
    """A whole and sound snapshot whose state is being read."""

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
    """The snapshot that a voter receives, and the one that it reads."""

    def __init__(self, machine: StateMachine, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._machine = machine
        self._clock = clock
        self._incoming: _Incoming | None = None
        self.arrival: Arrival | None = None

    def receive(self, peer_id: int, chunk: SnapshotChunk) -> bool | None:
        """Takes one chunk from the leader. None: more to come, or nothing new; True: the whole snapshot is here and
        can be read; False: the chunk does not fit the earlier ones."""
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
        """Bytes here of the snapshot that the chunk belongs to: its sender goes on from there."""
        name = _name(peer_id, chunk)
        if self.arrival is not None and self.arrival.name == name:
            return chunk.total_bytes
        incoming = self._incoming
        return 0 if incoming is None or incoming.name != name else len(incoming.data)

    def read_on(self) -> bool:
        """Takes one step of reading the arrived snapshot; true once its state is known. Raises ValueError if the
        bytes hold no state."""
        assert self.arrival is not None
        try:
            next(self.arrival.steps)
        except StopIteration as end:
            self.arrival.state = end.value
            return True
        return False

    def forget_arrival(self) -> None:
        """Drops the arrived snapshot, which is installed or has become pointless."""
        self.arrival = None

    def put_back(self) -> None:
        """Keeps the bytes of a snapshot whose sender no longer leads: once it is elected again, it goes on from
        there."""
        assert self.arrival is not None
        if self._incoming is None:
            self._incoming = _Incoming(self.arrival.name, self._clock(), bytearray(self.arrival.data))
        self.arrival = None

    def forget_abandoned(self) -> None:
        """Gives up the beginning of a snapshot whose sender has not come back for it."""
        if self._incoming is not None and self._clock() - self._incoming.heard_s > RESUME_WITHIN_S:
            self._incoming = None

    def forget_through(self, index: int) -> None:
        """Drops a snapshot that ends at or below this index: its entries are here already."""
        if self._incoming is not None and self._incoming.name[1] <= index:
            self._incoming = None


def _name(peer_id: int, chunk: SnapshotChunk) -> _Name:
    return peer_id, chunk.last_index, chunk.last_term, chunk.total_bytes
