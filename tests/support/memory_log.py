"""A partition's log in memory: the `ReplicaLog` of tests.

A client's records are text, values separated by commas, one batch per append. `sync` and `lose_power`
tell what is on disk from what is not; epochs are on disk at once, as the real checkpoint is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from leader_epoch.epoch_cache import EpochCache
from partitions.disk import Buffer, FileSlice
from partitions.log.errors import AppendError, OffsetOutOfRange, UnexpectedAppendOffset
from partitions.log.producers.producer_state import ProducerEntry, ProducerState
from partitions.log.producers.verifications import VerificationGuard
from partitions.log.validation import CheckedBatches


@dataclass(frozen=True)
class MemoryBatch:
    base_offset: int
    epoch: int
    values: tuple[str, ...]

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.values)


@dataclass(frozen=True)
class MemoryRead:
    batches: tuple[MemoryBatch, ...]
    slices: Sequence[FileSlice] = ()

    @property
    def next_offset(self) -> int:
        return self.batches[-1].next_offset

    @property
    def size_bytes(self) -> int:
        return sum(len(value) for batch in self.batches for value in batch.values)

    def encode(self) -> bytes:
        return json.dumps([[b.base_offset, b.epoch, list(b.values)] for b in self.batches]).encode()


@dataclass(frozen=True)
class MemoryAppend:
    first_offset: int
    last_offset: int
    log_start_offset: int
    duplicate: bool = False
    log_append_time: int = -1


@dataclass
class MemoryLogConfig:
    min_insync_replicas: int = 1
    deletes: bool = True
    is_compacted: bool = False
    flushes: bool = False


class MemoryLog:
    """See the module."""

    def __init__(self, config: MemoryLogConfig | None = None) -> None:
        self.config = config or MemoryLogConfig()
        self.batches: list[MemoryBatch] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.epochs = EpochCache()
        self.producer_state = ProducerState()
        self.synced_to = 0
        self.fails_with: Exception | None = None
        """Raised by the next append."""
        self._seen: dict[str, MemoryAppend] = {}

    # ReplicaLog

    def check_beside(self, records: Buffer) -> None:
        return None

    def append_as_leader(
        self,
        records: Buffer | CheckedBatches,
        *,
        leader_epoch: int,
        origin: str = "client",
        guard: VerificationGuard | None = None,
    ) -> MemoryAppend:
        self._maybe_fail()
        assert not isinstance(records, CheckedBatches)
        values = bytes(records).decode().split(",")
        first = self.log_end_offset
        self._add(MemoryBatch(first, leader_epoch, tuple(values)))
        return MemoryAppend(first, self.log_end_offset - 1, self.log_start_offset)

    @property
    def active_producers(self) -> dict[int, ProducerEntry]:
        return self.producer_state.producers

    def now_ms(self) -> int:
        return 0

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int = -1, *, supports_epoch_bump: bool = False
    ) -> VerificationGuard | None:
        return self.producer_state.begin_verification(
            producer_id, epoch, sequence, supports_epoch_bump=supports_epoch_bump, now_ms=0
        )

    def append_as_follower(self, records: Buffer, *, leader_epoch: int) -> object:
        self._maybe_fail()
        for base_offset, epoch, values in json.loads(bytes(records)):
            if base_offset < self.log_end_offset:
                raise UnexpectedAppendOffset(
                    f"{base_offset} is below the end {self.log_end_offset}", base_offset
                )
            self._add(MemoryBatch(base_offset, epoch, tuple(values)))
        return None

    def _add(self, batch: MemoryBatch) -> None:
        self.batches.append(batch)
        self.epochs.assign(batch.epoch, batch.base_offset)
        self.log_end_offset = batch.next_offset

    def _maybe_fail(self) -> None:
        if self.fails_with is not None:
            error, self.fails_with = self.fails_with, None
            raise error

    def read(
        self, offset: int, max_bytes: int, *, up_to_offset: int, min_one_batch: bool = True
    ) -> MemoryRead:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        taken: list[MemoryBatch] = []
        size = 0
        for batch in self.batches:
            if batch.next_offset <= offset:
                continue
            batch_bytes = sum(map(len, batch.values))
            too_large = size + batch_bytes > max_bytes and (taken or not min_one_batch)
            if batch.next_offset > up_to_offset or too_large:
                break
            taken.append(batch)
            size += batch_bytes
        return MemoryRead(tuple(taken))

    def distrust(self) -> None:
        return

    def last_stable_offset(self, high_watermark: int) -> int:
        """There are no transactions."""
        return high_watermark

    def forget_replicated(self, high_watermark: int) -> None:
        return

    def aborted_transactions(self, fetch_offset: int, up_to_offset: int) -> tuple[()]:
        return ()

    def truncate_to(self, offset: int) -> None:
        while self.batches and self.batches[-1].next_offset > offset:
            self.log_end_offset = self.batches.pop().base_offset
        self.epochs.truncate_from_end(min(offset, self.log_end_offset))
        self.synced_to = min(self.synced_to, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.batches.clear()
        self.epochs.clear()
        self.log_start_offset = self.log_end_offset = self.synced_to = offset

    def raise_log_start_offset(self, offset: int) -> object:
        self.log_start_offset = max(self.log_start_offset, offset)
        self.batches = [batch for batch in self.batches if batch.next_offset > offset]
        self.epochs.truncate_from_start(offset)
        return None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        return self.epochs.epoch_for_offset(offset)

    def assign_epoch_start(self, epoch: int) -> bool:
        self.epochs.assign(epoch, self.log_end_offset)
        return True

    def offset_for_timestamp(self, timestamp: int, budget: object = None) -> tuple[int, int, int] | None:
        """A record's timestamp is its offset times ten."""
        offset = max(self.log_start_offset, -(-timestamp // 10))
        if offset >= self.log_end_offset:
            return None
        return (offset * 10, offset, self.epochs.epoch_for_offset(offset) or 0)

    def offset_for_max_timestamp(self, budget: object = None) -> tuple[int, int, int] | None:
        return self.offset_for_timestamp((self.log_end_offset - 1) * 10) if self.batches else None

    # What tests do to it and ask of it

    def sync(self) -> None:
        self.synced_to = self.log_end_offset

    def lose_power(self) -> None:
        """Only what was synced is there after; epochs that now start at the end or later go, as on loading."""
        synced_to = self.synced_to
        while self.batches and self.batches[-1].next_offset > synced_to:
            self.batches.pop()
        self.log_end_offset = synced_to
        self.epochs.truncate_from_end(synced_to)

    def wipe(self) -> None:
        """The disk was replaced."""
        self.truncate_fully_and_start_at(0)

    def values(self, up_to_offset: int | None = None) -> dict[int, tuple[int, str]]:
        """Offset -> (epoch, value)."""
        return {
            batch.base_offset + index: (batch.epoch, value)
            for batch in self.batches
            for index, value in enumerate(batch.values)
            if up_to_offset is None or batch.base_offset + index < up_to_offset
        }


__all__ = ["AppendError", "MemoryBatch", "MemoryLog", "MemoryLogConfig", "MemoryRead"]
