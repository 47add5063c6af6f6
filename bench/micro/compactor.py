"""A process that fills a compacted log, cleans it as a broker does, and reports how late its event loop was.

python -m bench.micro.compactor SHAPE DIRECTORY LOG_BYTES CONTROL_S
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time

from bench.errors import BenchError
from bench.micro.compaction import SHAPES, Lateness, Shape
from bench.micro.logs import PARTITION, halt, now_ms
from bench.micro.starter import TOPIC_ID
from bench.micro.starts import CLUSTER_ID, NODE_ID
from kraft.logs import configure_logs
from kraft.runtime.collector import collect_seldom
from kraft.runtime.disk import RealDisk
from kraft.runtime.executor import ThreadExecutor
from kraft.runtime.loop import loop_factory, raise_open_files_limit
from kraft.runtime.switching import switch_often
from partitions.log.config import LogConfig
from partitions.log.log import PartitionLog
from partitions.log.node_logs.creation import NewLog
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from partitions.log_manager import LogManager
from partitions.records.builder import build_batch

TICK_S = 0.001
WRITTEN_BYTES = 16 * 1024 * 1024
"""Between two fsyncs of a job that computes."""
_COMPUTED = 300_000


class Ticker:
    """A timer of the running loop that notes its lateness."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._late_s: list[float] = []
        self._arm()

    def _arm(self) -> None:
        self._due_s = time.perf_counter() + TICK_S  # uvloop's own clock counts whole milliseconds
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._late_s.append(max(0.0, time.perf_counter() - self._due_s))
        self._arm()

    def stop(self) -> Lateness:
        """Ends the timer; returns its lateness."""
        self._timer.cancel()
        late_s = sorted(self._late_s)
        if not late_s:
            raise BenchError("the event loop never ran its timer")
        return Lateness(late_s[-1] * 1000, late_s[int(len(late_s) * 0.999)] * 1000)


def compute_and_sync(path: str) -> None:
    """A job that holds the interpreter's lock as Python does, and waits for the disk."""
    with open(path, "wb") as file:
        file.write(bytes(WRITTEN_BYTES))
        file.flush()
        os.fsync(file.fileno())
    sum(number * number for number in range(_COMPUTED))


async def rested(control_s: float) -> Lateness:
    """Beside an executor without jobs."""
    ticker = Ticker()
    await asyncio.sleep(control_s)
    return ticker.stop()


async def computed(executor: ThreadExecutor, path: str, control_s: float) -> Lateness:
    """Beside jobs that have nothing to do with logs."""
    ticker = Ticker()
    ends_s = time.perf_counter() + control_s
    while time.perf_counter() < ends_s:
        await executor.run(compute_and_sync, path)
    os.remove(path)
    return ticker.stop()


def fill(log: PartitionLog, shape: Shape, log_bytes: int) -> None:
    """Batches of random keys, all in closed segments."""
    rng = random.Random(1)
    text = rng.randbytes(shape.text_bytes + shape.value_bytes)
    at_ms = now_ms()
    while log.size_bytes < log_bytes:
        starts = (rng.randrange(shape.text_bytes) for _ in range(shape.batch_records))
        records = [
            (at_ms, b"key-%09d" % rng.randrange(shape.keys), text[at : at + shape.value_bytes], ())
            for at in starts
        ]
        log.append_as_leader(build_batch(records, codec=shape.codec), leader_epoch=0)
    log.roll()


async def main(name: str, directory: str, log_bytes: int, control_s: float) -> None:
    shape, executor = SHAPES[name], ThreadExecutor()
    os.makedirs(directory)
    write_meta_properties(
        RealDisk(), directory, MetaProperties(CLUSTER_ID, NODE_ID, "kraftBenchDirectory001")
    )
    manager = LogManager(
        RealDisk(), [directory], LogConfig(), executor, now_ms=now_ms, halt=halt, rng=random.Random(1)
    )
    manager.start(cluster_id=CLUSTER_ID, node_id=NODE_ID)
    config = LogConfig(
        segment_bytes=shape.segment_bytes, cleanup_policy="compact", max_message_bytes=8_000_000
    )
    await manager.creator.create([NewLog(PARTITION, TOPIC_ID, config, None)])
    log = manager.claim(PARTITION, TOPIC_ID, config)
    assert log is not None
    fill(log, shape, log_bytes)
    log.update_config(
        LogConfig(
            segment_bytes=shape.cleaned_segment_bytes, cleanup_policy="compact", max_message_bytes=8_000_000
        )
    )
    size_bytes, segments = log.size_bytes, len(log.segment_base_offsets) - 1
    resting = await rested(control_s)
    computing = await computed(executor, f"{directory}/written", control_s)
    ticker, began_s = Ticker(), time.perf_counter()
    rounds = await manager.cleaner.clean_dirty_logs(lambda _: log.log_end_offset)
    spent_s, cleaning = time.perf_counter() - began_s, ticker.stop()
    if not rounds or log.clean_offset != log.log_end_offset:
        raise BenchError(f"the log was cleaned up to {log.clean_offset} instead of {log.log_end_offset}")
    report = {
        "records": log.log_end_offset,
        "log_mb": size_bytes / 1e6,
        "left_mb": log.size_bytes / 1e6,
        "segments": segments,
        "mb_per_s": size_bytes / spent_s / 1e6,
        "cleaning": cleaning,
        "resting": resting,
        "computing": computing,
    }
    await manager.close(broker_epoch=1, high_watermarks={})
    await executor.close()
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    configure_logs()
    raise_open_files_limit()
    collect_seldom()
    switch_often()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
