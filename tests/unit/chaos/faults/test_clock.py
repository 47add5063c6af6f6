"""Wall clocks that jump and drift."""

from __future__ import annotations

from kraft.chaos.faults.clock import OFFSET_MAX_MS


def offsets_ms(world):
    true_ms = world.cluster.client.clock.now_ms()
    return [host.clock.now_ms() - true_ms for host in world.cluster.hosts.values()]


def test_a_jump_stays_until_the_faults_are_over(world):
    assert offsets_ms(world) == [0, 0, 0]
    assert world.strike("clock-jump")
    after = offsets_ms(world)
    assert sorted(map(bool, after)) == [False, False, True]
    world.simulation.run_for(1.0)
    assert offsets_ms(world) == after
    world.context.end_all()
    assert offsets_ms(world) == [0, 0, 0]


def test_what_a_clock_gained_is_gone_when_the_faults_are_over(world):
    assert world.strike("clock-skew")
    world.simulation.run_for(1.0)
    world.context.end_all()
    world.simulation.run_for(1.0)
    assert offsets_ms(world) == [0, 0, 0]


def test_jumps_stay_within_bounds(world):
    jumps = {world.strike("clock-jump") for _ in range(400)}
    assert jumps == {False, True}
    assert all(abs(offset_ms) <= OFFSET_MAX_MS for offset_ms in offsets_ms(world))


def test_a_clock_drifts_for_a_while_and_keeps_what_it_gained(world):
    gained = []
    for _ in range(10):
        assert world.strike("clock-skew")
        [host] = [host for host in world.cluster.hosts.values() if host.clock.drift]
        before, drift = host.clock.now_ms(), host.clock.drift
        world.simulation.run_for(1.0)
        assert abs(host.clock.now_ms() - before - 1000 * (1 + drift)) < 3
        world.simulation.run_for(20.0)
        after = offsets_ms(world)
        world.simulation.run_for(5.0)
        assert offsets_ms(world) == after
        gained += after
    assert min(gained) < 0 < max(gained)


def test_a_drifting_clock_never_goes_back(world):
    clock = world.cluster.hosts[1].clock
    clock.set_drift(-0.3)
    before = clock.now_ms()
    for step in range(2_000):
        world.simulation.run_for(0.000_37)
        if step == 1_000:
            clock.set_drift(0.1)
        now = clock.now_ms()
        assert now >= before
        before = now
