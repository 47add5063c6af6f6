"""Mutations of the metadata quorum: votes, terms, the journal, commits, snapshots.

Most play in a quorum of real drivers, where a seed takes a tenth of a second; those that break what the
quorum replicates (images, the proposal fence) play in a whole cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from partitions.disk import Disk
from quorum.raft import driver, quorum_state, snapshot
from quorum.raft.events import NOT_COMMITTED
from quorum.raft.journal import DurableJournal
from quorum.raft.messages import _MAX_INDEX, _MAX_TERM
from quorum.raft.node import RaftNode
from quorum.raft.transport import QuorumTransport
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by
from tests.chaos.mutations.stages import RaftStage
from tests.chaos.mutations.stale_ack import StaleAckStage
from tests.support.raft_cluster import Faults, Settings

QUORUM = RaftStage("quorum")
SHORT_LIVED_LEADERS = RaftStage(
    "quorum of short-lived leaders",
    lambda: Settings(
        snapshot_every_entries=1000,
        virtual_s=60.0,
        faults=Faults(drop=0.2, crash_new_leader=0.9, propose=0.8, crash=0.002, crash_in_step=0.001),
    ),
)


def _write_without_sync(disk: Disk, path: str, data: bytes) -> None:
    temporary = path + ".tmp"
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, create=True)
    file.append([data])
    file.close()
    disk.rename(temporary, path)


def _sync_vote_only(journal: Any) -> None:
    if journal._state.dirty:
        journal._state.save()
    journal._write()
    journal._unsynced = False


def _sync_entries_only(journal: Any) -> None:
    journal._state.dirty = False
    if journal._unsynced:
        journal._write()
        journal._log.sync()
        journal._unsynced = False


def _any_term_acknowledges(original: Callable[..., None]) -> Callable[..., None]:
    def on_next_node_idx(transport: Any, peer: Any, message: dict[str, Any]) -> None:
        original(transport, peer, {**message, "term": max(message["term"], transport.node.term())})

    return on_next_node_idx


def _any_log_is_good(original: Callable[..., None]) -> Callable[..., None]:
    best = {"last_log_term": _MAX_TERM, "last_log_index": _MAX_INDEX - 1}
    return lambda transport, peer, message: original(transport, peer, {**message, **best})


def _forgets_its_vote(original: Callable[..., None]) -> Callable[..., None]:
    def on_request_vote(transport: Any, peer: Any, message: dict[str, Any]) -> None:
        transport.node._SyncObj__votedForNodeId = None
        original(transport, peer, message)

    return on_request_vote


class _KeepsCommitIndex(dict[str, Any]):
    """A message whose commit index nobody lowers."""

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "commit_index":
            super().__setitem__(key, value)


def _commits_what_it_is_told(original: Callable[..., None]) -> Callable[..., None]:
    def on_append_entries(transport: Any, peer: Any, message: dict[str, Any]) -> None:
        original(transport, peer, _KeepsCommitIndex(message) if "entries" in message else message)

    return on_append_entries


def _counts_entries_of_any_term(original: Callable[[Any], None]) -> Callable[[Any], None]:
    def tick(node: Any) -> None:
        if node.is_leader():
            ends = sorted([node.log_end(), *(node.match_index(peer) for peer in node.peers())])
            index = ends[len(ends) - (len(ends) // 2 + 1)]
            if index > node.commit_index():
                node._SyncObj__raftCommitIndex = index
                node._SyncObj__raftLog.setRaftCommitIndex(index)
        original(node)

    return tick


MUTATIONS = (
    Mutation(
        "vote-not-fsynced",
        "term and vote are written, but not made durable before the vote leaves (Raft 5.2)",
        ("vote-once",),
        QUORUM,
        (Patch(quorum_state, "write_atomically", replaced_by(_write_without_sync)),),
    ),
    Mutation(
        "vote-not-written",
        "the journal is made durable before a vote leaves, term and vote are not (Raft 5.2)",
        ("vote-once",),
        QUORUM,
        (Patch(DurableJournal, "sync", replaced_by(_sync_entries_only)),),
    ),
    Mutation(
        "votes-twice-in-a-term",
        "a voter forgets whom it has voted for when the next candidate asks",
        ("vote-once",),
        QUORUM,
        (Patch(QuorumTransport, "_on_request_vote", _forgets_its_vote),),
    ),
    Mutation(
        "vote-for-a-shorter-log",
        "a voter elects a candidate whose log is behind its own (Raft 5.4.1)",
        ("metadata-agreement",),
        QUORUM,
        (
            Patch(QuorumTransport, "_on_request_vote", _any_log_is_good),
            Patch(QuorumTransport, "_on_pre_vote", _any_log_is_good),
        ),
    ),
    Mutation(
        "journal-not-fsynced-before-ack",
        "entries are acknowledged that a power loss may still take away (Raft 5.3)",
        ("metadata-agreement",),
        QUORUM,
        (Patch(DurableJournal, "sync", replaced_by(_sync_vote_only)),),
    ),
    Mutation(
        "stale-ack-accepted",
        "an acknowledgement of an older term counts for entries of this one",
        ("metadata-agreement",),
        StaleAckStage(),
        (Patch(QuorumTransport, "_on_next_node_idx", _any_term_acknowledges),),
    ),
    Mutation(
        "commits-older-terms-by-counting",
        "a leader commits entries of older terms once a majority has them (Raft 5.4.2, figure 8)",
        ("metadata-agreement",),
        SHORT_LIVED_LEADERS,
        (Patch(RaftNode, "tick", _counts_entries_of_any_term),),
    ),
    Mutation(
        "follower-commits-unproved-tail",
        "a follower commits up to the leader's index entries that were not compared with the leader's",
        ("metadata-agreement",),
        QUORUM,
        (Patch(QuorumTransport, "_on_append_entries", _commits_what_it_is_told),),
    ),
    Mutation(
        "failure-reported-though-committed",
        "a leader that lost its office says of its proposals that they will never be committed",
        ("metadata-agreement",),
        QUORUM,
        (Patch(driver, "UNKNOWN", lambda _: NOT_COMMITTED),),
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
)
