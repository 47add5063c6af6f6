"""Compacted logs in tests: a log manager on a simulated disk, and what its log should hold."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kraft.chaos.world.disk import SimulatedDisk
from kraft.chaos.world.storage import Storage
from partitions.log.cleaner.config import CleanerConfig
from partitions.log.config import LogConfig
from partitions.log.log import PartitionLog
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from partitions.log_manager import LogManager
from partitions.records.batch import BatchHeader, decode_records, iter_batches, verify_crc
from partitions.records.builder import build_batch
from partitions.records.control import ControlType, decode_control_type, encode_control_key
from partitions.topic_partition import TopicPartition
from tests.support.logs import get_or_create, halt, new_storage, simulated_disk

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
TABLE = TopicPartition("table", 0)
TOPIC_ID = b"t" * 16
FOLDER = "/data/table-0"
RETENTION_MS = 1000
COMPACTED = LogConfig(
    segment_bytes=700,
    index_interval_bytes=100,
    max_message_bytes=600,
    cleanup_policy="compact",
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION_MS,
)
CLEANER = CleanerConfig(io_buffer_bytes=200)


class TurnExecutor:
    """Runs jobs at once, with `between` called before and after each."""

    def __init__(self) -> None:
        self.between: Callable[[], None] = lambda: None
        self.jobs = 0

    async def run(self, job: Callable[..., object], *args: object) -> object:
        self.between()
        self.jobs += 1
        try:
            return job(*args)
        finally:
            await asyncio.sleep(0)
            self.between()


class Kept(NamedTuple):
    """A record in a log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    producer_id: int
    transactional: bool
    epoch: int


class Contents(NamedTuple):
    """All that a log holds, batch by batch, control records included."""

    headers: list[BatchHeader]
    records: list[Kept]
    markers: list[tuple[int, int, ControlType]]
    """Offset, producer, kind."""
    timestamps: list[tuple[int, int]]
    """Offset and timestamp of every record, control records included."""

    def undecided(self) -> dict[int, int]:
        """Producer → first offset of its open transaction."""
        opened: dict[int, int] = {}
        events: list[tuple[int, int, bool]] = [
            (h.base_offset, h.producer_id, False)
            for h in self.headers
            if h.is_transactional and not h.is_control
        ]
        events += [(offset, producer_id, True) for offset, producer_id, _ in self.markers]
        for offset, producer_id, ends in sorted(events):
            if ends:
                opened.pop(producer_id, None)
            else:
                opened.setdefault(producer_id, offset)
        return opened

    def committed(self) -> list[Kept]:
        """What a read_committed reader sees in the end: no aborted records, none of open transactions."""
        seen: list[Kept] = []
        for record in self.records:
            if record.transactional:
                kind = next(
                    (
                        kind
                        for offset, producer_id, kind in self.markers
                        if producer_id == record.producer_id and offset > record.offset
                    ),
                    None,
                )
                if kind is not ControlType.COMMIT:
                    continue
            seen.append(record)
        return seen

    def table(self, start: int = 0) -> dict[bytes | None, bytes]:
        """What a reader makes of it from an offset on: the last value of each key."""
        table: dict[bytes | None, bytes] = {}
        for record in self.committed():
            if record.offset < start:
                continue
            if record.value is None:
                table.pop(record.key, None)
            else:
                table[record.key] = record.value
        return table


def contents(log: PartitionLog, *, max_bytes: int = 300) -> Contents:
    """Reads the log from its start to its end, piece by piece, CRCs checked."""
    found = Contents([], [], [], [])
    position = log.log_start_offset
    while position < log.log_end_offset:
        result = log.read(position, max_bytes, up_to_offset=log.log_end_offset)
        assert result.slices, f"nothing to read at {position} of {log.log_end_offset}"
        data = b"".join(part.read() for part in result.slices)
        for at, header in iter_batches(data):
            verify_crc(data, at, header)
            assert header.last_offset >= position
            found.headers.append(header)
            for record in decode_records(data, at, header, max_decompressed_bytes=1 << 20):
                found.timestamps.append((record.offset, record.timestamp))
                if header.is_control:
                    found.markers.append((record.offset, header.producer_id, decode_control_type(record.key)))
                else:
                    found.records.append(
                        Kept(
                            record.offset,
                            record.timestamp,
                            record.key,
                            record.value,
                            header.producer_id,
                            header.is_transactional,
                            header.partition_leader_epoch,
                        )
                    )
        assert result.next_offset > position
        position = result.next_offset
    assert [h.base_offset for h in found.headers] == sorted({h.base_offset for h in found.headers})
    return found


