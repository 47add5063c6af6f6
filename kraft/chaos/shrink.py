"""The shrinking of a failing scenario: parts go as long as the rest fails the same oracle.

It removes everything after the violation, faults (delta debugging, Zeller and Hildebrandt 2002), workloads, their
operations, seconds, properties of nodes and configs of topics. Candidates of one stage are played side by side, and
the first failing one in their order is taken: the result does not depend on the number that run at once, as long as
the runs suffice. `kraft chaos shrink` calls it; the function that plays a scenario is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from kraft.chaos.campaign import Finished, Run, RunPool
from kraft.chaos.outcome import Outcome
from kraft.chaos.scenario import Scenario

T = TypeVar("T")
RUNS_MAX = 200
SECTIONS = 4
"""Sections of a range that are searched at once."""
SECONDS_MIN = 0.5
SECONDS_PRECISION = 0.5
OPERATIONS_PRECISION = 0.1
"""The part of the remaining operations that is not worth a search: 100 operations are as good as 95."""


class NothingToShrink(Exception):
    """The scenario does not fail, or fails another oracle than the requested one; the message says which."""


@dataclass(frozen=True)
class Shrunk:
    """The smallest failing scenario that was found."""

    scenario: Scenario
    oracle: str
    text: str
    """The oracle's words about it."""
    runs: int
    is_minimal: bool
    """Whether every stage came to its end within the runs."""


def shrink(
    scenario: Scenario,
    run: Run,
    *,
    jobs: int,
    oracle: str = "",
    runs_max: int = RUNS_MAX,
    on_progress: Callable[[str, int], None] = lambda stage, runs: None,
) -> Shrunk:
    """The smallest scenario that fails `oracle`; "": the first one that the scenario fails.

    `on_progress` gets the stage and the number of runs after each of them. Raises NothingToShrink.
    """
    return _Shrinker(run, jobs, runs_max, on_progress).shrink(scenario, oracle)


class _OutOfRuns(Exception):
    """The bound is reached."""


