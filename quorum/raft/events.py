"""The events and effects of one step of the Raft lane, as immutable values.

`RaftDriver.step` takes events and returns effects. A lane carries them: a thread in production, the event loop in
tests, the simulator. It may delay either queue but not reorder it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from quorum.raft.replica_times import ReplicaTimes

NOT_COMMITTED: Literal["NOT_COMMITTED"] = "NOT_COMMITTED"
"""The proposal is in no log and never will be."""
UNKNOWN: Literal["UNKNOWN"] = "UNKNOWN"
"""Leadership was lost while the proposal was in the log: the next leader may commit it or drop it."""

ProposalError: TypeAlias = Literal["NOT_COMMITTED", "UNKNOWN"]


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """A link to a voter is up and authenticated. Sessions of one peer only grow. `directory_id` is what
    the peer has proved to be its own: 16 bytes, or none where voters are known by number alone."""

    peer_id: int
    session: int
    directory_id: bytes = b""


@dataclass(frozen=True, slots=True)
class PeerDisconnected:
    """The link is down; messages of this session that come later are dropped."""

    peer_id: int
    session: int


@dataclass(frozen=True, slots=True)
class PeerMessage:
    """Bytes that `SendToPeer` handed to the other side's network, in the order of sending."""

    peer_id: int
    session: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Propose:
    """A proposal to append. The caller chooses `request_id`, unique among its proposals without an outcome."""

    request_id: int
    proposal: bytes


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    """Has a leader hand over to its most caught-up peer; does nothing if no peer is caught up."""


@dataclass(frozen=True, slots=True)
class ReportQuorum:
    """Asks how far each voter is; answered with one `QuorumReport`."""

    request_id: int


@dataclass(frozen=True, slots=True)
class SendToPeer:
    """Bytes for a voter. The network may lose them, but not reorder them within the session."""

    peer_id: int
    session: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CommittedEntry:
    """One committed log entry, with the state machine's result (see `Applied`).

    A leader's barrier is accepted, has no records and no sequence.
    """

    offset: int
    epoch: int
    accepted: bool
    records: Sequence[Any] = ()
    encoded_records: bytes = b""
    sequence: int | None = None
    rejection: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """Entries applied in this step, in order, and the image after the last of them.

    No entries: the image came whole from a snapshot, at start or from the leader, and skips everything since the
    last image.
    """

    entries: tuple[CommittedEntry, ...]
    image: Any


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The leader, as far as this node knows. `active`: this node leads and has applied the barrier of its own
    epoch, so its image holds everything that was ever committed."""

    leader_id: int | None
    epoch: int
    active: bool


@dataclass(frozen=True, slots=True)
class ProposalOutcome:
    """Exactly one for each `Propose`, as long as the node lives: the offset it was committed at, or an
    error. It comes after the `Committed` that holds the entry."""

    request_id: int
    offset: int | None
    error: ProposalError | None


@dataclass(frozen=True, slots=True)
class VoterDirectories:
    """The directory of every voter, which an active leader wants the metadata to record. The controller proposes
    those that the image lacks (`StateMachine.voter_directories` reads such a proposal)."""

    epoch: int
    directories: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class VoterStanding:
    """Whether this voter counts, and what the quorum waits for."""

    is_founded: bool = True
    """Whether the voters' directories are recorded. Until then a leader needs the votes of all."""
    counts: bool = True
    """Whether this voter may stand and its votes count, since its directory is the recorded one."""
    unseen: tuple[int, ...] = ()
    """Not founded yet: the voters to which there is no link."""
    replaced: tuple[int, ...] = ()
    """Founded: the voters (perhaps this one) known to be on an unrecorded disk."""
    is_lost: bool = False
    """Too many disks were replaced at once: no majority can form any more."""
    is_far_behind: bool = False
    """This voter has yet to apply too many committed entries."""


@dataclass(frozen=True, slots=True)
class QuorumReport:
    """A leader's view of its followers. Offsets are one past the last entry. A node that is not an active leader
    reports `leads` false, and nothing else."""

    request_id: int
    leads: bool
    epoch: int = -1
    high_watermark: int = -1
    log_end_offset: int = -1
    followers: tuple[ReplicaTimes, ...] = ()
    """By ascending voter id, without the leader."""


RaftEvent: TypeAlias = (
    PeerConnected | PeerDisconnected | PeerMessage | Propose | TransferLeadership | ReportQuorum
)
RaftEffect: TypeAlias = (
    SendToPeer | Committed | LeaderChanged | ProposalOutcome | QuorumReport | VoterDirectories | VoterStanding
)
