"""Mutations of a voter's durable state: its vote, its journal, its snapshots, its identity.

They play where `kraft chaos quorum` plays: real drivers and controllers on disks that lose power.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kraft.chaos.faults.context import Pace
from kraft.chaos.quorum.settings import SOUND, Settings
from partitions.disk import Disk, File
from quorum.raft import quorum_state, snapshot
from quorum.raft.incoming import Arrival, IncomingSnapshot
from quorum.raft.journal import DurableJournal
from quorum.raft.journal_check import JournalCorruptError, _Check
from quorum.raft.voters import VoterBook
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by
from tests.chaos.mutations.stages import RaftStage

QUORUM = RaftStage("quorum")
KILLED_THEN_UNPLUGGED = RaftStage(
    "quorum of voters that are killed, and then lose their power",
    lambda seed: Settings(
        snapshot_every_entries=1000,
        propose=0.05,
        pace=Pace(0.04, 0.35),
        faults={"kill-mid-operation": 1.2, "power-loss": 1.8},
    ),
)
DEPOSED_LEADERS = RaftStage(
    "quorum of leaders that are cut off",
    lambda seed: Settings(
        append_bytes=120,
        snapshot_every_entries=1000 if seed % 2 else 3,
        snapshot_chunk_bytes=100,
        propose=0.5,
        messages=replace(SOUND, drop=0.02, late=0.5),
        faults={"isolate-controller": 0.6, "partition": 0.6, "drop": 0.9, "reset": 0.3},
    ),
)
SNAPSHOTS_IN_ONE_PIECE = RaftStage(
    "quorum of voters that are cut off, and sent a snapshot in one piece",
    lambda seed: Settings(
        append_bytes=120,
        snapshot_every_entries=3,
        snapshot_chunk_bytes=1 << 20,
        propose=0.5,
        messages=replace(SOUND, drop=0.02, late=0.5),
        faults={"isolate-controller": 1.2, "partition": 1.2, "drop": 1.8, "reset": 0.6},
    ),
)
"""A snapshot that is no news any more is whole before its receiver can say so; of several pieces the others are
not sent, since any answer tells the leader how far the voter has come.
"""
NEW_DISKS = RaftStage(
    "quorum of disks that are replaced",
    lambda seed: Settings(
        workload="topics",
        append_bytes=12_000,
        clients=8,
        pace=Pace(0.04, 0.35),
        faults={
            **{"wipe": 1.2, "kill": 0.6, "isolate-controller": 0.6, "partition": 0.6},
            **{"reset": 1.2, "clogged-link": 1.2},
        },
    ),
)


def _write_without_sync(disk: Disk, path: str, data: bytes) -> None:
    temporary = path + ".tmp"
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, create=True)
    file.append([data])
    _replace_without_sync(disk, path, file)


def _replace_without_sync(disk: Disk, path: str, file: File) -> None:
    file.close()
    disk.rename(path + ".tmp", path)


def _write_in_place(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.append([data])
    file.sync()
    file.close()
    disk.sync_dir(path.rpartition("/")[0])


def _sync_vote_only(journal: Any) -> None:
    if journal._state.dirty:
        journal.save_state()
    if journal._unsynced:
        journal._write()
        journal._unsynced = False
        journal._synced_end = journal.end_index


def _sync_entries_only(journal: Any) -> None:
    journal._state.dirty = False
    if journal._unsynced:
        journal._write()
        journal._log.sync()
        journal._unsynced = False
        journal._synced_end = journal.end_index


def _refuses_any_damage(check: Any, damage: Any) -> None:
    raise JournalCorruptError(check._paths[damage.segment], damage.position, damage.reason)


def _delete_from(journal: Any, entry_from: int) -> None:
    if entry_from < len(journal._entries):
        journal._commit_index = 0
        journal._truncate_from(journal._entries[entry_from][1])


def _add_keeps_what_is_there(original: Callable[..., None]) -> Callable[..., None]:
    def add(journal: Any, command: bytes, idx: int, term: int) -> None:
        if idx - journal._entries[0][1] >= len(journal._entries):
            original(journal, command, idx, term)

    return add


def _add_always_truncates(original: Callable[..., None]) -> Callable[..., None]:
    def add(journal: Any, command: bytes, idx: int, term: int) -> None:
        position = idx - journal._entries[0][1]
        if 0 < position < len(journal._entries):
            journal._commit_index = 0
            journal._truncate_from(idx)
        original(journal, command, idx, term)

    return add


def _begins_anew_at_start(original: Callable[..., None]) -> Callable[..., None]:
    def open_(journal: Any, found: Any, joined: Any) -> None:
        original(journal, found, joined)
        if joined is not None:
            journal._begin_at(*joined)

    return open_


def _always_begins_anew(journal: Any, prev: Any, last: Any) -> None:
    journal._begin_at(prev, last)
    journal._commit_index = max(journal._commit_index, last[1])


def _keeps_any_log(original: Callable[..., None]) -> Callable[..., None]:
    def join(journal: Any, prev: Any, last: Any) -> None:
        position = prev[1] - journal._entries[0][1]
        if 0 <= position < len(journal._entries) - 1:
            journal.deleteEntriesTo(position)
            journal._commit_index = max(journal._commit_index, last[1])
        else:
            original(journal, prev, last)

    return join


def _receives_blindly(incoming: Any, peer_id: int, chunk: Any) -> bool | None:
    """Glues together what comes, as the library does; what is no snapshot is taken for one that holds."""
    data = incoming.__dict__.setdefault("_glued", bytearray())
    if chunk.is_first:
        data.clear()
    data += chunk.data
    if not chunk.is_last:
        return None
    glued = snapshot.decode_snapshot(bytes(data))
    name = (peer_id, glued.last[1], glued.last[2], len(data))
    incoming.arrival = Arrival(name, glued, bytes(data), incoming._machine.decode_steps(glued.state))
    return True


MUTATIONS = (
    Mutation(
        "vote-not-fsynced",
        "term and vote are written, but not made durable before the vote leaves (Raft 5.2)",
        ("durable-vote",),
        QUORUM,
        (Patch(quorum_state, "finish_replacement", replaced_by(_replace_without_sync)),),
    ),
    Mutation(
        "vote-not-written",
        "the journal is made durable before a vote leaves, term and vote are not (Raft 5.2)",
        ("durable-vote",),
        QUORUM,
        (Patch(DurableJournal, "sync", replaced_by(_sync_entries_only)),),
    ),
    Mutation(
        "journal-not-fsynced-before-ack",
        "entries are acknowledged that a power loss may still take away (Raft 5.3)",
        ("durable-acknowledgement",),
        QUORUM,
        (Patch(DurableJournal, "sync", replaced_by(_sync_vote_only)),),
    ),
    Mutation(
        "recovered-tail-not-fsynced",
        "a voter that was killed takes what it finds in the page cache for durable",
        ("durable-acknowledgement", "halted"),
        KILLED_THEN_UNPLUGGED,
        (Patch(_Check, "copy_unproven", replaced_by(lambda check, damage: None)),),
        faces="it comes back without them, or refuses to, since a later entry vouches for them",
    ),
    Mutation(
        "torn-tail-refused",
        "what a power loss tore is taken for damage, though it was never acknowledged",
        ("halted",),
        QUORUM,
        (Patch(_Check, "refuse_unless_torn", replaced_by(_refuses_any_damage)),),
    ),
    Mutation(
        "entries-deleted-before-they-are-compared",
        "a follower deletes all behind the leader's previous entry, whether it matches or not (Raft 5.3)",
        ("no-needless-truncation",),
        QUORUM,
        (Patch(DurableJournal, "deleteEntriesFrom", replaced_by(_delete_from)),),
    ),
    Mutation(
        "matching-entry-truncates",
        "an entry that is there already takes away all that follows it (Raft 5.3)",
        ("no-needless-truncation",),
        QUORUM,
        (Patch(DurableJournal, "add", _add_always_truncates),),
    ),
    Mutation(
        "conflict-not-truncated",
        "a follower keeps its own entry where the leader has another (Raft 5.3)",
        ("log-matching",),
        QUORUM,
        (Patch(DurableJournal, "add", _add_keeps_what_is_there),),
    ),
    Mutation(
        "tail-dropped-at-start",
        "a restarted voter keeps its snapshot and not the entries behind it",
        ("durable-acknowledgement",),
        QUORUM,
        (Patch(DurableJournal, "open", _begins_anew_at_start),),
    ),
    Mutation(
        "tail-dropped-at-install",
        "a snapshot from the leader takes away the entries behind it, though they match (Raft 7)",
        ("durable-acknowledgement", "no-needless-truncation"),
        QUORUM,
        (Patch(DurableJournal, "join", replaced_by(_always_begins_anew)),),
        faces="what is gone is mostly sent again at once; what is left of it shows after a crash in between",
    ),
    Mutation(
        "stale-log-kept-at-install",
        "a snapshot is joined to a log that contradicts it, as the library does",
        ("log-matching", "applied-prefix", "halted"),
        DEPOSED_LEADERS,
        (Patch(DurableJournal, "join", _keeps_any_log),),
        faces="the contradicting entry is built upon or applied, or met by the leader's, which is refused",
    ),
    Mutation(
        "snapshot-before-fsync",
        "the log is cut behind a snapshot that is not durable yet (KIP-630)",
        # Not a crash of the mutated code: what breaks the promise is the voter that refuses, rightly, to start
        # from a snapshot that is not there, while the log that it stood for has been cut.
        ("halted",),
        QUORUM,
        (Patch(snapshot, "write_atomically", replaced_by(_write_without_sync)),),
    ),
    Mutation(
        "snapshot-written-in-place",
        "a snapshot gets its name before it is whole (KIP-630)",
        ("halted",),
        QUORUM,
        (Patch(snapshot, "write_atomically", replaced_by(_write_in_place)),),
    ),
    Mutation(
        "chunks-joined-blindly",
        "pieces of a snapshot are glued together as they come, and not compared with its checksum",
        ("halted",),
        QUORUM,
        (Patch(IncomingSnapshot, "receive", replaced_by(_receives_blindly)),),
    ),
    Mutation(
        "new-disk-votes",
        "a voter that lost its disk votes and acknowledges as the one it was (KIP-853)",
        ("leader-completeness",),
        NEW_DISKS,
        (
            Patch(VoterBook, "counts", replaced_by(lambda book, voter, directory_id: True)),
            Patch(VoterBook, "counts_me", replaced_by(property(lambda book: True))),
        ),
    ),
    Mutation(
        "founded-by-a-majority",
        "the first leader of a quorum needs a majority, though the others may have forgotten everything",
        ("leader-completeness",),
        NEW_DISKS,
        (Patch(VoterBook, "quorum", replaced_by(property(lambda book: len(book.voters) // 2 + 1))),),
    ),
)
