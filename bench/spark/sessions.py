"""The Spark under measurement, once a run: with Spark's own Kafka source where its jars of this version are served."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bench.machine import cpu_seconds
from bench.spark.trivial import OneRowABatch, ReadyRows
from kraft.spark.session import local_session

CORES = 2
OURS, SPARKS = "kraft", "kafka"
_CONF = {
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


class Spark(NamedTuple):
    session: SparkSession
    sources: tuple[str, ...]
    """The formats to compare: ours first."""
    why_alone: str | None
    """Why Spark's own source is not there."""


@cache
def spark(*, alone: bool) -> Spark:
    """Starts it. Takes a minute or more the first time, when jars are fetched; `alone` fetches none."""
    made = _start(alone=alone)
    for source in (ReadyRows, OneRowABatch):
        made.session.dataSource.register(source)
    return made


def _start(*, alone: bool) -> Spark:
    if alone:
        return Spark(local_session("bench", cores=CORES, **_CONF), (OURS,), "it was not asked for")
    packages = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    try:
        session = local_session("bench", cores=CORES, **_CONF, **{"spark.jars.packages": packages})
        return Spark(session, (OURS, SPARKS), None)
    except PySparkException:
        # The JVM has said on standard error which jar was missing.
        session = local_session("bench", cores=CORES, **_CONF)
        return Spark(session, (OURS,), f"{packages} could not be fetched")


def options(bootstrap: str, topic: str) -> dict[str, str]:
    """Those that both sources take."""
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}


class Processes(NamedTuple):
    jvm: list[int]
    python: list[int]

    def cpu_s(self) -> dict[int, float]:
        """By pid, of those that live."""
        return {pid: cpu_seconds([pid]) for pid in _alive([*self.jvm, *self.python])}


def processes(root: int) -> Processes:
    """The JVM that the process has started, and the Python processes below that."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
        children.setdefault(parent, []).append(int(folder.name))
    below = [root]
    for pid in below:
        below += children.get(pid, [])
    named = {pid: name for pid in below[1:] if (name := _name(pid)) is not None}
    return Processes(
        [pid for pid, name in named.items() if name == "java"],
        [pid for pid, name in named.items() if name.startswith("python")],
    )


def peak_mb(pids: Iterable[int]) -> float:
    """The most memory that any of the processes has had (VmHWM)."""
    peaks = [0.0]
    for pid in _alive(pids):
        for text in Path(f"/proc/{pid}/status").read_text().splitlines():
            if text.startswith("VmHWM:"):
                peaks.append(int(text.split()[1]) * 1024 / 1e6)
    return max(peaks)


def _alive(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if _name(pid) is not None]


def _name(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None


def durations_ms(query: Any) -> list[dict[str, int]]:
    """What each micro-batch of one row took, by step."""
    return [dict(one["durationMs"]) for one in query.recentProgress if one["numInputRows"] == 1]
