"""The settings of one voter, checked before anything starts.

`kraft.node` builds them from server.properties. A wrong value is a RaftConfigError whose message says what to
change. Times are in seconds, the unit of the Raft library.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from partitions.topic_partition import CLUSTER_METADATA

MAX_PROPOSAL_BYTES = 1024 * 1024
"""Largest proposal; a bigger one is answered NOT_COMMITTED. It keeps every log entry far below one
append message, so that the library never cuts an entry in pieces (it would pickle it)."""
MAX_APPEND_BYTES = 16 * 1024 * 1024
"""An append message stops growing once its entries reach this; so it stays below this plus one proposal."""
APPLY_BYTES = 64 * 1024
"""Committed entries applied in one step of the lane, the last of them not counted; a larger entry takes
several steps."""
SNAPSHOT_CHUNK_BYTES = 1024 * 1024
DEFAULT_SEGMENT_BYTES = 32 * 1024 * 1024
"""A segment of the journal: above the largest append, and small enough to be dropped behind snapshots."""
DEFAULT_SEGMENT_MS = 7 * 24 * 3600 * 1000
DEFAULT_SNAPSHOT_INTERVAL_S = 3600.0
MAX_PEER_MESSAGE_BYTES = 2 * MAX_APPEND_BYTES
"""No message between voters is larger, framing of many small entries included; the network's own
limit has to be above it."""


DIRECTORY_ID_BYTES = 16


class RaftConfigError(ValueError):
    """A setting of the quorum cannot work; the message is a sentence for the operator."""


@dataclass(frozen=True)
class RaftTiming:
    """Timers of the quorum, in seconds. Failover takes one to two election timeouts.

    A node's come from `controller.quorum.election.timeout.ms` (`kraft/config_keys.py`) by `kraft.node.raft_timing`; the
    defaults are for drivers without a node.
    """

    election_min_s: float = 0.8
    election_max_s: float = 1.6
    heartbeat_s: float = 0.1
    leader_fallback_s: float = 0.8
    """A leader that a majority has not answered for this long steps down."""
    idle_step_max_s: float = 0.25
    """The lane steps at least this often, due or not."""

    def __post_init__(self) -> None:
        if self.heartbeat_s <= 0 or self.idle_step_max_s <= 0:
            raise RaftConfigError("The quorum's heartbeat and step intervals must be above 0.")
        if self.election_min_s <= 3 * self.heartbeat_s:
            raise RaftConfigError(
                f"The shortest election timeout ({self.election_min_s} s) must be more than three heartbeats"
                f" ({self.heartbeat_s} s each): raise controller.quorum.election.timeout.ms."
            )
        if self.election_max_s <= self.election_min_s:
            raise RaftConfigError(
                f"The longest election timeout ({self.election_max_s} s) must be above the shortest"
                f" ({self.election_min_s} s), or candidates keep colliding."
            )
        if not self.heartbeat_s < self.leader_fallback_s <= self.election_max_s:
            raise RaftConfigError(
                f"A leader cut off from its majority must step down ({self.leader_fallback_s} s) later than one"
                f" heartbeat and no later than the longest election timeout ({self.election_max_s} s)."
            )


FAST_TIMING = RaftTiming(election_min_s=0.25, election_max_s=0.5, heartbeat_s=0.05, leader_fallback_s=0.4)
"""For voters on one machine or one fast network: a leader is replaced within about half a second."""


@dataclass(frozen=True)
class RaftConfig:
    """One voter's view of the quorum. `directory` is the formatted metadata log directory (the one
    with meta.properties in it); `voters` maps every voter's id to its address, this node included."""

    node_id: int
    voters: dict[int, str]
    cluster_id: str
    directory: str
    directory_id: bytes | None = None
    """The 16 bytes of the directory's own id, by which voters are known (`voters.py`). None: by number alone,
    for a state machine that records no directories; then no voter may ever come back without its disk."""
    timing: RaftTiming = field(default_factory=RaftTiming)
    snapshot_every_entries: int = 10_000
    snapshot_every_bytes: int = 20 * 1024 * 1024
    """Bytes of proposals applied since the last snapshot that make the next one due."""
    snapshot_interval_s: float = DEFAULT_SNAPSHOT_INTERVAL_S
    """Time after the last snapshot (or the start) that makes the next one due, if anything was applied;
    0: never by time."""
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    segment_ms: int = DEFAULT_SEGMENT_MS
    """The journal begins a new segment when one reaches this size or age: whole segments are dropped
    behind snapshots."""
    snapshot_chunk_bytes: int = SNAPSHOT_CHUNK_BYTES
    append_bytes: int = MAX_APPEND_BYTES
    """Above the largest proposal, always: an entry that fills a message alone halts the node."""
    apply_bytes: int = APPLY_BYTES
    """Applied in a tick, at least one record."""
    max_pending_proposals: int = 10_000

    def __post_init__(self) -> None:
        if self.node_id not in self.voters:
            raise RaftConfigError(
                f"Node {self.node_id} is not among the quorum's voters {sorted(self.voters)}:"
                " add it to controller.quorum.voters, or start it without the controller role."
            )
        if self.apply_bytes < 1:
            raise RaftConfigError("A tick of the quorum must apply something: apply_bytes must be above 0.")
        if any(type(voter) is not int or not 0 <= voter < 2**31 for voter in self.voters):
            raise RaftConfigError("Voter ids must be whole numbers from 0 to 2147483647.")
        if self.directory_id is not None and len(self.directory_id) != DIRECTORY_ID_BYTES:
            raise RaftConfigError(
                f"A directory id has {DIRECTORY_ID_BYTES} bytes: format the directory anew."
            )
        if self.snapshot_every_entries < 2:
            raise RaftConfigError("The quorum needs at least 2 entries between snapshots.")
        if self.snapshot_every_bytes < 1:
            raise RaftConfigError("metadata.log.max.record.bytes.between.snapshots must be at least 1.")
        if self.snapshot_interval_s < 0:
            raise RaftConfigError(
                "metadata.log.max.snapshot.interval.ms must be at least 0 (0: never by time)."
            )
        if self.max_pending_proposals < 1:
            raise RaftConfigError("The quorum needs room for at least 1 pending proposal.")

    @property
    def journal_directory(self) -> str:
        return f"{self.directory}/{JOURNAL_TOPIC}-{JOURNAL_PARTITION}"


JOURNAL_TOPIC, JOURNAL_PARTITION = CLUSTER_METADATA
