"""A campaign: many scenarios on several cores, each in a process of its own, their outcomes added to a tally.

A run whose process crashes, sticks or takes too much is an outcome, too: its `error` says how it ended. With a hash
seed a run gets a fresh interpreter that hashes strings by it; a campaign so checks that a seed is one history in
every process. Scenarios are of any kind of cluster (whole ones, the quorum alone); the function that plays them is an
argument. Called by `kraft chaos simulate` and `quorum`, by `kraft.chaos.shrink` and by the tests of the corpus.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, Final, Protocol

from kraft.chaos.outcome import Outcome
from kraft.chaos.pool import TICK_S, Ended, Limits, ProcessPool, in_turn, write_all
from kraft.chaos.timeline import Timeline

CPU_BASE_S, CPU_PER_SECOND = 60, 3
"""CPU seconds per virtual second. A run takes a tenth; one that takes thirty times that is stuck."""
WALL_PER_CPU = 10
MEMORY_MAX_BYTES = 4 << 30
KEPT_MAX = 1000
"""Failed runs of a campaign that are kept whole."""
HASH_SEEDS = (1, 4242)
AROUND_FAULTS_S: Final = 5.0
"""Virtual seconds that a run takes beside those of its faults: about, and enough to show how far it is."""
PART_MAX: Final = 0.99
"""A run that takes longer is not over."""
_SECONDS: Final = struct.Struct("d")


class AnyScenario(Protocol):
    """What decides a run, whatever the kind of its cluster; a picklable value."""

    @property
    def seed(self) -> int: ...

    @property
    def seconds(self) -> float:
        """How long faults may strike, in virtual seconds."""

    @property
    def shape(self) -> str:
        """Its cluster, in words."""


class Run(Protocol):
    """Plays a scenario in this process: `run` of `kraft.chaos.run` or of `kraft.chaos.quorum.run`, or a fake of them
    under test."""

    def __call__(
        self,
        scenario: Any,
        *,
        story: IO[str] | None = None,
        timeline: IO[str] | None = None,
        on_time: Callable[[float], None] = ...,
    ) -> Outcome: ...


@dataclass(frozen=True)
class Files:
    """The files that a run writes, by path; None: not asked for."""

    story: str | None = None
    """What a person reads."""
    timeline: str | None = None
    """Every callback and every byte."""


@dataclass(frozen=True)
class Finished:
    """One run that is over."""

    key: int
    scenario: AnyScenario
    outcome: Outcome
    """`cpu_s` and `wall_s` count its whole process."""


class RunClock:
    """The virtual time of a run in another process: memory that both share, by its file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, _SECONDS.size)

    @classmethod
    def new(cls) -> RunClock:
        """One at zero; who made it closes it."""
        descriptor = os.memfd_create("run clock")
        os.ftruncate(descriptor, _SECONDS.size)
        return cls(descriptor)

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)

    def set(self, now_s: float) -> None:
        _SECONDS.pack_into(self._memory, 0, now_s)

    @property
    def now_s(self) -> float:
        seconds: float = _SECONDS.unpack_from(self._memory)[0]
        return seconds


class RunPool(ProcessPool):
    """Plays scenarios, at most `jobs` at once. A context: leaving it ends the runs under way."""

    def __init__(
        self, run: Run, jobs: int, limits: Limits | None = None, *, is_watched: bool = False
    ) -> None:
        """`limits`: of each run; by default what its length in virtual seconds allows. `is_watched`: the runs tell
        how far they are."""
        super().__init__(jobs)
        self._run = run
        self._limits = limits
        self._is_watched = is_watched
        self._scenarios: dict[int, AnyScenario] = {}
        self._clocks: dict[int, RunClock] = {}

    def begin(
        self, key: int, scenario: AnyScenario, *, files: Files = Files(), hash_seed: int | None = None
    ) -> None:
        """Begins a run. `hash_seed`: in a fresh interpreter, which writes no files."""

        clock = RunClock.new() if self._is_watched else None

        def work(descriptor: int) -> None:
            if hash_seed is not None:
                _become_fresh(self._run, scenario, hash_seed, descriptor, clock)
            write_all(descriptor, _played(self._run, scenario, files, clock).encoded())

        self._scenarios[key] = scenario
        if clock is not None:
            self._clocks[key] = clock
        self.start(key, work, self._limits or limits_of(scenario))

    def abandon(self, key: int) -> None:
        """Ends a run whose outcome is not wanted any more."""
        self.end(key)
        del self._scenarios[key]
        self._forget_clock(key)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for key in list(self._clocks):
            self._forget_clock(key)

    def _forget_clock(self, key: int) -> None:
        clock = self._clocks.pop(key, None)
        if clock is not None:
            clock.close()

    def under_way(self) -> float:
        """How much has been played of the runs that are not over, in runs, if they are watched."""
        parts = (
            clock.now_s / (self._scenarios[key].seconds + AROUND_FAULTS_S)
            for key, clock in self._clocks.items()
        )
        return sum(min(part, PART_MAX) for part in parts)

    def finished(self, timeout_s: float = TICK_S) -> list[Finished]:
        """The runs that have ended; waits for one, at most `timeout_s`."""
        return [self._finished(ended) for ended in self.wait(timeout_s)]

    def _finished(self, ended: Ended) -> Finished:
        scenario = self._scenarios.pop(ended.key)
        self._forget_clock(ended.key)
        if ended.failure:
            outcome = Outcome(scenario.seed, error=ended.failure)
        else:
            outcome = Outcome.decoded(ended.answer)
        outcome.cpu_s, outcome.wall_s = ended.cpu_s, ended.wall_s
        return Finished(ended.key, scenario, outcome)


