"""Whether a log's leader epochs and its batches say the same, and which of the two is to be believed if not.

Guarantees: neither the checkpoint file nor the epoch in a batch is covered by a checksum, so nothing is answered
from one that the other contradicts; what is asked costs a few headers, whatever the log's size. Epochs are taken
from the batches only where no rotten bit of a single batch could explain it all. `opening.py` asks about the log's
end, `epoch_answers.py` about the ends of the epochs that others ask for (KIP-101, KIP-279), `readable.py` what
to do when a reader has met a contradiction.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple

import structlog

from leader_epoch.epoch_cache import EpochCache, EpochEntry
from partitions.log.epoch_recovery import search_epochs, stated_epoch
from partitions.log.errors import BatchDamaged, EpochsDisagree
from partitions.log.scan import SEEK_CHUNK_BYTES, walk
from partitions.log.segments import SegmentList
from partitions.log.storage import LogStorage
from partitions.records.batch import HEADER_BYTES, BatchHeader, CorruptBatchError, verify_stamped

logger = structlog.get_logger(__name__)


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

    __slots__ = ("_epochs", "_segments", "_storage")

    def __init__(self, storage: LogStorage, segments: SegmentList, epochs: EpochCache) -> None:
        self._storage = storage
        self._segments = segments
        self._epochs = epochs

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
        try:
            verify_stamped(file.read(position, header.size_bytes), 0, header)
        except CorruptBatchError as damage:
            raise BatchDamaged(path, position, str(damage)) from damage
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
