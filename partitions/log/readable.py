"""What a log answers to readers, and what it does about damage that they meet.

Guarantees: nothing is handed out that `verification.py` has not let through; a log in which damage was
found answers nothing any more, and whoever is to know of it (`LogStorage.on_lost`) has been told when
the error comes out; an index that misled a read is rebuilt before a log is given up for it, and so are leader
epochs that the batches contradict. `epoch_answers.py` adds what is asked of those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from partitions.log.cleanable import CleanableLog
from partitions.log.epoch_evidence import EpochEvidence
from partitions.log.errors import (
    BatchDamaged,
    EpochsDisagree,
    LogCorruptError,
    LogStorageError,
    OffsetOutOfRange,
)
from partitions.log.reader import ReadResult, TimestampedOffset
from partitions.log.storage import is_disk_full, is_passing
from partitions.log.transaction_index import AbortedTransaction
from partitions.lookup_budget import LookupBudget

T = TypeVar("T")


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

    @property
    def _evidence(self) -> EpochEvidence:
        """What the batches say of the leader epochs."""
        return EpochEvidence(self._storage, self._segments, self.epochs)

    def _mend_epochs(self, error: EpochsDisagree) -> None:
        """Takes the epochs from the batches where these are to be believed. Raises `error` if they are not;
        LogCorruptError, OSError."""
        self._evidence.ensure_believed(error)
        self._relearn_epochs()

    def _relearn_epochs(self) -> None:
        """Takes the epochs from the batches, with those that have no record yet; the file follows with the next
        flush. Raises LogCorruptError, OSError."""
        self._evidence.relearn(self.log_end_offset)
        self._epochs_changed_from(0, cut=True)

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
            if not (is_disk_full(failure) or is_passing(failure)):
                self._storage.on_lost(self.topic_partition, LogStorageError(reason))
            raise LogStorageError(reason) from failure
        finally:
            del (
                error
            )  # its traceback has this frame, which would keep it, and all that callers hold: slices, files
