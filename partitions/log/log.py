"""One partition's log on one broker: append, read, truncate, flush, recover.

Guarantees: offsets only grow, and what truncation cut never comes back; a failed write leaves no
torn batch; what `sync` covered survives a power loss. All calls come from one lane (the event loop,
or the Raft lane for the quorum's journal); a flush may be split so that an executor waits for the
disk. `LogManager` opens the logs of a node, partitions append and read through them. Formats are
Kafka's (record batch v2, KIP-98; leader epochs, KIP-101).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NoReturn

from leader_epoch.epoch_cache import EpochEntry
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
from partitions.log.config import LOG_APPEND_TIME, LogConfig
from partitions.log.config_values import INT_MAX
from partitions.log.durability import MARK_EVERY_BYTES
from partitions.log.epoch_answers import EpochAnsweringLog
from partitions.log.errors import (
    AppendError,
    AppendPostponed,
    LogCorruptError,
    LogError,
    LogStorageError,
    NoRoomToAppend,
)
from partitions.log.opening import OpenRequest, inconsistent_topic_id, newly_made, open_log
from partitions.log.partition_files import PARTITION_METADATA, encode_partition_metadata
from partitions.log.producer_recovery import aborted_transaction
from partitions.log.producer_state import BatchRange
from partitions.log.record_checks import check_records, must_open, names_the_future, takes_no_time
from partitions.log.segment import Segment
from partitions.log.storage import LogStorage, is_disk_full, is_passing, storage_error
from partitions.log.transaction_offsets import CompletedTransaction
from partitions.log.validation import (
    CheckedBatches,
    Origin,
    PlacedHeader,
    check_follower_append,
    check_leader_append,
    markers_in,
)
from partitions.ports import Halt, NowMs
from partitions.records.markers import EndTransactionMarker
from partitions.topic_partition import TopicPartition

_NO_MARKERS: Final[Mapping[int, EndTransactionMarker]] = MappingProxyType({})


class PartitionLog(EpochAnsweringLog):
    """The segments of one partition, its leader epochs and its producers."""

    __slots__ = ()

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

    @property
    def size_bytes(self) -> int:
        """Data bytes of all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_base_offsets(self) -> tuple[int, ...]:
        return tuple(segment.base_offset for segment in self._segments)

    @property
    def latest_epoch(self) -> int | None:
        return self.epochs.latest_epoch

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

    # ---- append

    def check_beside(self, records: Buffer) -> Callable[[], CheckedBatches] | None:
        """A client's records that take long to check: the job does it, sharing nothing with the log.

        What it returns goes to `append_as_leader` in place of the records. None where there is little to
        do. Raises, and the job does, AppendError.
        """
        config = self.config
        if not config.opens_every_batch and not names_the_future(records, config, self._now_ms):
            return None
        if takes_no_time(records):
            return None
        view = records if isinstance(records, memoryview) else memoryview(records)
        checked = check_leader_append(view, max_message_bytes=config.max_message_bytes, origin="client")
        now_ms = self._now_ms()
        if not must_open(checked, config, now_ms):
            return None
        return partial(check_records, checked, config, now_ms)

    def append_as_leader(
        self, records: Buffer | CheckedBatches, *, leader_epoch: int, origin: Origin = "client"
    ) -> AppendInfo:
        """Checks the batches, gives them the next offsets and `leader_epoch`, writes them at once.

        Batches that a client repeats are not written again; the answer is a duplicate's. Raises
        AppendError whose `code` says why nothing was appended.
        """
        if self._closed or self._storage.failure is not None:  # the hot path saves its frame
            self._ensure_open()
        config = self.config
        checked = records if isinstance(records, CheckedBatches) else self._check(records, origin)
        view, batches, idempotent, _ = checked
        latest = self.epochs.latest_epoch
        if len(view) > config.segment_bytes or (latest is not None and leader_epoch < latest):
            raise self._refusal(len(view), leader_epoch, latest)
        markers = _NO_MARKERS
        if idempotent:
            if origin == "client":
                duplicate = self.producer_state.find_duplicate(idempotent)
                if duplicate is not None:
                    return self._duplicate(*duplicate, len(view))
                self.producer_state.check(idempotent, sequences=True)
            else:
                markers = markers_in(view, batches)
                known = {batches[number][1]: marker for number, marker in markers.items()}
                self.producer_state.check(idempotent, sequences=False, markers=known)
        append_time = NO_TIME
        if config.message_timestamp_type == LOG_APPEND_TIME:
            append_time = self._now_ms()
            view, batches = with_append_time(view, batches, append_time)
        first_offset = self.log_end_offset
        stamped = stamp_batches(view, batches, first_offset, leader_epoch)
        size_bytes = len(view)
        self._write(stamped, size_bytes)
        _, _, next_offset, max_timestamp = stamped
        if leader_epoch != latest and leader_epoch >= 0 and self.epochs.assign(leader_epoch, first_offset):
            self._epochs_changed_from(first_offset)
        if idempotent:
            self._record_producers(batches, first_offset, markers)
        self.producer_state.end_offset = next_offset
        self._unmarked_bytes += size_bytes
        if self._unmarked_bytes >= MARK_EVERY_BYTES:
            self._mark_producers()
        return append_info((first_offset, next_offset - 1, max_timestamp, append_time, self.log_start_offset,
                            False, len(batches), size_bytes))  # fmt: skip

    def _check(self, records: Buffer, origin: Origin) -> CheckedBatches:
        """What can be judged of the batches by themselves. Raises AppendError."""
        config = self.config
        view = records if isinstance(records, memoryview) else memoryview(records)
        checked = check_leader_append(view, max_message_bytes=config.max_message_bytes, origin=origin)
        if origin != "raft":
            now_ms = self._now_ms()
            ahead_ms = checked.max_timestamp - now_ms
            # Mostly neither, and that is told at the price of two comparisons.
            if (config.opens_every_batch or ahead_ms > config.message_timestamp_after_max_ms) and must_open(
                checked, config, now_ms
            ):
                checked = check_records(checked, config, now_ms)
        return checked

    def _record_producers(
        self, batches: Sequence[PlacedHeader], offset: int, markers: Mapping[int, EndTransactionMarker]
    ) -> None:
        """Takes note of batches that were written into the active segment, the first at `offset`."""
        for number, (_, header) in enumerate(batches):
            marker = markers.get(number) if markers else None
            completed = self.producer_state.record(header, offset, marker)
            if completed is not None:
                self._note_completed(completed)
            offset += header.last_offset_delta + 1

    def _note_completed(self, completed: CompletedTransaction) -> None:
        """The marker of this transaction was written into the active segment just now."""
        if completed.is_aborted:
            self._aborted.append(self._segments.active.base_offset, aborted_transaction(completed))

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
        latest = self.epochs.latest_epoch
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
                    # A hole before it counts as of its epoch, as in `epoch_recovery.find_epochs`: whoever has something
                    # else there, of an earlier epoch, is told to cut it.
                    if self.epochs.assign(epoch, expected):
                        self._epochs_changed_from(expected)
                    latest = epoch
                expected = header.next_offset
                marker = markers.get(number) if markers else None
                completed = self.producer_state.record(header, header.base_offset, marker)
                if completed is not None:
                    self._note_completed(completed)
                number += 1
            self.producer_state.end_offset = last.next_offset
            self._unmarked_bytes += end - start
            if self._unmarked_bytes >= MARK_EVERY_BYTES:
                self._mark_producers()
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
