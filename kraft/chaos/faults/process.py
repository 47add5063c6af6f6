"""What happens to processes and machines: kills, pauses, restarts, power losses, new disks.

A kill leaves the page cache, a power loss only what `kraft.chaos.world.disk` promises. Whatever ends a
process starts it again a while later.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from kraft.chaos.faults.context import FaultContext, Struck
from kraft.chaos.faults.kind import fault
from kraft.chaos.node_folders import JOURNAL, VOTER_FILES
from kraft.chaos.world.operations import TornOperation
from kraft.chaos.world.paths import is_below

OPERATIONS_MAX = 40
ARMED_S = 3.0
"""If the node does not do that many disk operations in this time, nothing happens."""
READS = frozenset({"open", "read", "exists", "list"})
"""Operations that change nothing; a process that ends before one of them just ends."""


def take_down(
    context: FaultContext, name: str, node_id: int, down_s: float, end_node: Callable[[int], None]
) -> None:
    """Ends the node's process now, and starts it in so long."""
    struck = context.happened(name, f"node {node_id}, for {down_s:.3f} s")
    end_node(node_id)
    context.keep_down(node_id, down_s, struck)


# -- kill


def _kill(context: FaultContext, rng: random.Random, name: str, node_id: int | None) -> None:
    if node_id is not None:
        take_down(context, name, node_id, context.draw_down_s(rng), context.kill)


@fault("kill", "kill -9 of a node: its memory is gone, its disk is not", disturbs=True)
def kill(context: FaultContext, rng: random.Random) -> None:
    """Any running node."""
    _kill(context, rng, "kill", context.node(rng))


@fault("kill-leader", "kill -9 of a partition's leader", disturbs=True)
def kill_leader(context: FaultContext, rng: random.Random) -> None:
    """Nothing happens while the drawn partition has no running leader."""
    _kill(context, rng, "kill-leader", context.leader(rng))


@fault("kill-controller", "kill -9 of the active controller", disturbs=True)
def kill_controller(context: FaultContext, rng: random.Random) -> None:
    """Nothing happens while there is none."""
    _kill(context, rng, "kill-controller", context.cluster.active_controller())


@fault("kill-all", "kill -9 of every node at once", disturbs=True)
def kill_all(context: FaultContext, rng: random.Random) -> None:
    """They come back one by one."""
    running = context.cluster.running
    struck = context.happened("kill-all", f"nodes {running}") if running else None
    for node_id in running:
        context.kill(node_id)
        context.keep_down(node_id, context.draw_down_s(rng), struck)


@fault(
    "kill-mid-operation",
    "kill -9 in the middle of a disk operation; of a write, a part is done",
    disturbs=True,
)
def kill_mid_operation(context: FaultContext, rng: random.Random) -> None:
    """One of the next operations of the node."""
    _at_operation(context, rng, "kill-mid-operation", lambda node_id: True, context.kill)


@fault(
    "kill-at-start",
    "kill -9 of a node, and of its next process in the middle of a disk operation of its start",
    by_default=False,
    disturbs=True,
)
def kill_at_start(context: FaultContext, rng: random.Random) -> None:
    """One of its first operations; if it does not do that many, it lives."""
    node_id, down_s = context.node(rng), context.draw_down_s(rng)
    if node_id is not None:
        take_down(context, "kill-at-start", node_id, down_s, context.kill)
        _arm(context, rng, "kill-at-start", node_id, lambda node_id: True, context.kill, down_s)


# -- in the middle of a disk operation


def _at_operation(
    context: FaultContext,
    rng: random.Random,
    name: str,
    allows: Callable[[int], bool],
    end_node: Callable[[int], None],
) -> None:
    """Ends a node in one of its next changes of the disk, if `allows` says so before and at that moment."""
    node_id = context.node(rng)
    if node_id is not None and allows(node_id):
        _arm(context, rng, name, node_id, allows, end_node)


def _arm(
    context: FaultContext,
    rng: random.Random,
    name: str,
    target: int,
    allows: Callable[[int], bool],
    end_node: Callable[[int], None],
    begins_in_s: float = 0.0,
) -> None:
    """Of the process that runs, or of the next one that begins in so long."""
    countdown, fraction, down_s = rng.randint(1, OPERATIONS_MAX), rng.random(), context.draw_down_s(rng)
    host = context.host(target)
    victim = host.process

    def end(struck: Struck) -> None:
        end_node(target)
        context.keep_down(target, down_s, struck)

    def strike(operation: str, path: str) -> None:
        nonlocal countdown, victim
        if victim is None:
            victim = host.process
        if operation in READS or host.process is not victim:
            return
        countdown -= 1
        if countdown == 0:
            disarm()
            if allows(target):
                struck = context.happened(name, f"node {target}, in {operation} {path}, for {down_s:.3f} s")
                raise TornOperation(fraction, partial(end, struck))

    host.storage.add_hook(strike)
    disarm = context.until(begins_in_s + ARMED_S, lambda: host.storage.remove_hook(strike))


