"""What the batches of a log say of its leader epochs: whether that is what the checkpoint file says, and if not, which
of the two is to be believed.

Guarantees: no checksum covers the checkpoint file, nor the epoch in a batch, so nothing is answered from one that the
other contradicts. An epoch is said to end only where the batches on both sides confirm it. That costs a few headers,
whatever the log's size, at each place that this process has not written itself; at most `_REMEMBERED_PLACES` are
remembered, and asked again they are answered from memory. Epochs are taken from the batches only where no rotten bit
of a single batch could explain it all, or where the file is missing or damaged. An epoch without a record in the log
is not known again. Nobody misses it: it would end where it began, and so does, by the answer to an epoch that is not
known, the one before it (KIP-279). `PartitionLog` owns an `EpochEvidence` and asks it for followers, consumers and
fetchers (KIP-101, KIP-320); `open_log.py` asks about the log's end; recovery learns the epochs of the segments that it
checks by itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import zip_longest
from typing import Final, NamedTuple, TypeAlias

import structlog

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME, EpochCheckpointError, decode_checkpoint
from leader_epoch.epoch_cache import EpochCache, EpochEntry
from partitions.log.errors import BatchDamaged, EpochDamaged, EpochsDisagree
from partitions.log.scan import SEEK_CHUNK_BYTES, ensure_sound, walk
from partitions.log.segments import SegmentList
from partitions.log.storage import LogStorage
from partitions.records.batch import HEADER_BYTES, BatchHeader
from partitions.records.header import NO_LEADER_EPOCH

logger = structlog.get_logger(__name__)

_REMEMBERED_PLACES: Final = 256
"""Places at which a log knows that its batches confirm the epochs, before it looks again."""

BatchAt: TypeAlias = Callable[[int], BatchHeader | None]
"""The first batch that reaches an offset; None behind the last one."""


def stated_epoch(path: str, position: int, header: BatchHeader) -> int | None:
    """The leader epoch that the batch says it is of; None if of none. Raises BatchDamaged for what no epoch can be:
    no checksum covers it, and where only headers are read nobody else looks."""
    epoch = header.partition_leader_epoch
    if epoch < NO_LEADER_EPOCH:
        raise BatchDamaged(
            path, position, f"the batch at offset {header.base_offset} is of leader epoch {epoch}"
        )
    return None if epoch == NO_LEADER_EPOCH else epoch


class PlacedBatch(NamedTuple):
    """A batch, and where it is."""

    path: str
    position: int
    header: BatchHeader


def check_epoch(path: str, position: int, header: BatchHeader, epochs: EpochCache) -> None:
    """Raises EpochsDisagree if the epochs do not say of the whole batch what it says of itself; one that is of no
    epoch says nothing. Raises BatchDamaged if it says what no epoch can be."""
    epoch = stated_epoch(path, position, header)
    if epoch is None:
        return
    known = epochs.epoch_for_offset(header.base_offset)
    if known == epoch and header.last_offset_delta:
        known = epochs.epoch_for_offset(header.last_offset)
    if known != epoch:
        raise EpochsDisagree(path, position, header, known)


class EpochEvidence:
    """What the batches of these segments say of the epochs that are handed in; `relearn` changes those."""

    __slots__ = ("_epochs", "_proven_at", "_segments", "_storage", "proven_from")

    def __init__(
        self, storage: LogStorage, segments: SegmentList, epochs: EpochCache, *, proven_from: int = 0
    ) -> None:
        self._storage = storage
        self._segments = segments
        self._epochs = epochs
        self.proven_from = proven_from
        """Batches have confirmed the epochs at this offset and above; the last batch below, its own epoch."""
        self._proven_at: frozenset[tuple[int, bool]] = frozenset()
        """Offsets below at which batches have confirmed the epochs since; whether those on both sides have."""

    # ---- what is known

    def is_proven(self, offset: int, *, on_both_sides: bool = True) -> bool:
        """Whether batches have confirmed the epoch at the offset, and, where one is to end there, the one before."""
        proven = self._proven_at
        return offset >= self.proven_from or (offset, on_both_sides) in proven or (offset, True) in proven

    def prove(self, offset: int, *, on_both_sides: bool = True) -> None:
        """Makes sure that the batch at the offset is of the epoch that the log knows, and, where one is to end there,
        the batch before it. Raises EpochsDisagree, LogCorruptError, OSError."""
        if on_both_sides:
            self.check_beside(offset)
        else:
            self.check_at(offset)
        proven = self._proven_at if len(self._proven_at) < _REMEMBERED_PLACES else frozenset()
        self._proven_at = proven | {(offset, on_both_sides)}

    def cut(self, log_end_offset: int) -> None:
        """The log was cut. What comes behind its end this process writes; of what the last batch is, it may never
        have seen."""
        self.proven_from = min(self.proven_from, log_end_offset + 1)

    # ---- finding batches

    def batch_at(self, offset: int) -> PlacedBatch | None:
        """The first batch that reaches the offset; None at the log's end. Raises LogCorruptError, OSError."""
        segments = self._segments
        for number in range(segments.position_for(max(offset, segments.first.base_offset)), len(segments)):
            segment = segments[number]
            position = segment.locate(max(offset, segment.base_offset)).position
            file = self._storage.file(segment.log_path)
            for at, header in walk(file, position, segment.size_bytes, first_read_bytes=HEADER_BYTES):
                return PlacedBatch(segment.log_path, at, header)
        return None

    def batch_before(self, offset: int) -> PlacedBatch | None:
        """The last batch that begins below the offset; None if there is none. Raises LogCorruptError, OSError."""
        segments = self._segments
        if offset <= segments.first.base_offset:
            return None
        for number in range(segments.position_for(offset - 1), -1, -1):
            segment = segments[number]
            segment.locate(offset)  # which mends an index that would lead to the wrong place below
            position = segment.offset_index.floor(offset - 1 - segment.base_offset)
            file = self._storage.file(segment.log_path)
            found: PlacedBatch | None = None
            for at, header in walk(file, position, segment.size_bytes, first_read_bytes=SEEK_CHUNK_BYTES):
                if header.base_offset >= offset:
                    break
                found = PlacedBatch(segment.log_path, at, header)
            if found is not None:
                return found
        return None

    # ---- comparing

    def check_beside(self, offset: int) -> None:
        """Compares the batches on both sides of an offset at which an epoch is to end: they are neighbours, or
        between them compaction has left nothing that could contradict.

        Raises EpochsDisagree, LogCorruptError, OSError.
        """
        for found in (self.batch_before(offset), self.batch_at(offset)):
            if found is not None:
                check_epoch(*found, self._epochs)

    def check_at(self, offset: int) -> None:
        """Compares the batch that holds the offset, or the first one behind. Raises as `check_beside` does."""
        found = self.batch_at(offset)
        if found is not None:
            check_epoch(*found, self._epochs)

    def check_last_below(self, offset: int) -> None:
        """Compares the last batch that a cut at the offset leaves. Of what goes nothing is asked: that may be why it
        goes. Raises as `check_beside` does."""
        last = self.batch_before(offset)
        if last is not None and last.header.last_offset >= offset:
            last = self.batch_before(last.header.base_offset)
        if last is not None:
            check_epoch(*last, self._epochs)

    def later_epoch(self, epoch: int, log_end_offset: int) -> EpochEntry | None:
        """The first epoch with records in the log that is later than the one in which the log is to lead."""
        latest = self._epochs.latest_epoch
        if latest is None or latest <= epoch:
            return None
        later = next(entry for entry in self._epochs.entries if entry.epoch > epoch)
        return later if later.start_offset < log_end_offset else None

    def check_not_later(self, later: EpochEntry, epoch: int) -> None:
        """Raises EpochDamaged if the batch is there that the entry tells of, and is of a later epoch; LogCorruptError,
        OSError. Else the entry is what is wrong."""
        found = self.batch_at(later.start_offset)
        if found is None:
            return
        self.verify(found)
        if found.header.partition_leader_epoch > epoch:
            path, position, header = found
            raise EpochDamaged(
                path,
                position,
                f"the batch at offset {header.base_offset} is of leader epoch {header.partition_leader_epoch}, and"
                f" the log is to lead in epoch {epoch}",
                latest_epoch=epoch,
            )

    # ---- which of the two is wrong

    def ensure_believed(self, error: EpochsDisagree) -> None:
        """Returns if the batches are to be believed: where the epochs end within a batch, or begin too late for one
        that is in order with them, or a batch beside the one that contradicts them says what it says.

        Unless a single bit of that batch would explain everything, because it alone contradicts them: who leads
        with an epoch that ends too late lets followers keep what is not in its log. Raises `error` then, as where
        the batch stands alone; BatchDamaged if its offsets or its checksum are wrong; LogCorruptError, OSError.
        """
        self.verify(error)
        header, epoch = error.header, error.header.partition_leader_epoch
        if self._epochs.epoch_for_offset(header.base_offset) == epoch:
            return
        first = self._epochs.earliest_entry
        if error.known_epoch is None and first is not None and epoch <= first.epoch:
            return
        beside = [self.batch_at(header.next_offset)]
        if header.base_offset > self._segments.first.base_offset:
            beside.append(self.batch_at(header.base_offset - 1))
        alike = [
            found.header.base_offset
            for found in beside
            if found is not None
            and found.header.base_offset != header.base_offset
            and found.header.partition_leader_epoch == epoch
        ]
        known = error.known_epoch
        is_one_bit = known is not None and (epoch ^ known).bit_count() == 1
        if not alike or (is_one_bit and all(self._epochs.epoch_for_offset(o) == epoch for o in alike)):
            raise error

    def verify(self, found: PlacedBatch | EpochsDisagree) -> None:
        """Raises BatchDamaged if the batch is wrong whatever its epoch should be; LogCorruptError, OSError."""
        path, position, header = found.path, found.position, found.header
        file = self._storage.file(path)
        ensure_sound(file, position, header)
        behind = position + header.size_bytes
        for at, after in walk(file, behind, file.size(), first_read_bytes=HEADER_BYTES):
            if after.base_offset < header.next_offset:
                reason = f"the batch goes back to offset {after.base_offset}, expected {header.next_offset}"
                raise BatchDamaged(path, at, reason)
            break

    def relearn(self, end_offset: int) -> None:
        """Takes the epochs below the offset from the batches; later ones stay if they come in order.

        Raises LogCorruptError, OSError.
        """
        begun = [entry for entry in self._epochs.entries if entry.start_offset >= end_offset]

        def batch_at(offset: int) -> BatchHeader | None:
            found = self.batch_at(offset)
            if found is None:
                return None
            stated_epoch(*found)
            return found.header

        found = search_epochs(batch_at, self._segments.first.base_offset, end_offset)
        latest = found.latest_epoch
        entries = (*found.entries, *(e for e in begun if latest is None or e.epoch > latest))
        logger.warning(
            "leader epochs were not those of the batches, and are taken from them",
            log=self._segments.first.log_path.rpartition("/")[0],
            before=str(self._epochs),
            after=str(list(entries)),
        )
        self._epochs.replace(entries)


