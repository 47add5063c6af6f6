"""How a quorum is set up and what happens to it; `scenario_of` makes a scenario of a seed. Pure values.

Each seed draws its own subset of faults, so that some seeds stay long in what others never reach (Groce et
al., "Swarm Testing", 2012). Faults have the names of `kraft.chaos.faults`, and of the quorum's own in `faults`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from random import Random
from typing import Final, Literal

from kraft.chaos.faults.context import Pace
from kraft.chaos.scenario import FaultSpec
from kraft.chaos.world.network import Latency
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

LATENCIES: Final = (Latency(0.001, 0.005), Latency(0.001, 0.05))
PACES: Final = (Pace(down=0.06, lasts=0.35), Pace(down=0.5, lasts=0.35))
"""Voters are faster to notice and to start than whole nodes, and so are their faults to end."""

FaultRates = Mapping[str, float]
"""By name: how often the fault strikes, in strikes per virtual second of the whole quorum."""

FAULTS: Final[FaultRates] = {
    "kill": 0.2,
    "kill-controller": 0.15,
    "kill-mid-operation": 0.6,
    "kill-at-start": 0.15,
    "kill-new-leader": 0.1,
    "power-loss": 0.6,
    "power-loss-mid-operation": 0.6,
    "power-loss-all": 0.03,
    "pause": 0.15,
    "pause-controller": 0.15,
    "restart": 0.1,
    "partition": 0.15,
    "partition-one-way": 0.1,
    "isolate-controller": 0.3,
    "reset": 1.5,
    "drop": 0.3,
    "clogged-link": 0.3,
    "high-latency": 0.1,
    "slow-disk": 0.2,
    "disk-full": 0.05,
    "fsync-error": 0.08,
    "bit-rot-voter": 0.3,
    "bit-rot-voter-at-start": 2.0,
    "wipe": 0.15,
    "clock-jump": 0.1,
    "clock-skew": 0.1,
    "hand-over": 0.3,
    "stranger": 0.6,
    "wrong-folder": 0.3,
}
"""As usual. Those that cut bytes (`slow-link`, `partial-writes`) have nothing to cut in messages."""


@dataclass(frozen=True)
class MessageOdds:
    """What happens to single messages, which no fault of `kraft.chaos.faults` does, since TCP does not: the odds for
    each. It is what the driver's sequence numbers and sessions are there for."""

    drop: float = 0.01
    duplicate: float = 0.02
    overtake: float = 0.02
    """Arrives when it does, whatever was sent before it in the same session."""
    late: float = 0.3
    """Of messages whose session is over: arrives all the same."""


SOUND: Final = MessageOdds(0.0, 0.0, 0.0, 0.0)


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
    latency: Latency = LATENCIES[1]
    """Of each message."""
    propose: float = 0.3
    """Bare bytes: odds of a burst of proposals per 10 ms."""
    messages: MessageOdds = SOUND
    faults: FaultRates = field(default_factory=dict)
    pace: Pace = PACES[1]
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

    @property
    def faults(self) -> tuple[FaultSpec, ...]:
        """What strikes when: each fault by a random stream of its own, so that one more leaves the others alone."""
        strikes = []
        for name, rate in self.settings.faults.items():
            rng, at_s = Random(f"{self.seed}/strikes of {name}"), 0.0
            while rate and (at_s := at_s + rng.expovariate(rate)) < self.seconds:
                strikes.append((at_s, name))
        return tuple(FaultSpec(name, at_s, stream) for stream, (at_s, name) in enumerate(sorted(strikes)))


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
        max_pending_proposals=rng.choice((2, 3, 4, 10_000)),
        queue_s=rng.choice(((0.000_05, 0.002), (0.001, 0.05))),
        clients=rng.choice((1, 3, 8)),
        pace=rng.choice(PACES),
        latency=rng.choice(LATENCIES),
        propose=rng.choice((0.1, 0.3, 0.6)),
        # A third is off, a third as usual, a third more frequent.
        messages=MessageOdds(*(odds * rng.choice((0.0, 1.0, 2.0)) for odds in astuple(MessageOdds()))),
        faults={name: rate * rng.choice((0.0, 1.0, 2.0)) for name, rate in FAULTS.items()},
    )
