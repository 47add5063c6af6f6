"""The files of a voter, opened together; it refuses those that the voter must not vote with.

Guarantees: a voter starts only in a directory that was formatted for this cluster and node, with its vote as it left
it, its newest snapshot whole, and its journal sound and as long as the voter once knew it to be. Anything else is a
RaftStorageError that names the file and says what to do. A voter that lost its disk has to come back as a new one: as
its old self it could elect a leader that lacks committed entries. The driver calls it at start.

The journal's log keeps derived files beside its segments (indexes, leader epochs, producers, its own checkpoints).
They carry no checksum, so each start removes them and makes them anew. Term, vote and end marker are written anew,
too: after a failed fsync the page cache may hold a state that is on no disk, and all that this voter will say depends
on it. Where there is no room for that, the file as found serves: a file system that failed to write a name answers
with another error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME
from partitions.disk import Disk, write_atomically
from partitions.log.config import LogConfig
from partitions.log.errors import DataDirectoryError, LogError
from partitions.log.log import PartitionLog
from partitions.log.node_logs.meta_properties import check_meta_properties
from partitions.log.partition_files import TRUNCATION_CHECKPOINT
from partitions.log.producers.producer_snapshot import SNAPSHOT_SUFFIX
from partitions.log.segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from partitions.log.storage import is_broken, is_disk_full, is_out_of_descriptors, is_passing
from partitions.ports import Halt, NowMs
from partitions.records.batch import CorruptBatchError
from partitions.topic_partition import TopicPartition
from quorum.raft.config import (
    DEFAULT_SEGMENT_BYTES,
    DEFAULT_SEGMENT_MS,
    JOURNAL_PARTITION,
    JOURNAL_TOPIC,
    RaftConfig,
)
from quorum.raft.halting import Halting
from quorum.raft.journal import FIRST_ENTRY, DurableJournal
from quorum.raft.journal_check import CheckedJournal, JournalCorruptError, recover_journal, remove_journal
from quorum.raft.journal_log import JournalDamagedError, JournalLog
from quorum.raft.membership import MembershipError, check_membership
from quorum.raft.quorum_state import QuorumState, QuorumStateError
from quorum.raft.snapshot import Snapshot, SnapshotError, SnapshotStore, cure

LogFactory: TypeAlias = Callable[[Disk, str, int, NowMs, Halt], JournalLog]
"""Opens the log in a folder; the number is the offset below which the log is durable."""

VOTED_MARKER = "voted.marker"
"""A file in the formatted directory, beside the journal's folder: this directory's voter has made promises."""
_DERIVED_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
_DERIVED_NAMES = (CHECKPOINT_FILE_NAME, TRUNCATION_CHECKPOINT)


class RaftStorageError(Exception):
    """The directory cannot be used; the message is a sentence for the operator."""


@dataclass(frozen=True)
class RaftStorage:
    """A voter's files, opened and joined to each other."""

    journal: DurableJournal
    snapshots: SnapshotStore
    state: QuorumState


def disk_trouble(directory: str, error: Exception) -> str | None:
    """The message for an operator whose disk or machine refuses a need of the journal in `directory`; None for
    any other error."""
    cause = error.__cause__ if isinstance(error, LogError) else error
    if not isinstance(cause, OSError):
        return None
    name = cause.filename if cause is error else None
    name = name or f"The quorum's journal in {directory}"
    reason = cause.strerror or cause
    if is_disk_full(cause):
        return (
            f"{name} cannot be written: {reason}. Make room and start the node again; nothing acknowledged is"
            " lost."
        )
    if is_passing(cause):
        what = "open files (`ulimit -n`)" if is_out_of_descriptors(cause) else "memory"
        return f"{name} cannot be used: {reason}. Give the node more {what} and start it again."
    if is_broken(cause):
        return f"{name} cannot be used: {reason}. Mend its disk or file system and start the node again."
    return None