def limits_of(scenario: AnyScenario) -> Limits:
    """The limits of a run of this length."""
    cpu_s = int(CPU_BASE_S + CPU_PER_SECOND * scenario.seconds)
    return Limits(cpu_s, float(WALL_PER_CPU * cpu_s), MEMORY_MAX_BYTES)


def _played(run: Run, scenario: AnyScenario, files: Files, clock: RunClock | None) -> Outcome:
    if clock is not None:
        run = partial(run, on_time=clock.set)
    asked = {"story": files.story, "timeline": files.timeline}
    with ExitStack() as stack:
        opened: dict[str, Any] = {
            name: stack.enter_context(Timeline(path)) for name, path in asked.items() if path is not None
        }
        outcome = run(scenario, **opened)
    for name, file in opened.items():
        if file.problem:
            outcome.untold = f"{asked[name]} could not be written: {file.problem}"
    return outcome


def _become_fresh(
    run: Run, scenario: AnyScenario, hash_seed: int, descriptor: int, clock: RunClock | None
) -> None:
    """Replaces this process by a new interpreter: see `kraft.chaos.fresh`."""
    with tempfile.TemporaryFile() as file:
        pickle.dump(scenario, file)
        file.flush()
        file.seek(0)
        os.dup2(file.fileno(), 0)
        os.dup2(descriptor, 1)
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": path}
        function = f"{run.__module__}:{run.__qualname__}"  # type: ignore[attr-defined]
        command = [sys.executable, "-m", "kraft.chaos.fresh", function]
        if clock is not None:
            os.set_inheritable(clock.descriptor, True)
            command.append(str(clock.descriptor))
        os.execve(sys.executable, command, environment)


@dataclass
class Tally:
    """The results of a campaign so far."""

    seeds: int = 0
    shapes: Counter[str] = field(default_factory=Counter)
    """Seeds by the shape of their cluster."""
    steps: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds of all processes of runs."""
    wall_s: float = 0.0
    """Wall seconds of the campaign."""
    operations: int = 0
    coverage: Counter[str] = field(default_factory=Counter)
    history: Counter[str] = field(default_factory=Counter)
    """Counts of the histories' contents."""
    acknowledged: Counter[str] = field(default_factory=Counter)
    """By kind of workload."""
    unacknowledged: Counter[str] = field(default_factory=Counter)
    """By kind of workload: the workloads without any in their whole run."""
    excused: int = 0
    """Runs with losses that faults explain."""
    excuses: dict[int, list[str]] = field(default_factory=dict)
    """By seed: which losses, and why, of the first KEPT_MAX such runs."""
    under_way: float = 0.0
    """How much has been played of the runs that are not over, in runs."""
    undecided: dict[int, str] = field(default_factory=dict)
    """By seed: why its history said nothing."""
    untold: str = ""
    """Why a requested timeline is not whole."""
    failed_count: int = 0
    failed: list[Finished] = field(default_factory=list)
    """Runs that broke a promise or failed themselves, the first KEPT_MAX."""
    digests: dict[int, str] = field(default_factory=dict)
    """By seed."""
    interrupted: bool = False

    def add(self, finished: Finished) -> None:
        """Counts a run."""
        outcome = finished.outcome
        self.seeds += 1
        self.shapes[finished.scenario.shape] += 1
        self.steps += outcome.steps
        self.virtual_s += outcome.virtual_s
        self.cpu_s += outcome.cpu_s
        self.operations += outcome.operations
        self.coverage.update(outcome.coverage)
        self.history.update(outcome.history)
        for workload, times in outcome.acknowledged.items():
            kind = workload.partition("#")[0]
            self.acknowledged[kind] += times
            self.unacknowledged[kind] += times == 0
        self.excused += bool(outcome.excused)
        if outcome.excused and len(self.excuses) < KEPT_MAX:
            self.excuses[outcome.seed] = outcome.excused
        self.digests[outcome.seed] = outcome.digest
        if outcome.undecided:
            self.undecided[outcome.seed] = outcome.undecided
        self.untold = self.untold or outcome.untold
        if outcome.first_violations:
            self.failed_count += 1
            if len(self.failed) < KEPT_MAX:
                self.failed.append(finished)


