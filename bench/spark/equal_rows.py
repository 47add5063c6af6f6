"""The command `python -m bench.spark.equal_rows`: each option of format("kraft") against Spark's own Kafka source.

It fills topics of a fresh node with what is odd (headers, nulls, transactions, deleted records, gaps of time), reads
each with both formats under the same options, as a batch and as a stream that ends, and compares the rows: all columns,
for streams the sizes of the micro-batches too, for mistakes that both refuse. A difference that is known has its reason
here and in the connector's README; any other makes the exit code 1, as does a known one that is gone. It wants a
PySpark for whose version Spark's own source is served.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench.brokers import Cluster, cluster
from bench.errors import BenchError
from bench.parts import end_on_sigterm
from bench.spark.sessions import OURS, SPARKS, spark

T0_MS: Final = 1_700_000_000_000
PARTITIONS, RECORDS = 3, 60
KEPT: Final = {"retention.ms": "-1"}
"""Records of so long ago would be gone before they are read."""
STREAM_S = 120
NOT_STARTED: Final = "Python worker failed to connect back"
PATIENCE: Final = 30
ALL = json.dumps({"odd": {"0": 5, "1": -2, "2": 12}})
ENDS = json.dumps({"odd": {"0": 9, "1": -1, "2": 12}})
TIMES = json.dumps({"odd": {"0": T0_MS + 10_000, "1": T0_MS, "2": T0_MS + 40_001}})
LATE = str(T0_MS + 10**9)
IMPATIENT: Final = {
    "fetchOffset.numRetries": "1",
    "kafka.request.timeout.ms": "4000",
    "kafka.default.api.timeout.ms": "5000",
}
"""Else Spark's own source tries for minutes."""
BY_NAME: Final = {"subscribe": "odd"}


STREAMS_DIFFER: Final = {
    "assign, an unknown partition": "ours refuses it, as both do in a batch: its records would be missing",
}
"""By the name of a case that is equal as a batch."""


class Case(NamedTuple):
    """Options for both formats; `differs` says why the two do not say the same."""

    name: str
    options: Mapping[str, str]
    stream: bool = False
    differs: str | None = None


def _batches() -> Iterator[Case]:
    """Options of batches; those of both are in `_both`."""
    yield Case("endingOffsets", {**BY_NAME, "endingOffsets": ENDS})
    yield Case("endingOffsets latest", {**BY_NAME, "endingOffsets": "latest"})
    yield Case("both limits", {**BY_NAME, "startingOffsets": ALL, "endingOffsets": ENDS})
    yield Case("endingTimestamp", {**BY_NAME, "endingTimestamp": str(T0_MS + 30_000)})
    yield Case("endingTimestamp too late", {**BY_NAME, "endingTimestamp": LATE})
    yield Case("endingOffsetsByTimestamp", {**BY_NAME, "endingOffsetsByTimestamp": TIMES})
    yield Case(
        "endingTimestamp goes before",
        {
            **BY_NAME,
            "endingTimestamp": str(T0_MS + 5000),
            "endingOffsetsByTimestamp": TIMES,
            "endingOffsets": ENDS,
        },
    )
    yield Case("a start at the end", {**BY_NAME, "startingOffsets": "latest"})
    yield Case("an end at the start", {**BY_NAME, "endingOffsets": "earliest"})
    yield Case(
        "an end beyond the end",
        {
            **BY_NAME,
            "endingOffsets": '{"odd":{"0":999,"1":-1,"2":-1}}',
            "kafkaConsumer.pollTimeoutMs": "2000",
        },
    )
    yield Case("an end for some partitions", {**BY_NAME, "endingOffsets": '{"odd":{"0":3}}'})
    yield Case("maxOffsetsPerTrigger", {**BY_NAME, "maxOffsetsPerTrigger": "7"})