def open_partition_log(
    disk: Disk,
    directory: str,
    recovery_point: int,
    now_ms: NowMs,
    halt: Halt,
    *,
    segment_bytes: int = DEFAULT_SEGMENT_BYTES,
    segment_ms: int = DEFAULT_SEGMENT_MS,
) -> PartitionLog:
    """The journal's log, from which only a snapshot removes entries. Raises LogError."""
    return PartitionLog.open(
        disk,
        directory,
        TopicPartition(JOURNAL_TOPIC, JOURNAL_PARTITION),
        LogConfig(
            segment_bytes=segment_bytes,
            segment_ms=segment_ms,
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
    """Opens or, on the first start, creates the journal of a formatted directory. Raises RaftStorageError;
    OSError where `disk_trouble` has no advice."""
    try:
        return _open_storage(config, disk, wall_ms, halting, log_factory)
    except OSError as error:
        sentence = disk_trouble(config.journal_directory, error)
        if sentence is None:
            raise
        raise RaftStorageError(sentence) from error


def _open_storage(
    config: RaftConfig, disk: Disk, wall_ms: NowMs, halting: Halting, log_factory: LogFactory
) -> RaftStorage:
    try:
        identity = check_meta_properties(
            disk, config.directory, cluster_id=config.cluster_id, node_id=config.node_id
        )
    except DataDirectoryError as error:
        raise RaftStorageError(str(error)) from error
    directory = config.journal_directory
    disk.make_dirs(directory)
    disk.sync_dir(config.directory)
    snapshots, advice = SnapshotStore(disk, directory), cure(len(config.voters))
    try:
        known = QuorumState.load(disk, directory, identity, advice)
        if known is None and disk.exists(f"{config.directory}/{VOTED_MARKER}"):
            raise RaftStorageError(_forgotten(config))
        snapshots.open(advice)
        check_membership(config, identity.directory_id, known, snapshots.newest)
    except (QuorumStateError, SnapshotError, MembershipError) as error:
        raise RaftStorageError(str(error)) from error
    try:
        found = _recover(disk, directory, known, snapshots.newest, advice)
        _remove_derived_files(disk, directory)
        log = log_factory(disk, directory, found.end + 1, wall_ms, halting.note)
        state = known if known is not None else QuorumState(disk, directory, identity)
        journal = DurableJournal(log, state, wall_ms, halting)
        newest = snapshots.newest
        journal.open(found, None if newest is None else (newest.prev, newest.last))
        journal.sync()
    except (LogError, CorruptBatchError, JournalDamagedError, JournalCorruptError) as error:
        raise RaftStorageError(
            disk_trouble(directory, error)
            or f"The quorum's journal in {directory} cannot be used: {error}. {advice}"
        ) from error
    voters = tuple(sorted(config.voters))
    is_known = state is known and state.voters == voters
    state.voters = voters
    if not is_known:
        journal.save_state()
    elif not journal.save_state_if_possible():
        state.keep()
    if not disk.exists(f"{config.directory}/{VOTED_MARKER}"):
        write_atomically(disk, f"{config.directory}/{VOTED_MARKER}", identity.directory_id.encode())
    return RaftStorage(journal, snapshots, state)


def _recover(
    disk: Disk, directory: str, known: QuorumState | None, newest: Snapshot | None, advice: str
) -> CheckedJournal:
    """The journal's content, checked and durable. Raises RaftStorageError, JournalCorruptError."""
    if known is not None and known.journal_end == 0 and newest is not None:
        remove_journal(disk, directory)
    known_end = 0 if known is None else known.journal_end
    keep_from = FIRST_ENTRY[1] if newest is None else newest.prev[1]
    found = recover_journal(disk, directory, known_end, keep_from)
    if known is None and (found.end > FIRST_ENTRY[1] or newest is not None):
        raise RaftStorageError(
            f"{directory} holds a journal but no quorum-state, so this voter has forgotten its vote. {advice}"
        )
    return found


def _forgotten(config: RaftConfig) -> str:
    """The message for an operator whose voter has made promises and lost them."""
    gone = f"{config.journal_directory}/quorum-state is gone, so this voter has forgotten its vote"
    if len(config.voters) == 1:
        return f"{gone}. {cure(1)}"
    return (
        f"{gone} and may not count as its old self: remove everything in {config.directory}, and format the node"
        " anew."
    )


def _remove_derived_files(disk: Disk, directory: str) -> None:
    """Removes them without a sync: a crash may bring them back, and the next start removes them again."""
    for name in disk.list_dir(directory):
        if name.endswith(_DERIVED_SUFFIXES) or name in _DERIVED_NAMES:
            disk.remove(f"{directory}/{name}")
