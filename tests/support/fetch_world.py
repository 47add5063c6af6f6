"""A leader endpoint that a test answers by hand, and follower logs in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fetcher.fetch_state import FollowedPartition
from fetcher.leader_endpoint import (
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    LeaderOffsets,
    OffsetsQuery,
    PartitionKey,
)
from fetcher.replication import LogTruncation
from leader_epoch.epoch_cache import EpochCache
from tests.support.memory_log import MemoryBatch, MemoryLog, MemoryRead

TOPIC_ID = bytes(15) + b"\x07"
A, B, C = ("orders", 0), ("orders", 1), ("orders", 2)


class Wanted(NamedTuple):
    """What a reader asks of one partition in a fetch session."""

    partition: int
    fetch_offset: int = 0
    current_leader_epoch: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 1 << 20


class FollowerMemory:
    """A `FollowerLog` over a log in memory; `epoch` is the leader epoch that it follows in."""

    def __init__(self, *values: str, epoch: int = 0) -> None:
        self.log = MemoryLog()
        self.epoch = epoch
        self.high_watermark = 0
        for value in values:
            self.log.append_as_leader(value.encode(), leader_epoch=epoch)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def awaits_flush(self) -> bool:
        return self.log.awaits_flush

    @property
    def epochs(self) -> EpochCache:
        return self.log.epochs

    def confirm_epoch_end(self, epoch: int) -> None:
        return

    def append_as_follower(
        self, records: bytes | bytearray | memoryview, *, leader_epoch: int, leader_high_watermark: int,
        leader_log_start_offset: int,
    ) -> None:  # fmt: skip
        assert leader_epoch == self.epoch
        if records:
            self.log.append_as_follower(records, leader_epoch=leader_epoch)
        self.high_watermark = max(self.high_watermark, min(leader_high_watermark, self.log_end_offset))

    def truncate_to(self, offset: int, *, leader_epoch: int) -> None:
        assert leader_epoch == self.epoch
        self.log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int, *, leader_epoch: int) -> None:
        assert leader_epoch == self.epoch
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset

    def text(self) -> str:
        return " ".join(value for _, value in self.log.values().values())


class Listened:
    """A `FetcherListener` that takes notes."""

    def __init__(self) -> None:
        self.truncations: list[LogTruncation] = []
        self.failed: list[tuple[PartitionKey, str]] = []
        self.retried: list[tuple[PartitionKey, str]] = []
        self.refused: list[tuple[str, int]] = []
        """What a partition's own log refused, and how often it had failed by then."""
        self.crashed: list[tuple[int, str]] = []

    @property
    def truncated(self) -> list[tuple[PartitionKey, int, int]]:
        """Each log that was cut, from where to where."""
        return [(cut.key, cut.from_offset, cut.to_offset) for cut in self.truncations]

    def on_truncated(self, truncation: LogTruncation) -> None:
        self.truncations.append(truncation)

    def on_partition_failed(
        self, key: PartitionKey, leader_epoch: int, code: str, error: Exception | None
    ) -> None:
        self.failed.append((key, code))

    def on_retry(
        self, key: PartitionKey, leader_epoch: int, code: str, error: Exception | None, failures: int
    ) -> None:
        self.retried.append((key, code))
        if error is not None:
            self.refused.append((str(error), failures))

    def on_fetcher_crashed(self, leader_id: int, error: BaseException) -> None:
        self.crashed.append((leader_id, str(error)))


def followed(
    key: PartitionKey,
    log: FollowerMemory,
    *,
    leader_id: int = 1,
    leader_epoch: int = 0,
    topic_id: bytes = TOPIC_ID,
) -> FollowedPartition:
    log.epoch = leader_epoch
    return FollowedPartition(key, topic_id, leader_id, leader_epoch, log)


def records(base_offset: int, *values: str, epoch: int = 0) -> bytes:
    """One batch, as the leader sends it."""
    return MemoryRead((MemoryBatch(base_offset, epoch, values),)).encode()


def got(key: PartitionKey, *batches: bytes, high_watermark: int = 0) -> FetchedPartition:
    return FetchedPartition(key, None, high_watermark, 0, None, b"".join(batches))


class Call:
    """A fetch that waits for its answer."""

    def __init__(self, request: FetchRequest) -> None:
        self.request = request
        self.answer: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()

    @property
    def keys(self) -> list[PartitionKey]:
        return [asked.key for asked in self.request.partitions]

    def respond(self, *partitions: FetchedPartition, error: str | None = None) -> None:
        """Answers; partitions that are not named got nothing."""
        named = {partition.key for partition in partitions}
        empty = [got(key) for key in self.keys if key not in named]
        self.answer.set_result(FetchResponse([*partitions, *empty], error))

    def fail(self, error: Exception) -> None:
        self.answer.set_exception(error)


class HandEndpoint:
    """A `LeaderEndpoint` whose answers the test gives."""

    def __init__(self, leader_id: int = 1) -> None:
        self.leader_id = leader_id
        self.arrived: asyncio.Queue[Call] = asyncio.Queue()
        self.outstanding = 0
        self.offsets: dict[PartitionKey, LeaderOffsets] = {}
        self.asked: list[PartitionKey] = []
        self.closed = False

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        call = Call(request)
        self.arrived.put_nowait(call)
        self.outstanding += 1
        try:
            return await call.answer
        finally:
            self.outstanding -= 1

    async def log_offsets(self, queries: Sequence[OffsetsQuery]) -> Mapping[PartitionKey, LeaderOffsets]:
        self.asked.extend(query.key for query in queries)
        return self.offsets

    async def close(self) -> None:
        self.closed = True

    async def next(self) -> Call:
        """The next fetch to arrive."""
        async with asyncio.timeout(5):
            return await self.arrived.get()

    async def quiet(self) -> bool:
        """Whether nothing arrives while everything that is ready runs."""
        for _ in range(20):
            await asyncio.sleep(0)
        return self.arrived.empty()
