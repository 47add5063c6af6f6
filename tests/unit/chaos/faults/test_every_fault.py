"""What all faults have in common: they happen, they end by themselves, and they take any state."""

from __future__ import annotations

import pytest

from kraft.chaos.faults import DEFAULT_FAULTS, FAULTS, strike
from kraft.chaos.scenario import FaultSpec

LONGEST_S = 25.0
"""Longer than any fault with the start after it."""
OF_A_MOMENT = {"bit-rot", "clock-jump", "reset"}
"""What they leave stays, or is for others to mend."""


def test_names_and_lines_for_people():
    for name, kind in FAULTS.items():
        assert kind.name == name == name.lower().replace("_", "-")
        assert kind.doc
        assert "\n" not in kind.doc
    assert set(DEFAULT_FAULTS) == set(FAULTS) - {"bit-rot-voter-at-start", "kill-at-start", "power-loss-all"}


def test_it_happens_and_ends_by_itself(world, name):
    told = {False: [], True: []}
    world.context.heard.append(lambda struck, is_over: told[is_over].append((struck.number, struck.name)))
    world.strike_until_it_happens(name)
    world.simulation.run_for(LONGEST_S)
    assert world.armed() == []
    assert told[False] == [(number, name) for number in range(1, world.count(name) + 1)]
    assert sorted(told[True]) == ([] if name in OF_A_MOMENT else told[False])
    answered = world.cluster.answered
    world.simulation.run_for(1.0)
    assert world.cluster.answered > answered + 15
    assert world.verdicts.violations == []


def test_end_all_ends_it_at_once(world, name):
    world.strike_until_it_happens(name)
    world.strike(name)
    world.context.end_all()
    world.simulation.run_for(1.0)
    assert world.armed() == []


def test_nothing_strikes_after_the_end(world):
    world.context.end_all()
    trace = world.simulation.digest()
    assert not any(world.strike(name) for name in FAULTS)
    assert world.simulation.digest() == trace
    assert world.armed() == []
    assert not any(world.verdicts.coverage.values())


def test_they_take_a_dead_cluster(world):
    for name in FAULTS:
        for node_id in world.cluster.hosts:
            world.context.kill(node_id)
        for _ in range(5):
            world.strike(name)
            world.simulation.run_for(0.2)
        world.end_faults()
        world.simulation.run_for(1.0)
        assert world.armed() == [], name


def test_they_take_a_paused_cluster_of_one_node_without_a_leader(build):
    world = build(nodes=1)
    world.cluster.leader, world.cluster.controller = -1, 0
    for name in FAULTS:
        world.cluster.hosts[1].pause()
        for _ in range(5):
            world.strike(name)
            world.simulation.run_for(0.2)
        world.end_faults()
        world.simulation.run_for(1.0)
        assert world.armed() == [], name


def test_a_fault_that_did_not_happen_is_shown_as_zero(world):
    world.cluster.controller = 0
    world.strike("kill-controller")
    assert world.verdicts.coverage == {"fault: kill-controller": 0}


def test_an_unknown_name_is_an_error(world):
    with pytest.raises(KeyError):
        strike(world.context, FaultSpec("earthquake", 0.0, 1))


@pytest.mark.parametrize("seed", range(3))
def test_all_of_them_on_top_of_each_other(build, seed):
    world = build(seed=seed)
    rng = world.simulation.stream("order")
    for _ in range(150):
        world.strike(rng.choice(list(FAULTS)))
        world.simulation.run_for(rng.expovariate(5.0))
    world.context.end_all()
    world.simulation.run_for(1.0)
    assert world.armed() == []
    assert sum(count > 0 for count in world.verdicts.coverage.values()) > 15
    answered = world.cluster.answered
    world.simulation.run_for(1.0)
    assert world.cluster.answered > answered + 15


def test_each_draws_from_its_own_stream(build):
    def story(other: str) -> str:
        world = build()
        texts: list[str] = []
        world.context.heard.append(lambda struck, is_over: None if is_over else texts.append(struck.text))
        strike(world.context, FaultSpec(other, 0.0, 1))
        strike(world.context, FaultSpec("clock-jump", 0.0, 2))
        return texts[-1]

    assert story("slow-link") == story("partition") == story("clock-jump").replace("?", "")
