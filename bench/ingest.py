"""What `kraft ingest` takes: a topic beside the connector's own Parquet write, a continuous run, a run without news.

`python -m bench.ingest`. *batch*: the same topic, in the same Spark session, in turn, as a Delta table, as a Parquet
table, and by the connector's `write.parquet` of the same columns. *continuous*: records that carry the time of their
sending arrive at a constant rate; whoever opens the Delta table's newest version all the time notes when each is there.
*unchanged*: the command again over a table that has all of many partitions, its time and that of its imports.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, cast

from confluent_kafka import Producer

from bench.brokers import Cluster, cluster
from bench.errors import BenchError
from bench.limits import Limit
from bench.parts import Measured, Part, end_on_sigterm, parser_of, run_parts, whole_numbers
from bench.processes import ROOT
from bench.rows import PARTITIONS
from bench.spark.sessions import CORES, options, spark
from bench.spark.topics import fill
from bench.workers import RECORD_BYTES
from kraft.ingest.model import Format, TableProperties
from kraft.ingest.options import IngestOptions
from kraft.ingest.progress import Progress
from kraft.ingest.run import Ports, ingest
from kraft.ingest.spark_job import SparkJobs

WARM_UP_RECORDS: Final = 60_000
MIN_DELTA_RATIO: Final = 0.9
MAX_P50_S, MAX_P99_S = 4.0, 8.0
MAX_FILES_A_MINUTE: Final = 1.0
MAX_UNCHANGED_S: Final = 1.0
UNCHANGED_PARTITIONS: Final = 200
TICK_S: Final = 0.01
"""So often the sender sends."""
LOOK_S: Final = 0.02
"""So often somebody looks for a new version of the table."""
END_S: Final = 120.0
START_S: Final = 120.0


class _Silent:
    """Nobody watches."""

    def begun(self, progress: Progress) -> None: ...
    def planned(self, cut: Any) -> None: ...
    def committed(self, next_commit_s: float | None) -> None: ...
    def failed(self, error: Exception, retry_s: float) -> None:
        raise BenchError(f"a cut failed: {error}")

    def told(self, sentence: str) -> None: ...


def batch(directory: Path, given: argparse.Namespace) -> Measured:
    """Rows per second. Raises BenchError."""
    session = spark(alone=True).session
    jobs = SparkJobs(session=session)
    rates: dict[str, list[float]] = {"connector": [], "delta": [], "parquet": []}
    with cluster(directory / "brokers", 1) as brokers:

        def run(way: str, topic: str) -> int:
            folder = directory / way
            shutil.rmtree(folder, ignore_errors=True)
            if way == "connector":
                given_options = {**options(brokers.bootstrap, topic), "includeHeaders": "true"}
                session.read.format("kraft").options(**given_options).load().write.parquet(str(folder))
                return int(session.read.parquet(str(folder)).count())
            wanted = IngestOptions(
                topics=(topic,),
                folder=folder,
                bootstrap=brokers.bootstrap,
                properties=TableProperties(cast("Format", way), "bytes", None),
            )
            ports = Ports(jobs=jobs, watcher=_Silent(), stop=Event(), compact=lambda _table: None)
            return ingest(wanted, ports).rows

        with brokers.topic(PARTITIONS, 1, name="warm-up") as topic:
            fill(brokers.bootstrap, topic, PARTITIONS, WARM_UP_RECORDS, "none")
            for way in rates:
                run(way, topic)
        with brokers.topic(PARTITIONS, 1) as topic:
            fill(brokers.bootstrap, topic, PARTITIONS, given.records, "none")
            for way in list(rates) * given.repeats:
                began_s = time.monotonic()
                rows = run(way, topic)
                took_s = time.monotonic() - began_s
                if rows != given.records:
                    raise BenchError(f"{way}: {rows} rows instead of {given.records}")
                rates[way].append(rows / took_s)
    medians = {way: statistics.median(found) for way, found in rates.items()}
    ratios = {way: medians[way] / medians["connector"] for way in ("delta", "parquet")}
    return {"rows_per_s": rates, "ratios": ratios}, [
        Limit("Delta / the connector's Parquet write", ratios["delta"], MIN_DELTA_RATIO, "", True)
    ]


def continuous(directory: Path, given: argparse.Namespace) -> Measured:
    """From a record's sending to its row in the newest version of the table. Raises BenchError."""
    table = directory / "table"
    with cluster(directory / "brokers", 1) as brokers, brokers.topic(PARTITIONS, 1) as topic:
        _send_one(brokers, topic)  # the table is there before the clock runs
        process = subprocess.Popen(
            _command(brokers, [topic], table, "--continuous", "--trigger", "2s"),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _await(_log(table, 0).exists, START_S, "the first commit")
            ended = Event()
            sent: list[int] = []
            sender = Thread(target=lambda: sent.append(_send(brokers, topic, given, ended)))
            sender.start()
            took_s = _looked(table, ended, lambda seen: bool(sent) and seen >= sent[0])
            sender.join()
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(END_S)
        if code:
            raise BenchError(f"kraft ingest ended with {code}")
    percentiles = statistics.quantiles(took_s, n=100)
    p50_s, p99_s = percentiles[49], percentiles[98]
    files = _files_after_compaction(table)
    figures = {"records": len(took_s), "p50_s": p50_s, "p99_s": p99_s, "max_s": max(took_s), "files": files}
    return figures, [
        Limit("continuous: from produce to a row, p50", p50_s, MAX_P50_S, "s", False),
        Limit("continuous: from produce to a row, p99", p99_s, MAX_P99_S, "s", False),
        Limit("continuous: files a partition and minute", files, MAX_FILES_A_MINUTE, "", False),
    ]


def unchanged(directory: Path, given: argparse.Namespace) -> Measured:
    """The whole command, from its start to its end. Raises BenchError."""
    table = directory / "table"
    with (
        cluster(directory / "brokers", 1) as brokers,
        brokers.topic(UNCHANGED_PARTITIONS, 1, name="many") as topic,
    ):
        fill(brokers.bootstrap, topic, UNCHANGED_PARTITIONS, UNCHANGED_PARTITIONS, "none")
        command = _command(brokers, [topic], table, "--json")
        first = _run(command)
        took_s, cpu_s = [], []
        for _ in range(given.repeats):
            before = os.times()
            again = _run(command)
            after = os.times()
            took_s.append(after.elapsed - before.elapsed)
            cpu_s.append(sum(after[2:4]) - sum(before[2:4]))
            if again["version"] != first["version"]:
                raise BenchError(f"a run without news made version {again['version']} of {first['version']}")
    figures = {"took_s": took_s, "cpu_s": cpu_s}
    name = f"{UNCHANGED_PARTITIONS} partitions without news"
    return figures, [Limit(name, statistics.median(took_s), MAX_UNCHANGED_S, "s", False)]


def _command(brokers: Cluster, topics: Sequence[str], table: Path, *more: str) -> list[str]:
    command = [sys.executable, "-m", "kraft.cli.entry", "ingest", *topics, "--to", str(table)]
    return [*command, "--master", f"local[{CORES}]", "--bootstrap-server", brokers.bootstrap, *more]


def _run(command: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=END_S, check=False)
    if done.returncode:
        raise BenchError(f"kraft ingest ended with {done.returncode}: {done.stderr.strip()}")
    return dict(json.loads(done.stdout))


def _await(reached: Callable[[], bool], budget_s: float, what: str) -> None:
    end_s = time.monotonic() + budget_s
    while not reached():
        if time.monotonic() > end_s:
            raise BenchError(f"{what} was not there within {budget_s:g} s")
        time.sleep(LOOK_S)


def _send_one(brokers: Cluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    producer.produce(topic, b"first")
    if producer.flush(END_S):
        raise BenchError("the first record was not acknowledged")


def _send(brokers: Cluster, topic: str, given: argparse.Namespace, ended: Event) -> int:
    """`given.rate` records a second for `given.minutes`; how many there were."""
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "log_level": 0, "linger.ms": 5})
    padding = b"x" * (RECORD_BYTES - 20)
    began_s, sent, total = time.monotonic(), 0, int(given.rate * given.minutes * 60)
    try:
        while sent < total:
            due = min(int((time.monotonic() - began_s) * given.rate), total)
            for number in range(sent, due):
                producer.produce(topic, b"%020d" % time.time_ns() + padding, partition=number % PARTITIONS)
            sent = due
            producer.poll(0)
            time.sleep(TICK_S)
        return 0 if producer.flush(END_S) else sent
    finally:
        ended.set()


