"""Making a log shorter: truncation at its end (KIP-101), deletion and retention at its start.

Guarantees: what was cut is durably gone before anything is appended again, so that no old byte can
come back below a new one; a crash in between leaves a prefix (truncation) or a suffix (deletion) of
the log, never a hole. Readers that hold slices of deleted segments go on undisturbed. Fetchers,
the log manager's retention and the Raft journal call it.
"""

from __future__ import annotations

from partitions.log.durability import DurableLog
from partitions.log.errors import LogStorageError
from partitions.log.producer_snapshot import SNAPSHOT_SUFFIX
from partitions.log.recovery import base_offsets, load_producer_state


class ShortenableLog(DurableLog):
    """A log of which either end may be given up."""

    __slots__ = ()

    def truncate_to(self, offset: int) -> None:
        """Gives up every batch that reaches `offset` or lies above it; durable on return.

        The log end offset becomes at most `offset`. Leader epochs that begin there go even when no
        batch does. Raises LogStorageError.
        """
        self._ensure_open()
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        if offset < self.log_end_offset:
            try:
                self._truncate_segments(offset)
                self._reload_producers()
                self._sync_names()
            except OSError as error:
                self._storage.fail(f"truncating the log {self.directory} failed: {error}", error)
        self._epochs_dirty |= self.epochs.truncate_from_end(self.log_end_offset)

    def _truncate_segments(self, offset: int) -> None:
        segments = self._segments
        number = segments.position_for(offset)
        if number and segments[number].base_offset == offset:
            number -= 1
        first_cut = segments[number].locate(offset)
        end_offset = first_cut.passed_offset
        self._limit_checkpoints(end_offset, min(end_offset, self.log_start_offset))
        self._generation += 1
        self._reader.forget()
        while number + 1 < len(segments):
            segments.pop_last().remove()
            self._names_version += 1
        active = segments.active
        if first_cut.batch_bytes:
            active.truncate(first_cut.position, end_offset)
        else:
            active.unseal()
        self.log_end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self._unsynced_sealed = [s for s in self._unsynced_sealed if s.base_offset < active.base_offset]

    def _reload_producers(self) -> None:
        names = self._storage.disk.list_dir(self.directory)
        self.producer_state, self._snapshot_offset = load_producer_state(
            self._storage, self.directory, names, self._segments, self.log_end_offset
        )

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Gives up everything; the log is empty and its next offset is `offset`. Durable on return.

        For a follower whose log lies wholly outside its leader's. Raises LogStorageError.
        """
        self._ensure_open()
        try:
            # 0: whatever a crash leaves of the old segments is to be checked from the first one on.
            self._limit_checkpoints(0, min(offset, self.log_start_offset))
            self._generation += 1
            self._reader.forget()
            for snapshot in base_offsets(self._storage.disk.list_dir(self.directory), SNAPSHOT_SUFFIX):
                self._storage.remove(self._snapshot_path(snapshot))
            while len(self._segments):
                self._segments.pop_last().remove()
            self._storage.sync_dir(self.directory)
            self._segments.append(self._create_segment(offset))
            self._sync_names()
        except OSError as error:
            self._storage.fail(f"truncating the log {self.directory} failed: {error}", error)
        self._epochs_dirty |= self.epochs.clear()
        self.producer_state.clear(offset)
        self._snapshot_offset = -1
        self._unsynced_sealed.clear()
        self.log_start_offset = self.log_end_offset = self.recovery_point = offset

    def delete_segments_before(self, offset: int) -> int:
        """Raises the log start offset to `offset`, or the log's end if that is lower.

        Segments wholly below go, durably, except the active one; returns how many did. Nothing to
        do when the log starts there or later. Raises LogStorageError.
        """
        self._ensure_open()
        offset = min(offset, self.log_end_offset)
        if offset <= self.log_start_offset:
            return 0
        self.log_start_offset = offset
        count = self._segments.wholly_below(offset)
        if count:
            self._sync_names()  # what stays must be there before what goes is gone
            if self._epochs_dirty:
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
        if count:
            self._reader.forget()
            first = self._segments.first.base_offset
            self._unsynced_sealed = [s for s in self._unsynced_sealed if s.base_offset >= first]
            self.recovery_point = max(self.recovery_point, first)
            # Not to the log start: a crash may take that back, as far as there are segments.
            self._epochs_dirty |= self.epochs.truncate_from_start(first)
        return count

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Retention by time and by size; returns how many segments went.

        A segment goes only when it lies wholly below the high watermark, and when all older ones go
        too. An active segment of which every record is too old is closed first. Raises
        LogStorageError.
        """
        self._ensure_open()
        active = self._segments.active
        if active.size_bytes and self._is_expired(len(self._segments) - 1, now_ms):
            self.roll()
        segments = self._segments
        surplus = self._surplus_bytes()
        count = 0
        while (end := segments.next_base(count)) is not None and end <= high_watermark:
            size_bytes = segments[count].size_bytes
            if not self._is_expired(count, now_ms) and surplus < size_bytes:
                break
            surplus -= size_bytes
            count += 1
        return self.delete_segments_before(segments[count].base_offset) if count else 0

    def _is_expired(self, number: int, now_ms: int) -> bool:
        if self.config.retention_ms < 0:
            return False
        segment = self._segments[number]
        newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
        return now_ms - newest > self.config.retention_ms

    def _surplus_bytes(self) -> int:
        """By how much the log exceeds its size limit; negative when it does not."""
        limit = self.config.retention_bytes
        return sum(segment.size_bytes for segment in self._segments) - limit if limit >= 0 else -1
