"""Faults of a node's disk and clock, through the door in its ports (`kraft.chaos.real.doors`): the disk is full, fails
or is slow, the clock is wrong. Nodes have doors only where a file has such a fault.

Each is proved by what the node itself counted, operation by operation; the count outlives a node that ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kraft.chaos.real.doors import Doors
from kraft.chaos.real.faults.fault import Aim, Proof, all_of, until
from kraft.chaos.real.faults.processes import serves_again
from kraft.runtime.injected_faults import NONE, US_PER_S, Faults

MS_PER_S: Final = 1000
MEETS_S: Final = 5.0
"""So long after its time a fault may need until the node does something that it meets."""
HALTS_S: Final = 10.0
STARTS_MAX: Final = 3


@dataclass(frozen=True)
class PortWord:
    """One fault of the vocabulary, and how it is played and told."""

    faults_of: Callable[[Aim], Faults]
    count: str
    """The field of `Counts` that proves it."""
    told: Callable[[Aim], str]
    """What happened so often."""
    may_end: bool = False
    """Whether a node that meets it may end itself; it is started again."""
    must_end: bool = False


WORDS: Final[Mapping[str, PortWord]] = {
    "disk-full": PortWord(
        lambda aim: Faults(is_full=1), "refused", lambda aim: "writes were refused (ENOSPC)", may_end=True
    ),
    "failing-disk": PortWord(
        lambda aim: Faults(is_failing=1),
        "failed",
        lambda aim: "writes and fsyncs failed (EIO)",
        may_end=True,
        must_end=True,
    ),
    "slow-disk": PortWord(
        lambda aim: Faults(sync_us=round(US_PER_S * aim.number("sync"))),
        "slowed",
        lambda aim: f"fsyncs took {aim.number('sync'):g} s longer",
    ),
    "clock-offset": PortWord(
        lambda aim: Faults(clock_offset_ms=round(MS_PER_S * aim.number("offset"))),
        "told_wrong",
        lambda aim: f"times the clock was read, and was wrong by {aim.number('offset'):g} s",
    ),
}


class PortFault:
    """The faults of one word, on each target until they end."""

    def __init__(self, name: str, aim: Aim) -> None:
        self.aim = aim
        self._word = WORDS[name]
        self._before: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._went_on: set[int] = set()
        """Nodes that should have ended themselves."""

    @property
    def _doors(self) -> Doors:
        doors = self.aim.cluster.doors
        assert doors is not None, "a run whose method needs doors has them"
        return doors

    def _count(self, node: int) -> int:
        return int(getattr(self._doors.counts(node), self._word.count))

    def begin(self) -> None:
        faults = self._word.faults_of(self.aim)
        for node in self.aim.nodes:
            self._before[node] = self._count(node)
            self._doors.impose(node, faults, self)

    def grow(self, share: float) -> None:
        """None of them has a size that grows."""

    def proof(self) -> Proof:
        return all_of([self._proof_of(node) for node in self.aim.nodes])

    def _proof_of(self, node: int) -> Proof:
        met = until(lambda: self._count(node) > self._before[node], self.aim.stopped, MEETS_S)
        text = f"node {node}: {self._count(node) - self._before[node]} {self._word.told(self.aim)}"
        if not met or not self._word.must_end:
            return Proof(met, text)
        local = self.aim.cluster.local
        ended = until(lambda: local.pid(node) is None, self.aim.stopped, HALTS_S)
        if not ended:
            self._went_on.add(node)
        return Proof(ended, f"{text}, and {'it ended itself' if ended else 'it goes on as if nothing were'}")

    def end(self) -> None:
        local = self.aim.cluster.local
        for node in self.aim.nodes:
            self._doors.impose(node, NONE, self)
            if node in self._went_on:  # what it holds for durable is not
                self._went_on.discard(node)
                local.kill(node)
            self._start_again(node)

    def _start_again(self, node: int) -> None:
        """A node that ended itself; one may do so a moment after the fault is over."""
        local = self.aim.cluster.local
        if self._word.may_end and local.pid(node) is None and self._starts.get(node, 0) < STARTS_MAX:
            self._starts[node] = self._starts.get(node, 0) + 1
            local.spawn(node)

    def heal_proof(self) -> Proof:
        """By what the node finds in its file, and that it serves."""
        return all_of([self._over(node) for node in self.aim.nodes])

    def _over(self, node: int) -> Proof:
        def serves() -> bool:
            self._start_again(node)
            return bool(self.aim.cluster.local.readiness(node).get("ready"))

        until(serves, self.aim.stopped)
        left = self._doors.found(node)
        others = ", ".join(f"{name}={value}" for name, value in left._asdict().items() if value)
        found = Proof(
            left == self._doors.imposed(node), f"node {node} finds {others or 'no fault'} in disk and clock"
        )
        return all_of([found, serves_again(self.aim, node)])
