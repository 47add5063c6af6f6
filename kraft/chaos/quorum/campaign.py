"""Many seeds of the quorum on several cores, a process each, and what they came to.

A run that crashes, sticks or takes too much is a violation, too (`run-failed`). From `MANY_SEEDS` seeds on,
everything in `counters` must have happened, or the campaign could not tell. Called by `kraft chaos quorum`.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from kraft.chaos.pool import TICK_S, Ended, Limits, ProcessPool, in_turn, tallied, write_all
from kraft.chaos.quorum.counters import COUNTERS
from kraft.chaos.quorum.run import QuorumOutcome, play
from kraft.chaos.quorum.settings import VIRTUAL_S, drawn

MANY_SEEDS = 100
RUN_FAILED = "run-failed"
CPU_BASE_S, CPU_PER_SECOND = 20, 2
MEMORY_MAX_BYTES = 2 << 30
KEPT_MAX = 1000


@dataclass(frozen=True)
class QuorumPlan:
    """Which scenarios are played."""

    seeds: range
    voters: int | None = None
    """None: each seed draws 3 or 5."""
    seconds: float = VIRTUAL_S

    def replay(self, seed: int) -> str:
        """The one-line command that plays this seed."""
        words = ["kraft", "chaos", "quorum", "--seed", str(seed)]
        if self.voters is not None:
            words += ["--voters", str(self.voters)]
        if self.seconds != VIRTUAL_S:
            words += ["--seconds", f"{self.seconds:g}"]
        return shlex.join(words)

    def outcome_of(self, seed: int) -> QuorumOutcome:
        """Plays one seed in this process."""
        return play(seed, drawn(seed, self.voters, self.seconds))


@dataclass
class QuorumTally:
    """What a campaign came to so far."""

    seeds: int = 0
    by_voters: Counter[int] = field(default_factory=Counter)
    violated: list[QuorumOutcome] = field(default_factory=list)
    violated_count: int = 0
    coverage: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(COUNTERS, 0)))
    acknowledged: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    interrupted: bool = False

    def add(self, outcome: QuorumOutcome) -> None:
        """Counts a run that is over."""
        self.seeds += 1
        self.by_voters[outcome.voters] += 1
        self.coverage.update(outcome.coverage)
        self.acknowledged += outcome.acknowledged
        self.steps += outcome.steps
        self.virtual_s += outcome.virtual_s
        self.cpu_s += outcome.cpu_s
        if outcome.oracle:
            self.violated_count += 1
            if len(self.violated) < KEPT_MAX:
                self.violated.append(outcome)

    def shortcomings(self) -> list[str]:
        """Why a campaign without violations would say too little; [] if it can be believed."""
        found = ["it was interrupted"] if self.interrupted else []
        if not self.seeds:
            found.append("no seed was played to its end")
        if self.seeds >= MANY_SEEDS:
            found += [f"'{name}' never happened" for name in COUNTERS if not self.coverage[name]]
        return found

    def document(self, plan: QuorumPlan, commit: str) -> dict[str, Any]:
        """The JSON object of a campaign."""
        return {
            "commit": commit,
            "seeds": self.seeds,
            "voters": {str(voters): count for voters, count in sorted(self.by_voters.items())},
            "virtual_s": round(self.virtual_s, 3),
            "wall_s": round(self.wall_s, 3),
            "cpu_s": round(self.cpu_s, 3),
            "seeds_per_cpu_s": round(self.seeds / max(self.cpu_s, 1e-9), 2),
            "acknowledged": self.acknowledged,
            "steps": self.steps,
            "violated_seeds": self.violated_count,
            "violations": [
                {
                    "seed": one.seed,
                    "voters": one.voters,
                    "oracle": one.oracle,
                    "step": one.steps,
                    "at_s": round(one.at_s, 6),
                    "text": one.text,
                    "replay": plan.replay(one.seed),
                }
                for one in self.violated
            ],
            "shortcomings": self.shortcomings(),
            "coverage": {name: self.coverage[name] for name in COUNTERS},
            "interrupted": self.interrupted,
        }


def run_campaign(
    plan: QuorumPlan, *, jobs: int, on_end: Callable[[QuorumOutcome], None] = lambda _: None
) -> QuorumTally:
    """Plays all seeds; Ctrl-C ends it with what is there until then."""
    return tallied(QuorumTally(), _outcomes(plan, jobs), on_end)


def _outcomes(plan: QuorumPlan, jobs: int) -> Iterator[list[QuorumOutcome]]:
    cpu_s = int(CPU_BASE_S + CPU_PER_SECOND * plan.seconds)
    limits = Limits(cpu_s, 10.0 * cpu_s, MEMORY_MAX_BYTES)
    with ProcessPool(jobs) as pool:
        yield from in_turn(
            pool,
            plan.seeds,
            lambda _, seed: pool.start(seed, partial(_answer, plan, seed), limits),
            lambda: [_outcome_of(plan, one) for one in pool.wait(TICK_S)],
        )


def _answer(plan: QuorumPlan, seed: int, descriptor: int) -> None:
    write_all(descriptor, json.dumps(asdict(plan.outcome_of(seed))).encode())


def _outcome_of(plan: QuorumPlan, ended: Ended) -> QuorumOutcome:
    if ended.failure:
        outcome = QuorumOutcome(ended.key, drawn(ended.key, plan.voters).voters, RUN_FAILED, ended.failure)
    else:
        outcome = QuorumOutcome(**json.loads(ended.answer))
    outcome.cpu_s = ended.cpu_s
    return outcome
