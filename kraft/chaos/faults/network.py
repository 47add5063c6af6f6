"""What happens between machines: partitions, broken and silent connections, bad links.

Nodes and clients alike have links; a fault of a link has at least one node at its ends. Partitions and
impairments may overlap: a link is whole again when the last of them has ended.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kraft.chaos.faults.context import FaultContext
from kraft.chaos.faults.kind import fault
from kraft.chaos.world.network import Impairment, Latency

Links = list[tuple[str, str]]

GIVE_UP_S = (0.3, 6.0)
"""When an end of a silent connection finds out."""


def _cut_s(context: FaultContext, rng: random.Random) -> float:
    return context.draw_duration_s(rng, 0.2, 4.0, long_max_s=9.0)


# -- partitions


def _node_addresses(context: FaultContext) -> list[str]:
    return [host.address for host in context.cluster.hosts.values()]


def _all_addresses(context: FaultContext) -> list[str]:
    return [host.address for host in context.simulation.hosts.values()]


def _sides(context: FaultContext, rng: random.Random) -> tuple[list[str], list[str]]:
    """Two groups of machines: a node and everybody, all nodes or one node; or two halves of the world."""
    way = rng.choice(("everybody", "nodes", "nodes", "one node", "halves"))
    nodes, everybody = _node_addresses(context), _all_addresses(context)
    if way == "halves":
        left = rng.sample(everybody, rng.randint(1, len(everybody) - 1)) if len(everybody) > 1 else []
        return sorted(left), [address for address in everybody if address not in left]
    node_id = context.node(rng)
    mine = rng.choice(nodes) if node_id is None else context.host(node_id).address
    others = [address for address in nodes if address != mine]
    if way == "everybody" or not others:
        others = [address for address in everybody if address != mine]
    elif way == "one node":
        others = [rng.choice(others)]
    return [mine], others


def disturb(
    context: FaultContext,
    name: str,
    links: Links,
    what: str,
    duration_s: float,
    begin: Callable[[str, str], None],
    end: Callable[[str, str], None],
) -> None:
    """Begins something on every link, and ends it after a while; nothing happens where there are no links."""
    if not links:
        return
    struck = context.happened(name, f"{what} for {duration_s:.3f} s")
    for source, target in links:
        begin(source, target)

    def end_all() -> None:
        for source, target in links:
            end(source, target)

    context.until(duration_s, end_all, struck)


def _block(context: FaultContext, name: str, links: Links, what: str, duration_s: float) -> None:
    network = context.simulation.network
    disturb(context, name, links, what, duration_s, network.block, network.heal)


def between(left: list[str], right: list[str]) -> Links:
    """Every link from an address on the left to one on the right."""
    return [(a, b) for a in left for b in right]


@fault("partition", "machines cannot reach each other, in both directions", disturbs=True)
def partition(context: FaultContext, rng: random.Random) -> None:
    """A node or half of the world against the rest, or a part of it."""
    left, right = _sides(context, rng)
    links = between(left, right) + between(right, left)
    _block(context, "partition", links, f"{left} | {right}", _cut_s(context, rng))


@fault("partition-one-way", "machines cannot be reached from others, though they reach those", disturbs=True)
def partition_one_way(context: FaultContext, rng: random.Random) -> None:
    """As a partition, but the way back is open."""
    left, right = _sides(context, rng)
    if rng.random() < 0.5:
        left, right = right, left
    _block(context, "partition-one-way", between(left, right), f"{left} -> {right}", _cut_s(context, rng))


def _isolate(context: FaultContext, rng: random.Random, name: str, node_id: int | None) -> None:
    """Cuts a node off from all others, which its clients need not notice."""
    way, with_clients, cut_s = (
        rng.choice(("both", "both", "in", "out")),
        rng.random() < 0.3,
        _cut_s(context, rng),
    )
    if node_id is None:
        return
    mine = [context.host(node_id).address]
    candidates = _all_addresses(context) if with_clients else _node_addresses(context)
    others = [address for address in candidates if address not in mine]
    links = [] if way == "in" else between(mine, others)
    links += [] if way == "out" else between(others, mine)
    _block(context, name, links, f"node {node_id} and {others}, {way}", cut_s)


@fault("isolate-leader", "a partition's leader is cut off from the other nodes", disturbs=True)
def isolate_leader(context: FaultContext, rng: random.Random) -> None:
    """Nothing happens while the drawn partition has no running leader."""
    _isolate(context, rng, "isolate-leader", context.leader(rng))


@fault("isolate-controller", "the active controller is cut off from the other nodes", disturbs=True)
def isolate_controller(context: FaultContext, rng: random.Random) -> None:
    """Nothing happens while there is none."""
    _isolate(context, rng, "isolate-controller", context.cluster.active_controller())


# -- connections


def _pair(context: FaultContext, rng: random.Random) -> tuple[str, str] | None:
    """A node and another machine; nodes more often than clients."""
    mine = rng.choice(_node_addresses(context))
    candidates = _node_addresses(context) if rng.random() < 0.6 else _all_addresses(context)
    others = [address for address in candidates if address != mine]
    others = others or [address for address in _all_addresses(context) if address != mine]
    return (mine, rng.choice(others)) if others else None


def _connected_pair(context: FaultContext, rng: random.Random) -> tuple[str, str] | None:
    """A node and a machine with which it has connections."""
    pairs = [
        (host.address, far_address)
        for host in context.cluster.hosts.values()
        for far_address in host.kernel.peers()
        if far_address != host.address
    ]
    return rng.choice(pairs) if pairs else None


@fault("reset", "all connections between two machines break, and both ends are told")
def reset(context: FaultContext, rng: random.Random) -> None:
    """Nothing happens if there are none."""
    pair = _connected_pair(context, rng)
    if pair is not None:
        broken = context.simulation.network.reset(*pair)
        context.happened("reset", f"{pair[0]} and {pair[1]}: {broken}")


@fault("drop", "all connections between two machines go silent, and each end gives up in its own time")
def drop(context: FaultContext, rng: random.Random) -> None:
    """Nothing happens if there are none."""
    pair = _connected_pair(context, rng)
    if pair is not None:
        network = context.simulation.network
        most_s = GIVE_UP_S[1] * context.pace.lasts
        silent = network.silence(*pair, (GIVE_UP_S[0] * context.pace.lasts, most_s))
        if silent:
            struck = context.happened("drop", f"{pair[0]} and {pair[1]}: {silent}")
            context.until(most_s + 0.1, lambda: network.end_silence(*pair), struck)


# -- links


def _some_links(context: FaultContext, rng: random.Random) -> Links:
    """One direction between two machines, or both, or everything that leaves or reaches a node."""
    pair = _pair(context, rng)
    if pair is None:
        return []
    way = rng.choice(("one", "one", "both", "out", "in"))
    mine, other = pair
    others = [address for address in _all_addresses(context) if address != mine]
    if way == "both":
        return [(mine, other), (other, mine)]
    if way == "out":
        return between([mine], others)
    if way == "in":
        return between(others, [mine])
    return [(mine, other)] if rng.random() < 0.5 else [(other, mine)]


def _impair(context: FaultContext, rng: random.Random, name: str, impairment: Impairment, what: str) -> None:
    links, duration_s = _some_links(context, rng), context.draw_duration_s(rng, 0.5, 4.0, long_max_s=9.0)
    network = context.simulation.network
    disturb(
        context,
        name,
        links,
        f"{what} on {_shown(links)}",
        duration_s,
        lambda source, target: network.impair(source, target, impairment),
        lambda source, target: network.relieve(source, target, impairment),
    )


def _shown(links: Links) -> str:
    return ", ".join(f"{source} -> {target}" for source, target in links)


@fault("high-latency", "segments take long, and some much longer than others")
def high_latency(context: FaultContext, rng: random.Random) -> None:
    """Connections overtake each other more than ever."""
    most_s = rng.choice((0.01, 0.05, 0.2, 0.5)) * rng.uniform(0.5, 1.5)
    impairment = Impairment(latency=Latency(most_s * rng.uniform(0, 0.5), most_s))
    _impair(context, rng, "high-latency", impairment, f"up to {most_s:.3f} s")


@fault("slow-link", "only so many bytes a second get through")
def slow_link(context: FaultContext, rng: random.Random) -> None:
    """From what a modem does to what a large batch notices."""
    bytes_per_s = round(5_000 * 10 ** rng.uniform(0, 2.3))
    _impair(context, rng, "slow-link", Impairment(bytes_per_s=bytes_per_s), f"{bytes_per_s} bytes/s")


@fault("clogged-link", "nothing gets through for a while, and then everything at once")
def clogged_link(context: FaultContext, rng: random.Random) -> None:
    """Shorter than a partition, as a rule, and nobody backs off."""
    links, duration_s = _some_links(context, rng), context.draw_duration_s(rng, 0.05, 1.5, long_max_s=5.0)
    network = context.simulation.network
    disturb(context, "clogged-link", links, _shown(links), duration_s, network.clog, network.unclog)


@fault("partial-writes", "what was written at once arrives in pieces, cut anywhere")
def partial_writes(context: FaultContext, rng: random.Random) -> None:
    """With a little time between the pieces."""
    impairment = Impairment(cut_odds=rng.choice((0.1, 0.5, 1.0)), cut_gap_s=rng.choice((0.001, 0.02, 0.2)))
    what = f"odds {impairment.cut_odds:g}, gaps {impairment.cut_gap_s:g} s"
    _impair(context, rng, "partial-writes", impairment, what)
