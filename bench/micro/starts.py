"""A clean start with many partitions: its time, and the memory of an idle partition."""

from __future__ import annotations

import json
import os
import shutil
import statistics
from pathlib import Path
from typing import NamedTuple

from bench.micro.logs import batch_of_bytes, open_log
from bench.processes import Child
from kraft.runtime.disk import RealDisk
from partitions.log.config import LogConfig
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties

PARTITIONS = 5_000
ROUNDS = 3
BATCH_BYTES = 1_000
BATCHES = 16
"""In each of a partition's two segments: enough for index entries."""
CLUSTER_ID = "kraftBenchClusterId001"
NODE_ID = 1
START_TIMEOUT_S = 300.0


class Starts(NamedTuple):
    """Medians, by the wall clock and of CPU time; every start is a new process."""

    partitions: int
    start_s: float
    start_cpu_s: float
    bytes_per_partition: float
    """Growth of the process's memory in RAM over the number of partitions: logs and replicas, nothing else."""
    open_files: int
    """Descriptors that the process has then."""


def starts(directory: Path, *, partitions: int = PARTITIONS) -> Starts:
    """Makes the folders of one node and starts on them."""
    data = directory / "data"
    try:
        _fill(data, partitions)
        _start(data)  # the first one recovers logs that no node ever closed
        reports = [_start(data) for _ in range(ROUNDS)]
    finally:
        shutil.rmtree(data, ignore_errors=True)

    def median(key: str) -> float:
        return statistics.median(report[key] for report in reports)

    return Starts(
        partitions=partitions,
        start_s=median("start_s"),
        start_cpu_s=median("start_cpu_s"),
        bytes_per_partition=median("bytes") / partitions,
        open_files=int(median("open_files")),
    )


def _fill(data: Path, partitions: int) -> None:
    data.mkdir()
    write_meta_properties(
        RealDisk(), str(data), MetaProperties(CLUSTER_ID, NODE_ID, "kraftBenchDirectory001")
    )
    first = data / "bench-0"
    records = batch_of_bytes(BATCH_BYTES)
    log = open_log(first, LogConfig())
    for segment in range(2):
        if segment:
            log.roll()
        for _ in range(BATCHES):
            log.append_as_leader(records, leader_epoch=0)
    log.close()
    names = [(path.name, path.read_bytes()) for path in first.iterdir()]
    for number in range(1, partitions):
        folder = f"{data}/bench-{number}"
        os.mkdir(folder)
        for name, content in names:
            with open(f"{folder}/{name}", "wb") as file:
                file.write(content)


def _start(data: Path) -> dict[str, float]:
    with Child("bench.micro.starter", [data]) as starter:
        report: dict[str, float] = json.loads(starter.read_line(START_TIMEOUT_S))
        starter.read_line(START_TIMEOUT_S)  # it has closed its logs
    return report
