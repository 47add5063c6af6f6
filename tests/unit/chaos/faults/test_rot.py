"""Bits that rot: where, in whose files, and who puts them right."""

from __future__ import annotations

from tests.unit.chaos.faults.toy_world import JOURNAL_LOG, LOG, METADATA_POSITION


def rotten(world):
    return [n for n, host in world.cluster.hosts.items() if host.storage.is_rotten("/")]


def test_a_replica_rots_and_nobody_restores_it(world):
    world.strike_until_it_happens("bit-rot")
    [victim] = rotten(world)
    host = world.cluster.hosts[victim]
    assert host.storage.is_rotten(LOG)
    assert [(node_id, kind) for _, node_id, kind in world.damage] == [(victim, "bit rot")]
    world.simulation.run_for(10.0)
    assert rotten(world) == [victim]
    assert host.alive
    assert world.lives()[victim] == 2, "all was in its page cache: the bit flipped while it was down"
    assert world.cluster.excused == []
    assert world.cluster.ailing == [f"{host.address}#2"]


def test_a_partition_rots_in_one_replica_at_a_time(world):
    world.strike_until_it_happens("bit-rot")
    [victim] = rotten(world)
    for _ in range(30):
        world.strike("bit-rot")
        world.simulation.run_for(2.0)
    assert rotten(world) == [victim]
    assert world.count("bit-rot") == 1


def test_the_last_members_of_an_isr_do_not_rot(world):
    world.cluster.isr = [1, 2]
    for _ in range(30):
        world.strike("bit-rot")
        world.simulation.run_for(2.0)
    assert set(rotten(world)) <= {3}


def test_what_a_running_node_has_not_read_rots_while_it_runs(world):
    for host in world.cluster.hosts.values():
        host.kill()
    for node_id in world.cluster.hosts:
        world.cluster.start_node(node_id)
    world.simulation.run_for(0.5)
    lives = world.lives()
    for _ in range(40):
        world.strike("bit-rot")
        if rotten(world):
            break
        world.simulation.run_for(9.0)
        lives = world.lives()
    [victim] = rotten(world)
    assert world.lives() == lives
    assert world.cluster.hosts[victim].alive


def test_a_voter_rots_and_is_restored(world):
    world.strike_until_it_happens("bit-rot-voter")
    [victim] = rotten(world)
    host = world.cluster.hosts[victim]
    assert host.storage.is_rotten(JOURNAL_LOG)
    assert [(node_id, kind) for _, node_id, kind in world.damage] == [(victim, "voter rot")]
    assert world.cluster.excused == [f"{host.address}#1"]
    host.kill()
    world.context.revive(victim)
    assert world.cluster.excused[1:] == [f"{host.address}#2"]
    world.simulation.run_for(10.0)
    assert rotten(world) == []
    assert host.alive
    assert world.lives()[victim] == 3
    assert len(world.cluster.excused) == 2


def test_a_voter_meets_a_rotten_bit_when_it_starts(world):
    world.strike_until_it_happens("bit-rot-voter-at-start")
    [victim] = rotten(world)
    host = world.cluster.hosts[victim]
    assert [kind for _, _, kind in world.damage] == ["power loss", "voter rot"]
    assert not host.alive
    world.simulation.run_for(0.3)
    assert host.alive
    assert host.storage.is_rotten(JOURNAL_LOG), "it reads what has rotted"
    assert world.cluster.excused == [f"{host.address}#2"]
    world.simulation.run_for(10.0)
    assert rotten(world) == []
    assert host.alive


def test_a_voter_rots_and_is_wiped_only_while_the_others_are_a_majority(world):
    world.cluster.dedicated = set(world.cluster.hosts)  # no replica spares anybody
    world.cluster.controller_ids = (1,)
    for name in ("bit-rot-voter", "bit-rot-voter-at-start", "wipe"):
        for _ in range(20):
            world.strike(name)
            world.simulation.run_for(2.0)
    victims = {node_id for _, node_id, _ in world.damage}
    assert victims == {2, 3}, "the lone voter is spared"


def test_what_a_broker_remembers_of_the_metadata_rots_and_is_restored(world):
    world.strike_until_it_happens("bit-rot-broker")
    [victim] = rotten(world)
    host = world.cluster.hosts[victim]
    assert host.storage.is_rotten(METADATA_POSITION)
    assert world.damage == [], "no record is gone"
    assert world.cluster.excused == [f"{host.address}#1"]
    world.simulation.run_for(10.0)
    assert rotten(world) == []
    assert host.alive
    assert world.lives()[victim] == 2
