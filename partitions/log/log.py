"""One partition's log on one broker: append, read, truncate, retain, compact, flush, close.

Guarantees: offsets only grow, and what truncation cut never comes back; a failed write leaves no torn batch; what
`sync` covered survives a power loss; nothing is handed out that `checked_bytes.py` has not let through. A truncation is
durable before anything is appended again, so that no old byte can come back below a new one; a crash in between leaves
a prefix of the log, or, where its start was given up, a suffix: never a hole. Readers that hold slices of segments
that are gone go on undisturbed. A log in which damage was found answers nothing any more, and `LogStorage.on_lost` has
been told when the error comes out; but an index that misled a read is made anew before that, and so are leader epochs
that the batches contradict. A log leads only in an epoch that no batch of it is later than.

The log itself has what its parts have in common: where it starts and ends, and the list of its segments. It changes
them here alone, and passes them to the parts. It owns the leader epochs and their file, what batches say of them
(`epochs/`), the producers and transactions (`producers/`), how far it is durable (`flushes.py`), what the data
directory's checkpoint files say of it (`checkpointed_offsets.py`), the compaction (`cleaner/compaction.py`) and the
reader. All calls come from one lane (the event loop, or the Raft lane for the quorum's journal). `LogManager` opens
the logs of a node, partitions append and read through them. Formats are Kafka's (record batch v2, KIP-98; leader
epochs, KIP-101, KIP-279, KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NoReturn, TypeVar

from leader_epoch.epoch_cache import UNDEFINED_EPOCH, EpochEntry
from partitions.disk import Buffer, Disk
from partitions.log.append import (
    NO_TIME,
    AppendInfo,
    Stamped,
    append_info,
    split_to_fit,
    stamp_batches,
    with_append_time,
)
from partitions.log.checkpointed_offsets import CheckpointedOffsets
from partitions.log.cleaner.compaction import Compaction, Section
from partitions.log.cleaner.sources import Group
from partitions.log.cleaner.swap import DELETED_SUFFIX, SegmentSwap
from partitions.log.config import LOG_APPEND_TIME, LogConfig
from partitions.log.config_values import INT_MAX
from partitions.log.epochs.epoch_evidence import EpochEvidence
from partitions.log.epochs.epoch_file import EpochFile
from partitions.log.errors import (
    AppendError,
    AppendPostponed,
    BatchDamaged,
    EpochsDisagree,
    InterruptedByFullDisk,
    LogCorruptError,
    LogError,
    LogStorageError,
    NoRoomToAppend,
    NoSpaceLeft,
    OffsetOutOfRange,
)
from partitions.log.flushes import FlushJob, LogFlushes
from partitions.log.opening.open_log import (
    OpenedLog,
    OpenRequest,
    inconsistent_topic_id,
    newly_made,
    open_log,
)
from partitions.log.partition_files import (
    PARTITION_METADATA,
    TruncationCheckpoint,
    encode_partition_metadata,
)
from partitions.log.producers.log_producers import MARK_EVERY_BYTES, LogProducers
from partitions.log.producers.producer_state import BatchRange, ProducerEntry, ProducerState
from partitions.log.producers.transaction_index import TRANSACTION_INDEX_SUFFIX, AbortedTransaction
from partitions.log.producers.verifications import VerificationGuard
from partitions.log.reader import LogReader, ReadResult, TimestampedOffset
from partitions.log.record_checks import check_beside, check_for_leader
from partitions.log.retention import expired_count
from partitions.log.scan import Stop
from partitions.log.segment import Segment
from partitions.log.storage import (
    LogStorage,
    is_disk_full,
    is_out_of_descriptors,
    is_passing,
    is_wanting,
    storage_error,
)
from partitions.log.validation import CheckedBatches, Origin, check_follower_append, markers_in
from partitions.lookup_budget import LookupBudget
from partitions.ports import Halt, NowMs
from partitions.records.batch import CorruptBatchError, parse_header, verify_crc
from partitions.records.header import NO_SEQUENCE
from partitions.records.markers import EndTransactionMarker
from partitions.topic_partition import TopicPartition

T = TypeVar("T")

_NO_MARKERS: Final[Mapping[int, EndTransactionMarker]] = MappingProxyType({})


class PartitionLog:
    """The segments of one partition, from its start to its end, and the parts that go with them."""

    __slots__ = ("_closed", "_half_set_aside", "_now_ms", "_owns_storage", "_reader", "_segments", "_storage",
                 "checkpointed", "compaction", "config", "directory", "epoch_evidence", "epoch_file", "epochs",
                 "flushes", "generation", "log_end_offset", "log_start_offset", "producers", "recovery", "topic_id",
                 "topic_partition")  # fmt: skip

    def __init__(
        self,
        storage: LogStorage,
        topic_partition: TopicPartition,
        request: OpenRequest,
        opened: OpenedLog,
        now_ms: NowMs,
        *,
        owns_storage: bool,
    ) -> None:
        """The log that `open` or `newly_made` has found."""
        directory, segments, aborted = request.directory, opened.segments, opened.aborted
        self.topic_partition = topic_partition
        self.directory = directory
        self.topic_id = opened.topic_id
        self.config = request.config
        self.recovery = opened.report
        """What opening the log found."""
        self.log_start_offset = opened.log_start_offset
        self.log_end_offset = opened.log_end_offset
        self.generation = 0
        """Counts truncations."""
        self._closed = False
        self._storage = storage
        self._owns_storage = owns_storage
        self._now_ms = now_ms
        self._segments = segments
        self._half_set_aside: tuple[str, ...] = ()
        """Files of the first segment that have their new names already, where others could not be renamed."""
        self._reader = LogReader(storage, segments, opened.checked_bytes())
        self.epochs = opened.epochs
        self.epoch_file = EpochFile(
            storage, directory, opened.epochs, opened.epochs_changed, only_lacking=opened.epochs_only_lacking
        )
        self.epoch_evidence = EpochEvidence(
            storage, segments, opened.epochs, proven_from=opened.epochs_proven_from
        )
        self.producers = LogProducers(
            storage, directory, segments, opened.producer_state, aborted, opened.snapshot_offset
        )
        self.flushes = LogFlushes(
            storage, directory, segments, aborted, self.epoch_file, opened.recovery_point
        )
        if not opened.existed_cleanly:
            self.flushes.names_changed()
        if not opened.report.clean:
            self.flushes.unsynced_sealed += segments.from_offset(opened.recovery_point)[:-1]
        self.compaction = Compaction(storage, directory, segments, aborted, opened.clean_offset(request))
        in_files = TruncationCheckpoint(request.recovery_point, request.log_start_offset)
        self.checkpointed = CheckpointedOffsets(
            storage, directory, in_files, request.clean_offset, opened.limits
        )
        is_in_files = in_files == self._checkpoint and request.clean_offset == self.clean_offset
        if not is_in_files or not self.recovery_point:  # what is 0 may be in no file yet
            self._offsets_moved()

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: NowMs,
        halt: Halt,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_offset: int = 0,
        clean_shutdown: bool = False,
        closed_at: int | None = None,
        topic_id: bytes | None = None,
        storage: LogStorage | None = None,
    ) -> PartitionLog:
        """Opens the log in `directory`, creating it if there is none.

        `recovery_point`, `log_start_offset` and `clean_offset` come from the data directory's
        checkpoints: what is below the first was flushed, what is below the last was compacted. With
        `clean_shutdown` nothing is checked, but that the log ends at `closed_at` where that is known. `storage` is
        shared by the logs of one directory; without it the log has its own. Raises LogCorruptError (damage that
        no crash explains), InconsistentTopicId, LogStorageError.
        """
        request = OpenRequest(
            directory,
            config,
            now_ms(),
            recovery_point,
            log_start_offset,
            clean_shutdown,
            topic_id,
            clean_offset,
            closed_at,
        )
        shared = storage if storage is not None else LogStorage(disk, halt)
        try:
            opened = open_log(shared, request)
        except LogError:
            shared.release_folder(directory)
            raise
        except OSError as error:
            shared.release_folder(directory)
            reason = f"opening the log {directory} failed: {error}"
            shared.fail_if_broken(reason, error)
            raise storage_error(reason, error) from error
        return cls(shared, topic_partition, request, opened, now_ms, owns_storage=storage is None)

    @classmethod
    def newly_made(
        cls,
        storage: LogStorage,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        topic_id: bytes,
        epochs: Sequence[EpochEntry],
        now_ms: NowMs,
    ) -> PartitionLog:
        """The empty log in a folder that `creation.make_folders` has just made; touches no file.

        `epochs` are those that its checkpoint file holds.
        """
        request = OpenRequest(directory, config, now_ms(), 0, 0, True, topic_id)
        return cls(
            storage,
            topic_partition,
            request,
            newly_made(storage, request, epochs),
            now_ms,
            owns_storage=False,
        )

    # ---- what it is

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def storage(self) -> LogStorage:
        """The data directory as this log uses it."""
        return self._storage

    @property
    def size_bytes(self) -> int:
        """Data bytes of all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_base_offsets(self) -> tuple[int, ...]:
        return tuple(segment.base_offset for segment in self._segments)

    @property
    def recovery_point(self) -> int:
        """Everything below is durable."""
        return self.flushes.recovery_point

    @property
    def clean_offset(self) -> int:
        """Up to here the log was compacted; not above the recovery point."""
        return self.compaction.clean_offset

    def update_config(self, config: LogConfig) -> None:
        """Goes by another configuration from the next append on."""
        self.config = config
        for segment in self._segments:
            segment.update_config(config)

    def claim(self, topic_id: bytes) -> None:
        """Makes sure that the folder belongs to this topic id; one that names none gets it, durably.

        Raises InconsistentTopicId, LogStorageError.
        """
        self._ensure_open()
        if self.topic_id is None:
            self._storage.replace(
                f"{self.directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id)
            )
            self.topic_id = topic_id
        elif self.topic_id != topic_id:
            raise inconsistent_topic_id(self.directory, self.topic_id, topic_id)

    def _ensure_open(self) -> None:
        if self._closed:
            raise LogStorageError(f"the log {self.directory} is closed")
        if self._storage.failure is not None:
            self._storage.ensure_usable()

    # ---- append

    def check_beside(self, records: Buffer) -> Callable[[], CheckedBatches] | None:
        """A client's records that take long to check: the job does it, sharing nothing with the log.

        What it returns goes to `append_as_leader` in place of the records. None where there is little to
        do. Raises, and the job does, AppendError.
        """
        return check_beside(records, self.config, self._now_ms)

    def append_as_leader(
        self,
        records: Buffer | CheckedBatches,
        *,
        leader_epoch: int,
        origin: Origin = "client",
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Checks the batches, gives them the next offsets and `leader_epoch`, writes them at once.

        Batches that a client repeats are not written again; the answer is a duplicate's. `guard` is that of
        `begin_verification`, without which a client's batch opens no transaction. Raises AppendError whose `code`
        says why nothing was appended.
        """
        if self._closed or self._storage.failure is not None:  # the hot path saves its frame
            self._ensure_open()
        config = self.config
        if isinstance(records, CheckedBatches):
            checked = records
        else:
            checked = check_for_leader(records, config, origin, self._now_ms)
        view, batches, idempotent, _ = checked
        epochs, producers = self.epochs, self.producers
        latest, state = epochs.latest_epoch, producers.state
        if len(view) > config.segment_bytes or (latest is not None and leader_epoch < latest):
            raise self._refusal(len(view), leader_epoch, latest)
        markers = _NO_MARKERS
        if idempotent:
            if origin == "client":
                duplicate = state.find_duplicate(idempotent)
                if duplicate is not None:
                    return self._duplicate(*duplicate, len(view))
                state.check(idempotent, sequences=True, guard=guard)
            else:
                markers = markers_in(view, batches)
                known = {batches[number][1]: marker for number, marker in markers.items()}
                state.check(idempotent, sequences=False, markers=known)
        append_time = NO_TIME
        if config.message_timestamp_type == LOG_APPEND_TIME:
            append_time = self._now_ms()
            view, batches = with_append_time(view, batches, append_time)
        first_offset = self.log_end_offset
        stamped = stamp_batches(view, batches, first_offset, leader_epoch)
        size_bytes = len(view)
        self._write(stamped, size_bytes)
        _, _, next_offset, max_timestamp = stamped
        if leader_epoch != latest and leader_epoch >= 0 and epochs.assign(leader_epoch, first_offset):
            self.epoch_file.changed_from(first_offset)
        if idempotent:
            producers.record(batches, first_offset, markers)
        state.end_offset = next_offset
        producers.unmarked_bytes += size_bytes
        if producers.unmarked_bytes >= MARK_EVERY_BYTES:
            producers.mark()
        return append_info((first_offset, next_offset - 1, max_timestamp, append_time, self.log_start_offset,
                            False, len(batches), size_bytes))  # fmt: skip

    def _refusal(self, size_bytes: int, leader_epoch: int, latest_epoch: int | None) -> AppendError:
        if size_bytes > self.config.segment_bytes:
            return AppendError(
                "RECORD_LIST_TOO_LARGE",
                f"an append of {size_bytes} bytes exceeds segment.bytes of {self.config.segment_bytes}",
            )
        return AppendError(
            "FENCED_LEADER_EPOCH", f"leader epoch {leader_epoch} is over, the log is at epoch {latest_epoch}"
        )

    def _duplicate(self, first: BatchRange, last: BatchRange, size_bytes: int) -> AppendInfo:
        append_time = last.timestamp if self.config.message_timestamp_type == LOG_APPEND_TIME else NO_TIME
        return append_info((first.first_offset, last.last_offset, last.timestamp, append_time,
                            self.log_start_offset, True, 0, size_bytes))  # fmt: skip

    def append_as_follower(self, records: Buffer, *, leader_epoch: int | None = None) -> AppendInfo:
        """Appends the leader's batches byte for byte, and learns their epochs and producers.

        They start at the log end offset, or later where the leader's log has a hole; with `leader_epoch`, those
        before the first one of a later epoch. Raises AppendError; UnexpectedAppendOffset when the offsets do not
        fit. Nothing is appended then, except that a disk that fails part of the way keeps the segments already
        filled.
        """
        self._ensure_open()
        view = records if isinstance(records, memoryview) else memoryview(records)
        producers = self.producers
        state, latest = producers.state, self.epochs.latest_epoch
        batches = check_follower_append(
            view, log_end_offset=self.log_end_offset, latest_epoch=latest, leader_epoch=leader_epoch
        )
        markers = markers_in(view, batches)
        first_offset = batches[0][1].base_offset if batches else self.log_end_offset
        newest = NO_TIME
        number, expected = 0, self.log_end_offset
        for group in split_to_fit(batches, self.config.segment_bytes, self.log_end_offset):
            start = group[0][0]
            last = group[-1][1]
            end = group[-1][0] + last.size_bytes
            placed = [(header.last_offset, header.size_bytes, header.max_timestamp) for _, header in group]
            group_newest = max(timestamp for _, _, timestamp in placed)
            self._write(([view[start:end]], placed, last.next_offset, group_newest), end - start)
            newest = max(newest, group_newest)
            for _, header in group:
                epoch = header.partition_leader_epoch
                if epoch >= 0 and epoch != latest:
                    # A hole before it counts as of its epoch, as in `epoch_evidence.find_epochs`: a replica that
                    # has something else there, of an earlier epoch, is told to cut it.
                    if self.epochs.assign(epoch, expected):
                        self.epoch_file.changed_from(expected)
                    latest = epoch
                expected = header.next_offset
                marker = markers.get(number) if markers else None
                completed = state.record(header, header.base_offset, marker)
                if completed is not None:
                    producers.complete(completed)
                number += 1
            state.end_offset = last.next_offset
            producers.unmarked_bytes += end - start
            if producers.unmarked_bytes >= MARK_EVERY_BYTES:
                producers.mark()
        return AppendInfo(
            first_offset,
            self.log_end_offset - 1,
            newest,
            NO_TIME,
            self.log_start_offset,
            False,
            len(batches),
            batches[-1][0] + batches[-1][1].size_bytes if batches else 0,
        )

    def _write(self, stamped: Stamped, size_bytes: int) -> None:
        """One vectored write into the active segment, after a roll if one is due."""
        buffers, placed, next_offset, max_timestamp = stamped
        active = self._segments.active
        if not active.has_room(size_bytes, max_timestamp, next_offset - 1):
            active = self._with_room(active, size_bytes, max_timestamp, next_offset - 1)
        try:
            self._storage.file(active.log_path).append(buffers)
        except OSError as error:
            self._undo_write(active, active.size_bytes, error)
        active.index(placed)
        self.log_end_offset = next_offset

    def _with_room(self, active: Segment, size_bytes: int, max_timestamp: int, last_offset: int) -> Segment:
        """The active segment, a new one if a roll is due. Raises AppendError, LogCorruptError."""
        if last_offset - self.log_end_offset > INT_MAX:  # not even a new segment could name it
            raise AppendError(
                "RECORD_LIST_TOO_LARGE",
                f"an append of offsets {self.log_end_offset} to {last_offset} is wider than a segment can be",
            )
        try:  # the first append after a start reads the segment's first header
            is_due = active.should_roll(self.config, size_bytes, max_timestamp, last_offset, self._now_ms)
        except LogCorruptError as damage:
            self.note_damage(damage)
            raise
        except OSError as error:
            self._refuse(f"reading {active.log_path} failed: {error}", error)
        if not is_due:
            return active
        try:
            return self._roll()
        except OSError as error:
            self._refuse(f"no new segment could be made: {error}", error)

    def _undo_write(self, segment: Segment, size_bytes: int, error: OSError) -> NoReturn:
        """Cuts away what a failed write left, so that the disk may be full without being torn."""
        try:
            is_torn = self._storage.file(segment.log_path).size() != size_bytes
        except OSError:
            is_torn = False  # a file that cannot even be opened was not written to
        if is_torn:
            self._storage.truncate_durably(segment.log_path, size_bytes)
        self._refuse(f"writing to {segment.log_path} failed: {error}", error)

    def _refuse(self, reason: str, error: OSError) -> NoReturn:
        """Nothing of the append is in the log. A client tries again in any case, a follower what may pass; what does
        not pass gives the log up, so that another replica leads."""
        self._storage.fail_if_broken(reason, error)
        if is_disk_full(error):
            raise NoRoomToAppend(reason) from error
        if is_passing(error):
            raise AppendPostponed(reason) from error
        self._storage.on_lost(self.topic_partition, LogStorageError(reason))
        raise AppendError("KAFKA_STORAGE_ERROR", reason) from error

    # ---- segments come

    def roll(self) -> None:
        """Closes the active segment and begins a new one; nothing to do when it is empty.

        Raises LogStorageError; the log goes on with the old segment where that may pass (NoSpaceLeft, want of
        descriptors or memory), and is given up where it does not.
        """
        self._ensure_open()
        if self._segments.active.size_bytes:
            try:
                self._roll()
            except OSError as error:
                reason = f"no new segment could be made: {error}"
                self._storage.fail_if_broken(reason, error)
                if not (is_disk_full(error) or is_passing(error)):
                    self._storage.on_lost(self.topic_partition, LogStorageError(reason))
                raise storage_error(reason, error) from error

    def _roll(self) -> Segment:
        """As `roll`, for an active segment that is not empty. Raises OSError with nothing changed."""
        old = self._segments.active
        if self.config.preallocate:
            old.trim()
        old.persist_indexes()
        self.producers.aborted.persist(old.base_offset)
        flushed = self.recovery_point >= self.log_end_offset
        if flushed:
            # Neither a flush nor a recovery looks at this segment again once the new one is there.
            old.indexes.sync()
            self.producers.aborted.sync(old.base_offset)
        self._write_snapshot()
        new = self._create_segment(self.log_end_offset)
        old.seal()
        self.producers.aborted.persist(old.base_offset, sealed=True)
        self._segments.append(new)
        if not flushed:
            self.flushes.unsynced_sealed.append(old)
        return new

    def _create_segment(self, base_offset: int) -> Segment:
        self.flushes.names_changed()
        segment = Segment(self._storage, self.directory, base_offset, self.config, now_ms=self._now_ms())
        try:
            segment.create_files()
            if self.config.preallocate:
                segment.reserve(self.config.segment_bytes)
        except OSError:
            # An empty segment left here would claim offsets that the old one goes on to fill.
            try:
                segment.remove()
            except OSError as error:
                self._storage.fail(
                    f"removing an unfinished segment of {self.directory} failed: {error}", error
                )
            raise
        return segment

    def _write_snapshot(self) -> None:
        if self.producers.write_snapshot(self.log_end_offset):
            self.flushes.names_changed()

    # ---- read

    def read(
        self, offset: int, max_bytes: int, *, up_to_offset: int, min_one_batch: bool = True
    ) -> ReadResult:
        """Whole batches from the one that holds `offset` on, as ranges of files (several segments).

        Only records below `up_to_offset` (high watermark, or log end for a follower), at most
        `max_bytes`; a first batch larger than that comes whole when `min_one_batch`. Fewer where much
        has to be checked first. Raises OffsetOutOfRange, LogCorruptError, LogStorageError.
        """
        self._ensure_open()
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise OffsetOutOfRange(offset, self.log_start_offset, end)
        stop = up_to_offset if up_to_offset < end else end
        if offset >= stop:
            return ReadResult((), 0, offset, offset)
        read = self._reader.read
        try:
            return read(offset, max_bytes, stop=stop, log_end_offset=end, min_one_batch=min_one_batch)
        except (OSError, LogCorruptError) as error:
            return self._read_again(
                error,
                lambda: read(offset, max_bytes, stop=stop, log_end_offset=end, min_one_batch=min_one_batch),
            )

    def offset_for_timestamp(
        self, timestamp: int, budget: LookupBudget | None = None
    ) -> TimestampedOffset | None:
        """The first record whose timestamp is >= `timestamp` (ms); None if all are older.

        Where the budget is spent (None: that of one lookup), the base offset and largest timestamp of the batch that
        promises it: the record is there or later. Raises LogCorruptError, LogStorageError.
        """
        self._ensure_open()
        budget = LookupBudget() if budget is None else budget
        return self._guarded(
            lambda: self._reader.offset_for_timestamp(
                timestamp, log_start_offset=self.log_start_offset, budget=budget
            )
        )

    def offset_for_max_timestamp(self, budget: LookupBudget | None = None) -> TimestampedOffset | None:
        """The first record that carries the log's largest timestamp; None in an empty log.

        Where the budget is spent, a batch by its header, as in `offset_for_timestamp`. Raises LogCorruptError,
        LogStorageError.
        """
        self._ensure_open()
        budget = LookupBudget() if budget is None else budget
        return self._guarded(
            lambda: self._reader.offset_for_max_timestamp(
                log_start_offset=self.log_start_offset, budget=budget
            )
        )

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where a read_committed reader may read: no transaction with records below is undecided.

        One whose marker is not below the high watermark counts as undecided.
        """
        return self.producers.last_stable_offset(high_watermark, self.log_start_offset)

    @property
    def producer_state(self) -> ProducerState:
        """What the log knows of its producers now: another object after a truncation."""
        return self.producers.state

    @property
    def active_producers(self) -> Mapping[int, ProducerEntry]:
        """The idempotent and transactional producers that the log knows of, by their ids."""
        return self.producers.state.producers

    def now_ms(self) -> int:
        """The wall clock, as milliseconds since the Unix epoch."""
        return self._now_ms()

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int = NO_SEQUENCE, *, supports_epoch_bump: bool = False
    ) -> VerificationGuard | None:
        """The guard for a batch of this producer, with `sequence` as its first, that is about to be verified; None
        if it goes on with an open transaction. `supports_epoch_bump`: the producer speaks transaction.version 2."""
        return self.producers.state.begin_verification(
            producer_id, epoch, sequence, supports_epoch_bump=supports_epoch_bump, now_ms=self._now_ms()
        )

    def forget_replicated(self, high_watermark: int) -> None:
        """The high watermark rose: markers below cannot be lost any more."""
        transactions = self.producers.state.transactions
        if transactions:
            transactions.forget_replicated(high_watermark)

    def aborted_transactions(self, fetch_offset: int, up_to_offset: int) -> Sequence[AbortedTransaction]:
        """The aborted transactions that overlap [`fetch_offset`, `up_to_offset`), in order of their markers.

        `up_to_offset` is not above the last stable offset. Raises LogCorruptError, LogStorageError.
        """
        self._ensure_open()
        aborted = self.producers.aborted
        if not aborted:
            return ()
        segments = self._segments
        first_base = segments[segments.position_for(fetch_offset)].base_offset
        return self._guarded(lambda: aborted.collect(first_base, fetch_offset, up_to_offset))

    # ---- damage

    def distrust(self) -> None:
        """A reader was handed damaged bytes: whatever there is now is checked at its next read."""
        self._ensure_open()
        self._reader.checked_bytes.restart(self._segments.active)

    def note_damage(self, error: LogCorruptError) -> None:
        """Gives the log up for damage that was found in it beside a read."""
        if not self._closed:
            self._storage.on_lost(self.topic_partition, error)

    def note_failure(self, error: OSError | LogCorruptError) -> None:
        """What a look at the segments beside a read met. Raises LogStorageError where the disk refused it."""
        if isinstance(error, LogCorruptError):
            self.note_damage(error)
            return
        reason = f"reading the log {self.directory} failed: {error}"
        self._storage.fail_if_broken(reason, error)
        raise LogStorageError(reason) from error

    def _guarded(self, lookup: Callable[[], T]) -> T:
        try:
            return lookup()
        except (OSError, LogCorruptError) as error:
            return self._read_again(error, lookup)

    def _read_again(self, error: OSError | LogCorruptError, lookup: Callable[[], T]) -> T:
        """Tells a damaged index from a damaged log, and a broken disk from both. Raises what it was."""
        try:
            if isinstance(error, EpochsDisagree):
                self.epoch_evidence.ensure_believed(error)
                self._relearn_epochs()
                return lookup()
            if isinstance(error, OSError | BatchDamaged):
                raise error
            self._reader.mend_index(error.path)
            return lookup()
        except LogCorruptError as damage:
            self.note_damage(damage)
            raise
        except OSError as failure:
            reason = f"reading the log {self.directory} failed: {failure}"
            self._storage.fail_if_broken(reason, failure)
            if not (is_disk_full(failure) or is_passing(failure)):
                self._storage.on_lost(self.topic_partition, LogStorageError(reason))
            raise LogStorageError(reason) from failure
        finally:
            # Its traceback has this frame, which would keep it, and all that callers hold: slices, files.
            del error

    def _relearn_epochs(self) -> None:
        """Takes the epochs from the batches, with those that have no record yet; the file follows with the next
        flush. Raises LogCorruptError, OSError."""
        self.epoch_evidence.relearn(self.log_end_offset)
        self.epoch_file.changed_from(0, cut=True)

    # ---- leader epochs

    def assign_epoch_start(self, epoch: int) -> bool:
        """KIP-101: this replica leads in `epoch`, from the log's end on. Whether that is durable already.

        Called on becoming leader. If it is not durable, `EpochWriter.write` has to come before the first append.
        Nobody has written in a later one: a batch that says so is damaged. Where the epochs say so and the batches
        do not, they are taken from the batches. Raises LogCorruptError, and the log is given up; LogStorageError.
        """
        self._ensure_open()
        evidence, end = self.epoch_evidence, self.log_end_offset
        if (later := evidence.later_epoch(epoch, end)) is not None:
            self._guarded(lambda: evidence.check_not_later(later, epoch))
            self._guarded(self._relearn_epochs)
            if (still := evidence.later_epoch(epoch, end)) is not None:
                self._guarded(lambda: evidence.check_not_later(still, epoch))
        return self.epoch_file.begin(epoch, end)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """KIP-279: (largest known epoch <= `epoch`, its end offset), (-1, -1) if undefined.

        Raises LogCorruptError, and the log is given up, where the batches there contradict the epochs and may be
        what is wrong; LogStorageError.
        """
        found = self.epochs.end_offset_for(epoch, self.log_end_offset)
        if found[0] == UNDEFINED_EPOCH or self.epoch_evidence.is_proven(found[1]):
            return found
        self._prove_epochs(found[1], on_both_sides=True)
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote (or would write) the record at `offset`; None if none is known.

        Raises as `end_offset_for_epoch` does.
        """
        if not self.epoch_evidence.is_proven(offset, on_both_sides=False):
            self._prove_epochs(offset, on_both_sides=False)
        return self.epochs.epoch_for_offset(offset)

    def _prove_epochs(self, offset: int, *, on_both_sides: bool) -> None:
        """A few headers of this place, so that nothing is answered from a rotten checkpoint file."""
        self._ensure_open()
        self._guarded(lambda: self.epoch_evidence.prove(offset, on_both_sides=on_both_sides))

    # ---- its end is given up (KIP-101)

    def truncate_to(self, offset: int) -> None:
        """Gives up every batch that reaches `offset` or lies above it; durable on return.

        The log end offset becomes at most `offset`. Leader epochs that begin there go even when no batch does. The
        last batch that stays confirms the epoch that is the newest then: a follower names it to its leader. Raises
        LogStorageError (InterruptedByFullDisk: the log is given up); LogCorruptError, and the log is given up, where
        what is to stay is damaged, or contradicts the epochs; BatchDamaged, with nothing changed on disk, where a
        rotten header would take sound batches along.
        """
        self._ensure_open()
        evidence = self.epoch_evidence
        if self._segments.first.base_offset < offset < min(self.log_end_offset, evidence.proven_from):
            self._guarded(lambda: evidence.check_last_below(offset))
        self._truncate(offset)

    def _truncate(self, offset: int) -> None:
        """As `truncate_to`, whatever the last batch that stays says of the epochs."""
        self._ensure_open()
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        if offset < self.log_end_offset:
            self.compaction.settle()
            try:
                self._truncate_segments(offset)
                self.producers.reload(self.log_end_offset)
                self.flushes.sync_names()
            except OSError as error:
                self._end_half_truncated(error)
            except NoSpaceLeft as error:
                self._interrupt_truncation(error)
            except LogCorruptError as damage:
                # Met before anything was cut, or when a wrong index was made anew of what is left: what is in
                # memory speaks of more than that, and no append may go by it.
                self._storage.on_lost(self.topic_partition, damage)
                raise
        self.epoch_evidence.cut(self.log_end_offset)
        if self.epochs.truncate_from_end(self.log_end_offset):
            self.epoch_file.changed_from(self.log_end_offset, cut=True)

    def _truncate_segments(self, offset: int) -> None:
        segments = self._segments
        number = segments.position_for(offset)
        if number and segments[number].base_offset == offset:
            number -= 1
        first_cut = segments[number].locate(offset)
        if first_cut.batch_bytes and first_cut.offset < offset:
            self._check_batch(segments[number].log_path, first_cut)
        end_offset = first_cut.passed_offset
        self.checkpointed.limit(end_offset, min(end_offset, self.log_start_offset))
        self.generation += 1
        self._reader.forget()
        while number + 1 < len(segments):
            segments.pop_last().remove()
            # One by one, and before the data is cut: a crash on the way must not leave a hole.
            self._storage.sync_dir(self.directory)
        active = segments.active
        if first_cut.batch_bytes:
            active.truncate(first_cut.position, end_offset)
        else:
            active.unseal()
        self._reader.checked_bytes.cut(active)
        self.producers.aborted.truncate(end_offset, active.base_offset)
        self.log_end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.flushes.cut(end_offset)
        self.compaction.cut(end_offset)
        self._offsets_moved()

    def _check_batch(self, path: str, found: Stop) -> None:
        """Of a batch that is cut although it begins below: whether it does reach so far. Raises BatchDamaged."""
        data = self._storage.file(path).read(found.position, found.batch_bytes)
        try:
            verify_crc(data, 0, parse_header(data, 0))
        except CorruptBatchError as error:
            raise BatchDamaged(path, found.position, str(error)) from error

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Gives up everything; the log is empty and its next offset is `offset`. Durable on return.

        For a follower whose log lies wholly outside its leader's. Raises LogStorageError, as `truncate_to`.
        """
        self._ensure_open()
        self.compaction.settle()
        try:
            # 0: whatever a crash leaves of the old segments is to be checked from the first one on.
            self.checkpointed.limit(0, min(offset, self.log_start_offset))
            self.generation += 1
            self._reader.forget()
            names = self._storage.disk.list_dir(self.directory)
            self.producers.remove_snapshots(names)
            while len(self._segments):
                self._segments.pop_last().remove()
            self.epoch_file.remove()  # a recovery would take what comes to contradict it
            self.producers.aborted.clear()
            for name in names:
                if name.endswith(TRANSACTION_INDEX_SUFFIX + DELETED_SUFFIX):
                    # A start after a crash must not take it for a new segment's.
                    self._storage.remove(f"{self.directory}/{name}")
            self._storage.sync_dir(self.directory)
            self._segments.append(self._create_segment(offset))
            self._reader.checked_bytes.cut(self._segments.active)
            self.flushes.sync_names()
        except OSError as error:
            self._end_half_truncated(error)
        if self.epochs.clear():
            self.epoch_file.changed_from(0, cut=True)
        self.producers.restart_at(offset)
        self.flushes.restart_at(offset)
        self.log_start_offset = self.log_end_offset = offset
        self.compaction.cut(offset)
        self._offsets_moved()

    def _end_half_truncated(self, error: OSError) -> NoReturn:
        """What is in memory says nothing any more. On a full disk, or without a descriptor, the files do, by what
        caps the checkpoints: this log alone is given up, until it can be opened again.
        """
        reason = f"truncating the log {self.directory} failed: {error}"
        if not is_wanting(error):
            self._storage.fail(reason, error)
        self._interrupt_truncation(error)

    def _interrupt_truncation(self, error: OSError | NoSpaceLeft) -> NoReturn:
        interrupted = InterruptedByFullDisk(f"truncating the log {self.directory} failed: {error}")
        self._storage.on_lost(self.topic_partition, interrupted)
        raise interrupted from error

    # ---- its start is given up

    def raise_log_start_offset(self, offset: int) -> bool:
        """Gives up the records below `offset`, or below the log's end if that is lower; in memory only.

        The segments that hold nothing else go later: `has_obsolete_segments`. Returns False where the
        log starts there or later already. Raises LogStorageError.
        """
        self._ensure_open()
        offset = min(offset, self.log_end_offset)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._offsets_moved()
        return True

    def expire_segments(self, now_ms: int, high_watermark: int) -> None:
        """Retention by time and by size: raises the log start offset past the segments that go.

        Only where `cleanup.policy` deletes. A segment goes only when it lies wholly below the high
        watermark, and when all older ones go too; if that is true of the active one, it is closed first.
        Raises LogStorageError; NoSpaceLeft where the active one could not be closed, and all older ones go.
        """
        self._ensure_open()
        if not self.config.deletes:
            return
        segments = self._segments
        count = expired_count(segments, self.config, now_ms, high_watermark, self.log_end_offset)
        if count == len(segments):
            try:
                self.roll()
            except NoSpaceLeft:
                # What is older can go all the same, and makes room for a new segment.
                self.raise_log_start_offset(segments.active.base_offset)
                raise
        if count:
            self.raise_log_start_offset(segments[count].base_offset)

    @property
    def has_obsolete_segments(self) -> bool:
        """Whether the first segment lies wholly below the log start offset."""
        return self._segments.wholly_below(self.log_start_offset) > 0

    @property
    def may_set_aside(self) -> bool:
        """Whether the first segment may go without a flush before it.

        What stays has to be there before what goes is gone: the names of later segments, and the epochs,
        which a recovery would learn from the batches that go.
        """
        segments = self._segments
        return (
            len(segments) > 1
            and self.flushes.durable_to >= segments[1].base_offset
            and self.flushes.names_are_durable
            and self._keeps_epochs_without(1)
        )

    def _keeps_epochs_without(self, count: int) -> bool:
        """Whether a recovery would know the epochs of what stays if the first `count` segments were gone."""
        return self.epoch_file.tells_without_batches_below(
            self._segments[count].base_offset,
            durable_to=self.flushes.durable_to,
            is_compacted=self.config.is_compacted,
        )

    def set_aside_first_segment(self) -> list[str]:
        """Takes the first, obsolete segment out of the log; returns its files' new names, to be removed.

        The caller makes the new names durable before it sets the next one aside: names may reach the
        disk in any order, and a hole must not be possible. Readers that hold slices go on undisturbed.
        Raises LogStorageError.
        """
        self._ensure_open()
        self.compaction.settle()
        segment = self._segments.first
        assert self._segments.wholly_below(self.log_start_offset), "the first segment is in use"
        renamed = [*self._half_set_aside]
        try:
            for path in (
                segment.log_path,
                *segment.indexes.paths,
                *self.producers.aborted.paths(segment.base_offset),
                self.producers.snapshot_path(segment.base_offset),
            ):
                if self._storage.set_aside(path, path + DELETED_SUFFIX):
                    renamed.append(path + DELETED_SUFFIX)
        except OSError as error:
            # The next attempt does not find these under their old names, and they take the room.
            self._half_set_aside = tuple(renamed)
            reason = f"setting {segment.log_path} aside failed: {error}"
            self._storage.fail_if_broken(reason, error)
            raise storage_error(reason, error) from error
        self._half_set_aside = ()
        self._segments.pop_first()
        segment.release()
        self.producers.aborted.forget(segment.base_offset)
        self._reader.forget()
        if not self.has_obsolete_segments:
            # Not to the log start: a crash may take that back, as far as there are segments.
            self.epoch_file.truncate_from_start(self._segments.first.base_offset)
        return renamed

    def delete_segments_before(self, offset: int) -> int:
        """As `raise_log_start_offset`, and removes the segments wholly below, durably, before it returns.

        For the quorum's journal, whose lane may wait for the disk. Returns how many segments went.
        Raises LogStorageError.
        """
        if not self.raise_log_start_offset(offset):
            return 0
        count = self._segments.wholly_below(self.log_start_offset)
        if count:
            self.compaction.settle()
            count = self._segments.wholly_below(self.log_start_offset)
            self.flushes.sync_names()  # what stays must be there before what goes is gone
            if not self._keeps_epochs_without(count):
                self.epoch_file.write()  # recovery learns epochs from batches, and these batches go
        for _ in range(count):
            segment = self._segments.pop_first()
            try:
                segment.remove()
                self._storage.remove(self.producers.snapshot_path(segment.base_offset))
            except OSError as error:
                raise LogStorageError(f"deleting {segment.log_path} failed: {error}") from error
            # One by one: names may reach the disk in any order, and a hole must not be possible.
            self._storage.sync_dir(self.directory)
            # Not before: without it aborted records would be read.
            self.producers.aborted.remove(segment.base_offset)
        if count:
            self._reader.forget()
            first = self._segments.first.base_offset
            self.flushes.deleted_before(first)
            # Not to the log start: a crash may take that back, as far as there are segments.
            self.epoch_file.truncate_from_start(first)
        return count

    # ---- compaction

    def cleanable_section(self, now_ms: int, high_watermark: int) -> Section:
        """What can be cleaned once everything below the high watermark is flushed. Raises LogCorruptError, OSError."""
        limit = min(high_watermark, self.log_end_offset)
        first_open = self.producers.state.transactions.first_open
        if first_open is not None:
            limit = min(limit, first_open)
        return self.compaction.section(self.config, now_ms, limit)

    def begin_swap(self, group: Group, new: Segment, *, has_transaction_index: bool) -> SegmentSwap:
        """Has `new`, whose files are durable as `*.cleaned`, take the group's place; nothing is changed yet.

        Raises CleaningAborted if the group's segments are not what they were, LogStorageError.
        """
        self._ensure_open()
        return self.compaction.begin_swap(
            group, new, self.flushes.unsynced_sealed, has_transaction_index=has_transaction_index
        )

    def replace_segments(self, swap: SegmentSwap, aborted: Sequence[AbortedTransaction]) -> None:
        """Reads the new segment from now on, which has these `aborted` transactions; the decision is durable.
        Nothing if the swap was settled."""
        if self.compaction.is_current(swap):
            self._reader.forget()
            swap.replace()
            self._segments.replace(swap.old, swap.new)
            self.producers.aborted.replace(swap.old_bases, aborted)

    # ---- flushing

    @property
    def needs_flush(self) -> bool:
        """Whether `sync` would have anything to do."""
        return self.flushes.is_due(self.log_end_offset)

    def sync(self) -> None:
        """Makes the log durable up to its end and moves the recovery point there.

        Raises LogStorageError; after a failed fsync the node has been halted.
        """
        self._ensure_open()
        if self.flushes.sync(self.log_end_offset):
            self._offsets_moved()
        self._lift_limits()

    def prepare_flush(self) -> FlushJob | None:
        """The first half of a sync: a job for `flushes.run_flush` on an executor; None if none is due. Raises
        LogStorageError."""
        self._ensure_open()
        return self.flushes.prepare(self.log_end_offset, self.generation) if self.needs_flush else None

    def prepare_close(self) -> FlushJob | None:
        """As `prepare_flush`, for a log that takes no more: `close` has nothing to wait for after this job."""
        self._ensure_open()
        self.compaction.settle()
        self._write_rest()
        return self.flushes.prepare_last(self.log_end_offset, self.generation)

    def flush_failed(self, error: OSError) -> None:
        """The other second half. Nothing if the log was deleted while the job ran.

        Raises NoSpaceLeft where no file could be opened, and the next flush begins anew; else ends the directory, also
        if the log was given up meanwhile: the pages are lost, and the next fsync would not say so.
        """
        if self._closed and isinstance(error, FileNotFoundError):
            return
        if is_out_of_descriptors(error):
            self._storage.give_back()
            raise NoSpaceLeft(f"no descriptor left to flush the log {self.directory}") from error
        self._storage.fail(f"fsync of the log {self.directory} failed: {error}", error)

    def complete_flush(self, job: FlushJob) -> None:
        """The second half, after the job succeeded: moves the recovery point as far as it covers.

        Raises NoSpaceLeft if all but the epochs is durable now: below the recovery point they are in their file;
        LogStorageError if a file that is no longer needed cannot be removed.
        """
        if self._closed or job.generation != self.generation:
            return
        if self.flushes.complete(job):
            self._offsets_moved()
        self._lift_limits()
        if job.no_room_for_epochs is not None:
            raise job.no_room_for_epochs

    # ---- the data directory's checkpoint files

    @property
    def _checkpoint(self) -> TruncationCheckpoint:
        return TruncationCheckpoint(self.recovery_point, self.log_start_offset)

    def _offsets_moved(self) -> None:
        """The next checkpoints have to tell of this log."""
        self._storage.offsets_moved(self.topic_partition)

    def begin_checkpoint(self) -> TruncationCheckpoint:
        """Recovery point and log start offset for the checkpoint files, which are about to be written."""
        now = self._checkpoint
        self.checkpointed.begin(now)
        return now

    def begin_clean_checkpoint(self) -> int:
        """The clean offset for its checkpoint file, which is about to be written."""
        self.checkpointed.begin_clean(self.clean_offset)
        return self.clean_offset

    def complete_checkpoint(
        self,
        *,
        recovery_point: int | None = None,
        log_start_offset: int | None = None,
        clean_offset: int | None = None,
    ) -> None:
        """A checkpoint file holds this value, which `begin_checkpoint` gave, durably.

        The clean offset is written after a recovery point that is not below it, so that what caps the one caps the
        other. Raises LogStorageError.
        """
        self.checkpointed.complete(recovery_point, log_start_offset, clean_offset)
        self._lift_limits()

    def _lift_limits(self) -> None:
        """Raises LogStorageError."""
        self.checkpointed.lift(self.recovery_point, self.log_start_offset, self.clean_offset)

    # ---- closing

    def close(self) -> None:
        """Flushes everything, so that the next open may be a clean one. Raises LogStorageError."""
        if self._closed:
            return
        self._storage.ensure_usable()
        self.compaction.settle()
        self._write_rest()
        active = self._segments.active
        if active.unsynced_index_paths:
            active.indexes.sync()
        self.producers.aborted.sync(active.base_offset)
        self.sync()
        self._release()

    def _write_rest(self) -> None:
        """Writes what a log keeps in memory while it grows. Raises LogStorageError."""
        active = self._segments.active
        try:
            if self.config.preallocate:
                active.trim()
            active.persist_indexes(is_closing=True)
            self.producers.aborted.persist(active.base_offset)
            if not self.producers.needs_no_snapshot:
                self._write_snapshot()
        except OSError as error:
            raise storage_error(f"closing the log {self.directory} failed: {error}", error) from error

    def abandon(self) -> None:
        """Lets go of files and memory without flushing: the log is deleted, or its disk is gone."""
        self.checkpointed.abandon()
        self.compaction.abandon()
        self._release()

    def _release(self) -> None:
        self._closed = True
        self.epoch_file.close()
        for segment in self._segments:
            segment.release()
        self.producers.aborted.release()
        if self._owns_storage:
            self._storage.close()