def search_epochs(batch_at: BatchAt, start_offset: int, end_offset: int) -> EpochCache:
    """The epochs of the batches from the first offset to the second; each ends where the next begins.

    As epochs never decrease, the end of each is found by bisection: a log of any size is read in a few places only.
    Where they do decrease, so that one batch is damaged, what comes out has still its order.
    """
    epochs = EpochCache()
    offset = start_offset
    while (header := batch_at(offset)) is not None:
        epoch = header.partition_leader_epoch
        latest = epochs.latest_epoch
        if epoch >= 0 and (latest is None or epoch > latest):
            epochs.assign(epoch, offset)

        def is_beyond(candidate: int, epoch: int = epoch) -> bool:
            found = batch_at(candidate)
            return found is None or found.partition_leader_epoch != epoch

        ends = range(header.next_offset, end_offset)
        offset = header.next_offset + bisect_left(ends, True, key=is_beyond)
    return epochs


# ---- when a log is opened


class FoundEpochs(NamedTuple):
    """A log's epochs, and why they are not those of its checkpoint file; None if they are."""

    epochs: EpochCache
    rebuilt: str | None


def find_epochs(
    storage: LogStorage, directory: str, segments: SegmentList, *, below_offset: int
) -> FoundEpochs:
    """The epochs in the checkpoint file, else those of the batches in segments that start below the offset.

    Of the data headers are read, and no checksum is compared. Raises LogCorruptError (BatchDamaged for an epoch that
    none can be), OSError.
    """
    path = f"{directory}/{CHECKPOINT_FILE_NAME}"
    content = storage.read_optional(path)
    reason = f"{path} is not there"
    if content is not None:
        try:
            return FoundEpochs(EpochCache(decode_checkpoint(content)), None)
        except EpochCheckpointError as error:
            reason = f"{path} is damaged: {error}"
    epochs = EpochCache()
    end_offset = segments.first.base_offset
    has_batches = False
    for segment in segments:
        if segment.base_offset >= below_offset:
            break
        for position, header in walk(storage.file(segment.log_path), 0, segment.size_bytes):
            has_batches = True
            epoch = stated_epoch(segment.log_path, position, header)
            if epoch is not None and epoch != epochs.latest_epoch:
                # In the hole that compaction left, an epoch rather begins too early: a follower then copies
                # again what it has, but never keeps what another leader wrote there.
                epochs.assign(epoch, end_offset)
            end_offset = header.next_offset
    # A log that was never flushed need not have a file.
    return FoundEpochs(epochs, reason if has_batches or content is not None else None)


