"""A small voter's folder on a simulated disk, as the voter left it, to be damaged and opened again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random

from kraft.chaos.world.storage import Storage
from quorum.raft.config import RaftConfig
from quorum.raft.halting import Halting
from quorum.raft.journal import DurableJournal
from quorum.raft.messages import BARRIER, PROPOSAL, Entry
from quorum.raft.snapshot import Snapshot, SnapshotStore
from quorum.raft.storage import RaftStorageError, open_partition_log, open_storage
from tests.support.scripted_voter import DIRECTORY, formatted_storage, simulated_disk

SEGMENT_BYTES = 400
CONFIG = RaftConfig(node_id=1, voters={1: "", 2: "", 3: ""}, cluster_id="cluster", directory=DIRECTORY)


@dataclass(frozen=True)
class Served:
    """What an opened voter knows and would tell others."""

    entries: tuple[Entry, ...]
    snapshot: Snapshot | None
    vote: tuple[int, int | None]


def entry(index: int, term: int) -> Entry:
    """A proposal that differs from all others; now and then a barrier."""
    return (BARRIER if index % 5 == 0 else PROPOSAL + b"proposal %d of term %d" % (index, term), index, term)


class VoterFolder:
    """One voter's files and, while it runs, its journal. Raises RaftStorageError where the voter refuses."""

    def __init__(self, storage: Storage | None = None) -> None:
        self.storage = storage or formatted_storage()
        disk = simulated_disk(self.storage)
        opened = open_storage(
            CONFIG,
            disk,
            lambda: 1_700_000_000_000,
            Halting(_fail),
            partial(open_partition_log, segment_bytes=SEGMENT_BYTES),
        )
        self.journal: DurableJournal = opened.journal
        self.snapshots: SnapshotStore = opened.snapshots

    def append(self, *indexes_and_terms: tuple[int, int]) -> None:
        """A group of entries, and the one fsync for all of them."""
        for index, term in indexes_and_terms:
            self.journal.add(*entry(index, term))
        self.journal.sync()

    def vote(self, term: int, candidate: int | None) -> None:
        self.journal.setCurrentTerm(term, candidate)
        self.journal.sync()

    def take_snapshot(self, last_index: int) -> None:
        """As the driver does: the snapshot, then the cut, then the end marker."""
        position = last_index - self.journal[0][1]
        prev, last = self.journal[position - 1], self.journal[position]
        self.snapshots.save(Snapshot(prev, last, (1, 2, 3), b"state through %d" % last_index))
        self.snapshots.remove_older()
        self.journal.deleteEntriesTo(position - 1)
        self.journal.remember_end()

    def served(self) -> Served:
        journal = self.journal
        vote = (journal.getCurrentTerm(), journal.getVotedForNodeId())
        return Served(tuple(journal[:]), self.snapshots.newest, vote)


def _fail(reason: str) -> None:
    raise AssertionError(reason)


def storage_with(files: dict[str, bytes]) -> Storage:
    """A disk with just these files, all durable."""
    storage = Storage(Random(0))
    disk = simulated_disk(storage)
    for path, content in files.items():
        storage.make_dirs(path.rpartition("/")[0])
        disk.open(path, create=True).append([content])
    storage.sync_everything()
    return storage


def open_again(files: dict[str, bytes]) -> Served | str:
    """What a voter with these files serves, or the sentence with which it refuses to start."""
    try:
        return VoterFolder(storage_with(files)).served()
    except RaftStorageError as error:
        return str(error)
