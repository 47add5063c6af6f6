"""The leader epochs of a log from its batches, where their checkpoint file cannot tell them.

Guarantees: a log whose checkpoint file is missing or damaged knows again which epoch wrote which offsets of
those that it holds. An epoch that has no record in the log is not known again. Nobody misses it: it would end
where it began, and so does, by the answer to an epoch that is not known, the one before it (KIP-279).
`opening.open_log` has all headers read, and an open log, in which a reader has met the contradiction, a few of
each epoch; recovery learns the epochs of the segments that it checks by itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME, EpochCheckpointError, decode_checkpoint
from leader_epoch.epoch_cache import EpochCache
from partitions.log.errors import BatchDamaged
from partitions.log.scan import walk
from partitions.log.segments import SegmentList
from partitions.log.storage import LogStorage
from partitions.records.batch import BatchHeader
from partitions.records.header import NO_LEADER_EPOCH

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


def search_epochs(batch_at: BatchAt, start_offset: int, end_offset: int) -> EpochCache:
    """The epochs of the batches from the first offset to the second, of which each ends where the next begins.

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
