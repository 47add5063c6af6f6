"""What happens to disks: slowness, full data directories, failing fsyncs; `rot` has what rots.

What each of them leaves on a disk is in the rules of `kraft.chaos.world.disk`. A process may complain from
the moment at which its disk first failed it, and halt only where it cannot do without. The end of a fault
is what an operator does: room is made, the machine with the failing disk is switched off and on again; and
a node that is down is started anew. Where fsyncs succeed again after one that failed, and make nothing
durable, nobody starts a process before that: it could not know.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from kraft.chaos.faults.context import FaultContext, Struck
from kraft.chaos.faults.kind import fault
from kraft.chaos.node_folders import DATA, JOURNAL
from kraft.chaos.world.disk_timing import DiskTiming
from kraft.chaos.world.host import Process
from kraft.chaos.world.paths import is_below

START_AFTER_S = 0.2
HALT_WITHIN_S = 4.0
"""A node whose fsync has failed must be gone by then; longer than its slowest disk takes to say so."""
SYNCS_MAX = 20
FREE_BYTES = (1, 1024, 8 * 1024, 64 * 1024)
HOOK_MAX_S = 60.0
QUORUM_FILES = (f"{DATA}/voted.marker", f"{DATA}/meta.properties")
DIRECTORY_FAILED = "data directory failed, the node goes on"


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
    duration_s, storage = (
        context.draw_duration_s(rng, 0.5, 3.0, long_max_s=8.0),
        context.host(node_id).storage,
    )
    struck = context.happened("slow-disk", f"node {node_id}: {timing} for {duration_s:.3f} s")
    storage.slow_down(timing)
    context.until(duration_s, lambda: storage.speed_up(timing), struck)


@fault("disk-full", "a data directory has no room for a while (ENOSPC)")
def disk_full(context: FaultContext, rng: random.Random) -> None:
    """It has happened when something was refused; until then there is a little room.

    A node lives on, but where the quorum's files find no room, and where it has only begun to start.
    """
    node_id = context.node(rng)
    free_bytes, duration_s = (
        rng.randrange(rng.choice(FREE_BYTES)),
        context.draw_duration_s(rng, 0.3, 3.0, long_max_s=8.0),
    )
    if node_id is None or context.host(node_id).storage.free_bytes is not None:
        return
    target, host = node_id, context.host(node_id)
    storage, directory = host.storage, rng.choice(context.cluster.log_dirs_of(node_id))
    struck: Struck | None = None

    def refused(path: str) -> None:
        nonlocal struck
        if struck is None:
            text = f"node {target}, at {path}, for {duration_s:.3f} s at most"
            struck = context.happened("disk-full", text)
        context.cluster.excuse(
            target, may_halt=_is_of_quorum(path) or not context.cluster.has_started(target)
        )

    def make_room() -> None:
        storage.free_bytes = storage.on_refused = None
        storage.full_below = "/"
        if struck is not None:
            context.over(struck)
            if not host.alive:
                context.keep_down(target, START_AFTER_S)

    storage.free_bytes, storage.on_refused, storage.full_below = free_bytes, refused, directory
    context.until(duration_s, make_room)


@fault(
    "fsync-error", "the fsyncs of a data directory fail (EIO), and what they should have made durable is not"
)
def fsync_error(context: FaultContext, rng: random.Random) -> None:
    """One of the next fsyncs, and perhaps all after it. Not while `DamageGuard` spares the node.

    The node must halt, or, if it has another directory and the quorum's files are there, go on with that one
    alone. Then the machine loses its power, gets a disk that works, and only its synced data is left. A node
    that ends before is started meanwhile only if its disk goes on to say that it fails.
    """
    node_id = context.node(rng)
    countdown, for_good = rng.randint(1, SYNCS_MAX), rng.random() < 0.5
    duration_s = rng.uniform(1.0, 3 * HALT_WITHIN_S) * context.pace.lasts
    if node_id is None or not context.guard.allows(node_id):
        return
    target, host = node_id, context.host(node_id)
    directories = context.cluster.log_dirs_of(target)
    directory = rng.choice(directories)
    if host.storage.sync_failure is not None:
        return
    may_halt, must_halt = directory == directories[0], len(directories) == 1
    struck: Struck | None = None
    ends: list[Callable[[], None]] = []

    def fail(path: str) -> int:
        nonlocal countdown, struck
        if not is_below(path, directory):
            return 0
        countdown -= 1
        if countdown > 0 or (countdown < 0 and not for_good):
            return 0
        if not ends:
            ends.append(context.guard.ails(target))
            if not for_good:
                ends.append(context.hold_down(target))
            struck = context.happened("fsync-error", f"node {target}, at {path}")
            judge = must_have_halted if must_halt else _must_have_given_up
            context.simulation.call_later(
                HALT_WITHIN_S * context.pace.lasts, judge, context, target, host.process, directory, path
            )
        context.cluster.excuse(target, may_halt=may_halt or not context.cluster.has_started(target))
        return errno.EIO

    def replace() -> None:
        host.storage.sync_failure = None
        if ends:
            host.power_loss()
            context.damaged(target, "disk error")
            context.keep_down(target, START_AFTER_S, struck)
        for end in ends:
            end()

    host.storage.sync_failure = fail
    context.until(duration_s, replace)


def must_have_halted(
    context: FaultContext, node_id: int, process: Process | None, directory: str, path: str
) -> None:
    """Reports a node that goes on after a failed fsync in its only data directory."""
    host = context.host(node_id)
    if process is None or host.process is not process:
        return
    if host.paused:
        again = (context, node_id, process, directory, path)
        context.simulation.call_later(HALT_WITHIN_S * context.pace.lasts, must_have_halted, *again)
        return
    within_s = HALT_WITHIN_S * context.pace.lasts
    text = f"{process.incarnation.name} goes on {within_s:g} s after an fsync of {path} failed"
    context.verdicts.violated("not-halted", text)


def _must_have_given_up(
    context: FaultContext, node_id: int, process: Process | None, directory: str, path: str
) -> None:
    """From now on, reports a node that writes records into a directory in which an fsync failed."""
    host = context.host(node_id)
    if process is None or host.process is not process:
        return
    context.verdicts.happened(DIRECTORY_FAILED, f"node {node_id} goes on without {directory}")

    def judge(operation: str, written: str) -> None:
        if host.process is not process:
            host.storage.remove_hook(judge)
        elif operation == "append" and is_below(written, directory) and written.endswith(".log"):
            host.storage.remove_hook(judge)
            text = f"{process.incarnation.name} appends to {written} after an fsync of {path} failed"
            context.verdicts.violated("not-halted", text)

    host.storage.add_hook(judge)
    context.until(HOOK_MAX_S, lambda: host.storage.remove_hook(judge))


def _is_of_quorum(path: str) -> bool:
    """Whether a path is of a voter's files, or of what identifies a directory."""
    return is_below(path, JOURNAL) or path.startswith(QUORUM_FILES)
