"""Many logs in one process: descriptors and memory are bounded, whatever their number."""

from __future__ import annotations

import gc
import os
import tracemalloc
from pathlib import Path

from kraft.runtime.disk import RealDisk
from partitions.log.config import LogConfig
from partitions.log.log import PartitionLog
from partitions.log.storage import LogStorage
from partitions.topic_partition import TopicPartition
from tests.support.logs import batch_of, halt, read_records

LOGS = 300
OPEN_FILES = 20
BYTES_A_LOG = 10_000


def open_all(folder: Path, storage: LogStorage) -> list[PartitionLog]:
    return [
        PartitionLog.open(
            storage.disk,
            f"{folder}/t-{number}",
            TopicPartition("t", number),
            LogConfig(),
            now_ms=lambda: 1000,
            halt=halt,
            clean_shutdown=True,
            storage=storage,
        )
        for number in range(LOGS)
    ]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_files_are_open_while_they_are_used(tmp_path: Path) -> None:
    gc.collect()
    before = descriptors()
    storage = LogStorage(RealDisk(), halt, max_open_files=OPEN_FILES)
    logs = open_all(tmp_path, storage)
    most = 0
    for turn in range(3):
        for log in logs:
            log.append_as_leader(batch_of(b"%d" % turn), leader_epoch=0)
        for log in logs:
            if turn == 1:
                log.roll()
            assert [record.value for record in read_records(log)] == [b"%d" % n for n in range(turn + 1)]
            most = max(most, descriptors())
    assert storage.open_files == OPEN_FILES
    assert most <= before + OPEN_FILES + 2
    for log in logs:
        log.close()
    assert storage.open_files == 0


def test_an_idle_log_takes_little_memory(tmp_path: Path) -> None:
    storage = LogStorage(RealDisk(), halt, max_open_files=OPEN_FILES)
    for log in open_all(tmp_path, storage):
        log.append_as_leader(batch_of(b"a", producer=(1, 0, 0)), leader_epoch=0)
        log.roll()
        log.append_as_leader(batch_of(b"b", producer=(1, 0, 1)), leader_epoch=0)
        log.close()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        logs = open_all(tmp_path, LogStorage(RealDisk(), halt, max_open_files=OPEN_FILES))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(logs) == LOGS
    assert after - before <= LOGS * BYTES_A_LOG
    for log in logs:
        log.abandon()
