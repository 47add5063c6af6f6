"""Kills, pauses, restarts, power losses, new disks: what they do to a toy node, and to whom."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import pytest

from kraft.chaos.faults import FaultContext
from kraft.chaos.faults.context import Pace
from kraft.chaos.faults.damage import SPACING_S, DamageGuard
from kraft.chaos.scenario import TopicSpec
from kraft.chaos.world.simulation import Simulation
from tests.unit.chaos.faults.toy_world import JOURNAL_LOG, LOG


def dead(world):
    return [node_id for node_id, host in world.cluster.hosts.items() if not host.alive]


def test_a_kill_keeps_the_page_cache_and_the_node_comes_back(world):
    storages = {n: host.storage for n, host in world.cluster.hosts.items()}
    for storage in storages.values():
        storage.sync_failure = lambda path: 5  # from now on nothing gets durable
    world.cluster.halting = False
    world.simulation.run_for(0.5)
    before = {n: storage.files()[LOG] for n, storage in storages.items()}
    assert world.strike("kill")
    [victim] = dead(world)
    assert world.cluster.hosts[victim].kernel.up
    for storage in storages.values():
        storage.sync_failure = None
    world.simulation.run_for(10.0)
    assert dead(world) == []
    assert world.lives() == {n: 1 + (n == victim) for n in before}
    assert storages[victim].files()[LOG].startswith(before[victim])


@pytest.mark.parametrize("name", ["kill-leader", "kill-controller", "pause-leader", "pause-controller"])
def test_leaders_and_controllers_are_hit(world, name):
    world.cluster.leader, world.cluster.controller = (2, 3) if "leader" in name else (3, 2)
    assert world.strike(name)
    assert [n for n, host in world.cluster.hosts.items() if host.paused or not host.alive] == [2]
    assert not world.strike(name), "it is down, or paused already"


def test_coordinators_of_transactions_are_hit_where_there_are_any(world, monkeypatch):
    leaders = {"t": 1, "__coordinators": 3}
    state = SimpleNamespace(partitions=[None, None])
    image = SimpleNamespace(topic=lambda name: state if name == "__coordinators" else None)
    monkeypatch.setattr(world.cluster, "leader_of", lambda topic, partition: leaders[topic])
    monkeypatch.setattr(world.cluster, "image", lambda: image)
    topics = [TopicSpec("t", 1, 3)]
    for coordinated_by, expected in (("", {1}), ("__coordinators", {1, 3}), ("not made yet", {1})):
        context = FaultContext(
            world.cluster, world.verdicts, topics, lambda *_: None, coordinated_by=coordinated_by
        )
        rng = random.Random(1)
        assert {context.leader(rng) for _ in range(30)} == expected


def test_kill_all_kills_all(world):
    assert world.strike("kill-all")
    assert dead(world) == [1, 2, 3]
    assert not world.strike("kill-all")
    assert world.damage == []


def test_a_kill_in_mid_operation_leaves_a_part_of_a_write(world):
    sizes = set()
    for _ in range(30):
        world.end_faults()
        world.strike_until_it_happens("kill-mid-operation")
        [victim] = dead(world)
        assert world.cluster.hosts[victim].storage.before_operation is None
        sizes.add(len(world.cluster.hosts[victim].storage.files()[LOG]) % 1000)
    assert 0 in sizes
    assert len(sizes) > 5


def test_a_node_is_killed_and_its_next_process_in_mid_operation(world):
    before = world.lives()
    world.strike_until_it_happens("kill-at-start")
    assert world.count("kill-at-start") == 1
    world.simulation.run_for(20)
    assert world.count("kill-at-start") == 2
    assert sorted(lives - before[node_id] for node_id, lives in world.lives().items()) == [0, 0, 2]


def test_faults_keep_the_pace_of_their_run(world):
    cluster, whole = world.cluster, world.context
    slow = FaultContext(cluster, world.verdicts, (), lambda *_: None, pace=Pace(down=0.5, lasts=0.25))
    for seed in range(20):
        drawn = [context.draw_down_s(random.Random(seed)) for context in (whole, slow)]
        assert drawn[1] == pytest.approx(drawn[0] * 0.5)
        drawn = [
            context.draw_duration_s(random.Random(seed), 1.0, 2.0, long_max_s=9.0)
            for context in (whole, slow)
        ]
        assert drawn[1] == pytest.approx(drawn[0] * 0.25)


def test_what_waits_for_an_operation_is_not_counted_when_it_never_comes(world):
    for host in world.cluster.hosts.values():
        host.pause()
    assert not world.strike("kill-mid-operation")
    world.simulation.run_for(10.0)
    assert world.count("kill-mid-operation") == 0
    assert all(host.storage.before_operation is None for host in world.cluster.hosts.values())


def test_a_pause_stops_a_node_and_nothing_else(world):
    assert world.strike("pause")
    [paused] = [host for host in world.cluster.hosts.values() if host.paused]
    before = len(paused.storage.files()[LOG])
    world.simulation.run_for(0.1)
    assert len(paused.storage.files()[LOG]) == before
    world.simulation.run_for(9.0)
    assert not paused.paused
    assert set(world.lives().values()) == {1}


def test_a_restart_is_a_controlled_shutdown(world):
    assert world.strike("restart")
    [stopping] = [n for n in world.cluster.hosts if world.cluster.is_stopping(n)]
    assert world.cluster.hosts[stopping].alive
    world.simulation.run_for(10.0)
    assert dead(world) == []
    assert world.lives()[stopping] == 2
    assert not world.cluster.is_stopping(stopping)


def test_a_restart_that_ends_before_the_node_does_waits_for_it(world):
    assert world.strike("restart")
    [stopping] = [n for n in world.cluster.hosts if world.cluster.is_stopping(n)]
    world.context.end_all()
    assert world.lives()[stopping] == 1
    world.simulation.run_for(1.0)
    assert world.lives()[stopping] == 2


def test_a_power_loss_takes_the_machine_and_is_reported(world):
    assert world.strike("power-loss")
    [victim] = dead(world)
    assert not world.cluster.hosts[victim].kernel.up
    assert world.damage == [(world.simulation.now, victim, "power loss")]


def test_a_power_loss_in_mid_operation_is_reported_when_it_happens(world):
    world.strike_until_it_happens("power-loss-mid-operation")
    [victim] = dead(world)
    assert not world.cluster.hosts[victim].kernel.up
    assert [(node_id, kind) for _, node_id, kind in world.damage] == [(victim, "power loss")]


def test_a_power_loss_of_everybody(world):
    world.context.kill(2)
    assert world.strike("power-loss-all")
    assert [node_id for _, node_id, _ in world.damage] == [1, 2, 3]
    assert not any(host.kernel.up for host in world.cluster.hosts.values())


def test_a_wiped_disk_is_empty(world):
    assert world.strike("wipe")
    [victim] = dead(world)
    assert world.cluster.hosts[victim].storage.files() == {}
    assert world.damage == [(world.simulation.now, victim, "wipe")]


def test_a_wipe_of_data_spares_what_a_voter_has(world):
    assert world.strike("wipe-data")
    [victim] = dead(world)
    storage = world.cluster.hosts[victim].storage
    assert storage.files() == {JOURNAL_LOG: b"y"}
    storage.lose_power()
    assert storage.files() == {JOURNAL_LOG: b"y"}, "and durably so"
    assert world.damage == [(world.simulation.now, victim, "data wipe")]


def test_who_has_no_partitions_loses_none(world):
    world.cluster.dedicated = set(world.cluster.hosts)
    assert not any(world.strike("wipe-data") for _ in range(20))


def test_only_a_whole_cluster_gets_an_empty_disk(world):
    world.context.guard.reckless = True
    world.context.kill(2)
    assert not any(world.strike("wipe") for _ in range(20))
    world.context.revive(2)
    assert world.strike("wipe")


DAMAGING = [
    "power-loss",
    "power-loss-mid-operation",
    "wipe",
    "wipe-data",
    "bit-rot",
    "bit-rot-voter",
    "fsync-error",
]
OF_VOTERS = {"wipe", "bit-rot-voter"}


@pytest.mark.parametrize("name", sorted({*DAMAGING} - {"bit-rot"}))
def test_data_is_destroyed_only_so_often_and_never_the_last_copy(world, name):
    for _ in range(60):
        world.strike(name)
        world.simulation.run_for(0.25)
    times = [at_s for at_s, _, _ in world.damage]
    assert len(times) >= 2
    assert all(later - earlier >= SPACING_S[0] for earlier, later in itertools.pairwise(times))
    world.damage.clear()
    world.context.end_all()


@pytest.mark.parametrize("name", DAMAGING)
def test_the_last_copy_is_spared(build, name):
    world = build(nodes=1)
    for _ in range(30):
        assert not world.strike(name)
        world.simulation.run_for(0.3)
    assert world.damage == []
    world.context.guard.reckless = True
    if name in OF_VOTERS:
        assert not any(world.strike(name) for _ in range(20)), "metadata knows no excuse"
        return
    world.strike_until_it_happens(name)
    world.simulation.run_for(13.0)
    assert world.damage


def test_a_last_copy_between_arming_and_the_operation_is_spared_too(world):
    world.cluster.hosts[1].pause()
    world.context.node = lambda rng: 1
    world.strike("power-loss-mid-operation")
    assert world.cluster.hosts[1].storage.before_operation is not None
    world.cluster.isr = [1]
    world.cluster.hosts[1].resume()
    world.simulation.run_for(2.9)
    assert world.count("power-loss-mid-operation") == 0
    assert world.damage == []


@pytest.mark.parametrize("state", ["dead", "paused", "not in the ISR", "no controller", "no metadata"])
def test_a_node_is_spared_unless_enough_others_hold_what_it_holds(world, monkeypatch, state):
    guard = world.context.guard
    assert guard.allows(1)
    if state == "dead":
        world.context.kill(2)
    elif state == "paused":
        world.cluster.hosts[2].pause()
    elif state == "not in the ISR":
        world.cluster.isr = [1, 3]
        assert guard.allows(2)
    elif state == "no controller":
        world.cluster.controller = 0
    else:
        monkeypatch.setattr(world.cluster, "image", lambda: None)
    assert not guard.allows(1)
    world.cluster.dedicated = {1}
    assert guard.allows(1), "the quorum syncs before it answers"


def test_of_two_replicas_the_other_one_has_to_be_there(build):
    world = build(nodes=2)
    assert world.context.guard.allows(1)
    world.cluster.isr = [1]
    assert not world.context.guard.allows(1)


def test_after_a_damage_most_other_disturbances_are_held_back(world):
    assert world.strike("power-loss")
    assert sum(world.strike("partition") for _ in range(100)) in range(5, 40)
    assert world.strike("slow-link")
    world.context.guard.reckless = True
    assert all(world.strike("partition") for _ in range(20))
    world.context.guard.reckless = False
    world.end_faults()
    assert all(world.strike("partition") for _ in range(20)), "the cluster is whole again"


def test_nobody_is_damaged_while_another_nodes_data_is_in_doubt(world):
    recover = world.context.guard.ails(2)
    assert not world.context.guard.allows(1)
    assert world.context.guard.allows(2)
    recover()
    assert world.context.guard.allows(1)


def test_a_few_seeds_spare_nobody():
    reckless = 0
    for seed in range(100):
        guard = DamageGuard(None, Simulation(seed).stream("fault/damage guard"))
        reckless += guard.reckless
    assert 2 <= reckless <= 22


def test_a_node_stays_down_until_the_last_fault_lets_go_of_it(world):
    world.context.kill(1)
    world.context.keep_down(1, 1.0)
    world.context.keep_down(1, 3.0)
    world.simulation.run_for(2.0)
    assert dead(world) == [1]
    world.simulation.run_for(1.5)
    assert dead(world) == []
