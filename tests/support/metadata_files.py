"""Metadata journals and snapshots as bytes on a real disk, and a disk that refuses every change."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from kraft.runtime.disk import RealDisk
from partitions.log.node_logs.meta_properties import MetaProperties
from quorum.controller.proposal import Proposal
from quorum.metadata.records import Config, Listener, Partition, RegisterBroker, Topic
from quorum.raft.journal import FIRST_ENTRY
from quorum.raft.journal_log import encode_entry
from quorum.raft.messages import BARRIER, PROPOSAL, Entry
from quorum.raft.metadata_state_machine import MetadataStateMachine
from quorum.raft.quorum_state import QuorumState
from quorum.raft.snapshot import Snapshot, encode_snapshot
from quorum.steps import finished

FOLDER = "__cluster_metadata-0"
TOPIC_ID = bytes(range(16))
TOPIC_ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"
BROKERS = [
    RegisterBroker(
        broker_id, bytes([broker_id]) * 16, (Listener("PLAINTEXT", "host", 9092, "PLAINTEXT"),), None, ()
    )
    for broker_id in (1, 2)
]
ORDERS = [
    Topic("orders", TOPIC_ID),
    Partition(TOPIC_ID, 0, (1, 2), (1, 2), 1),
    Config("topic", "orders", "retention.ms", "1000"),
]


class ReadOnlyDisk(RealDisk):
    """Fails a test that changes anything, or opens a file in a way that could."""

    def _refuse(self, *arguments: object, **options: object) -> NoReturn:
        raise AssertionError(f"the disk was to be changed: {arguments}")

    open = make_dirs = rename = remove = remove_tree = sync_dir = lock = _refuse  # type: ignore[assignment]


def proposal(index: int, term: int, sequence: int, *records: object) -> Entry:
    """The entry of one proposal."""
    return PROPOSAL + Proposal.of(term, sequence, list(records)).encode(), index, term


def story() -> list[Entry]:
    """Six entries: a barrier, two brokers, a topic, one that the fence refuses, a barrier of a new term."""
    return [
        FIRST_ENTRY,
        (BARRIER, 2, 1),
        proposal(3, 1, 0, *BROKERS),
        proposal(4, 1, 1, *ORDERS),
        proposal(5, 1, 7, Topic("lost", bytes([9]) * 16)),
        (BARRIER, 6, 2),
    ]


def write_segment(
    folder: Path, entries: list[Entry], *, synced: int = 0, written_ms: int = 1_700_000_000_000
) -> Path:
    """A segment; every entry says that the journal was durable through `synced` or the one before it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{entries[0][1]:020d}.log"
    path.write_bytes(
        b"".join(encode_entry(entry, written_ms, min(synced, entry[1] - 1)) for entry in entries)
    )
    return path


def write_snapshot(folder: Path, entries: list[Entry]) -> Path:
    """A snapshot of the state after these entries, which begin with the first of all."""
    machine = MetadataStateMachine()
    for command, index, term in entries:
        if command == BARRIER:
            machine.advance(index, term)
        else:
            machine.apply(command[len(PROPOSAL) :], index, term)
    snapshot = Snapshot(entries[-2], entries[-1], (1,), finished(machine.snapshot_steps()))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / snapshot.name
    path.write_bytes(encode_snapshot(snapshot))
    return path


def write_end_marker(folder: Path, journal_end: int) -> None:
    """The voter's note that its journal was durable through this offset."""
    state = QuorumState(RealDisk(), str(folder), MetaProperties("cluster", 1, "directory"))
    state.journal_end = journal_end
    state.save()
