"""Bit rot: in the files of partitions, which the cluster has to repair by itself, and in those that say what
voters have promised and what brokers have seen of the metadata.

A byte rots where the rules of `kraft.chaos.world.disk` let it be seen: while the node runs, where it has
neither read nor written since it started; while it is down, wherever an fsync covers it. Nobody restores a
partition's byte: the replica goes offline and is copied anew. The other bytes are restored from a copy by an
operator, who starts the node again; until then it may refuse to run.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kraft.chaos.faults.context import FaultContext
from kraft.chaos.faults.kind import fault
from kraft.chaos.faults.process import lose_power
from kraft.chaos.node_folders import JOURNAL
from kraft.chaos.world.paths import is_below

START_AFTER_S = 0.2
LOOK_EVERY_S = 0.02
DOWN_WITHIN_S = 4.0
DATA_SUFFIX = ".log"
SIDE_SUFFIXES = (".index", ".timeindex", ".snapshot", "/leader-epoch-checkpoint")
DATA_ODDS = 0.7
LAST_BYTES = 150
VOTER_SUFFIXES = (DATA_SUFFIX, ".checkpoint")
QUORUM_STATE = f"{JOURNAL}/quorum-state"
METADATA_POSITION = "/metadata-position-checkpoint"

MayRot = Callable[[str], bool]


@fault("bit-rot", "a bit of a partition's log, index or checkpoint flips")
def bit_rot(context: FaultContext, rng: random.Random) -> None:
    """In a replica that others can replace, as `DamageGuard` sees it.

    The node runs, and goes on running if there is anything that it has neither read nor written; or it is
    killed, or stops, and the bit flips while it is down.
    """
    node_id, way, down_s = (
        context.node(rng),
        rng.choice(WAYS),
        context.draw_duration_s(rng, 0.2, 2.5, long_max_s=7.0),
    )
    suffixes = (DATA_SUFFIX,) if rng.random() < DATA_ODDS else SIDE_SUFFIXES
    if node_id is None or node_id not in context.cluster.broker_ids:
        return
    target, host = node_id, context.host(node_id)
    may_rot = _of_replicas(context, target, suffixes)

    def rot() -> bool:
        if context.is_over:
            return False
        where = host.storage.rot(rng, may_rot, uncached=host.alive)
        if where is not None:
            state = "running" if host.alive else "down"
            context.happened("bit-rot", f"node {target}, {state}: {where[0]} at {where[1]}")
            context.cluster.excuse(target, may_halt=False)
            context.rotted(target)
        return where is not None

    if way == "running" and rot():
        return
    if not context.guard.holds_back(rng, context.topics):
        context.keep_down(target, down_s)
        if way != "stopped":
            context.kill(target)
        elif not host.paused and not context.cluster.is_stopping(target):
            context.cluster.stop_node(target)
        _when_down(context, target, DOWN_WITHIN_S, rot)


WAYS = ("running", "running", "killed", "stopped")


def _when_down(context: FaultContext, node_id: int, within_s: float, then: Callable[[], object]) -> None:
    """Calls `then` as soon as the node has no process, if that is so in time."""
    if not context.host(node_id).alive:
        then()
    elif within_s > 0:
        again = (context, node_id, within_s - LOOK_EVERY_S, then)
        context.simulation.call_later(LOOK_EVERY_S, _when_down, *again)


def _of_replicas(context: FaultContext, node_id: int, suffixes: tuple[str, ...]) -> MayRot:
    """The files of those replicas of the node of which there are enough sound copies elsewhere by now."""
    image, allows = context.cluster.image(), context.guard.allows_rot
    folders = {
        f"{directory}/{topic.name}-{number}"
        for topic in (image.topics.values() if image is not None else ())
        for number in range(len(topic.partitions))
        if allows(node_id, topic.name, number)
        for directory in context.cluster.log_dirs_of(node_id)
    }
    return lambda path: path.endswith(suffixes) and path.rpartition("/")[0] in folders


@fault("bit-rot-voter", "a bit of a voter's journal, snapshot or vote flips")
def bit_rot_voter(context: FaultContext, rng: random.Random) -> None:
    """A voter that starts meanwhile may refuse to, and one that runs may halt. After a while the byte is
    restored, if it was not written over. Not while `DamageGuard` spares the node."""
    node_id, duration_s = context.node(rng), context.draw_duration_s(rng, 0.5, 4.0, long_max_s=9.0)
    if node_id is None or not context.guard.allows_voter(node_id):
        return
    if _rot_until_restored(context, rng, "bit-rot-voter", node_id, _is_of_voter, duration_s):
        context.damaged(node_id, "voter rot")


@fault(
    "bit-rot-voter-at-start",
    "a machine loses its power, and comes back with a flipped bit in a voter's journal, snapshot or vote",
    by_default=False,
    disturbs=True,
)
def bit_rot_voter_at_start(context: FaultContext, rng: random.Random) -> None:
    """As `bit-rot-voter`, but the voter meets the bit for sure; mostly in what it wrote last, which it may
    take for torn."""
    node_id, duration_s = context.node(rng), context.draw_duration_s(rng, 0.5, 4.0, long_max_s=9.0)
    is_newest = rng.random() < 0.7
    if node_id is None or not context.guard.allows_voter(node_id):
        return
    lose_power(context, node_id)
    paths = [path for path in context.host(node_id).storage.files() if _is_of_voter(path)]
    newest = max((path for path in paths if path.endswith(DATA_SUFFIX)), default="")
    may_rot, last_bytes = (lambda path: path == newest, LAST_BYTES) if is_newest else (_is_of_voter, None)
    name = "bit-rot-voter-at-start"
    if _rot_until_restored(context, rng, name, node_id, may_rot, duration_s, last_bytes):
        context.damaged(node_id, "voter rot")
    context.keep_down(node_id, START_AFTER_S)


@fault("bit-rot-broker", "a bit flips in what a broker remembers of the metadata that it has followed")
def bit_rot_broker(context: FaultContext, rng: random.Random) -> None:
    """A broker that starts meanwhile may refuse to, rather than take another quorum's metadata for its own."""
    node_id, duration_s = context.node(rng), context.draw_duration_s(rng, 0.5, 4.0, long_max_s=9.0)
    if node_id is not None and not context.guard.holds_back(rng, context.topics):
        _rot_until_restored(
            context,
            rng,
            "bit-rot-broker",
            node_id,
            lambda path: path.endswith(METADATA_POSITION),
            duration_s,
        )


def _rot_until_restored(
    context: FaultContext,
    rng: random.Random,
    name: str,
    node_id: int,
    may_rot: MayRot,
    duration_s: float,
    last_bytes: int | None = None,
) -> bool:
    """Flips a bit; after a while the byte is restored, if it was not written over, and the node started anew.
    False if there is no such file."""
    storage = context.host(node_id).storage
    where = storage.rot(rng, may_rot, last_bytes=last_bytes)
    if where is None:
        return False
    struck = context.happened(name, f"node {node_id}: {where[0]} at {where[1]} for {duration_s:.3f} s")
    heal = context.sicken(node_id)

    def restore() -> None:
        storage.repair(may_rot)
        heal()
        context.kill(node_id)
        context.keep_down(node_id, START_AFTER_S)

    context.until(duration_s, restore, struck)
    return True


def _is_of_voter(path: str) -> bool:
    return path == QUORUM_STATE or (is_below(path, JOURNAL) and path.endswith(VOTER_SUFFIXES))