def _streams() -> Iterator[Case]:
    yield Case("latest is the default", {**BY_NAME}, True)
    yield Case("endingOffsets", {**BY_NAME, "endingOffsets": "latest"}, True)
    everything = {**BY_NAME, "startingOffsets": "earliest"}
    yield Case("maxOffsetsPerTrigger", {**everything, "maxOffsetsPerTrigger": "17"}, True)
    yield Case("minOffsetsPerTrigger", {**everything, "minOffsetsPerTrigger": "1000"}, True)
    limits = {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "30", "maxTriggerDelay": "1s"}
    yield Case("min, max and maxTriggerDelay", {**everything, **limits}, True)
    yield Case(
        "min above max", {**everything, "minOffsetsPerTrigger": "30", "maxOffsetsPerTrigger": "5"}, True
    )


def _both() -> Iterator[Case]:
    everything = {**BY_NAME, "startingOffsets": "earliest"}
    yield Case("subscribe", everything)
    yield Case("subscribe, two topics", {**everything, "subscribe": "odd,transactions"})
    yield Case("subscribe, an empty topic", {**everything, "subscribe": "empty"})
    yield Case("subscribe, an unknown topic", {**everything, "subscribe": "nowhere", **IMPATIENT})
    yield Case("subscribePattern", {"subscribePattern": "o.*|empty", "startingOffsets": "earliest"})
    yield Case(
        "subscribePattern, a part of a name",
        {"subscribePattern": "dd", "startingOffsets": "earliest"},
    )
    yield Case("assign", {"assign": '{"odd":[0,2],"empty":[1]}', "startingOffsets": "earliest"})
    yield Case(
        "assign, an unknown partition",
        {"assign": '{"odd":[0,7]}', "startingOffsets": "earliest", **IMPATIENT},
    )
    yield Case("two ways to subscribe", {**everything, "assign": '{"odd":[0]}'})
    yield Case("no way to subscribe", {"startingOffsets": "earliest"})
    yield Case("startingOffsets", {**BY_NAME, "startingOffsets": ALL})
    yield Case("startingOffsets, some partitions", {**BY_NAME, "startingOffsets": '{"odd":{"0":5}}'})
    yield Case(
        "startingOffsets, beyond the end", {**BY_NAME, "startingOffsets": '{"odd":{"0":99,"1":-2,"2":-2}}'}
    )
    yield Case("startingTimestamp", {**BY_NAME, "startingTimestamp": str(T0_MS + 20_500)})
    yield Case("startingOffsetsByTimestamp", {**BY_NAME, "startingOffsetsByTimestamp": TIMES})
    yield Case(
        "startingTimestamp goes before",
        {
            **BY_NAME,
            "startingTimestamp": str(T0_MS + 50_000),
            "startingOffsetsByTimestamp": TIMES,
            "startingOffsets": ALL,
        },
    )
    yield Case("startingTimestamp, too late", {**BY_NAME, "startingTimestamp": LATE})
    for strategy in ("error", "latest"):
        options = {**BY_NAME, "startingTimestamp": LATE, "startingOffsetsByTimestampStrategy": strategy}
        yield Case(f"startingOffsetsByTimestampStrategy {strategy}", options)
    yield Case("includeHeaders", {**everything, "includeHeaders": "true"})
    yield Case("minPartitions", {**everything, "minPartitions": "10"})
    yield Case("minPartitions 0", {**everything, "minPartitions": "0"})
    yield Case("maxRecordsPerPartition", {**everything, "maxRecordsPerPartition": "7"})
    for level in ("read_uncommitted", "read_committed"):
        options = {**everything, "subscribe": "transactions", "kafka.isolation.level": level}
        yield Case(f"isolation.level {level}", options)
    gone = {"subscribe": "cut", "startingOffsets": '{"cut":{"0":0}}'}
    yield Case("failOnDataLoss true", {**gone, "failOnDataLoss": "true"})
    yield Case("failOnDataLoss false", {**gone, "failOnDataLoss": "false"})
    yield Case(
        "an unknown option",
        {**everything, "startingOffset": "latest"},
        differs="ours refuses it: a typing error would read other records",
    )