def data_batch(
    pairs: Sequence[tuple[bytes | None, bytes | None]],
    timestamp: int,
    *,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    """One batch of (key, value), a millisecond apart; `producer` is (id, epoch, first sequence)."""
    return build_batch(
        [(timestamp + n, key, value, (("h", b"x"),)) for n, (key, value) in enumerate(pairs)],
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=transactional,
    )


def marker_batch(producer_id: int, kind: ControlType, timestamp: int) -> bytes:
    """What ends a transaction."""
    return build_batch(
        [(timestamp, encode_control_key(kind), b"\x00\x00\x00\x00\x00\x00", ())],
        producer_id=producer_id,
        producer_epoch=0,
        is_control=True,
        is_transactional=True,
    )


@dataclass
class Bench:
    """A log manager with one compacted log; time, high watermark and executor in the test's hands."""

    config: LogConfig = COMPACTED
    cleaner: CleanerConfig = CLEANER
    seed: int = 0
    now_ms: int = 10_000
    high_watermark: int | None = None
    """None: the log's end."""
    executor: TurnExecutor = field(default_factory=TurnExecutor)
    new_disk: Callable[[Storage], SimulatedDisk] = simulated_disk

    def __post_init__(self) -> None:
        self.storage: Storage = new_storage(self.seed)
        write_meta_properties(
            simulated_disk(self.storage), "/data", MetaProperties(CLUSTER, 1, "BBBBBBBBBBBBBBBBBBBBBB")
        )
        self.storage.sync_everything()
        self.start()

    def start(self) -> None:
        """Opens the directory, as a process does after whatever ended the one before."""
        self.storage.locks.clear()
        self.executor.between = lambda: None
        self.manager = LogManager(
            self.new_disk(self.storage),
            ("/data",),
            self.config,
            self.executor,  # type: ignore[arg-type]
            now_ms=lambda: self.now_ms,
            halt=halt,
            rng=random.Random(1),
            cleaner=self.cleaner,
        )
        report = self.manager.start(cluster_id=CLUSTER, node_id=1)
        assert not report.failed, report.failed
        self.log = get_or_create(self.manager, TABLE, TOPIC_ID, self.config)
        self.executor.jobs = 0

    async def clean(self) -> int:
        """Cleans whatever is due; returns the number of rounds."""
        limit = self.high_watermark
        return await self.manager.cleaner.clean_dirty_logs(
            lambda _: self.log.log_end_offset if limit is None else limit
        )

    async def stop(self) -> None:
        await self.manager.close(broker_epoch=1, high_watermarks={})

    def put(
        self,
        *pairs: tuple[bytes | None, bytes | None],
        codec: int = 0,
        epoch: int = 0,
        producer: tuple[int, int, int] = (-1, -1, -1),
        transactional: bool = False,
        timestamp: int | None = None,
    ) -> int:
        """Appends `data_batch`, of now unless told otherwise, and returns its first offset."""
        time_ms = self.now_ms if timestamp is None else timestamp
        batch = data_batch(pairs, time_ms, codec=codec, producer=producer, transactional=transactional)
        return self.log.append_as_leader(batch, leader_epoch=epoch, origin="coordinator").first_offset

    def mark(self, producer_id: int, kind: ControlType) -> int:
        """Ends the producer's transaction; the marker's offset."""
        batch = marker_batch(producer_id, kind, self.now_ms)
        return self.log.append_as_leader(batch, leader_epoch=0, origin="coordinator").first_offset

    def names(self) -> list[str]:
        return simulated_disk(self.storage).list_dir(FOLDER)

    def contents(self) -> Contents:
        return contents(self.log)
