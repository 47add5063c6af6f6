"""What happens to a quorum in `tests.support.raft_cluster`, and how large and how long it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from quorum.raft.config import FAST_TIMING, RaftTiming


class PowerCut(OSError):
    """The disk of a voter that is about to lose power, in the middle of a step."""


CHANGES = ("append", "write", "truncate", "sync", "sync_dir", "rename", "remove", "open")


@dataclass
class Faults:
    """Probabilities per message or per 10 ms, and what kind of crash."""

    drop: float = 0.01
    duplicate: float = 0.02
    reorder: float = 0.02
    late: float = 0.3
    cut_link: float = 0.004
    heal_link: float = 0.05
    crash: float = 0.004
    crash_in_step: float = 0.004
    power_loss: float = 0.7
    stall: float = 0.003
    transfer: float = 0.001
    propose: float = 0.3
    crash_new_leader: float = 0.0
    """Of new leaders, some do not live long enough to commit what they found."""


MILD = Faults(drop=0.002, cut_link=0.001, crash=0.0008, crash_in_step=0.0008, stall=0.001)
"""Few enough faults that the log grows long and leaders last."""


@dataclass
class Settings:
    voters: int = 3
    virtual_s: float = 12.0
    calm_s: float = 8.0
    snapshot_every_entries: int = 12
    append_bytes: int = 260
    snapshot_chunk_bytes: int = 256
    padding_bytes: int = 700
    segment_bytes: int = 2048
    faults: Faults = field(default_factory=Faults)
    timing: RaftTiming = field(default_factory=lambda: FAST_TIMING)
