"""Opens what a voter keeps on disk, and refuses what it must not vote with.

Guarantees: a voter starts only in a directory that was formatted for this cluster and node, with
its vote where it left it and its journal at least as long as it once knew it to be; everything else
is a RaftStorageError that says what to do. A voter that lost its disk has to come back as a new one:
voting as its old self it could elect a leader that lacks committed entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from partitions.disk import Disk
from partitions.log.config import LogConfig
from partitions.log.errors import DataDirectoryError, LogError
from partitions.log.log import PartitionLog
from partitions.log.meta_properties import check_meta_properties
from partitions.ports import Halt, NowMs
from partitions.records.batch import CorruptBatchError
from partitions.topic_partition import TopicPartition
from quorum.raft.config import JOURNAL_PARTITION, JOURNAL_TOPIC, RaftConfig
from quorum.raft.halting import Halting
from quorum.raft.journal import FIRST_ENTRY, DurableJournal
from quorum.raft.journal_log import JournalDamagedError, JournalLog
from quorum.raft.quorum_state import QuorumState, QuorumStateError
from quorum.raft.snapshot import SnapshotError, SnapshotStore

LogFactory: TypeAlias = Callable[[Disk, str, int, NowMs, Halt], JournalLog]
"""Opens the log in a folder; the number is the offset below which it is known to be durable."""

SEGMENT_BYTES = 32 * 1024 * 1024
"""Of the journal: above one append of the largest size, and small enough to be dropped behind snapshots."""
_NEVER_MS = 2**62


class RaftStorageError(Exception):
    """The directory cannot be used; the message is a sentence for the operator."""


@dataclass(frozen=True)
class RaftStorage:
    """A voter's files, opened and joined to each other."""

    journal: DurableJournal
    snapshots: SnapshotStore


def open_partition_log(
    disk: Disk,
    directory: str,
    recovery_point: int,
    now_ms: NowMs,
    halt: Halt,
    *,
    segment_bytes: int = SEGMENT_BYTES,
) -> PartitionLog:
    """The journal's log: nothing is ever removed from it but behind a snapshot. Raises LogError."""
    return PartitionLog.open(
        disk,
        directory,
        TopicPartition(JOURNAL_TOPIC, JOURNAL_PARTITION),
        LogConfig(
            segment_bytes=segment_bytes,
            segment_ms=_NEVER_MS,
            max_message_bytes=segment_bytes,
            retention_ms=-1,
        ),
        now_ms=now_ms,
        halt=halt,
        recovery_point=recovery_point,
    )


def open_storage(
    config: RaftConfig, disk: Disk, wall_ms: NowMs, halting: Halting, log_factory: LogFactory
) -> RaftStorage:
    """Opens or, on the first start, creates the journal of a formatted directory."""
    try:
        identity = check_meta_properties(
            disk, config.directory, cluster_id=config.cluster_id, node_id=config.node_id
        )
    except DataDirectoryError as error:
        raise RaftStorageError(str(error)) from error
    directory = config.journal_directory
    disk.make_dirs(directory)
    disk.sync_dir(config.directory)
    snapshots = SnapshotStore(disk, directory)
    try:
        state = QuorumState.load(disk, directory, identity)
        snapshots.open()
    except (QuorumStateError, SnapshotError) as error:
        raise RaftStorageError(str(error)) from error
    known_end = 0 if state is None else state.journal_end
    try:
        log = log_factory(disk, directory, known_end + 1, wall_ms, halting.note)
    except (LogError, CorruptBatchError) as error:
        raise RaftStorageError(f"The quorum's journal in {directory} cannot be opened: {error}") from error
    is_new = state is None
    if state is None:
        if log.log_end_offset > FIRST_ENTRY[1] + 1 or snapshots.newest is not None:
            raise RaftStorageError(
                f"{directory} holds a journal but no quorum-state, so this voter has forgotten its vote:"
                " restore the file, or format the node anew as a new voter."
            )
        state = QuorumState(disk, directory, identity)
    journal = DurableJournal(log, state, wall_ms, halting)
    try:
        _join(journal, snapshots)
        journal.sync()
    except (LogError, CorruptBatchError, JournalDamagedError) as error:
        raise RaftStorageError(f"The quorum's journal in {directory} cannot be used: {error}") from error
    if journal.end_index < state.journal_end:
        raise RaftStorageError(
            f"The quorum's journal in {directory} ends at offset {journal.end_index}, though it reached"
            f" {state.journal_end}: entries that this voter has acknowledged are gone. Restore the folder,"
            " or format the node anew as a new voter."
        )
    if is_new:
        state.save()
    return RaftStorage(journal, snapshots)


def _join(journal: DurableJournal, snapshots: SnapshotStore) -> None:
    newest = snapshots.newest
    journal.open(None if newest is None else (newest.prev, newest.last))