class _Shrinker:
    def __init__(self, run: Run, jobs: int, runs_max: int, on_progress: Callable[[str, int], None]) -> None:
        self._run = run
        self._jobs = jobs
        self._runs_max = runs_max
        self._on_progress = on_progress
        self._runs = 0
        self._stage = "as it is"
        self._oracle = ""
        self._best: Scenario
        self._outcome: Outcome

    def shrink(self, scenario: Scenario, oracle: str) -> Shrunk:
        self._best, self._outcome = scenario, self._first_outcome(scenario)
        failed = self._outcome.oracles
        if not failed:
            raise NothingToShrink("the scenario breaks no promise")
        if oracle and oracle not in failed:
            raise NothingToShrink(f"the scenario does not fail '{oracle}', but {', '.join(failed)}")
        self._oracle = oracle or failed[0]
        is_minimal = True
        try:
            self._all_stages()
        except _OutOfRuns:
            is_minimal = False
        [text] = [one.text for one in self._outcome.first_violations if one.oracle == self._oracle]
        return Shrunk(self._best, self._oracle, text, self._runs, is_minimal)

    def _first_outcome(self, scenario: Scenario) -> Outcome:
        with RunPool(self._run, 1) as pool:
            pool.begin(0, scenario)
            while not (finished := pool.finished()):
                pass
        self._count()
        return finished[0].outcome

    def _all_stages(self) -> None:
        self._stage = "what is after the violation"
        self._cut()
        self._stage = "faults"
        self._remove_parts(lambda s: s.faults, lambda s, faults: replace(s, faults=tuple(faults)))
        self._stage = "workloads"
        self._remove_parts(lambda s: s.workloads, lambda s, kept: replace(s, workloads=tuple(kept)))
        self._stage = "operations"
        for position in range(len(self._best.workloads)):
            self._fewer_operations(position)
        self._stage = "seconds"
        self._shorten()
        self._stage = "settings"
        self._default_settings()

    # Stages

    def _cut(self) -> None:
        """Removes faults that would strike after the violation was seen, which cannot be its cause. (The violation's
        time counts from the start of the cluster, faults from when it was whole: a little later.)
        """
        [seen_s] = [one.at_s for one in self._outcome.first_violations if one.oracle == self._oracle]
        seconds = float(math.ceil(seen_s))
        if 0 < seconds < self._best.seconds:
            self._take_first([_within(self._best, seconds)])

    def _remove_parts(
        self, parts_of: Callable[[Scenario], Sequence[T]], with_parts: Callable[[Scenario, list[T]], Scenario]
    ) -> None:
        """Removes all parts, then halves, quarters, … and at last every single part."""
        size, at, has_removed = len(parts_of(self._best)), 0, False
        while size:
            parts = list(parts_of(self._best))
            starts = range(at, len(parts), size)
            taken = self._take_first(
                with_parts(self._best, parts[:start] + parts[start + size :]) for start in starts
            )
            if taken is not None:
                at, has_removed = starts[taken], True
            elif size == 1 and has_removed:  # a part that was needed before may be needless now
                at, has_removed = 0, False
            else:
                size, at, has_removed = (size + 1) // 2 if size > 1 else 0, 0, False

    def _fewer_operations(self, position: int) -> None:
        """Leaves one workload as few operations as possible."""
        workload = self._best.workloads[position]
        most = math.ceil(workload.per_second * self._best.seconds)
        if workload.operations_max is not None:
            most = min(most, workload.operations_max)

        def with_at_most(operations: float) -> Scenario:
            workloads = list(self._best.workloads)
            workloads[position] = replace(workload, operations_max=int(operations))
            return replace(self._best, workloads=tuple(workloads))

        self._smallest(with_at_most, 0, most, lambda high: max(1.0, high * OPERATIONS_PRECISION), whole=True)

    def _shorten(self) -> None:
        """Makes the scenario as short as possible; faults that would strike later go."""
        within = partial(_within, self._best)
        self._smallest(within, SECONDS_MIN, self._best.seconds, lambda _: SECONDS_PRECISION, whole=False)

    def _default_settings(self) -> None:
        """Removes unused topics, properties of nodes and configs of topics."""
        used = {workload.topic for workload in self._best.workloads}
        topics = tuple(topic for topic in self._best.topics if topic.name in used)
        if topics and topics != self._best.topics:
            self._take_first([replace(self._best, topics=topics)])
        self._remove_parts(
            lambda s: list(s.properties.items()), lambda s, kept: replace(s, properties=dict(kept))
        )
        self._remove_parts(
            lambda s: list(s.run_time_configs.items()),
            lambda s, kept: replace(s, run_time_configs=dict(kept)),
        )
        for position in range(len(self._best.topics)):
            self._default_configs(position)
        self._plain_readers()

    def _plain_readers(self) -> None:
        """Takes racks and sessions from consumers, and racks from brokers."""
        self._simplify(
            lambda s: replace(
                s, workloads=tuple(replace(one, rack="", fetch_sessions=False) for one in s.workloads)
            )
        )
        self._simplify(lambda s: replace(s, nodes=tuple(replace(node, rack="") for node in s.nodes)))

    def _simplify(self, simpler: Callable[[Scenario], Scenario]) -> None:
        """Adopts a simpler scenario if it differs and fails."""
        candidate = simpler(self._best)
        if candidate != self._best:
            self._take_first([candidate])

    def _default_configs(self, position: int) -> None:
        """Removes the configs of one topic."""

        def configs_of(scenario: Scenario) -> list[tuple[str, str]]:
            return list(scenario.topics[position].configs.items())

        def with_configs(scenario: Scenario, kept: list[tuple[str, str]]) -> Scenario:
            topics = list(scenario.topics)
            topics[position] = replace(topics[position], configs=dict(kept))
            return replace(scenario, topics=tuple(topics))

        self._remove_parts(configs_of, with_configs)

    # Search

    def _smallest(
        self,
        candidate: Callable[[float], Scenario],
        low: float,
        high: float,
        precision: Callable[[float], float],
        *,
        whole: bool,
    ) -> None:
        """Finds the smallest number that fails. `high` is known to fail; failures need not be monotonic."""
        while high - low > precision(high):
            width = (high - low) / SECTIONS
            points = [low + width * number for number in range(1, SECTIONS)]
            if whole:
                points = sorted({float(math.floor(point)) for point in points} - {low, high})
            else:
                points = [round(point, 2) for point in points]
            taken = self._take_first([candidate(point) for point in points])
            if taken is None:
                low = points[-1] if points else high
            else:
                low, high = points[taken - 1] if taken else low, points[taken]

    def _take_first(self, candidates: Iterable[Scenario]) -> int | None:
        """Plays them side by side, adopts the first that fails and returns its number; None if none fails."""
        waiting = list(candidates)
        failing: dict[int, Outcome] = {}
        begun = 0
        with RunPool(self._run, self._jobs) as pool:
            while True:
                bound = min(failing, default=len(waiting))
                for key in [key for key in pool.keys if key > bound]:
                    pool.abandon(key)
                while pool.free and begun < bound and self._runs + len(pool.keys) < self._runs_max:
                    pool.begin(begun, waiting[begun])
                    begun += 1
                if not pool.keys:
                    break
                for finished in pool.finished():
                    self._count()
                    if self._fails(finished):
                        failing[finished.key] = finished.outcome
        if failing:
            first = min(failing)
            self._best, self._outcome = waiting[first], failing[first]
            return first
        if begun < len(waiting):
            raise _OutOfRuns
        return None

    def _count(self) -> None:
        self._runs += 1
        self._on_progress(self._stage, self._runs)

    def _fails(self, finished: Finished) -> bool:
        return self._oracle in finished.outcome.oracles


def _within(scenario: Scenario, seconds: float) -> Scenario:
    faults = tuple(fault for fault in scenario.faults if fault.at_s < seconds)
    return replace(scenario, seconds=seconds, faults=faults)
