"""The figures of the simulation: what is added up, what counts as missed, and one short run."""

from __future__ import annotations

import json

import pytest

from bench import simulation
from bench.simulation import Figures, figures, loaded, main, missed
from kraft.chaos.outcome import Outcome


def outcome(virtual_s: float, cpu_s: float) -> Outcome:
    return Outcome(1, operations=2_100, virtual_s=virtual_s, steps=20_000, cpu_s=cpu_s)


def test_runs_are_added_up() -> None:
    together = figures([outcome(10.0, 1.0), outcome(11.0, 0.5)])
    assert together == Figures(
        runs=2,
        virtual_s=21.0,
        cpu_s=1.5,
        virtual_s_per_cpu_s=14.0,
        operations_per_virtual_s=200.0,
        steps_per_cpu_s=26_667,
        seeds_per_core_hour=4_800,
    )


def test_a_limit_that_is_missed_is_named() -> None:
    good, slow = figures([outcome(10.0, 1.0)]), figures([outcome(10.0, 1.1)])
    idle = figures([outcome(10.6, 1.0)])
    assert missed(good, good) == missed(good, None) == []
    assert missed(slow, None) == ["fewer than 10 virtual seconds per CPU second under load"]
    assert missed(idle, None) == ["the load is below 200 operations per virtual second"]
    assert missed(good, figures([outcome(60.0, 6.1)])) == ["fewer than 600 seeds of the swarm per core-hour"]


def test_a_short_run_prints_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seconds", "0.5", "--repeats", "1", "--seeds", "0", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["load"]["virtual_s"] > 0.5
    assert document["load"]["operations_per_virtual_s"] > 0
    assert document["swarm"] is None


def test_a_seed_that_is_played_twice_counts_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = iter([4.0, 2.0, 6.0, 6.5, 3.0, 5.0])  # twice the load, then twice the swarm of two
    monkeypatch.setattr(simulation, "measure", lambda asked: [outcome(60.0, next(costs)) for _ in asked])
    assert main(["--repeats", "2", "--seeds", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["load"]["cpu_s"], document["load"]["runs"]) == (2.0, 2)
    assert (document["swarm"]["cpu_s"], document["swarm"]["runs"]) == (3.0 + 5.0, 2)


def test_the_load_is_begun_fast_enough() -> None:
    assert sum(workload.per_second for workload in loaded(1, 60.0).workloads) > 200
    assert loaded(1, 60.0).faults == ()


def test_a_run_that_fails_ends_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulation, "run", lambda scenario: Outcome(scenario.seed, error="a guard was hit"))
    assert main(["--repeats", "1", "--seeds", "0"]) == 1
    assert "a guard was hit" in capsys.readouterr().err
