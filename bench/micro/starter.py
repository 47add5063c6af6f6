"""One start on a data directory, in a process of its own: it prints a report, closes the logs, prints `closed`.

python -m bench.micro.starter DIRECTORY
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
import time
from typing import Any, cast

from bench.machine import resident_bytes
from bench.micro.logs import halt, now_ms
from bench.micro.starts import CLUSTER_ID, NODE_ID
from kraft.broker.membership.metadata_cache import MetadataCache
from kraft.runtime.disk import RealDisk
from kraft.runtime.executor import ThreadExecutor
from partitions.lag_schedule import LagSchedule
from partitions.log.config import LogConfig
from partitions.log_manager import LogManager
from partitions.partition import Partition, ReplicaContext

TOPIC_ID = b"kraftBenchTopic1"


async def main(directory: str) -> None:
    executor = ThreadExecutor()
    manager = LogManager(
        RealDisk(),
        [directory],
        LogConfig(),
        executor,
        now_ms=now_ms,
        halt=halt,
        rng=random.Random(1),
    )
    gc.collect()
    before_bytes = resident_bytes(os.getpid())
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    report = manager.start(cluster_id=CLUSTER_ID, node_id=NODE_ID)
    spent_s, spent_cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    schedule: LagSchedule[Partition] = LagSchedule()
    # No listeners: nothing happens to these replicas.
    context = ReplicaContext(NODE_ID, MetadataCache(), cast(Any, None), schedule, 30_000)
    replicas = {
        key: Partition(key, TOPIC_ID, cast(Any, log), context, high_watermark=0)
        for key, log in manager.logs.items()
    }
    gc.collect()
    print(
        json.dumps(
            {
                "start_s": spent_s,
                "start_cpu_s": spent_cpu_s,
                "bytes": resident_bytes(os.getpid()) - before_bytes,
                "open_files": len(os.listdir("/proc/self/fd")),
                "logs": report.logs,
                "replicas": len(replicas),
            }
        ),
        flush=True,
    )
    await manager.close(broker_epoch=1, high_watermarks={})
    await executor.close()
    print("closed", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