def confirm_newest_epoch(
    storage: LogStorage, segments: SegmentList, epochs: EpochCache, end_offset: int
) -> str | None:
    """Makes sure that the last batch of the segments, which end there, is of the epoch that is known of it: leaders
    and followers go by that from the first moment on. Why the epochs were taken from the batches, if they were.

    Raises EpochsDisagree where the batch may be what is wrong; LogCorruptError, OSError.
    """
    evidence = EpochEvidence(storage, segments, epochs)
    try:
        evidence.check_beside(end_offset)
    except EpochsDisagree as error:
        evidence.ensure_believed(error)
        evidence.relearn(end_offset)
        return _reason(error)
    return None


def confirm_flushed_epochs(
    storage: LogStorage, segments: SegmentList, stored: EpochCache, learnt: EpochCache, flushed: range
) -> str | None:
    """Makes sure that the epochs that a recovery has learnt from these offsets may be believed where the file, which
    was flushed with them, has others: that it does not repeat what has rotted in a batch. Why, if they may.

    Raises as `confirm_newest_epoch` does.
    """
    if _within(stored, flushed) == _within(learnt, flushed):
        return None
    evidence = EpochEvidence(storage, segments, stored)
    reason: str | None = None
    for entry in (*stored.entries, *learnt.entries):
        offset = max(entry.start_offset, flushed.start)
        found = evidence.batch_at(offset) if offset in flushed else None
        if found is not None and found.header.last_offset in flushed:
            try:
                check_epoch(*found, stored)
            except EpochsDisagree as error:
                evidence.ensure_believed(error)
                reason = _reason(error)
    return reason


def _within(epochs: EpochCache, offsets: range) -> list[EpochEntry]:
    """The epochs of these offsets; the first as if it began there."""
    return [
        EpochEntry(entry.epoch, max(entry.start_offset, offsets.start))
        for entry, after in zip_longest(epochs.entries, epochs.entries[1:])
        if entry.start_offset < offsets.stop and (after is None or after.start_offset > offsets.start)
    ]


def _reason(error: EpochsDisagree) -> str:
    header = error.header
    return f"their file lacks epoch {header.partition_leader_epoch} of offset {header.base_offset}"
