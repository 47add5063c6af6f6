"""The hunt: seed after seed, each in a process of its own, until the oracle that a mutation names has spoken.

A run that crashes, and a violation that only other oracles report, is shown and does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from kraft.chaos.pool import IsolatedRunError, run_isolated
from tests.chaos.mutations.registry import Mutation, Sighting, Stage

CRASH = "crash"
"""What a run that ended in an exception is counted as: nobody's verdict."""
TEXT_MAX = 160


@dataclass(frozen=True)
class Hunt:
    """What became of one mutation."""

    name: str
    oracles: tuple[str, ...]
    stage: str
    seeds: int
    """How many were played."""
    killed_by: str = ""
    """The oracle that saw it; empty if none did."""
    text: str = ""
    """What that oracle said."""
    others: dict[str, int] = field(default_factory=dict)
    """In how many of the seeds other oracles spoke, or the run crashed."""
    equivalent: str = ""

    @property
    def is_killed(self) -> bool:
        return bool(self.killed_by)

    @property
    def is_settled(self) -> bool:
        """Killed, or argued not to matter."""
        return self.is_killed or bool(self.equivalent)


def sighting_of(stage: Stage, seed: int, mutation: Mutation | None) -> Sighting:
    """One seed, with the rule broken or not, in a forked process."""

    def play() -> Sighting:
        with nullcontext() if mutation is None else mutation.applied():
            return stage.play(seed)

    try:
        return run_isolated(play)
    except IsolatedRunError as error:
        return Sighting((), error=str(error).strip().splitlines()[-1][:TEXT_MAX] or CRASH)


def hunt(mutation: Mutation, seeds: Sequence[int], stop: Callable[[], bool] = lambda: False) -> Hunt:
    """Plays seeds until one kills the mutation, or `stop` says so between two of them."""
    others: Counter[str] = Counter()
    played = 0
    for seed in seeds:
        if stop():
            break
        played += 1
        seen = sighting_of(mutation.stage, seed, mutation)
        for oracle in seen.oracles:
            if oracle not in mutation.oracles:
                others[oracle] += 1
        if seen.error:
            others[CRASH] += 1
        for oracle, text in zip(seen.oracles, seen.texts, strict=True):
            if oracle in mutation.oracles:
                return _told(mutation, played, others, oracle, text)
    return _told(mutation, played, others, "", "")


def _told(mutation: Mutation, played: int, others: Counter[str], oracle: str, text: str) -> Hunt:
    return Hunt(
        mutation.name,
        mutation.oracles,
        mutation.stage.name,
        played,
        oracle,
        text[:TEXT_MAX],
        dict(sorted(others.items())),
        mutation.equivalent,
    )


def complaints(stage: Stage, seeds: Sequence[int]) -> Iterator[str]:
    """What is wrong with a stage without any mutation: nothing, or no kill in it means anything."""
    for seed in seeds:
        seen = sighting_of(stage, seed, None)
        for oracle, text in zip(seen.oracles, seen.texts, strict=True):
            yield f"{stage.name}, seed {seed}: {oracle}: {text[:TEXT_MAX]}"
        if seen.error:
            yield f"{stage.name}, seed {seed}: {seen.error}"