def run_campaign(
    scenarios: Iterable[AnyScenario],
    run: Run,
    *,
    jobs: int,
    declared: Iterable[str] = (),
    on_end: Callable[[Finished], None] = lambda _: None,
    on_tick: Callable[[Tally], None] = lambda _: None,
    files: Files = Files(),
    limits: Limits | None = None,
    is_watched: bool = False,
) -> Tally:
    """Plays all scenarios and returns their results; Ctrl-C ends it with those so far.

    `declared`: counters that are shown even if they stay at zero. `on_end` is called with every run that ended,
    `on_tick` at least every TICK_S seconds. `is_watched`: `Tally.under_way` is kept for it.
    """
    tally = Tally(coverage=Counter(dict.fromkeys(declared, 0)))
    began_s = time.monotonic()
    try:
        with RunPool(run, jobs, limits, is_watched=is_watched) as pool:
            for together in in_turn(pool, scenarios, partial(pool.begin, files=files), pool.finished):
                tally.under_way = pool.under_way()
                tally.wall_s = time.monotonic() - began_s
                for finished in together:
                    tally.add(finished)
                    on_end(finished)
                on_tick(tally)
    except KeyboardInterrupt:
        tally.interrupted = True
    tally.wall_s = time.monotonic() - began_s
    return tally


@dataclass(frozen=True)
class Verification:
    """A scenario played twice, in fresh interpreters that hash strings differently."""

    seed: int
    hashes: tuple[str, str]
    errors: tuple[str, str]
    """How a run failed, in which case its hash covers a part, or there is none."""
    failed: tuple[str, ...] = ()
    """The oracles that failed in one run or both: two equal histories may both be wrong."""

    @property
    def equal(self) -> bool:
        """Whether both runs came to their end with one history."""
        return not any(self.errors) and bool(self.hashes[0]) and self.hashes[0] == self.hashes[1]


def verify(
    scenarios: Iterable[AnyScenario],
    run: Run,
    *,
    jobs: int,
    on_end: Callable[[Verification], None] = lambda _: None,
    on_tick: Callable[[float], None] = lambda _: None,
    is_watched: bool = False,
) -> list[Verification]:
    """Plays every scenario twice and compares the hashes of the traces. Ctrl-C raises as usual.

    `on_tick` is told how many scenarios are played, parts counted if `is_watched`, at least every TICK_S seconds.
    """
    waiting = ((scenario, hash_seed) for scenario in scenarios for hash_seed in HASH_SEEDS)
    halves: dict[int, dict[int, Outcome]] = {}
    done: list[Verification] = []
    played = 0
    with RunPool(run, jobs, is_watched=is_watched) as pool:

        def begin(key: int, half: tuple[AnyScenario, int]) -> None:
            pool.begin(key, half[0], hash_seed=half[1])

        for together in in_turn(pool, waiting, begin, pool.finished):
            for finished in together:
                pair, turn = divmod(finished.key, len(HASH_SEEDS))
                half = halves.setdefault(pair, {})
                half[turn] = finished.outcome
                if len(half) == len(HASH_SEEDS):
                    done.append(_compared(half[0], half[1]))
                    on_end(done[-1])
                    del halves[pair]
            played += len(together)
            on_tick((played + pool.under_way()) / len(HASH_SEEDS))
    return done


def _compared(first: Outcome, second: Outcome) -> Verification:
    failed = tuple(dict.fromkeys(first.oracles + second.oracles))
    return Verification(first.seed, (first.digest, second.digest), (first.error, second.error), failed)
