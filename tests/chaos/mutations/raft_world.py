"""Mutations of a voter's surroundings: time, chance, order, its folder, its disk's promises.

They play where `kraft chaos quorum` plays: real drivers and controllers, some seeds twice, some voters first on a
folder of another voter.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pysyncobj import syncobj
from pysyncobj.poller import createPoller

from kraft.chaos.faults.context import Pace
from kraft.chaos.quorum.settings import FAULTS, MessageOdds, Settings
from partitions.log.node_logs.meta_properties import MetaProperties, read_meta_properties
from quorum.raft import journal_check, snapshot, storage
from quorum.raft.applying import Applying
from quorum.raft.compat import SyncObj, World
from quorum.raft.journal import DurableJournal
from quorum.raft.node import PeerNode, RaftNode
from tests.chaos.mutations.raft_journal import QUORUM
from tests.chaos.mutations.raft_stages import PlayedTwice
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by
from tests.chaos.mutations.stages import RaftStage

TWICE = PlayedTwice(
    "quorum, played twice",
    lambda seed: Settings(virtual_s=4.0, voters=3 + 2 * (seed % 2), messages=MessageOdds(), faults=FAULTS),
)
LARGE_ENTRIES = RaftStage(
    "quorum of voters that are sent much at once",
    lambda seed: Settings(
        apply_bytes=60,
        append_bytes=2000,
        propose=0.6,
        faults={"isolate-controller": 0.6, "partition": 0.6, "kill": 0.6},
    ),
)
WRONG_FOLDERS = RaftStage(
    "quorum of voters whose disks are mixed up",
    lambda seed: Settings(virtual_s=6.0, faults={"wrong-folder": 1.5}),
)
FOLDERS_FORMATTED_ANEW = RaftStage(
    "quorum of recorded disks that are mixed up",
    lambda seed: replace(WRONG_FOLDERS.settings(seed), workload="topics", append_bytes=12_000),
)
ROTTEN_DISKS = RaftStage(
    "quorum of disks that rot",
    lambda seed: Settings(
        workload="topics",
        append_bytes=12_000,
        clients=8,
        pace=Pace(0.04, 0.35),
        faults={"bit-rot-voter-at-start": 3.0},
    ),
)
FAILING_FSYNCS = RaftStage(
    "quorum of disks whose fsyncs fail",
    lambda seed: Settings(pace=Pace(0.04, 0.35), faults={"fsync-error": 1.0}),
)


def _formats_by_itself(original: Callable[..., MetaProperties]) -> Callable[..., MetaProperties]:
    def check(disk: Any, directory: str, *, cluster_id: str, node_id: int) -> MetaProperties:
        if read_meta_properties(disk, directory) is None:
            return MetaProperties(cluster_id, node_id, "unknown")
        return original(disk, directory, cluster_id=cluster_id, node_id=node_id)

    return check


def _takes_any_folder(original: Callable[..., MetaProperties]) -> Callable[..., MetaProperties]:
    def check(disk: Any, directory: str, *, cluster_id: str, node_id: int) -> MetaProperties:
        found = read_meta_properties(disk, directory)
        return found or original(disk, directory, cluster_id=cluster_id, node_id=node_id)

    return check


def _in_one_go(applying: Any, command: bytes, index: int, term: int) -> bool:
    while not _one_step(applying, command, index, term):
        pass
    return True


_one_step = Applying.is_ready


def _whatever_fsync_says(original: Callable[[Any], None]) -> Callable[[Any], None]:
    def sync(journal: Any) -> None:
        try:
            original(journal)
        except OSError:
            journal._unsynced = journal._state.dirty = False

    return sync


STILL_CLOCK = (
    "what a clock that stands still keeps for ever in the library is its loop that sends to a peer until a"
    " heartbeat's time is over. Here every pass through it comes nearer to its end: it sends entries, and goes on"
    " behind them, or a chunk of a snapshot, of which there always is a next one until the last; after a few of"
    " them the peer passes as gone (`RaftNode.hold_back`). Whatever else compares instants is asked again in the"
    " next step, at a later one"
)

MUTATIONS = (
    Mutation(
        "clock-of-the-library",
        "the library reads the process's clock, not the voter's",
        ("determinism", "liveness"),
        TWICE,
        (Patch(syncobj, "monotonicTime", replaced_by(lambda: time.monotonic())),),
        faces="its instants are of another clock: elections come at other times in each run, or never",
    ),
    Mutation(
        "randomness-of-the-library",
        "the library draws its timeouts from the process's randomness, not the voter's",
        ("determinism",),
        TWICE,
        (Patch(syncobj, "random", lambda _: random),),
    ),
    Mutation(
        "order-by-address",
        "a peer's hash is where it lies in memory, and with it the order in which peers are spoken to",
        ("determinism",),
        TWICE,
        (Patch(PeerNode, "__hash__", replaced_by(lambda peer: id(peer) >> 4)),),
    ),
    Mutation(
        "poller-of-the-library",
        "the library polls the operating system, though a voter has no sockets",
        ("determinism",),
        TWICE,
        (Patch(syncobj, "createPoller", lambda _: createPoller),),
    ),
    Mutation(
        "all-applied-in-one-step",
        "everything that is committed is applied in one step of the lane, however much it is",
        ("short-steps",),
        LARGE_ENTRIES,
        (
            Patch(
                RaftNode,
                "_SyncObj__applyLogEntries",
                replaced_by(lambda node: SyncObj._SyncObj__applyLogEntries(node)),
            ),
        ),
    ),
    Mutation(
        "large-entry-in-one-step",
        "an entry that is too large for one step of the lane is applied in one all the same",
        ("short-steps",),
        LARGE_ENTRIES,
        (Patch(Applying, "is_ready", replaced_by(_in_one_go)),),
    ),
    Mutation(
        "unformatted-folder-used",
        "a voter begins in a folder that was never formatted: it lost its disk, and votes again",
        ("own-folder",),
        WRONG_FOLDERS,
        (Patch(storage, "check_meta_properties", _formats_by_itself),),
    ),
    Mutation(
        "foreign-folder-used",
        "a voter takes the folder of another node or cluster for its own",
        ("own-folder",),
        WRONG_FOLDERS,
        (Patch(storage, "check_meta_properties", _takes_any_folder),),
    ),
    Mutation(
        "folder-formatted-anew-used",
        "a voter goes on as the one it was in a folder with another directory id (KIP-853)",
        ("own-folder",),
        FOLDERS_FORMATTED_ANEW,
        (Patch(storage, "check_membership", replaced_by(lambda *_: None)),),
    ),
    Mutation(
        "rotten-entry-read",
        "a voter does not compare its journal's checksums when it starts",
        ("log-matching", "applied-prefix", "durable-acknowledgement"),
        ROTTEN_DISKS,
        (Patch(journal_check, "verify_crc", replaced_by(lambda buffer, position, header: None)),),
        faces="the bit is in the command, in the term, or in the index of an entry",
    ),
    Mutation(
        "rotten-snapshot-read",
        "a voter does not compare its snapshot's checksums when it starts (KIP-630)",
        ("applied-prefix", "equal-images"),
        ROTTEN_DISKS,
        (Patch(snapshot, "crc32c", replaced_by(lambda data: 0)),),
        faces="the bit is in what all voters hash, or in the image alone",
    ),
    Mutation(
        "failed-fsync-passed-over",
        "a voter goes on after an fsync that failed, as if it had not",
        ("not-halted",),
        FAILING_FSYNCS,
        (Patch(DurableJournal, "sync", _whatever_fsync_says),),
    ),
    Mutation(
        "clock-stands-still",
        "the voter's clock does not move within a step",
        ("liveness",),
        QUORUM,
        (Patch(World, "now", replaced_by(lambda world: world._clock())),),
        equivalent=STILL_CLOCK,
    ),
)
