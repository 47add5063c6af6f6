"""Making a log shorter: truncation at its end (KIP-101), deletion and retention at its start.

Guarantees: what was cut is durably gone before anything is appended again, so that no old byte can
come back below a new one; a crash in between leaves a prefix (truncation) or a suffix (deletion) of
the log, never a hole. Readers that hold slices of deleted segments go on undisturbed. Fetchers,
the log manager's retention and the Raft journal call it.
"""

from __future__ import annotations

from typing import NoReturn

from partitions.log.cleaner.swap import DELETED_SUFFIX
from partitions.log.durability import DurableLog
from partitions.log.errors import (
    BatchDamaged,
    InterruptedByFullDisk,
    LogCorruptError,
    LogStorageError,
    NoSpaceLeft,
)
from partitions.log.producer_recovery import load_producer_state
from partitions.log.producer_snapshot import SNAPSHOT_SUFFIX
from partitions.log.recovery import base_offsets
from partitions.log.scan import Stop
from partitions.log.storage import is_wanting, storage_error
from partitions.log.transaction_index import TRANSACTION_INDEX_SUFFIX
from partitions.records.batch import CorruptBatchError, parse_header, verify_crc


class ShortenableLog(DurableLog):
    """A log of which either end may be given up."""

    __slots__ = ()

    def truncate_to(self, offset: int) -> None:
        """Gives up every batch that reaches `offset` or lies above it; durable on return.

        The log end offset becomes at most `offset`. Leader epochs that begin there go even when no
        batch does. Raises LogStorageError (InterruptedByFullDisk: the log is given up); LogCorruptError, and the
        log is given up, where what is to stay is damaged; BatchDamaged, with nothing changed on disk, where a rotten
        header would take sound batches along.
        """
        self._ensure_open()
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        if offset < self.log_end_offset:
            self._settle_swap()
            try:
                self._truncate_segments(offset)
                self._reload_producers()
                self._sync_names()
            except OSError as error:
                self._end_half_truncated(error)
            except NoSpaceLeft as error:
                self._interrupt_truncation(error)
            except LogCorruptError as damage:
                # Met before anything was cut, or when a wrong index was made anew of what is left: what is in
                # memory speaks of more than that, and no append may go by it.
                self._storage.on_lost(self.topic_partition, damage)
                raise
        # What comes behind the new end this process writes; of what the last batch is, it may never have seen.
        self._epochs_proven_from = min(self._epochs_proven_from, self.log_end_offset + 1)
        if self.epochs.truncate_from_end(self.log_end_offset):
            self._epochs_changed_from(self.log_end_offset, cut=True)

    def _truncate_segments(self, offset: int) -> None:
        segments = self._segments
        number = segments.position_for(offset)
        if number and segments[number].base_offset == offset:
            number -= 1
        first_cut = segments[number].locate(offset)
        if first_cut.batch_bytes and first_cut.offset < offset:
            self._check_batch(segments[number].log_path, first_cut)
        end_offset = first_cut.passed_offset
        self._limit_checkpoints(end_offset, min(end_offset, self.log_start_offset))
        self._generation += 1
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
        self._reader.verification.cut(active)
        self._aborted.truncate(end_offset, active.base_offset)
        self.log_end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self._durable_to = min(self._durable_to, end_offset)
        self.clean_offset = min(self.clean_offset, end_offset)
        self._offsets_moved()
        self._unsynced_sealed = [s for s in self._unsynced_sealed if s.base_offset < active.base_offset]

    def _check_batch(self, path: str, found: Stop) -> None:
        """Of a batch that is cut although it begins below: whether it does reach so far. Raises BatchDamaged."""
        data = self._storage.file(path).read(found.position, found.batch_bytes)
        try:
            verify_crc(data, 0, parse_header(data, 0))
        except CorruptBatchError as error:
            raise BatchDamaged(path, found.position, str(error)) from error

    def _reload_producers(self) -> None:
        names = self._storage.disk.list_dir(self.directory)
        before = self.producer_state.transactions
        self._producer_marks = tuple(
            known for known in self._producer_marks if known.end_offset <= self.log_end_offset
        )
        self.producer_state, self._snapshot_offset = load_producer_state(
            self._storage,
            self.directory,
            names,
            self._segments,
            self.log_end_offset,
            known=self._producer_marks[-1] if self._producer_marks else None,
        )
        self.producer_state.transactions.adopt_ended(before, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Gives up everything; the log is empty and its next offset is `offset`. Durable on return.

        For a follower whose log lies wholly outside its leader's. Raises LogStorageError, as `truncate_to`.
        """
        self._ensure_open()
        self._settle_swap()
        try:
            # 0: whatever a crash leaves of the old segments is to be checked from the first one on.
            self._limit_checkpoints(0, min(offset, self.log_start_offset))
            self._generation += 1
            self._reader.forget()
            names = self._storage.disk.list_dir(self.directory)
            for snapshot in base_offsets(names, SNAPSHOT_SUFFIX):
                self._storage.remove(self._snapshot_path(snapshot))
            while len(self._segments):
                self._segments.pop_last().remove()
            self._take_install_over()  # else a job brings the file back
            self._storage.remove(self._epochs_path)  # a recovery would take what comes to contradict it
            self._aborted.clear()
            for name in names:
                if name.endswith(TRANSACTION_INDEX_SUFFIX + DELETED_SUFFIX):
                    # A start after a crash must not take it for a new segment's.
                    self._storage.remove(f"{self.directory}/{name}")
            self._storage.sync_dir(self.directory)
            self._segments.append(self._create_segment(offset))
            self._reader.verification.cut(self._segments.active)
            self._sync_names()
        except OSError as error:
            self._end_half_truncated(error)
        if self.epochs.clear():
            self._epochs_changed_from(0, cut=True)
        self.producer_state.clear(offset)
        self._producer_marks = ()
        self._snapshot_offset = -1
        self._unsynced_sealed.clear()
        self.log_start_offset = self.log_end_offset = self.recovery_point = self._durable_to = offset
        self.clean_offset = min(self.clean_offset, offset)
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
        surplus = self._surplus_bytes()
        count = 0
        while count < len(segments):
            end = segments.next_base(count)
            size_bytes = segments[count].size_bytes
            if (self.log_end_offset if end is None else end) > high_watermark:
                break
            if not size_bytes or not (self._is_expired(count, now_ms) or surplus >= size_bytes):
                break  # only the active segment is empty
            surplus -= size_bytes
            count += 1
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
            and self._durable_to >= segments[1].base_offset
            and self._names_synced == self._names_version
            and self._keeps_epochs_without(1)
        )

    def _keeps_epochs_without(self, count: int) -> bool:
        """Whether a recovery would know the epochs of what stays if the first `count` segments were gone.

        It takes them from their file, which may be older (a full disk takes no new one), and from batches: the
        first durable one that stays tells what the file does not, unless there is a hole before it.
        """
        first = self._segments[count].base_offset
        return first <= self._epochs_agree_below or (
            self._epochs_only_lacking and first < self._durable_to and not self.config.is_compacted
        )

    def set_aside_first_segment(self) -> list[str]:
        """Takes the first, obsolete segment out of the log; returns its files' new names, to be removed.

        The caller makes the new names durable before it sets the next one aside: names may reach the
        disk in any order, and a hole must not be possible. Readers that hold slices go on undisturbed.
        Raises LogStorageError.
        """
        self._ensure_open()
        self._settle_swap()
        segment = self._segments.first
        assert self._segments.wholly_below(self.log_start_offset), "the first segment is in use"
        renamed = [*self._half_set_aside]
        try:
            for path in (
                segment.log_path,
                *segment.index_paths,
                *self._aborted.paths(segment.base_offset),
                self._snapshot_path(segment.base_offset),
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
        self._aborted.forget(segment.base_offset)
        self._reader.forget()
        if not self.has_obsolete_segments:
            # Not to the log start: a crash may take that back, as far as there are segments.
            self._epochs_dirty |= self.epochs.truncate_from_start(self._segments.first.base_offset)
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
            self._settle_swap()
            count = self._segments.wholly_below(self.log_start_offset)
            self._sync_names()  # what stays must be there before what goes is gone
            if not self._keeps_epochs_without(count):
                self._write_epochs()  # recovery learns epochs from batches, and these batches go
        for _ in range(count):
            segment = self._segments.pop_first()
            try:
                segment.remove()
                self._storage.remove(self._snapshot_path(segment.base_offset))
            except OSError as error:
                raise LogStorageError(f"deleting {segment.log_path} failed: {error}") from error
            # One by one: names may reach the disk in any order, and a hole must not be possible.
            self._storage.sync_dir(self.directory)
            self._aborted.remove(segment.base_offset)  # not before: without it aborted records would be read
        if count:
            self._reader.forget()
            first = self._segments.first.base_offset
            self._unsynced_sealed = [s for s in self._unsynced_sealed if s.base_offset >= first]
            self.recovery_point = max(self.recovery_point, first)
            self._durable_to = max(self._durable_to, first)
            # Not to the log start: a crash may take that back, as far as there are segments.
            self._epochs_dirty |= self.epochs.truncate_from_start(first)
        return count

    def _is_expired(self, number: int, now_ms: int) -> bool:
        if self.config.retention_ms < 0:
            return False
        return now_ms - self._segments[number].newest_ms > self.config.retention_ms

    def _surplus_bytes(self) -> int:
        """By how much the log exceeds its size limit; negative when it does not."""
        limit = self.config.retention_bytes
        return sum(segment.size_bytes for segment in self._segments) - limit if limit >= 0 else -1
