"""Snapshot transfers: one voter takes snapshots, sends them to voters that are too far behind, and receives them.

It stands in for the library's serializer, which writes files without fsync, joins chunks without checking them, and
installs a file without a checksum. Guarantees: a taken or received snapshot is durable before the log is cut or
rebuilt. A large one is encoded in bounded steps, from the state as of the first step. A peer gets one chunk until it
has said how much it has, then a few at a time, however slow its link is; it answers each. The methods in mixed case
are the library's names, and the library calls them.

The receiver says how much of a snapshot it has, and the leader remembers nothing of it. So a transfer survives broken
links and restarts of leaders, as long as the snapshot is still the newest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quorum.raft.compat import SERIALIZER_STATE, Node
from quorum.raft.halting import Halting
from quorum.raft.incoming import IncomingSnapshot
from quorum.raft.messages import Entry, SnapshotChunk
from quorum.raft.snapshot import Snapshot, SnapshotStore, encode_snapshot
from quorum.raft.state_machine import StateMachine
from quorum.raft.voters import VoterBook
from quorum.steps import Steps

CHUNKS_IN_FLIGHT = 8
"""Far below the bytes that a link queues before it is given up."""
ANSWER_TIMEOUT_S = 10.0
"""How long a chunk may go unanswered. Then it or its answer was lost, and the peer is asked anew how much it has."""


@dataclass
class _Taking:
    """A snapshot while its state is encoded."""

    log_id: int
    prev: Entry
    last: Entry
    directories: tuple[tuple[int, bytes], ...]
    steps: Steps[bytes]


@dataclass
class _Outgoing:
    """A transfer to one peer: the whole file as it was when the transfer began."""

    snapshot: Snapshot
    data: bytes
    answered_s: float
    """When a chunk was answered last, or the transfer began; monotonic."""
    position: int = 0
    in_flight: int = 0
    is_answered: bool = False
    """Whether the peer has said how much it has already."""


class SnapshotTransfer:
    """The snapshots of one voter."""

    def __init__(
        self,
        store: SnapshotStore,
        book: VoterBook,
        machine: StateMachine,
        halting: Halting,
        chunk_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        """`clock`: monotonic seconds."""
        self._store = store
        self._book = book
        self._machine = machine
        self._halting = halting
        self._chunk_bytes = chunk_bytes
        self._clock = clock
        self._taking: _Taking | None = None
        self._taken: int | None = None
        self._outgoing: dict[int, _Outgoing] = {}
        self.incoming = IncomingSnapshot(machine, clock)

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is being taken or read: the next step is due at once."""
        return self._taking is not None or self.incoming.arrival is not None

    # -- taking

    @property
    def is_taking(self) -> bool:
        return self._taking is not None

    def serialize(self, data: tuple[None, Entry, Entry, object], log_id: int) -> None:
        """Begins a snapshot for the library; `data` is (nothing, last entry, entry before it, nodes)."""
        directories = tuple(sorted(self._book.in_force.items()))
        self._taking = _Taking(log_id, data[2], data[1], directories, self._machine.snapshot_steps())

    def take_on(self) -> bool:
        """Takes one step of the snapshot under way; true once it is durable."""
        taking = self._taking
        if taking is None:
            return False
        try:
            next(taking.steps)
        except StopIteration as end:
            self._taking = None
            self._store.save(
                Snapshot(taking.prev, taking.last, self._book.voters, end.value, taking.directories)
            )
            self._taken = taking.log_id
            return True
        return False

    def forget_taking(self) -> None:
        """Drops the snapshot under way, since a newer state was installed."""
        self._taking = None

    def checkSerializing(self) -> tuple[int, int | None]:
        """SUCCESS once after each snapshot: then the library cuts the log behind it."""
        if self._taking is not None:
            return SERIALIZER_STATE.SERIALIZING, None
        if self._taken is None:
            return SERIALIZER_STATE.NOT_SERIALIZING, None
        log_id, self._taken = self._taken, None
        return SERIALIZER_STATE.SUCCESS, log_id

    # -- sending

    def getTransmissionData(self, peer: Node) -> SnapshotChunk:
        """The next chunk for a peer; the first one of the newest snapshot if none is under way."""
        transfer = self._outgoing.get(peer.id)
        if transfer is None:
            snapshot = self._store.newest
            if snapshot is None:
                self._halting.halt(
                    "a voter needs a snapshot, and the log begins behind one that is not there"
                )
            transfer = self._outgoing[peer.id] = _Outgoing(snapshot, self._file_of(snapshot), self._clock())
        transfer.in_flight += 1
        start = transfer.position
        transfer.position = min(start + self._chunk_bytes, len(transfer.data))
        is_last = transfer.position == len(transfer.data)
        if is_last:
            del self._outgoing[peer.id]
        return SnapshotChunk(
            transfer.data[start : transfer.position],
            start == 0,
            is_last,
            transfer.snapshot.last[1],
            transfer.snapshot.last[2],
            start,
            len(transfer.data),
        )

    def _file_of(self, snapshot: Snapshot) -> bytes:
        """A snapshot's file; peers that are sent the same one share it."""
        for transfer in self._outgoing.values():
            if transfer.snapshot is snapshot:
                return transfer.data
        return encode_snapshot(snapshot)

    def must_wait(self, peer: Node) -> bool:
        """Whether the next chunk waits, since a peer has as many unanswered ones as it may."""
        transfer = self._outgoing.get(peer.id)
        if transfer is None or transfer.in_flight < (CHUNKS_IN_FLIGHT if transfer.is_answered else 1):
            return False
        if self._clock() - transfer.answered_s > ANSWER_TIMEOUT_S:
            del self._outgoing[peer.id]
            return False
        return True

    def chunk_answered(self, peer: Node, last_index: int | None = None, received_bytes: int = 0) -> None:
        """Notes a peer's answer to a chunk, accepted or not. The peer has `received_bytes` of the snapshot that ends
        at `last_index`; they are not sent again."""
        transfer = self._outgoing.get(peer.id)
        if transfer is None:
            return
        transfer.in_flight = max(transfer.in_flight - 1, 0)
        transfer.answered_s = self._clock()
        if last_index == transfer.snapshot.last[1]:
            transfer.is_answered = True
            # Never to the very end: the last chunk has a peer install the snapshot.
            transfer.position = max(transfer.position, min(received_bytes, len(transfer.data) - 1))

    @property
    def may_go_on(self) -> bool:
        """Whether a peer that lacks part of the snapshot has room for several more chunks on the way."""
        return any(
            transfer.in_flight <= (CHUNKS_IN_FLIGHT // 2 if transfer.is_answered else 0)
            for transfer in self._outgoing.values()
        )

    def cancelTransmisstion(self, peer: Node) -> None:
        """Forgets a transfer to a peer whose link broke, or that asked for something else. Its answer to the first
        chunk of the next transfer says how much it has."""
        self._outgoing.pop(peer.id, None)

    # -- receiving

    def setTransmissionData(self, chunk: object) -> bool:
        """Tells the library to install: it hears of a snapshot only when it has been read."""
        return True

    def take_arrival(self) -> tuple[Snapshot, Any]:
        """The arrived snapshot, durable from here on, and its state, to be installed."""
        arrival = self.incoming.arrival
        assert arrival is not None
        self._store.save(arrival.snapshot, arrival.data)
        self.incoming.forget_arrival()
        return arrival.snapshot, arrival.state
