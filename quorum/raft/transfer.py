"""Takes snapshots, sends them to voters that are too far behind, and receives them.

Stands in for the library's serializer, which would write files without fsync, glue chunks together
without looking, and install what it got without a checksum. Guarantees: a snapshot that is taken or
received is durable before the log is cut or rebuilt; chunks are joined only if they are of one
snapshot and without a hole; nothing is installed that fails its checksum; a few chunks are on their way to
a peer at once, however slow its link is, and it answers each. The methods in mixed case
are the library's names and are called by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quorum.raft.compat import SERIALIZER_STATE, Node
from quorum.raft.halting import Halting
from quorum.raft.messages import Entry, SnapshotChunk
from quorum.raft.snapshot import Snapshot, SnapshotError, SnapshotStore, decode_snapshot, encode_snapshot
from quorum.raft.voters import VoterBook

MAX_SNAPSHOT_BYTES = 1024 * 1024 * 1024
CHUNKS_IN_FLIGHT = 8
"""Far less than what a link queues before it is given up."""
ANSWER_TIMEOUT_S = 10.0
"""Of a chunk; after that it, or its answer, was lost, and the transfer begins anew."""


@dataclass
class _Outgoing:
    """A transfer to one peer: the whole file as it was when the transfer began."""

    snapshot: Snapshot
    data: bytes
    answered_s: float
    """When a chunk was answered last, or the transfer began; monotonic."""
    position: int = 0
    in_flight: int = 0


@dataclass
class _Incoming:
    """A transfer from one leader, as far as it has come."""

    peer_id: int
    last_index: int
    last_term: int
    total_bytes: int
    data: bytearray = field(default_factory=bytearray)


class SnapshotTransfer:
    """The snapshot side of one voter."""

    def __init__(
        self,
        store: SnapshotStore,
        book: VoterBook,
        take: Callable[[], bytes],
        halting: Halting,
        chunk_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        """`clock`: monotonic seconds."""
        self._store = store
        self._book = book
        self._take = take
        self._halting = halting
        self._chunk_bytes = chunk_bytes
        self._clock = clock
        self._taken: int | None = None
        self._outgoing: dict[int, _Outgoing] = {}
        self._incoming: _Incoming | None = None

    # -- taking

    def serialize(self, data: tuple[None, Entry, Entry, object], log_id: int) -> None:
        """The library asks for a snapshot; `data` is (nothing, last entry, entry before it, nodes)."""
        directories = tuple(sorted(self._book.in_force.items()))
        self._store.save(Snapshot(data[2], data[1], self._book.voters, self._take(), directories))
        self._taken = log_id

    def checkSerializing(self) -> tuple[int, int | None]:
        """SUCCESS once after each snapshot: then the library cuts the log behind it."""
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
            transfer = self._outgoing[peer.id] = _Outgoing(snapshot, encode_snapshot(snapshot), self._clock())
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

    def must_wait(self, peer: Node) -> bool:
        """Whether so many chunks are on their way to a peer that the next one waits for an answer."""
        transfer = self._outgoing.get(peer.id)
        if transfer is None or transfer.in_flight < CHUNKS_IN_FLIGHT:
            return False
        if self._clock() - transfer.answered_s > ANSWER_TIMEOUT_S:
            del self._outgoing[peer.id]
            return False
        return True

    def chunk_answered(self, peer: Node) -> None:
        """A peer has answered a chunk, whatever it made of it."""
        transfer = self._outgoing.get(peer.id)
        if transfer is not None:
            transfer.in_flight = max(transfer.in_flight - 1, 0)
            transfer.answered_s = self._clock()

    @property
    def may_go_on(self) -> bool:
        """Whether there is room for several chunks on the way to a peer that has not got all of them."""
        return any(transfer.in_flight <= CHUNKS_IN_FLIGHT // 2 for transfer in self._outgoing.values())

    def cancelTransmisstion(self, peer: Node) -> None:
        """Forgets a transfer to a peer: its link broke, or it asked for something else."""
        self._outgoing.pop(peer.id, None)

    # -- receiving

    def receive(self, peer_id: int, chunk: SnapshotChunk) -> bool | None:
        """One chunk from the leader. None: more to come; True: the whole snapshot is here and
        durable; False: what came is useless, the transfer has to begin again."""
        if chunk.is_first:
            self._incoming = _Incoming(peer_id, chunk.last_index, chunk.last_term, chunk.total_bytes)
        transfer = self._incoming
        if (
            transfer is None
            or (transfer.peer_id, transfer.last_index, transfer.last_term, transfer.total_bytes)
            != (peer_id, chunk.last_index, chunk.last_term, chunk.total_bytes)
            or chunk.position != len(transfer.data)
            or len(transfer.data) + len(chunk.data) > min(chunk.total_bytes, MAX_SNAPSHOT_BYTES)
        ):
            self._incoming = None
            return False
        transfer.data += chunk.data
        if not chunk.is_last:
            return None
        self._incoming = None
        return self._finish(transfer)

    def _finish(self, transfer: _Incoming) -> bool:
        data = bytes(transfer.data)
        try:
            snapshot = decode_snapshot(data)
        except SnapshotError:
            return False
        if (snapshot.last[1], snapshot.last[2]) != (transfer.last_index, transfer.last_term):
            return False
        self._store.save(snapshot, data)
        return True

    def forget_incoming(self, peer_id: int) -> None:
        """The link to this peer broke: the rest of its transfer will not come."""
        if self._incoming is not None and self._incoming.peer_id == peer_id:
            self._incoming = None

    def setTransmissionData(self, chunk: object) -> bool:
        """The library is told of a snapshot only once `receive` said that it is here: install it."""
        return True

    def newest(self) -> Snapshot:
        """The snapshot to install: the one that has just arrived, or the newest at start."""
        snapshot = self._store.newest
        assert snapshot is not None
        return snapshot
