"""What a log answers about its leader epochs, and whether it can lead in one.

Guarantees: an epoch is said to end only where the batches on both sides confirm it (a rotten checkpoint file is
corrected before it is believed, not when a reader comes to the place), and a log leads only in an epoch that no
batch of it is later than. The newest epoch that has records is that of the last batch, also after a cut: a follower
names it to its leader. A few headers are read for it at each such place that this process has not written itself;
who asks again, of a place that is remembered (at most `_REMEMBERED_PLACES` are) or of what is appended, is answered
from memory.
`PartitionLog` adds what appends; partitions ask for followers, consumers and fetchers (KIP-101, KIP-279, KIP-320).
"""

from __future__ import annotations

from typing import Final

from leader_epoch.epoch_cache import UNDEFINED_EPOCH, EpochEntry
from partitions.log.epoch_evidence import check_epoch
from partitions.log.errors import EpochDamaged
from partitions.log.readable import ReadableLog

_REMEMBERED_PLACES: Final = 256
"""Places at which a log knows that its batches confirm the epochs, before it looks again."""


class EpochAnsweringLog(ReadableLog):
    """A log whose leader epochs are asked for."""

    __slots__ = ()

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
        found = self._evidence.batch_at(later.start_offset)
        if found is None:
            return
        self._evidence.verify(found)
        if found.header.partition_leader_epoch > epoch:
            path, position, header = found
            raise EpochDamaged(
                path,
                position,
                f"the batch at offset {header.base_offset} is of leader epoch {header.partition_leader_epoch}, and"
                f" the log is to lead in epoch {epoch}",
                latest_epoch=epoch,
            )

    def truncate_to(self, offset: int) -> None:
        """As `ShortenableLog.truncate_to`; the last batch that stays confirms the epoch that is the newest then.

        Raises LogCorruptError, and the log is given up with nothing cut, where that batch contradicts the epochs and
        may be what is wrong.
        """
        self._ensure_open()
        if self._segments.first.base_offset < offset < min(self.log_end_offset, self._epochs_proven_from):
            self._guarded(lambda: self._check_last_below(offset))
        super().truncate_to(offset)

    def _check_last_below(self, offset: int) -> None:
        """Compares the last batch that a cut at the offset leaves. Of what goes nothing is asked: that may be why it
        goes. Raises EpochsDisagree, LogCorruptError, OSError."""
        last = self._evidence.batch_before(offset)
        if last is not None and last.header.last_offset >= offset:
            last = self._evidence.batch_before(last.header.base_offset)
        if last is not None:
            check_epoch(*last, self.epochs)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """KIP-279: (largest known epoch <= `epoch`, its end offset), (-1, -1) if undefined.

        Raises LogCorruptError, and the log is given up, where the batches there contradict the epochs and may be
        what is wrong; LogStorageError.
        """
        found = self.epochs.end_offset_for(epoch, self.log_end_offset)
        if found[0] == UNDEFINED_EPOCH or not self._confirm_epochs_at(found[1]):
            return found
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote (or would write) the record at `offset`; None if none is known.

        Raises as `end_offset_for_epoch` does.
        """
        self._confirm_epochs_at(offset, on_both_sides=False)
        return self.epochs.epoch_for_offset(offset)

    def _confirm_epochs_at(self, offset: int, *, on_both_sides: bool = True) -> bool:
        """Makes sure that the batch at the offset is of the epoch that the log knows, and, where one is to end there,
        the batch before it; whether it had to look."""
        proven = self._epochs_proven_at
        place = (offset, on_both_sides)
        if offset >= self._epochs_proven_from or place in proven or (offset, True) in proven:
            return False
        self._ensure_open()
        check = self._evidence.check_beside if on_both_sides else self._evidence.check_at
        self._guarded(lambda: check(offset))
        self._epochs_proven_at = (proven if len(proven) < _REMEMBERED_PLACES else frozenset()) | {place}
        return True