def _looked(table: Path, ended: Event, is_all: Callable[[int], bool]) -> list[float]:
    """Waits for each new version until all that was sent is there; how long after its sending each row was."""
    took_s: list[float] = []
    end_s: float | None = None
    version = 1
    while not is_all(len(took_s)):
        if _log(table, version).exists():
            seen_ns = time.time_ns()
            for path in _appended(table, version):
                took_s += [(seen_ns - sent_ns) / 1e9 for sent_ns in _sent_ns(path)]
            version += 1
            continue
        if ended.is_set():
            end_s = end_s or time.monotonic() + END_S
            if time.monotonic() > end_s:
                raise BenchError(f"{len(took_s)} rows were there {END_S:g} s after the last was sent")
        time.sleep(LOOK_S)
    return took_s


def _log(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020}.json"


def _appended(table: Path, version: int) -> list[Path]:
    """The files of a version that bring rows: a merge of older ones brings none."""
    actions = [json.loads(text) for text in _log(table, version).read_text().splitlines()]
    added = [action["add"] for action in actions if "add" in action]
    return [table / one["path"] for one in added if one["dataChange"]]


def _sent_ns(path: Path) -> list[int]:
    import pyarrow.parquet as pq

    column = pq.read_table(path, columns=["value"]).column("value")
    return [int(value.as_py()[:20]) for value in column]


