"""What a fault of a real cluster is: it begins, is proved, ends, and its end is proved.

A proof comes from the fault's own probe, which looks at the thing that was hurt (a process, a file, bytes on a link)
and not at what the fault meant to do. `kraft.chaos.real.method` calls; everything blocks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from kraft.chaos.experiments.evidence import PartitionName
from kraft.chaos.real.cluster import ChaosCluster

POLL_S: Final = 0.05
HEAL_S: Final = 60.0
"""So long a node may need until it serves again, on a busy host."""


class Proof(NamedTuple):
    """What a probe saw; `holds` None: it could not tell."""

    holds: bool | None
    text: str


class Fault(Protocol):
    """One fault, which strikes once."""

    def begin(self) -> None:
        """Strikes. Raises UserError where this host cannot."""

    def grow(self, share: float) -> None:
        """Becomes this part of its full size; only quantities grow."""

    def proof(self) -> Proof:
        """Whether it has taken effect; asked while it lasts, or right after it, if it does not last."""

    def end(self) -> None:
        """Ends what `begin` began; may be called twice."""

    def heal_proof(self) -> Proof:
        """Whether it is over; waits until it is, within bounds."""


@dataclass(frozen=True)
class Aim:
    """At whom, where and how much."""

    cluster: ChaosCluster
    nodes: tuple[int, ...]
    partitions: tuple[PartitionName, ...]
    helpers: Path
    """The folder where processes beside the nodes are noted: files of pid and start time."""
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    stopped: threading.Event = field(default_factory=threading.Event)
    """Set when the run ends early: waits are over."""

    def number(self, name: str, otherwise: float = 0.0) -> float:
        """A quantity of the file: seconds, bytes a second, a share."""
        return float(self.parameters.get(name, otherwise))

    def word(self, name: str, otherwise: str) -> str:
        return str(self.parameters.get(name, otherwise))


def until(is_true: Callable[[], bool], stopped: threading.Event, timeout_s: float = HEAL_S) -> bool:
    """Looks until it is true, the time is over or the run is stopped; returns the last look."""
    end_s = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() >= end_s or stopped.wait(POLL_S):
            return is_true()
    return True


def all_of(proofs: list[Proof]) -> Proof:
    """What several probes saw: one that failed decides, then one that could not tell."""
    told = "; ".join(proof.text for proof in proofs)
    if any(proof.holds is False for proof in proofs):
        return Proof(False, told)
    return Proof(None if not proofs or any(proof.holds is None for proof in proofs) else True, told)
