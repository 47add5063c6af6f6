"""What a replica needs of its log: a port.

`partitions.log.log.PartitionLog` fits it; tests use a log in memory. Nothing here blocks on the
network; the truncations touch the disk before returning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from leader_epoch.epoch_cache import EpochCache
from partitions.disk import Buffer, FileSlice
from partitions.log.producers.producer_state import ProducerEntry, ProducerState
from partitions.log.producers.verifications import VerificationGuard
from partitions.log.validation import CheckedBatches
from partitions.lookup_budget import LookupBudget

AppendOrigin = Literal["client", "coordinator", "raft"]


class AppendInfo(Protocol):
    """What an append did. Offsets are absolute; times are milliseconds since the Unix epoch."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def log_append_time(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def duplicate(self) -> bool:
        """The batch had been appended before; the offsets are those of the first time (KIP-98)."""


class ReadResult(Protocol):
    """Whole batches, as ranges of files."""

    @property
    def slices(self) -> Sequence[FileSlice]: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def next_offset(self) -> int:
        """Behind the last batch."""


class AbortedTransaction(Protocol):
    """A producer's transactional records from an offset on are to be skipped, up to its next marker."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


class ReplicationConfig(Protocol):
    """The part of the log's configuration that replication goes by."""

    @property
    def min_insync_replicas(self) -> int: ...
    @property
    def deletes(self) -> bool:
        """Whether cleanup.policy lets old records go, whatever their keys."""

    @property
    def is_compacted(self) -> bool:
        """Whether it keeps the last record of each key."""

    @property
    def flushes(self) -> bool:
        """Whether appends are to be followed by flushes (flush.messages, flush.ms)."""


class TimestampedOffset(Protocol):
    """Where a search by time ended: (timestamp, offset, leader epoch), as a tuple."""

    def __getitem__(self, index: int, /) -> int: ...


class ReplicaLog(Protocol):
    """One replica's log."""

    @property
    def config(self) -> ReplicationConfig: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def epochs(self) -> EpochCache: ...
    def now_ms(self) -> int:
        """The wall clock that it stamps records by."""

    @property
    def producer_state(self) -> ProducerState:
        """What the log knows of its producers now (KIP-98)."""

    @property
    def active_producers(self) -> Mapping[int, ProducerEntry]:
        """The idempotent and transactional producers that the log knows of, by their ids (KIP-98)."""

    def append_as_leader(
        self,
        records: Buffer | CheckedBatches,
        *,
        leader_epoch: int,
        origin: AppendOrigin = ...,
        guard: VerificationGuard | None = ...,
    ) -> AppendInfo:
        """Validates, assigns offsets and the epoch, appends. Raises LogError; then nothing was appended."""

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int = ..., *, supports_epoch_bump: bool = ...
    ) -> VerificationGuard | None:
        """The guard under which a batch may open a transaction (KIP-890); None if one is open in this epoch."""

    def check_beside(self, records: Buffer) -> Callable[[], CheckedBatches] | None:
        """The check of a client's records as a job for an executor, where it takes long. Raises LogError."""

    def append_as_follower(self, records: Buffer, *, leader_epoch: int) -> object:
        """Appends batches as they are, at or after the log end, and notes their epochs; those before the first one
        of an epoch later than `leader_epoch`. Raises LogError."""

    def read(
        self, offset: int, max_bytes: int, *, up_to_offset: int, min_one_batch: bool = ...
    ) -> ReadResult:
        """Whole batches from the one that holds `offset`, all below `up_to_offset`."""

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where the oldest transaction begins that is open, or whose marker is not below the high watermark;
        the high watermark if there is none."""

    def forget_replicated(self, high_watermark: int) -> None:
        """The high watermark rose: what ended below it is decided for good."""

    def aborted_transactions(self, fetch_offset: int, up_to_offset: int) -> Sequence[AbortedTransaction]:
        """Those that overlap the range. Raises LogError."""

    def distrust(self) -> None:
        """Has the log check its bytes again at their next read: somebody may have got damaged ones."""

    def truncate_to(self, offset: int) -> None:
        """Drops every batch that reaches to or beyond `offset`, and the epochs that start there."""

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops everything; the log starts and ends at `offset`."""

    def raise_log_start_offset(self, offset: int) -> object:
        """Gives up the records below `offset`; their files go later. Raises LogError."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch <= `epoch` and where it ends; (-1, -1) when undefined (KIP-279). Raises LogError."""

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote, or would write, the record at `offset`; None below all epochs. Raises LogError."""

    def assign_epoch_start(self, epoch: int) -> bool:
        """Notes that `epoch` starts at the log end offset (KIP-101); whether that is durable already.

        Raises LogCorruptError, the log being given up, where it holds batches of a later epoch."""

    def offset_for_timestamp(
        self, timestamp: int, budget: LookupBudget | None = None
    ) -> TimestampedOffset | None:
        """The first record at or after the timestamp (ms), as far as the budget reaches (None: that of one lookup)."""

    def offset_for_max_timestamp(self, budget: LookupBudget | None = None) -> TimestampedOffset | None:
        """The record with the largest timestamp, as far as the budget reaches."""
