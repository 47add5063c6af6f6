"""What a replica answers to readers: fetches, divergence checks, offset queries.

Guarantees: nobody reads at or beyond `up_to_offset` (for consumers the high watermark, or the last stable
offset if they read committed records only; the log's end for followers); a follower whose history parts
from this log's gets the diverging epoch and no records (KIP-320, KIP-595). `Partition` checks role and
leader epoch first, and calls these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from partitions.errors import OffsetNotAvailable
from partitions.log.errors import OffsetOutOfRange
from partitions.lookup_budget import LookupBudget
from partitions.replica_log import AbortedTransaction, ReadResult, ReplicaLog
from partitions.replica_selector import NO_PREFERRED_REPLICA

UNDEFINED_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4


class DivergingEpoch(NamedTuple):
    """The largest epoch <= the follower's last one in this log, and where it ends here."""

    epoch: int
    end_offset: int


class FetchRead(NamedTuple):
    """The answer to a fetch; offsets are as they were before the read."""

    records: ReadResult | None
    """None when there is nothing to read at the offset, or the logs diverge."""
    diverging_epoch: DivergingEpoch | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    log_end_offset: int
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    """What a read_committed reader has to skip in the records; None for other readers."""
    preferred_read_replica: int = NO_PREFERRED_REPLICA
    """The broker that a consumer shall read from instead (KIP-392); then there are no records."""

    @property
    def has_answer_without_records(self) -> bool:
        """Whether the reader has to be told something that no record can wait for."""
        return self.diverging_epoch is not None or self.preferred_read_replica != NO_PREFERRED_REPLICA

    @property
    def size_bytes(self) -> int:
        return 0 if self.records is None else self.records.size_bytes


class ListedOffset(NamedTuple):
    """The answer to ListOffsets; -1 for a timestamp that was not asked for."""

    timestamp: int
    offset: int
    leader_epoch: int


def diverging_epoch(log: ReplicaLog, fetch_offset: int, last_fetched_epoch: int) -> DivergingEpoch | None:
    """Where this log parts from a follower's that ends at `fetch_offset` in `last_fetched_epoch`.

    Raises OffsetOutOfRange when this log has no answer: the epoch is undefined here, or the follower
    ends below the start of this log.
    """
    epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
    if epoch == UNDEFINED_EPOCH or fetch_offset < log.log_start_offset:
        raise OffsetOutOfRange(fetch_offset, log.log_start_offset, log.log_end_offset)
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return DivergingEpoch(epoch, end_offset)
    return None


def read(
    log: ReplicaLog,
    *,
    fetch_offset: int,
    last_fetched_epoch: int | None,
    up_to_offset: int,
    high_watermark: int,
    last_stable_offset: int,
    max_bytes: int,
    min_one_batch: bool,
    read_committed: bool = False,
) -> FetchRead:
    """Reads whole batches below `up_to_offset`. Raises OffsetOutOfRange.

    An offset between `up_to_offset` and the log's end is not an error: what is there will be readable.
    """
    diverging = None
    if last_fetched_epoch is not None:
        diverging = diverging_epoch(log, fetch_offset, last_fetched_epoch)
    records: ReadResult | None = None
    log_start_offset, log_end_offset = log.log_start_offset, log.log_end_offset
    if diverging is None:
        if not log_start_offset <= fetch_offset <= log_end_offset:
            raise OffsetOutOfRange(fetch_offset, log_start_offset, log_end_offset)
        if fetch_offset < up_to_offset and (max_bytes > 0 or min_one_batch):
            records = log.read(
                fetch_offset, max_bytes, up_to_offset=up_to_offset, min_one_batch=min_one_batch
            )
    aborted: Sequence[AbortedTransaction] | None = None
    if read_committed and diverging is None:
        aborted = () if records is None else log.aborted_transactions(fetch_offset, records.next_offset)
    return FetchRead(
        records,
        diverging,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        log_end_offset,
        aborted,
    )


def list_offset(
    log: ReplicaLog,
    timestamp: int,
    *,
    up_to_offset: int,
    leader_epoch: int,
    lagging: bool,
    budget: LookupBudget | None = None,
) -> ListedOffset | None:
    """The offset for a timestamp in ms, or for one of Kafka's special ones; None if no record fits.

    `lagging`: a client asks while the high watermark has yet to reach the start of the leader's epoch.
    The end of what is committed is not known then, and whatever depends on it is OffsetNotAvailable.
    """
    if timestamp == LATEST_TIMESTAMP:
        if lagging:
            raise _not_available(up_to_offset)
        return ListedOffset(NO_TIMESTAMP, up_to_offset, leader_epoch)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        offset = log.log_start_offset
        epoch = log.epoch_for_offset(offset)
        return ListedOffset(NO_TIMESTAMP, offset, UNDEFINED_EPOCH if epoch is None else epoch)
    if timestamp == MAX_TIMESTAMP:
        found = log.offset_for_max_timestamp(budget)
    else:
        found = log.offset_for_timestamp(timestamp, budget)
    if found is not None and found[1] < up_to_offset:
        return ListedOffset(found[0], found[1], found[2])
    if lagging:
        raise _not_available(up_to_offset)
    return None


def _not_available(high_watermark: int) -> OffsetNotAvailable:
    return OffsetNotAvailable(
        f"the high watermark {high_watermark} has not reached the start of the leader's epoch; ask again"
    )
