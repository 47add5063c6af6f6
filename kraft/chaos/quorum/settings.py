"""How a quorum is set up and what happens to it; `scenario_of` makes a scenario of a seed. Pure values.

Each seed draws its own subset of faults, so that some seeds stay long in what others never reach (Groce et
al., "Swarm Testing", 2012).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Literal

from quorum.raft.config import APPLY_BYTES as SHIPPED_APPLY_BYTES
from quorum.raft.config import FAST_TIMING, RaftTiming

VOTERS = (3, 5)
VIRTUAL_S = 12.0
CALM_MAX_S = 20.0
Workload = Literal["topics", "bytes"]
WORKLOADS: tuple[Workload, ...] = ("topics", "topics", "bytes")
APPEND_BYTES: dict[Workload, tuple[int, ...]] = {
    "topics": (12_000, 1 << 20),
    "bytes": (120, 260, 260, 2000, 1 << 20),
}
"""Above the largest command of a workload: one that fills a message alone halts the leader."""


@dataclass(frozen=True)
class FaultOdds:
    """Odds per message (drop, duplicate, overtake, late), else per voter or link and 10 ms."""

    drop: float = 0.01
    duplicate: float = 0.02
    overtake: float = 0.02
    """Arrives later than what was sent after it in the same session."""
    late: float = 0.3
    """Arrives, though its session is over."""
    reset: float = 0.004
    half_open: float = 0.3
    """Of resets: one side notices late."""
    reconnect: float = 0.05
    clog: float = 0.001
    kill: float = 0.0012
    power_loss: float = 0.0028
    cut_short: float = 0.004
    """Dies before one of the next operations on its disk, or in the middle of it."""
    cut_short_start: float = 0.15
    """Of starts: dies in the recovery."""
    fsync_error: float = 0.0006
    slow_fsync: float = 0.004
    """Per fsync."""
    pause: float = 0.0008
    isolate: float = 0.0008
    hand_over: float = 0.001
    wipe: float = 0.0004
    rot: float = 0.0012
    kill_new_leader: float = 0.0
    """Of new leaders, some do not live long enough to commit what they found."""
    wrong_folder: float = 0.1
    """Of starts: first on an empty disk, or on somebody else's."""
    rot_snapshot: float = 0.0006
    insult: float = 0.002
    """A peer says what the library would obey, and what is not on the list."""


NONE = replace(
    FaultOdds(**{one.name: 0.0 for one in fields(FaultOdds)}), half_open=FaultOdds.half_open, reconnect=1.0
)
MILD = FaultOdds(
    drop=0.002,
    reset=0.001,
    kill=0.0004,
    power_loss=0.0004,
    cut_short=0.0008,
    fsync_error=0.0,
    wipe=0.0,
    rot=0.0,
    rot_snapshot=0.0,
)
"""Few enough faults that the log grows long and leaders last."""

_ALWAYS = frozenset({"half_open", "reconnect", "wrong_folder", "insult", "rot_snapshot"})


@dataclass(frozen=True)
class Settings:
    """All but the seed. `workload`: topics through real controllers, or bare bytes to the leading driver."""

    voters: int = 3
    virtual_s: float = VIRTUAL_S
    workload: Workload = "bytes"
    snapshot_every_entries: int = 12
    append_bytes: int = 260
    """Small, so that many messages are in flight."""
    apply_bytes: int = SHIPPED_APPLY_BYTES
    """Small in some seeds, so that there are large entries."""
    snapshot_chunk_bytes: int = 256
    segment_bytes: int = 2048
    max_pending_proposals: int = 10_000
    queue_s: tuple[float, float] = (0.000_05, 0.002)
    """How long an event or an effect takes between a lane and its controller."""
    clients: int = 3
    down_max_s: float = 1.5
    """A voter that died is started again after at most so long."""
    delays_s: tuple[float, ...] = (0.001, 0.002, 0.005, 0.02, 0.05, 0.15)
    """One of them is drawn for each message."""
    propose: float = 0.3
    """Bare bytes: odds of a burst of proposals per 10 ms."""
    faults: FaultOdds = field(default_factory=FaultOdds)
    timing: RaftTiming = field(default_factory=lambda: FAST_TIMING)


@dataclass(frozen=True)
class QuorumScenario:
    """One run."""

    seed: int
    settings: Settings

    @property
    def seconds(self) -> float:
        return self.settings.virtual_s

    @property
    def shape(self) -> str:
        return f"{self.settings.voters} voters"


def scenario_of(seed: int, voters: int | None = None, seconds: float = VIRTUAL_S) -> QuorumScenario:
    """The scenario of a seed, of 3 or 5 voters if nothing else is said."""
    return QuorumScenario(seed, drawn(seed, voters, seconds))


def drawn(seed: int, voters: int | None = None, virtual_s: float = VIRTUAL_S) -> Settings:
    """The settings of a seed."""
    rng = Random(f"{seed}/settings")
    chosen = rng.choice(VOTERS)
    workload = rng.choice(WORKLOADS)
    return Settings(
        voters=chosen if voters is None else voters,
        virtual_s=virtual_s,
        workload=workload,
        snapshot_every_entries=rng.choice((2, 5, 12, 12, 40, 1000)),
        append_bytes=rng.choice(APPEND_BYTES[workload]),
        apply_bytes=Random(f"{seed}/apply").choice((60, 300, SHIPPED_APPLY_BYTES)),
        snapshot_chunk_bytes=rng.choice((100, 256, 1 << 20)),
        segment_bytes=rng.choice((1024, 2048, 1 << 20)),
        max_pending_proposals=rng.choice((2, 4, 10_000)),
        queue_s=rng.choice(((0.000_05, 0.002), (0.001, 0.05))),
        clients=rng.choice((1, 3, 8)),
        down_max_s=rng.choice((0.2, 1.5)),
        delays_s=rng.choice(((0.001, 0.002, 0.005), (0.001, 0.002, 0.005, 0.02, 0.05, 0.15))),
        propose=rng.choice((0.1, 0.3, 0.6)),
        faults=_swarm(rng),
    )


def _swarm(rng: Random) -> FaultOdds:
    """A third of the faults are off, a third as usual, a third more frequent."""
    usual = FaultOdds()
    odds = {
        one.name: getattr(usual, one.name) * rng.choice((0.0, 1.0, 2.0))
        for one in fields(usual)
        if one.name not in _ALWAYS
    }
    if rng.random() < 0.1:
        odds["kill_new_leader"] = 0.5
    return replace(usual, **odds)
