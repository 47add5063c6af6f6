"""A node's logs are closed, and power is lost: before any step of it, or after the last.

What the clean shutdown marker vouches for is there: whoever starts by it reads no data, and finds every record,
time, producer and transaction as it was. Without the marker the logs are recovered, and nothing that was flushed
is missing. Several lives follow each other on one disk, so that what one of them left in the page cache
alone would be missed by the next.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.log.config import LogConfig
from partitions.log.log import PartitionLog
from partitions.log.node_logs.creation import NewLog
from partitions.log.node_logs.data_directory import RECOVERY_POINTS
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from partitions.log.node_logs.offset_checkpoint import decode_offset_checkpoint
from partitions.log.producers.producer_state import ProducerState
from partitions.log_manager import LogManager
from partitions.records.batch import BatchHeader, iter_batches
from partitions.topic_partition import TopicPartition
from tests.support.examples import examples
from tests.support.logs import InlineExecutor, batch_of, halt, new_storage, run_inline, simulated_disk

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
ID = b"i" * 16
CONFIGS = {
    TopicPartition("small", 0): LogConfig(segment_bytes=4000, index_interval_bytes=3000),
    TopicPartition("indexed", 0): LogConfig(segment_bytes=4000, index_interval_bytes=150),
    TopicPartition("rolled", 0): LogConfig(
        segment_bytes=600, index_interval_bytes=150, max_message_bytes=400
    ),
}
"""An active segment without an offset index, one with, and many closed ones."""


class PowerCut(BaseException):
    """Power is lost before a disk operation; nothing of the process goes on."""


class World:
    """A node's data directory through several lives, and what its logs have to hold."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.storage = new_storage(seed)
        write_meta_properties(
            simulated_disk(self.storage), "/data", MetaProperties(CLUSTER, 1, "directory".ljust(22, "B"))
        )
        self.storage.sync_everything()
        self.batches: dict[TopicPartition, list[BatchHeader]] = {partition: [] for partition in CONFIGS}
        self.durable: dict[TopicPartition, int] = dict.fromkeys(CONFIGS, 0)
        self.clean_starts = 0
        self.start()
        wanted = [NewLog(partition, ID, config, 4) for partition, config in CONFIGS.items()]
        assert run_inline(self.manager.creator.create(wanted)) == {}

    def start(self) -> None:
        self.storage.locks.clear()
        self.manager = LogManager(
            simulated_disk(self.storage),
            ("/data",),
            LogConfig(),
            InlineExecutor(),  # type: ignore[arg-type]
            now_ms=lambda: 10_000,
            halt=halt,
            rng=random.Random(1),
        )
        disk = simulated_disk(self.storage)
        path = f"/data/{RECOVERY_POINTS}"
        ends = decode_offset_checkpoint(disk.read_bytes(path), path) if disk.exists(path) else {}
        self.is_clean = self.manager.start(cluster_id=CLUSTER, node_id=1).clean_shutdown
        assert not self.manager.failed
        if self.is_clean:
            assert ends == {p: log.log_end_offset for p, log in self.manager.logs.items()}
        for partition, config in CONFIGS.items():
            if (log := self.manager.get(partition)) is not None:
                log.update_config(config)

    # ---- a life

    def live(self) -> None:
        """Appends, flushes, cuts, rolls and reads, of each some."""
        for partition in CONFIGS:
            log = self.manager.logs[partition]
            for _ in range(self.rng.randrange(4)):
                action = self.rng.choice((self._append, self._append, self._append, self._read, self._cut))
                action(partition, log)
            if self.rng.random() < 0.3:
                run_inline(self.manager.flush_log(partition))
            if self.rng.random() < 0.2:
                log.roll()
            if self.rng.random() < 0.3:
                self._damage_index(log)
                self._read(partition, log)

    def _append(self, partition: TopicPartition, log: PartitionLog) -> None:
        for _ in range(self.rng.randint(1, 6)):
            producer_id = self.rng.choice((-1, -1, 7)) if partition.topic != "small" else -1
            known = [b for b in self.batches[partition] if b.producer_id == producer_id]
            sequence = known[-1].last_sequence + 1 if known else 0
            records = batch_of(
                b"v%05d" % log.log_end_offset,
                timestamp=1000 + self.rng.randrange(200),
                leader_epoch=4,
                producer=None if producer_id < 0 else (producer_id, 0, sequence),
            )
            (header,) = (header for _, header in iter_batches(records))
            offset = log.log_end_offset
            log.append_as_leader(records, leader_epoch=4)
            self.batches[partition].append(header._replace(base_offset=offset, partition_leader_epoch=4))

    def _cut(self, partition: TopicPartition, log: PartitionLog) -> None:
        end = max(0, log.log_end_offset - self.rng.randrange(5))
        log.truncate_to(end)
        self._forget_from(partition, end)

    def _forget_from(self, partition: TopicPartition, end: int) -> None:
        self.batches[partition] = [batch for batch in self.batches[partition] if batch.next_offset <= end]

    def _damage_index(self, log: PartitionLog) -> None:
        """Somebody writes nonsense over the end of a closed segment's time index, durably."""
        closed = [segment for segment in list(log._segments)[:-1] if segment.sealed]
        if closed and log.recovery_point == log.log_end_offset:
            segment = self.rng.choice(closed)
            segment.unload_indexes()
            file = simulated_disk(self.storage).open(segment.indexes.paths[1])
            file.write_at(max(0, file.size() - 12), b"\x00" * 7 + b"\x01" + b"\x00" * 4)
            file.sync()
            log._reader.forget()
            segment._max_timestamp = None

    def _read(self, partition: TopicPartition, log: PartitionLog) -> None:
        self.check_times(partition, log)

    # ---- its end

    def close(self, step: int | None) -> bool:
        """Closes the logs, and cuts the power before the disk operation of this number, or behind the last.

        Whether it came to that operation."""
        left = -1 if step is None else step

        def hook(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerCut

        self.durable = {partition: log.recovery_point for partition, log in self.manager.logs.items()}
        if step is not None:
            self.storage.before_operation = hook
        was_cut = False
        try:
            asyncio.run(self.manager.close(broker_epoch=7, high_watermarks={}))
        except PowerCut:
            was_cut = True
        self.storage.before_operation = None
        self.storage.lose_power()
        return was_cut

    # ---- judging

    def check(self) -> None:
        for partition in CONFIGS:
            log = self.manager.logs[partition]
            end = self.batches[partition][-1].next_offset if self.batches[partition] else 0
            assert self.durable[partition] <= log.log_end_offset <= end
            if self.is_clean:
                assert log.log_end_offset == end, "the marker vouches for all of it"
            self._forget_from(partition, log.log_end_offset)
            self.check_records(partition, log)
            self.check_times(partition, log)
            self.check_producers(partition, log)

    def check_records(self, partition: TopicPartition, log: PartitionLog) -> None:
        found = []
        position = 0
        while position < log.log_end_offset:
            result = log.read(position, 300, up_to_offset=log.log_end_offset)
            found += [header for _, header in iter_batches(b"".join(part.read() for part in result.slices))]
            position = result.next_offset
        assert found == self.batches[partition]

    def check_times(self, partition: TopicPartition, log: PartitionLog) -> None:
        for timestamp in range(1000, 1210, 30):
            first = next((b for b in self.batches[partition] if b.max_timestamp >= timestamp), None)
            found = log.offset_for_timestamp(timestamp)
            assert found == (first and (first.max_timestamp, first.base_offset, 4))

    def check_producers(self, partition: TopicPartition, log: PartitionLog) -> None:
        whole = ProducerState()
        for batch in self.batches[partition]:
            whole.record(batch, batch.base_offset)
        known = {producer_id: entry.batches for producer_id, entry in log.producers.state.producers.items()}
        assert known == {producer_id: entry.batches for producer_id, entry in whole.producers.items()}


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32), st.lists(st.one_of(st.none(), st.integers(0, 60)), min_size=1, max_size=5))
def test_power_is_lost_at_any_step_of_a_clean_end(seed: int, steps: list[int | None]) -> None:
    world = World(seed)
    for step in steps:
        world.live()
        world.close(step)
        world.start()
        world.check()


@pytest.mark.parametrize("lives", [1, 2])
def test_power_is_lost_at_every_step_of_a_clean_end(lives: int) -> None:
    """Exhaustively, for a few histories."""
    reached, clean = 0, 0
    for step in range(300):
        cut = False
        for seed in range(4):
            world = World(seed)
            for _ in range(lives - 1):
                world.live()
                world.close(None)
                world.start()
                assert world.is_clean
                world.check()
            world.live()
            cut |= world.close(step)
            world.start()
            clean += world.is_clean
            world.check()
        if not cut:
            break
        reached = step + 1
    assert reached > 20
    assert clean
