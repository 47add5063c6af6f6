"""Slow, full, failing and rotting disks under a toy node, and what the node is excused for."""

from __future__ import annotations

from kraft.chaos.world.disk_timing import DiskTiming
from tests.unit.chaos.faults.toy_world import LOG


def test_a_slow_disk_is_slow_for_a_while(world):
    kinds = set()
    for _ in range(10):
        assert world.strike("slow-disk")
        [timing] = [
            h.storage.timing for h in world.cluster.hosts.values() if h.storage.timing != DiskTiming()
        ]
        kinds.add(timing.hiccup_odds > 0)
        world.simulation.run_for(9.0)
        assert all(host.storage.timing == DiskTiming() for host in world.cluster.hosts.values())
    assert kinds == {False, True}


def test_slow_disks_overlap(world):
    storage = world.cluster.hosts[1].storage
    first, second = DiskTiming((1.0, 2.0)), DiskTiming((3.0, 4.0))
    storage.slow_down(first)
    storage.slow_down(second)
    storage.speed_up(first)
    assert storage.timing == second
    storage.speed_up(second)
    assert storage.timing == DiskTiming()


def test_a_full_disk_refuses_and_a_node_that_halted_is_started_anew(world):
    world.strike_until_it_happens("disk-full")
    [victim] = [n for n, host in world.cluster.hosts.items() if host.halts]
    host = world.cluster.hosts[victim]
    assert list(host.halts.values()) == ["disk: 28"]
    assert world.cluster.ailing == [f"{host.address}#1"], "it may complain, and must live on"
    assert world.cluster.excused == []
    assert world.damage == []
    world.simulation.run_for(10.0)
    assert host.alive
    size = len(host.storage.files()[LOG])
    world.simulation.run_for(1.0)
    assert len(host.storage.files()[LOG]) > size + 5_000


def test_a_node_that_lives_through_a_full_disk_is_left_alone(world):
    world.cluster.halting = False
    world.strike_until_it_happens("disk-full")
    world.simulation.run_for(10.0)
    assert set(world.lives().values()) == {1}
    assert world.cluster.excused == []
    assert all(host.storage.free_bytes is None for host in world.cluster.hosts.values())


def test_a_node_that_only_begins_may_give_up_for_a_full_disk(world):
    world.cluster.started = False
    world.strike_until_it_happens("disk-full")
    assert len(world.cluster.excused) == 1


def test_a_disk_that_did_not_get_full_is_not_counted(world):
    world.cluster.hosts[1].pause()
    world.context.kill(2)
    world.context.kill(3)
    assert not world.strike("disk-full")
    world.context.end_all()
    assert world.count("disk-full") == 0
    assert world.cluster.excused == []


def test_after_a_failed_fsync_only_synced_data_is_left(world):
    world.strike_until_it_happens("fsync-error")
    [victim] = [n for n, host in world.cluster.hosts.items() if host.halts]
    host = world.cluster.hosts[victim]
    assert list(host.halts.values()) == ["disk: 5"]
    assert world.cluster.excused == [f"{host.address}#1"]
    assert world.damage == []
    world.simulation.run_for(13.0)
    assert [(node_id, kind) for _, node_id, kind in world.damage] == [(victim, "disk error")]
    assert host.alive
    assert world.verdicts.violations == []


def test_a_node_that_goes_on_after_a_failed_fsync_is_reported(world):
    world.cluster.halting = False
    for _ in range(8):
        world.strike_until_it_happens("fsync-error")
        world.simulation.run_for(15.0)
    assert len(world.verdicts.violations) > 2
    for violation in world.verdicts.violations:
        assert violation.oracle == "not-halted"
        assert "goes on" in violation.text


def test_nobody_starts_on_a_disk_whose_fsyncs_lie_after_one_that_failed(world):
    """A process that starts there would take its flushes for durable, and be blamed for what is gone."""
    world.cluster.directories = ("/elsewhere", "/var/lib/kraft")
    world.cluster.halting = False
    tries = {"lies": 0, "says so": 0}
    while not all(tries.values()):
        before, seen = world.lives(), len(world.damage)
        world.strike_until_it_happens("fsync-error")
        [(victim, storage)] = [
            (node_id, host.storage)
            for node_id, host in world.cluster.hosts.items()
            if host.storage.sync_failure is not None
        ]
        lies = storage.sync_failure("/var/lib/kraft/t-0") == 0
        tries["lies" if lies else "says so"] += 1
        world.context.kill(victim)
        world.context.keep_down(victim, 0.1)
        while len(world.damage) == seen:
            assert world.lives()[victim] == before[victim] or not lies
            world.simulation.run_for(0.05)
        world.simulation.run_for(1.0)
        assert world.cluster.hosts[victim].alive
        assert world.lives()[victim] == before[victim] + (1 if lies else 2)
        world.simulation.run_for(15.0)


def test_a_node_with_another_directory_must_stop_writing_to_the_one_that_failed(world):
    world.cluster.directories = ("/elsewhere", "/var/lib/kraft")
    world.cluster.halting = False
    for _ in range(20):
        world.strike_until_it_happens("fsync-error")
        world.simulation.run_for(15.0)
        if world.verdicts.violations:
            break
    assert "appends to" in world.verdicts.violations[0].text
    assert world.verdicts.violations[0].oracle == "not-halted"
    assert world.cluster.excused == [], "it has another directory, and the quorum's files are there"
    assert world.cluster.ailing
