"""Experiments in the simulated world: each fault strikes, is proved, ends, and equal seeds give equal runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from kraft.chaos.experiments.document import Experiment
from kraft.chaos.experiments.evidence import Evidence
from kraft.chaos.experiments.shelf import library
from kraft.chaos.experiments.simulated import play, scenario_of
from kraft.chaos.experiments.simulated.seed import run_with_page
from kraft.chaos.experiments.simulated.strikes import STRIKES
from kraft.chaos.experiments.verdict import judge
from kraft.chaos.experiments.vocabulary import FAULTS, SIM
from kraft.chaos.pool import run_isolated
from kraft.chaos.run import run
from kraft.chaos.scenario import FaultSpec
from kraft.user_error import UserError
from tests.unit.chaos.experiments.planted import experiment

KILL = "{fault: kill, target: leader of orders-0, at: 2s, for: 5s}"
METHOD: Final = (
    "{fault: latency, target: node 1, delay: 30ms, jitter: 10ms, at: 0s, for: 2s, ramp: 1s}",
    "{fault: slow-disk, target: all nodes, sync: 20ms, at: 0s, for: 1s}",
    "{fault: clock-offset, target: node 2, offset: 1min, at: 0s, for: 1s}",
    "{fault: reset, target: all nodes, from: everybody, at: 2s}",
    "{fault: half-open, target: node 1, from: nodes, at: 2s, for: 6s}",
    "{fault: stall, target: leader of orders-0, from: everybody, at: 3s, for: 1s}",
    "{fault: stop, target: follower of orders-0, at: 4s, for: 1s}",
    "{fault: power-loss, target: random node, at: 8s, for: 1s}",
    "{fault: failing-disk, target: follower of orders-0, at: 10s, for: 1s}",
)
"""Faults in short forms, which overlap."""


def played(one: Experiment, seed: int = 1) -> Evidence:
    return run_isolated(lambda: play(one, seed))


def test_every_fault_of_the_vocabulary_that_may_be_simulated_is():
    assert set(STRIKES) == {name for name, word in FAULTS.items() if SIM in word.backends}


def test_each_fault_strikes_is_proved_and_ends():
    many = experiment(
        (KILL, "\n  - ".join(METHOD)),
        ("duration: 20s", "duration: 12s"),
        ("steady: 5s", "steady: 1s"),
        ("[sim, real]", "[sim]"),
        ("at-most: 4s", "at-most: 20s"),
    )
    evidence = played(many)
    for fault in evidence.faults:
        assert fault.took_effect, fault
        assert fault.healed, fault
        assert fault.began_s is not None
        assert fault.ended_s is not None
        assert fault.ended_s - fault.began_s == pytest.approx(many.method[fault.step].for_s)
    assert not evidence.anomalies


def test_equal_seeds_give_equal_evidence_and_a_fault_that_finds_nobody_leaves_it_undecided():
    nobody = experiment(
        (KILL, "{fault: kill, target: coordinator of group nobody, at: 0s, for: 1s}"),
        ("duration: 20s", "duration: 4s"),
        ("steady: 5s", "steady: 1s"),
    )
    first, second, other = played(nobody), played(nobody), played(nobody, seed=2)
    assert first.environment["digest"] == second.environment["digest"] != other.environment["digest"]
    assert first.samples == second.samples
    [fault] = first.faults
    assert fault.began_s is None
    assert fault.proof == "nobody coordinates group nobody"
    verdict = judge(nobody, first)
    assert verdict == judge(nobody, second)
    assert verdict.verdict == "undecided"
    assert "effect" in {one.rule for one in verdict.reasons}


def test_what_the_simulator_does_not_take_is_told_before_it_begins():
    mixed = experiment(
        (
            "- {kind: consumer, topic: orders}",
            "- {kind: transactional-producer, topic: orders, transactional-id: x}",
        )
    )
    with pytest.raises(UserError, match="a topic of transactions has no other producers"):
        scenario_of(mixed, 1)
    with pytest.raises(UserError, match="the properties are not a node's"):
        scenario_of(experiment(("broker.session.timeout.ms: 3000", "broker.session.timeout.ms: soon")), 1)


def test_only_clients_that_have_a_transactional_id_get_one_each():
    both = experiment(
        (
            "- {kind: consumer, topic: orders}",
            "- {kind: group, topic: orders, group: g, clients: 2}\n"
            "  - {kind: transactional-producer, topic: others, transactional-id: x, clients: 2}",
        ),
        ("topics:\n", "topics:\n    others: {partitions: 1, replicas: 3}\n"),
    )
    assert [one.transactional_id for one in scenario_of(both, 1).workloads] == ["", "", "", "x", "x-2"]


def test_the_library_says_what_it_teaches_in_few_lines():
    experiments = library()
    assert len(experiments) >= 17
    for name, one in experiments.items():
        assert one.name == name
        assert one.text.count("\n") <= 40, name
        assert one.text.startswith("# "), name
        if SIM in one.backends:
            scenario_of(one, 1)


def test_a_seed_has_a_page_and_plays_as_it_does_unwatched(tmp_path):
    scenario = replace(scenario_of(experiment(), 3), seconds=2.0, faults=(FaultSpec("kill-leader", 0.5, 0),))
    path = tmp_path / "seed.html"
    watched = run_isolated(
        lambda: run_with_page(scenario, path=path, command="kraft chaos simulate --seed 3")
    )
    assert watched.digest == run_isolated(lambda: run(scenario)).digest
    assert not watched.violations
    text = path.read_text()
    assert "<h1>seed-3<" in text
    assert "kill-leader" in text
    assert "kraft chaos simulate --seed 3" in text
    assert '<div class="span node-' in text
    nowhere = run_isolated(
        lambda: run_with_page(replace(scenario, seconds=0.1), path=tmp_path / "x" / "y", command="")
    )
    assert "could not be written" in nowhere.untold
