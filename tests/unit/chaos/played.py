"""Runs that are played by rule instead of by a cluster: for tests of what is built around runs."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import IO

from kraft.chaos.outcome import Outcome, Violation
from kraft.chaos.scenario import FaultSpec, NodeSpec, Scenario, TopicSpec, WorkloadSpec

GATE = "KRAFT_TEST_GATE"
"""The environment variable that names a pipe: `watched` waits there."""


def scenario(seed: int, *, seconds: float = 60.0, faults: int = 8) -> Scenario:
    """A scenario with something of everything. Fault number n has the name f"fault-{n}"."""
    return Scenario(
        seed=seed,
        seconds=seconds,
        nodes=(NodeSpec(1),),
        topics=(TopicSpec("orders", 1, 1, {"segment.bytes": "16384"}), TopicSpec("idle", 1, 1)),
        workloads=tuple(
            WorkloadSpec("producer", stream=n, topic="orders", per_second=10.0) for n in range(4)
        ),
        faults=tuple(FaultSpec(f"fault-{n}", at_s=float(2 * n + 1), stream=n) for n in range(faults)),
        properties={"a": "1", "b": "2", "c": "3"},
    )


def sound(scenario: Scenario, *, story: IO[str] | None = None, timeline: IO[str] | None = None) -> Outcome:
    """Nothing is wrong."""
    for name, file in ("story", story), ("timeline", timeline):
        if file is not None:
            file.write(f"the {name} of {scenario.seed}\n")
    return Outcome(
        scenario.seed,
        digest=hashlib.sha256(scenario.to_json().encode()).hexdigest(),
        coverage={f"fault: {fault.name}": 1 for fault in scenario.faults},
        acknowledged={"producer#0": 5, "consumer#1": 0},
        operations=10,
        virtual_s=scenario.seconds + 20,
    )


def fails_if(
    condition: Callable[[Scenario], bool], oracle: str = "lost-write", *, at_s: float = 30.0
) -> Callable[..., Outcome]:
    """A run that fails one oracle where the condition holds."""

    def run(scenario: Scenario, *, story: IO[str] | None = None, timeline: IO[str] | None = None) -> Outcome:
        outcome = sound(scenario, story=story, timeline=timeline)
        if condition(scenario):
            outcome.violations = [Violation(oracle, 7, at_s, "it is gone")]
            outcome.last_events = ["29.0 step 6: kill node 1"]
        return outcome

    return run


def wrong(scenario: Scenario, *, story: IO[str] | None = None, timeline: IO[str] | None = None) -> Outcome:
    """Every run fails, always alike; for processes that have to find the function by its name."""
    return fails_if(lambda _: True)(scenario, story=story, timeline=timeline)


def bad_in_many_ways(
    scenario: Scenario, *, story: IO[str] | None = None, timeline: IO[str] | None = None
) -> Outcome:
    """How a run can end, by its seed."""
    if scenario.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if scenario.seed == 2:
        raise ZeroDivisionError("by zero")
    if scenario.seed == 3:
        while True:
            pass
    if scenario.seed == 5:
        print("a library says this")
    return sound(scenario)


def endless(scenario: Scenario, *, story: IO[str] | None = None, timeline: IO[str] | None = None) -> Outcome:
    """It never comes to its end, and costs nothing."""
    time.sleep(600)
    raise AssertionError("not reached")


def greedy(scenario: Scenario, *, story: IO[str] | None = None, timeline: IO[str] | None = None) -> Outcome:
    """It takes more memory than there is."""
    bytearray(4 << 30)
    raise AssertionError("not reached")


def hashing(scenario: Scenario, *, story: IO[str] | None = None, timeline: IO[str] | None = None) -> Outcome:
    """A run that depends on how strings are hashed."""
    return replace(sound(scenario), digest=str(hash("a string")))


def watched(
    scenario: Scenario,
    *,
    story: IO[str] | None = None,
    timeline: IO[str] | None = None,
    on_time: Callable[[float], None],
) -> Outcome:
    """A run that tells at once how far it is, and goes on when a byte comes through the gate."""
    on_time(scenario.seconds / 2)
    gate = os.open(os.environ[GATE], os.O_RDONLY)
    os.read(gate, 1)
    return sound(scenario)


def broken_when_fresh(
    scenario: Scenario, *, story: IO[str] | None = None, timeline: IO[str] | None = None
) -> Outcome:
    """A run that raises."""
    raise ZeroDivisionError("by zero")