# -- pause and restart


def _pause(context: FaultContext, rng: random.Random, name: str, node_id: int | None) -> None:
    if node_id is None or context.host(node_id).paused:
        return
    process, pause_s = context.host(node_id).process, context.draw_duration_s(rng, 0.1, 3.0, long_max_s=8.0)

    def resume() -> None:
        if context.host(node_id).process is process:
            context.host(node_id).resume()

    struck = context.happened(name, f"node {node_id}, for {pause_s:.3f} s")
    context.host(node_id).pause()
    context.until(pause_s, resume, struck)


@fault("pause", "a node does nothing for a while (SIGSTOP), and does not know it", disturbs=True)
def pause(context: FaultContext, rng: random.Random) -> None:
    """Any running node that is not paused."""
    _pause(context, rng, "pause", context.node(rng))


@fault("pause-leader", "a partition's leader does nothing for a while, and does not know it", disturbs=True)
def pause_leader(context: FaultContext, rng: random.Random) -> None:
    """Nothing happens while the drawn partition has no running leader."""
    _pause(context, rng, "pause-leader", context.leader(rng))


@fault(
    "pause-controller", "the active controller does nothing for a while, and does not know it", disturbs=True
)
def pause_controller(context: FaultContext, rng: random.Random) -> None:
    """Nothing happens while there is none."""
    _pause(context, rng, "pause-controller", context.cluster.active_controller())


@fault("restart", "a controlled shutdown of a node, and a start", disturbs=True)
def restart(context: FaultContext, rng: random.Random) -> None:
    """A paused node does not hear the signal, and one that stops has heard it."""
    node_id, down_s = context.node(rng), context.draw_down_s(rng)
    if node_id is None or context.host(node_id).paused or context.cluster.is_stopping(node_id):
        return
    struck = context.happened("restart", f"node {node_id}, not started for {down_s:.3f} s")
    context.cluster.stop_node(node_id)
    context.keep_down(node_id, down_s, struck)


# -- power


def lose_power(context: FaultContext, node_id: int) -> None:
    """The machine of a node is off; what it had not synced may be gone."""
    context.host(node_id).power_loss()
    context.damaged(node_id, "power loss")


@fault("power-loss", "a machine loses its power: of what was not synced, anything may be gone")
def power_loss(context: FaultContext, rng: random.Random) -> None:
    """Not while `DamageGuard` spares the node."""
    node_id, down_s = context.node(rng), context.draw_down_s(rng)
    if node_id is not None and context.guard.allows(node_id):
        take_down(context, "power-loss", node_id, down_s, partial(lose_power, context))


@fault("power-loss-mid-operation", "a machine loses its power in the middle of a disk operation")
def power_loss_mid_operation(context: FaultContext, rng: random.Random) -> None:
    """One of the next operations of the node; not while `DamageGuard` spares it."""
    end_node = partial(lose_power, context)
    _at_operation(context, rng, "power-loss-mid-operation", context.guard.allows, end_node)


@fault("power-loss-all", "the whole cluster loses its power at once", by_default=False)
def power_loss_all(context: FaultContext, rng: random.Random) -> None:
    """Nodes that do not run lose what is left in their page cache, too."""
    if not context.guard.allows_any():
        return
    struck = context.happened("power-loss-all", f"running were {context.cluster.running}")
    for node_id in context.cluster.hosts:
        lose_power(context, node_id)
        context.keep_down(node_id, context.draw_down_s(rng), struck)


@fault("wipe", "a machine loses its power and comes back with a new, empty disk")
def wipe(context: FaultContext, rng: random.Random) -> None:
    """Not while `DamageGuard` spares the node, nor in a cluster that is not whole."""
    node_id, down_s = context.node(rng), context.draw_down_s(rng)
    if node_id is not None and context.guard.allows_wipe(node_id, context.topics):
        struck = context.happened("wipe", f"node {node_id}, for {down_s:.3f} s")
        context.host(node_id).wipe()
        context.damaged(node_id, "wipe")
        context.keep_down(node_id, down_s, struck)


@fault(
    "wipe-data",
    "a machine loses its power and comes back without its partitions; what it has as a voter is spared",
)
def wipe_data(context: FaultContext, rng: random.Random) -> None:
    """A broker's; what it keeps says who it is, so that only its epochs tell it from the one it was (KIP-903,
    966). Not while `DamageGuard` spares the node."""
    node_id, down_s = context.node(rng), context.draw_down_s(rng)
    if node_id in context.cluster.broker_ids and context.guard.allows(node_id):
        struck = context.happened("wipe-data", f"node {node_id}, for {down_s:.3f} s")
        context.host(node_id).wipe(_is_spared)
        context.damaged(node_id, "data wipe")
        context.keep_down(node_id, down_s, struck)


def _is_spared(path: str) -> bool:
    return is_below(path, JOURNAL) or path in VOTER_FILES
