"""Stages of the quorum alone that ask for more than one clean run: two equal runs, or a halt.

`raft_world` and `raft_guards` use them.
"""

from __future__ import annotations

import select
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pysyncobj import poller

from kraft.chaos.quorum.run import run
from kraft.chaos.quorum.settings import QuorumScenario
from tests.chaos.mutations.registry import Patch, Sighting, all_applied
from tests.chaos.mutations.stages import RaftStage

_OBJECTS = 1000


@dataclass(frozen=True)
class PlayedTwice(RaftStage):
    """A seed is played twice in one process, whose memory, clocks and randomness have moved on: the traces
    are equal, and neither run has asked the operating system for anything (`determinism`)."""

    def play(self, seed: int) -> Sighting:
        scenario = QuorumScenario(seed, self.settings(seed))
        system = _System()
        with Patch(poller, "select", lambda _: system).applied():
            first = run(scenario)
            kept = _move_memory(seed)
            second = run(scenario)
        seen = {one.oracle: one.text for outcome in (first, second) for one in outcome.violations}
        if first.digest != second.digest:
            seen["determinism"] = f"two runs of the seed differ, with {first.steps} and {second.steps} steps"
        elif system.asked:
            seen["determinism"] = f"the operating system was asked for {system.asked.pop()}"
        kept.clear()
        return Sighting(tuple(seen), tuple(seen.values()))


class _System:
    """Stands in for the module `select` in the library's pollers."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.asked.add(name)
        return getattr(select, name)


def _move_memory(seed: int) -> list[Any]:
    """Objects of many sizes, some of which go at once: what comes next lies elsewhere than before."""
    rng = Random(seed)
    kept: list[Any] = [[None] * rng.randrange(1, 40) for _ in range(_OBJECTS)]
    rng.shuffle(kept)
    del kept[_OBJECTS // 2 :]
    return kept


@dataclass(frozen=True)
class BrokenWithin(RaftStage):
    """Something in the voter is broken by the stage itself, with and without a mutation; a voter that halts
    because it has noticed is right, and the run is over."""

    broken: tuple[Patch, ...] = ()
    right_halt: str = field(default="")
    """What a halt says that is right; none is if it is empty."""

    def play(self, seed: int) -> Sighting:
        with all_applied(self.broken):
            seen = super().play(seed)
        is_right = bool(self.right_halt) and seen.oracles == ("halted",) and self.right_halt in seen.texts[0]
        return Sighting(()) if is_right else seen
