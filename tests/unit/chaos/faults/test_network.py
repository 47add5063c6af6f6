"""Partitions, broken and silent connections, bad links: which links they change, and how."""

from __future__ import annotations

import math

import pytest

NODES = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
CLIENT = "10.0.0.4"


def blocked(world):
    return {ends for ends, link in world.simulation.network._links.items() if link.blocked}


def impaired(world):
    return {ends: link for ends, link in world.simulation.network._links.items() if link._impairments}


def test_a_partition_is_two_way_and_heals(world):
    seen = set()
    for _ in range(20):
        world.end_faults()
        assert world.strike("partition")
        cut = blocked(world)
        assert cut
        assert cut == {(b, a) for a, b in cut}
        seen.add(frozenset(cut))
        world.end_faults()
        assert not blocked(world)
    assert len(seen) > 5
    assert any(any(CLIENT in ends for ends in cut) for cut in seen)
    assert any(not any(CLIENT in ends for ends in cut) for cut in seen)


def test_a_one_way_partition_leaves_the_way_back(world):
    for _ in range(20):
        world.end_faults()
        assert world.strike("partition-one-way")
        cut = blocked(world)
        assert cut
        assert not cut & {(b, a) for a, b in cut}


@pytest.mark.parametrize("name", ["isolate-leader", "isolate-controller"])
def test_isolation_cuts_a_leader_from_all_other_nodes(world, name):
    ways = set()
    for _ in range(20):
        world.end_faults()
        world.cluster.leader = world.cluster.controller = 2
        assert world.strike(name)
        cut = blocked(world)
        assert all("10.0.0.2" in ends for ends in cut)
        out = {target for source, target in cut if source == "10.0.0.2"}
        inward = {source for source, target in cut if target == "10.0.0.2"}
        assert {"10.0.0.1", "10.0.0.3"} <= out | inward
        assert not out or not inward or out == inward
        ways.add((bool(out), bool(inward), CLIENT in out | inward))
    assert len(ways) >= 4


def test_partitions_overlap_and_end_one_by_one(world):
    network = world.simulation.network
    network.block(*NODES[:2])
    network.block(*NODES[:2])
    network.heal(*NODES[:2])
    assert blocked(world) == {tuple(NODES[:2])}
    network.heal(*NODES[:2])
    network.heal(*NODES[:2])
    assert not blocked(world)


def connections(world):
    return {
        endpoint: far.address
        for far in world.simulation.hosts.values()
        for endpoint in world.cluster.client.kernel.endpoints
        if endpoint.far_address == far.address
    }


def test_a_reset_breaks_connections_and_they_come_back(world):
    before = connections(world)
    assert len(before) == 3
    assert world.strike("reset")
    assert [endpoint.dead for endpoint in before].count(True) == 1
    world.simulation.run_for(1.0)
    assert len(connections(world)) == 3


def test_a_dropped_connection_is_silent_and_dies_later(world):
    before = connections(world)
    assert world.strike("drop")
    [silent] = [endpoint for endpoint in before if endpoint.silent]
    peer = silent.peer
    assert not silent.dead
    assert not peer.dead
    world.simulation.run_for(0.2)
    assert not silent.dead
    assert world.cluster.answered > 0
    world.simulation.run_for(8.0)
    assert silent.dead
    assert peer.dead
    assert len(connections(world)) == 3


def test_without_connections_there_is_nothing_to_break(world):
    for host in world.simulation.hosts.values():
        if host.alive:
            host.kill()
    assert not world.strike("reset")
    assert not world.strike("drop")


@pytest.mark.parametrize(
    ("name", "is_so"),
    [
        ("high-latency", lambda link: link.min_s + link.span_s > 0.004),
        ("slow-link", lambda link: 5_000 <= link.bytes_per_s < 1_100_000),
        ("partial-writes", lambda link: link.cut_odds >= 0.1 and link.cut_gap_s > 0),
    ],
)
def test_bad_links_are_bad_for_a_while(world, name, is_so):
    counts = set()
    for _ in range(30):
        world.end_faults()
        assert world.strike(name)
        bad = impaired(world)
        assert all(is_so(link) for link in bad.values())
        assert all(set(ends) & set(NODES) for ends in bad)
        counts.add(len(bad))
        world.end_faults()
        for ends in bad:
            link = world.simulation.network.link(*ends)
            assert (link.min_s, link.bytes_per_s, link.cut_odds) == (link.latency.min_s, math.inf, 0.0)
    assert counts == {1, 2, 3}


def test_a_clogged_link_lets_nothing_through_and_then_everything(world):
    for _ in range(10):
        world.end_faults()
        assert world.strike("clogged-link")
        assert blocked(world)
        world.simulation.run_for(6.0)
        assert not blocked(world)
        assert not any(link.held for link in world.simulation.network._links.values())
