"""A campaign: many scenarios on several cores, each in a process of its own, their outcomes added to a tally.

A run whose process crashes, sticks or takes too much is an outcome, too: its `error` says how it ended. With a hash
seed a run gets a fresh interpreter that hashes strings by it; a campaign so checks that a seed is one history in
every process. The functions that play a scenario are arguments. Called by `kraft chaos simulate`, by
`kraft.chaos.shrink` and by the tests of the corpus.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import IO, Final, Protocol

from kraft.chaos.pool import TICK_S, Ended, Limits, ProcessPool, in_turn, tallied, write_all
from kraft.chaos.run import Outcome
from kraft.chaos.scenario import Scenario
from kraft.chaos.timeline import Timeline
from kraft.chaos.verdict import Violation

RUN_FAILED = "run-failed"
"""The oracle named for a run that did not come to its end."""
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


class Run(Protocol):
    """Plays a scenario in this process: `kraft.chaos.run.run`, or a fake of it under test."""

    def __call__(
        self,
        scenario: Scenario,
        *,
        timeline: IO[str] | None = None,
        on_time: Callable[[float], None] = ...,
    ) -> Outcome: ...


@dataclass(frozen=True)
class Finished:
    """One run that is over."""

    key: int
    scenario: Scenario
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
        self._scenarios: dict[int, Scenario] = {}
        self._clocks: dict[int, RunClock] = {}

    def begin(
        self, key: int, scenario: Scenario, *, trace: str | None = None, hash_seed: int | None = None
    ) -> None:
        """Begins a run. `trace`: the file that gets the timeline; `hash_seed`: in a fresh interpreter."""

        clock = RunClock.new() if self._is_watched else None

        def work(descriptor: int) -> None:
            if hash_seed is not None:
                _become_fresh(self._run, scenario, hash_seed, descriptor, clock)
            write_all(descriptor, encoded(_played(self._run, scenario, trace, clock)))

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
            outcome = decoded(ended.answer)
        outcome.cpu_s, outcome.wall_s = ended.cpu_s, ended.wall_s
        return Finished(ended.key, scenario, outcome)


def limits_of(scenario: Scenario) -> Limits:
    """The limits of a run of this length."""
    cpu_s = int(CPU_BASE_S + CPU_PER_SECOND * scenario.seconds)
    return Limits(cpu_s, float(WALL_PER_CPU * cpu_s), MEMORY_MAX_BYTES)


def oracles_of(outcome: Outcome) -> list[str]:
    """The oracles that a run failed, in the order of their first violations."""
    return [violation.oracle for violation in violations_of(outcome)]


def violations_of(outcome: Outcome) -> list[Violation]:
    """The first violation of each oracle; a run that failed itself is one at step -1."""
    found = [Violation(RUN_FAILED, -1, -1.0, outcome.error)] if outcome.error else []
    found += outcome.violations
    first: dict[str, Violation] = {}
    for violation in found:
        first.setdefault(violation.oracle, violation)
    return list(first.values())


def encoded(outcome: Outcome) -> bytes:
    """One line of JSON; `decoded` makes an equal outcome of it."""
    return json.dumps(asdict(outcome)).encode() + b"\n"


def decoded(line: bytes) -> Outcome:
    """The outcome in the last line of a run's output."""
    document = json.loads(line.splitlines()[-1])
    violations = [Violation(**violation) for violation in document.pop("violations")]
    return Outcome(**document, violations=violations)


def _played(run: Run, scenario: Scenario, trace: str | None, clock: RunClock | None) -> Outcome:
    if clock is not None:
        run = partial(run, on_time=clock.set)
    if trace is None:
        return run(scenario)
    with Timeline(trace) as timeline:
        outcome = run(scenario, timeline=timeline)
    if timeline.problem:
        outcome.untold = f"{trace} could not be written: {timeline.problem}"
    return outcome


def _become_fresh(
    run: Run, scenario: Scenario, hash_seed: int, descriptor: int, clock: RunClock | None
) -> None:
    """Replaces this process by a new interpreter: see `kraft.chaos.fresh`."""
    with tempfile.TemporaryFile() as file:
        file.write(scenario.to_json().encode())
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
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds of all processes of runs."""
    wall_s: float = 0.0
    """Wall seconds of the campaign; its owner sets it."""
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
        if oracles_of(outcome):
            self.failed_count += 1
            if len(self.failed) < KEPT_MAX:
                self.failed.append(finished)


def run_campaign(
    scenarios: Iterable[Scenario],
    run: Run,
    *,
    jobs: int,
    declared: Iterable[str] = (),
    on_end: Callable[[Finished], None] = lambda _: None,
    on_tick: Callable[[Tally], None] = lambda _: None,
    trace: str | None = None,
    limits: Limits | None = None,
    is_watched: bool = False,
) -> Tally:
    """Plays all scenarios and returns their results; Ctrl-C ends it with those so far.

    `declared`: counters that are shown even if they stay at zero. `on_end` is called with every run that ended,
    `on_tick` at least every TICK_S seconds. `is_watched`: `Tally.under_way` is kept for it.
    """
    tally = Tally(coverage=Counter(dict.fromkeys(declared, 0)))

    def ended() -> Iterator[list[Finished]]:
        with RunPool(run, jobs, limits, is_watched=is_watched) as pool:
            for together in in_turn(pool, scenarios, partial(pool.begin, trace=trace), pool.finished):
                tally.under_way = pool.under_way()
                yield together

    return tallied(tally, ended(), on_end, on_tick)


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
    scenarios: Iterable[Scenario],
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

        def begin(key: int, half: tuple[Scenario, int]) -> None:
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
    failed = tuple(dict.fromkeys(oracles_of(first) + oracles_of(second)))
    return Verification(first.seed, (first.digest, second.digest), (first.error, second.error), failed)
