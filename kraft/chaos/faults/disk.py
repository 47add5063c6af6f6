"""What happens to disks: slowness, a full disk, failing fsyncs, bit rot.

What each of them leaves on a disk is in the rules of `kraft.chaos.world.disk`. A process is excused from
the moment at which its disk first failed it. The end of a fault is what an operator does: room is made,
the bit is restored from a copy, the machine with the failing disk is switched off and on again; and the
node is started anew.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft.chaos.cluster import DATA
from kraft.chaos.faults.kind import draw_duration_s, fault
from kraft.chaos.world.host import Process
from kraft.chaos.world.storage import DiskTiming

if TYPE_CHECKING:
    from kraft.chaos.faults.context import FaultContext

START_AFTER_S = 0.2
HALT_WITHIN_S = 4.0
"""A node whose fsync has failed must be gone by then; longer than its slowest disk takes to say so."""
MAY_ROT = (".log", ".checkpoint", "/quorum-state")
SYNCS_MAX = 20
FREE_MAX_BYTES = 64 * 1024


@fault("slow-disk", "fsyncs take long, or hang now and then")
def slow_disk(context: FaultContext, rng: random.Random) -> None:
    """Of any machine, also one without a running node."""
    node_id = context.node(rng)
    if node_id is None:
        return
    if rng.random() < 0.5:
        timing = DiskTiming(sync_s=(0.02, rng.uniform(0.03, 0.15)))
    else:
        timing = DiskTiming(hiccup_odds=rng.choice((0.02, 0.1)), hiccup_s=(0.2, rng.uniform(0.5, 2.0)))
    duration_s, storage = draw_duration_s(rng, 0.5, 3.0, long_max_s=8.0), context.host(node_id).storage
    context.happened("slow-disk", f"node {node_id}: {timing} for {duration_s:.3f} s")
    storage.slow_down(timing)
    context.until(duration_s, lambda: storage.speed_up(timing))


@fault("disk-full", "a disk has no room for a while (ENOSPC)", by_default=False)
def disk_full(context: FaultContext, rng: random.Random) -> None:
    """It has happened when something was refused; until then there is a little room."""
    node_id = context.node(rng)
    free_bytes, duration_s = rng.randrange(FREE_MAX_BYTES), draw_duration_s(rng, 0.3, 3.0, long_max_s=8.0)
    if node_id is None or context.host(node_id).storage.free_bytes is not None:
        return
    target, storage = node_id, context.host(node_id).storage
    victims: list[Process | None] = []

    def refused(path: str) -> None:
        if not victims:
            context.happened("disk-full", f"node {target}, at {path}, for {duration_s:.3f} s at most")
        victims.append(context.host(target).process)
        context.cluster.excuse(target)

    def make_room() -> None:
        storage.free_bytes = storage.on_refused = None
        if victims:
            _start_anew(context, target)

    storage.free_bytes, storage.on_refused = free_bytes, refused
    context.until(duration_s, make_room)


@fault("fsync-error", "an fsync fails (EIO), and what it should have made durable is not", by_default=False)
def fsync_error(context: FaultContext, rng: random.Random) -> None:
    """The node must halt; then the machine loses its power, and only its synced data is left.

    Fails one of the next fsyncs, and perhaps all after it. Not while `DamageGuard` spares the node.
    """
    node_id = context.node(rng)
    countdown, for_good = rng.randint(1, SYNCS_MAX), rng.random() < 0.5
    duration_s = rng.uniform(1.0, 3 * HALT_WITHIN_S)
    if node_id is None or not context.guard.allows(node_id):
        return
    target, host = node_id, context.host(node_id)
    if host.storage.sync_failure is not None:
        return
    recover: Callable[[], None] | None = None

    def fail(path: str) -> int:
        nonlocal countdown, recover
        countdown -= 1
        if countdown > 0 or (countdown < 0 and not for_good):
            return 0
        if recover is None:
            recover = context.guard.ails(target)
            context.happened("fsync-error", f"node {target}, at {path}")
            context.simulation.call_later(
                HALT_WITHIN_S, _must_have_halted, context, target, host.process, path
            )
        context.cluster.excuse(target)
        return errno.EIO

    def replace() -> None:
        host.storage.sync_failure = None
        if recover is not None:
            recover()
            host.power_loss()
            context.damaged(target, "disk error")
            context.keep_down(target, START_AFTER_S)

    host.storage.sync_failure = fail
    context.until(duration_s, replace)


def _must_have_halted(context: FaultContext, node_id: int, process: Process | None, path: str) -> None:
    """Reports a node that goes on after a failed fsync."""
    host = context.host(node_id)
    if process is None or host.process is not process:
        return
    if host.paused:
        context.simulation.call_later(HALT_WITHIN_S, _must_have_halted, context, node_id, process, path)
        return
    text = f"{process.incarnation.name} goes on {HALT_WITHIN_S:g} s after an fsync of {path} failed"
    context.verdicts.violated("not-halted", text)


@fault("bit-rot", "a bit of a log, snapshot or vote on a disk flips", by_default=False)
def bit_rot(context: FaultContext, rng: random.Random) -> None:
    """In a partition's log, the metadata journal, its snapshot or the voter's state, in what is durable.

    A voter that starts meanwhile may refuse to, which is excused. After a while the byte is restored, if
    it was not written over. Not while `DamageGuard` spares the node.
    """
    node_id, duration_s = context.node(rng), draw_duration_s(rng, 0.5, 4.0, long_max_s=9.0)
    if node_id is None or not context.guard.allows(node_id):
        return
    target, storage = node_id, context.host(node_id).storage
    where = storage.rot(rng, lambda path: path.startswith(f"{DATA}/") and path.endswith(MAY_ROT))
    if where is None:
        return
    context.happened("bit-rot", f"node {target}: {where} for {duration_s:.3f} s")
    context.damaged(target, "bit rot")
    heal = context.sicken(target)

    def restore() -> None:
        storage.repair()
        heal()
        _start_anew(context, target)

    context.until(duration_s, restore)


def _start_anew(context: FaultContext, node_id: int) -> None:
    """Ends what is left of the node, and starts it."""
    context.kill(node_id)
    context.keep_down(node_id, START_AFTER_S)


KINDS = (slow_disk, disk_full, fsync_error, bit_rot)
