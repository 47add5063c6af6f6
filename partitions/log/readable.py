"""What a log answers to readers, and what it does about damage that they meet.

Guarantees: nothing is handed out that `verification.py` has not let through; a log in which damage was
found answers nothing any more, and whoever is to know of it (`LogStorage.on_lost`) has been told when
the error comes out; an index that misled a read is rebuilt before a log is given up for it, and so are leader
epochs that the batches contradict. `PartitionLog` adds what appends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import structlog

from leader_epoch.epoch_cache import EpochEntry
from partitions.log.cleanable import CleanableLog
from partitions.log.epoch_recovery import search_epochs
from partitions.log.errors import (
    BatchDamaged,
    EpochDamaged,
    EpochsDisagree,
    LogCorruptError,
    LogStorageError,
    OffsetOutOfRange,
)
from partitions.log.reader import ReadResult, TimestampedOffset
from partitions.log.scan import walk
from partitions.log.transaction_index import AbortedTransaction
from partitions.records.batch import HEADER_BYTES, BatchHeader

logger = structlog.get_logger(__name__)

T = TypeVar("T")


class _PlacedBatch(NamedTuple):
    path: str
    position: int
    header: BatchHeader


class ReadableLog(CleanableLog):
    """A log that is read, by offset and by time."""

    __slots__ = ()

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

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record whose timestamp is >= `timestamp` (ms); None if all are older.

        Raises LogCorruptError, LogStorageError.
        """
        self._ensure_open()
        return self._guarded(
            lambda: self._reader.offset_for_timestamp(timestamp, log_start_offset=self.log_start_offset)
        )

    def offset_for_max_timestamp(self) -> TimestampedOffset | None:
        """The first record that carries the log's largest timestamp; None in an empty log.

        Raises LogCorruptError, LogStorageError.
        """
        self._ensure_open()
        return self._guarded(
            lambda: self._reader.offset_for_max_timestamp(log_start_offset=self.log_start_offset)
        )

    def assign_epoch_start(self, epoch: int) -> bool:
        """As `CheckpointedEpochs.assign_epoch_start`, for a log that can lead in that epoch.

        Nobody has written in a later one: a batch that says so is damaged. Where the epochs say so and the batches
        do not, they are taken from the batches. Raises LogCorruptError, and the log is given up; LogStorageError.
        """
        self._ensure_open()
        if (later := self._later_epoch(epoch)) is not None:
            self._guarded(lambda: self._check_not_later(later, epoch))
            self._guarded(self._relearn_epochs)
            if (still := self._later_epoch(epoch)) is not None:
                self._guarded(lambda: self._check_not_later(still, epoch))
        return super().assign_epoch_start(epoch)

    def _later_epoch(self, epoch: int) -> EpochEntry | None:
        """The first epoch of which there are records that is later than that in which the log is to lead."""
        latest = self.epochs.latest_epoch
        if latest is None or latest <= epoch:
            return None
        later = next(entry for entry in self.epochs.entries if entry.epoch > epoch)
        return later if later.start_offset < self.log_end_offset else None

    def _check_not_later(self, later: EpochEntry, epoch: int) -> None:
        """Raises EpochDamaged if the batch is there that the entry tells of, and is of a later epoch; LogCorruptError,
        OSError. Else the entry is what is wrong."""
        found = self._batch_at(later.start_offset)
        if found is not None and found.header.partition_leader_epoch > epoch:
            path, position, header = found
            raise EpochDamaged(
                path,
                position,
                f"the batch at offset {header.base_offset} is of leader epoch {header.partition_leader_epoch}, and"
                f" the log is to lead in epoch {epoch}",
                latest_epoch=epoch,
            )

    def _batch_at(self, offset: int) -> _PlacedBatch | None:
        """The first batch that reaches the offset; None at the log's end. Raises LogCorruptError, OSError."""
        segments = self._segments
        for number in range(segments.position_for(max(offset, segments.first.base_offset)), len(segments)):
            segment = segments[number]
            position = segment.locate(max(offset, segment.base_offset)).position
            file = self._storage.file(segment.log_path)
            for at, header in walk(file, position, segment.size_bytes, first_read_bytes=HEADER_BYTES):
                return _PlacedBatch(segment.log_path, at, header)
        return None

    def _mend_epochs(self, error: EpochsDisagree) -> None:
        """Takes the epochs from the batches if one beside that which contradicts them says what it says.

        Unless a single bit of that batch would explain everything, because it alone contradicts them: who leads with
        an epoch that ends too late lets followers keep what is not in its log. Raises `error` then, as where the
        batch stands alone; LogCorruptError, OSError.
        """
        header = error.header
        beside = [self._batch_at(header.next_offset)]
        if header.base_offset > self._segments.first.base_offset:
            beside.append(self._batch_at(header.base_offset - 1))
        epoch = header.partition_leader_epoch
        alike = [
            found.header.base_offset
            for found in beside
            if found is not None
            and found.header.base_offset != header.base_offset
            and found.header.partition_leader_epoch == epoch
        ]
        is_one_bit = (epoch ^ error.known_epoch).bit_count() == 1
        if not alike or (is_one_bit and all(self.epochs.epoch_for_offset(o) == epoch for o in alike)):
            raise error
        self._relearn_epochs()

    def _relearn_epochs(self) -> None:
        """Takes the epochs from the batches, with those that have no record yet; the file follows with the next
        flush. Raises LogCorruptError, OSError."""
        end = self.log_end_offset
        begun = [entry for entry in self.epochs.entries if entry.start_offset >= end]

        def batch_at(offset: int) -> BatchHeader | None:
            found = self._batch_at(offset)
            return None if found is None else found.header

        found = search_epochs(batch_at, self._segments.first.base_offset, end)
        latest = found.latest_epoch
        entries = (*found.entries, *(e for e in begun if latest is None or e.epoch > latest))
        logger.warning(
            "leader epochs were not those of the batches, and are taken from them",
            log=self.directory,
            before=str(self.epochs),
            after=str(list(entries)),
        )
        self.epochs.replace(entries)
        self._epochs_changed_from(0, cut=True)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """KIP-279: (largest known epoch <= `epoch`, its end offset), (-1, -1) if undefined."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where a read_committed reader may read: no transaction with records below is undecided.

        One whose marker is not below the high watermark counts as undecided.
        """
        transactions = self.producer_state.transactions
        if not transactions:
            return high_watermark
        first = transactions.first_unstable(high_watermark)
        return high_watermark if first is None else min(high_watermark, max(first, self.log_start_offset))

    def forget_replicated(self, high_watermark: int) -> None:
        """The high watermark rose: markers below cannot be lost any more."""
        transactions = self.producer_state.transactions
        if transactions:
            transactions.forget_replicated(high_watermark)

    def aborted_transactions(self, fetch_offset: int, up_to_offset: int) -> Sequence[AbortedTransaction]:
        """The aborted transactions that overlap [`fetch_offset`, `up_to_offset`), in order of their markers.

        `up_to_offset` is not above the last stable offset. Raises LogCorruptError, LogStorageError.
        """
        self._ensure_open()
        if not self._aborted:
            return ()
        segments = self._segments
        first_base = segments[segments.position_for(fetch_offset)].base_offset
        return self._guarded(lambda: self._aborted.collect(first_base, fetch_offset, up_to_offset))

    def distrust(self) -> None:
        """Somebody was handed damaged bytes: whatever there is now is checked at its next read."""
        self._ensure_open()
        self._reader.verification.restart(self._segments.active)

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
                self._mend_epochs(error)
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
            raise LogStorageError(reason) from failure