def _of_the_client() -> Iterator[Case]:
    everything = {**BY_NAME, "startingOffsets": "earliest"}
    for name, value in (
        ("kafkaConsumer.pollTimeoutMs", "30000"),
        ("fetchOffset.numRetries", "5"),
        ("fetchOffset.retryIntervalMs", "20"),
        ("groupIdPrefix", "mine"),
        ("kafka.group.id", "mine"),
        ("kafka.client.id", "mine"),
        ("kafka.client.rack", "somewhere"),
        ("kafka.metadata.max.age.ms", "60000"),
        ("kafka.max.poll.records", "5"),
        ("kafka.fetch.max.bytes", "1000"),
        ("kafka.auto.offset.reset", "latest"),
        ("kafka.key.deserializer", "x"),
        ("kafka.value.deserializer", "x"),
        ("kafka.enable.auto.commit", "true"),
        ("kafka.interceptor.classes", "x"),
        ("kafka.security.protocol", "PLAINTEXT"),
    ):
        yield Case(name, {**everything, name: value})


def cases() -> list[Case]:
    both = list(_both())
    return [
        *both,
        *_batches(),
        *_of_the_client(),
        *(case._replace(stream=True, differs=STREAMS_DIFFER.get(case.name, case.differs)) for case in both),
        *_streams(),
    ]


class Outcome(NamedTuple):
    """What a format made of a case."""

    rows: list[tuple[Any, ...]] | None
    """Sorted; None: it refused."""
    tasks: list[int]
    """The partitions of the batch, or the rows of each micro-batch."""
    sentence: str

    def __str__(self) -> str:
        return self.sentence if self.rows is None else f"{len(self.rows)} rows, {self.tasks}"


def outcome(session: SparkSession, source: str, bootstrap: str, case: Case, folder: Path) -> Outcome:
    """Tried again where Spark has not waited for a Python process: it gives one ten seconds to start."""
    for _ in range(PATIENCE):
        found = read(session, source, bootstrap, case, folder)
        if NOT_STARTED not in found.sentence:
            return found
    raise BenchError(f"this machine is too busy: {NOT_STARTED}")


def read(session: SparkSession, source: str, bootstrap: str, case: Case, folder: Path) -> Outcome:
    options = {"kafka.bootstrap.servers": bootstrap, **case.options}
    try:
        if case.stream:
            return _stream(session, source, options, folder)
        frame = session.read.format(source).options(**options).load()
        return Outcome(_rows(frame.collect()), [frame.rdd.getNumPartitions()], "")
    except (PySparkException, Py4JJavaError) as error:
        return Outcome(None, [], _reason(str(error)))


def _stream(session: SparkSession, source: str, options: dict[str, str], folder: Path) -> Outcome:
    name = f"rows_{source}_{time.monotonic_ns()}"
    writer = session.readStream.format(source).options(**options).load().writeStream.format("memory")
    writer = writer.option("checkpointLocation", str(folder / name)).queryName(name)
    query = writer.trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(STREAM_S):
            raise BenchError(f"a stream of {source} did not end within {STREAM_S} s: {options}")
    finally:
        query.stop()
    sizes = [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]
    return Outcome(_rows(session.table(name).collect()), sizes, "")


def _rows(found: list[Any]) -> list[tuple[Any, ...]]:
    """Comparable, and in an order of their own."""
    rows = []
    for row in found:
        values = row.asDict(recursive=True)
        headers = values.pop("headers", None)
        pairs = None if headers is None else tuple((one["key"], _bytes(one["value"])) for one in headers)
        rows.append((*(_bytes(value) for value in values.values()), pairs))
    return sorted(rows, key=lambda row: row[2:5])


def _bytes(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _reason(text: str) -> str:
    """The line that says why, out of the stacks of two languages."""
    if NOT_STARTED in text:
        return NOT_STARTED
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "Error: " in line or "Exception: " in line or "Caused by" in line]
    return (told or lines)[-1][:160]


