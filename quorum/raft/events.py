"""What goes into and comes out of one step of the Raft lane; every value is immutable.

`RaftDriver.step` takes events and returns effects. Whoever runs the lane (a thread in production,
the event loop in tests, the simulator) carries them; it may delay either queue but not reorder it.
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
    """A wish to append. `request_id` is the caller's own, unique among those without an outcome."""

    request_id: int
    proposal: bytes


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    """A leader hands over to its most caught-up peer, if one is caught up; otherwise nothing happens."""


@dataclass(frozen=True, slots=True)
class ReportQuorum:
    """Asks how far the voters are; answered with one `QuorumReport`."""

    request_id: int


@dataclass(frozen=True, slots=True)
class SendToPeer:
    """Bytes for a voter; they may be lost, but not reordered, within the session."""

    peer_id: int
    session: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CommittedEntry:
    """One committed log entry, and what the state machine made of it (see `Applied`).

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

    No entries: the image was taken whole from a snapshot, at start or from the leader; everything
    between the last image and this one was skipped.
    """

    entries: tuple[CommittedEntry, ...]
    image: Any


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """Who leads, as far as this node knows. `active`: this node leads and the barrier of its own
    epoch is applied, so its image holds everything that was ever committed."""

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
    """What an active leader wants the metadata to record: the directory of every voter. Those that the
    image does not have are to be proposed (`StateMachine.voter_directories` reads such a proposal)."""

    epoch: int
    directories: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class VoterStanding:
    """What this voter's voice is worth, and what the quorum waits for."""

    is_founded: bool = True
    """Whether the voters' directories are recorded. Until then a leader needs the votes of all."""
    counts: bool = True
    """Whether this voter may stand, and its votes count: its directory is the recorded one."""
    unseen: tuple[int, ...] = ()
    """Not founded yet: the voters to which there is no link."""
    replaced: tuple[int, ...] = ()
    """Founded: the voters, this one included, that are known to be on a disk that is not recorded."""
    is_lost: bool = False
    """So many disks were replaced at once that no majority is left, ever."""
    is_far_behind: bool = False
    """Too many entries that the leader has committed are not applied here."""


@dataclass(frozen=True, slots=True)
class QuorumReport:
    """A leader's view of its followers. Offsets are one past the last entry. `leads` false, and nothing
    else, from a node that does not lead with all that was committed applied."""

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
