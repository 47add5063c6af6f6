"""A simulated voter's folder: how a driver is opened in it, and what is not its folder.

An operator who mounts the wrong disk, or an empty one, must be told; a voter that began there would have
forgotten every promise of its own, or keep those of another. Used by `voter`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

from kraft.chaos.node_folders import CLUSTER_ID, DATA, DIRECTORY_ID_BYTES, format_folder
from kraft.chaos.quorum.judge import Violation
from kraft.chaos.quorum.settings import Settings
from kraft.chaos.world.disk import SimulatedDisk
from kraft.chaos.world.incarnation import Incarnation
from kraft.chaos.world.scheduler import Scheduler
from kraft.chaos.world.storage import Storage
from partitions.disk import Disk
from quorum.raft.config import RaftConfig
from quorum.raft.driver import RaftDriver
from quorum.raft.state_machine import StateMachine
from quorum.raft.storage import RaftStorageError, open_partition_log

EPOCH_S = 100.0
"""Where the drivers' clocks begin."""
WRONG_FOLDERS = ("unformatted", "of another node", "of another cluster", "formatted anew")


class Place(Protocol):
    """Where a voter is."""

    seed: int
    settings: Settings
    scheduler: Scheduler
    ids: list[int]


def open_driver(
    place: Place,
    node_id: int,
    directory_id: bytes,
    disk: Disk,
    machine: StateMachine,
    halt: Callable[[str], None],
    rng: Random,
    wall_ms: Callable[[], int],
) -> RaftDriver:
    """The voter's driver on a disk. Raises RaftStorageError if it refuses; OSError."""
    scheduler, settings = place.scheduler, place.settings
    return RaftDriver(
        config=RaftConfig(
            node_id=node_id,
            voters={voter: f"host:{voter}" for voter in place.ids},
            cluster_id=CLUSTER_ID,
            directory=DATA,
            directory_id=directory_id if settings.workload == "topics" else None,
            timing=settings.timing,
            snapshot_every_entries=settings.snapshot_every_entries,
            snapshot_chunk_bytes=settings.snapshot_chunk_bytes,
            append_bytes=settings.append_bytes,
            apply_bytes=settings.apply_bytes,
            max_pending_proposals=settings.max_pending_proposals,
        ),
        disk=disk,
        clock=lambda: EPOCH_S + scheduler.now,
        wall_ms=wall_ms,
        rng=rng,
        halt=halt,
        state_machine=machine,
        log_factory=partial(open_partition_log, segment_bytes=settings.segment_bytes),
    )


def check_refuses_wrong_folder(
    place: Place, node_id: int, directory_id: bytes, machine: StateMachine, rng: Random
) -> None:
    """The voter is started on a disk that is not its own. Raises Violation if it begins there."""
    kinds = WRONG_FOLDERS if place.settings.workload == "topics" else WRONG_FOLDERS[:-1]
    kind = rng.choice(kinds)
    storage = Storage(Random(rng.random()))
    storage.make_dirs(DATA)
    life = Incarnation(place.scheduler, f"misplaced-{node_id}", 1)
    disk = SimulatedDisk(storage, life, rng.uniform)
    other = rng.randbytes(DIRECTORY_ID_BYTES)
    contents: dict[str, Callable[[], Any]] = {
        "unformatted": lambda: None,
        "of another node": lambda: format_folder(disk, DATA, node_id + 1, directory_id),
        "of another cluster": lambda: format_folder(disk, DATA, node_id, directory_id, "another"),
        "formatted anew": lambda: format_folder(disk, DATA, node_id, other),
    }
    contents[kind]()
    try:
        open_driver(place, node_id, directory_id, disk, machine, lambda reason: None, rng, lambda: 0)
    except RaftStorageError:
        return
    finally:
        life.end()
    raise Violation("own-folder", f"voter {node_id} begins in a folder that is {kind}")