@contextmanager
def topics(brokers: Cluster) -> Iterator[None]:
    """`odd`, `transactions`, `cut` (its first records are deleted) and `empty`."""
    with ExitStack() as stack:
        for name, partitions in (("odd", PARTITIONS), ("transactions", 2), ("cut", 1), ("empty", 2)):
            stack.enter_context(brokers.topic(partitions, 1, name=name, configs=KEPT))
        plain = Producer({"bootstrap.servers": brokers.bootstrap, "compression.type": "lz4", "log_level": 0})
        values = (b"text", b"", None, b"\xff\xfe\x00", "ünï€\U0001f511".encode(), b"x" * 5000)
        headers = (None, [], [("a", b"1"), ("a", None)], [("", b""), ("ü", b"\xff")])
        for number in range(RECORDS):
            key = None if number % 4 == 0 else b"%d" % number
            plain.produce(
                "odd",
                values[number % len(values)],
                key,
                number % PARTITIONS,
                timestamp=T0_MS + number * 1000,
                headers=headers[number % len(headers)],
            )
            plain.produce("cut", b"%d" % number, partition=0, timestamp=T0_MS + number)
        _all_sent(plain)
        for number in range(4):
            _transaction(brokers.bootstrap, number, commits=number % 2 == 0)
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
        for deleted in admin.delete_records([TopicPartition("cut", 0, 25)]).values():
            deleted.result(STREAM_S)
        yield


def _transaction(bootstrap: str, number: int, *, commits: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t{number}", "log_level": 0})
    producer.init_transactions(STREAM_S)
    producer.begin_transaction()
    for index in range(10):
        producer.produce(
            "transactions", b"%d" % commits, b"%d-%d" % (number, index), index % 2, timestamp=T0_MS
        )
    _all_sent(producer)
    (producer.commit_transaction if commits else producer.abort_transaction)(STREAM_S)


def _all_sent(producer: Producer) -> None:
    if producer.flush(STREAM_S):
        raise BenchError("the topics could not be filled")


def compare(session: SparkSession, bootstrap: str, chosen: list[Case], folder: Path) -> int:
    """Prints what differs, and how many cases do not; returns how many do as is not known."""
    table = Table("case", "kraft", "kafka", "", box=None)
    unknown = 0
    for case in chosen:
        print(f"{_kind(case)}: {case.name} …", file=sys.stderr, flush=True)
        ours, theirs = (outcome(session, source, bootstrap, case, folder) for source in (OURS, SPARKS))
        print(f"    {ours}\n    {theirs}", file=sys.stderr, flush=True)
        equal = ours.rows == theirs.rows and (ours.tasks == theirs.tasks or not case.stream)
        if equal and case.differs is None and ours.tasks == theirs.tasks:
            continue
        note = case.differs or ("tasks" if equal else "NOT KNOWN")
        if equal == (case.differs is not None):
            unknown += 1
            note = "equal by now" if equal else note
        table.add_row(f"{_kind(case)}: {case.name}", str(ours), str(theirs), note)
    Console(width=220).print(table)
    print(f"{len(chosen)} cases, {len(chosen) - table.row_count} wholly equal, {unknown} unexpected")
    return unknown


def _kind(case: Case) -> str:
    return "stream" if case.stream else "batch"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark.equal_rows", description=__doc__)
    parser.add_argument("--only", help="cases whose name holds this")
    parser.add_argument("--kind", choices=("batch", "stream"), help="those of one kind")
    given = parser.parse_args()
    made = spark(alone=False)
    if SPARKS not in made.sources:
        print(f"there is nothing to compare with: {made.why_alone}", file=sys.stderr)
        return 2
    chosen = [
        case for case in cases() if (given.only or "") in case.name and given.kind in (None, _kind(case))
    ]
    with (
        tempfile.TemporaryDirectory(prefix="kraft-equal-") as folder,
        cluster(Path(folder) / "brokers", 1) as brokers,
        topics(brokers),
    ):
        return 1 if compare(made.session, brokers.bootstrap, chosen, Path(folder)) else 0


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