def _files_after_compaction(table: Path) -> float:
    """The table's files right after its last merge, by partition and minute until then. Raises BenchError."""
    from deltalake import DeltaTable

    opened = DeltaTable(table)
    history = sorted(opened.history(), key=lambda entry: entry["version"])
    merges = [
        entry
        for entry in history
        if _log(table, entry["version"]).exists() and _merges(table, entry["version"])
    ]
    if not merges:
        raise BenchError("the run was too short for a compaction")
    opened.load_as_version(merges[-1]["version"])
    minutes: float = (merges[-1]["timestamp"] - history[0]["timestamp"]) / 60_000
    return len(opened.file_uris()) / (PARTITIONS * minutes)


def _merges(table: Path, version: int) -> bool:
    """Whether a version replaces files by larger ones."""
    actions = [json.loads(text) for text in _log(table, version).read_text().splitlines()]
    return any("add" in action and not action["add"]["dataChange"] for action in actions)


PARTS: Final[Mapping[str, Part]] = {"batch": batch, "continuous": continuous, "unchanged": unchanged}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.ingest", "Topics into tables.", PARTS)
    parser.add_argument("--records", type=int, default=5_000_000, help="of the batch (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="of each (default %(default)s)")
    parser.add_argument("--rate", type=int, default=5_000, help="records a second (default %(default)s)")
    parser.add_argument("--minutes", type=int, default=3, help="of the continuous run (default %(default)s)")
    given = parser.parse_args(arguments)
    whole_numbers(parser, given, ("records", "repeats", "rate", "minutes"))
    given.records -= given.records % PARTITIONS
    if not given.records:
        parser.error(f"--records is at least {PARTITIONS}")
    return run_parts(PARTS, given)


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
