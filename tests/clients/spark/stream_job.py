"""The job that `test_spark_kills.py` kills: two streams of one topic, into a topic and into files.

    python stream_job.py BOOTSTRAP SOURCE SINK FOLDER

Its executors are JVMs of their own (`local-cluster`). It prints `running` when both streams run. A stream that has
ended is started again in the same JVM, as long jobs do, and FOLDER/restarts.jsonl has a line with the causes; when the
JVM is gone the job ends with status 1, and a supervisor starts it again: where a stream ended stands in the checkpoints
below FOLDER. After a line on standard input it reads what is there by then, stops, and writes to FOLDER/topic.jsonl and
FOLDER/files.jsonl what the sinks hold, without duplicates: [partition, offset, value] a line.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from kraft.spark.session import local_session

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
MASTER = "local-cluster[2,1,1024]"
CONF = {
    "spark.master": MASTER,
    "spark.executor.memory": "1024m",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    # Kills are not the fault of the job: Spark gives up after ten executors otherwise.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "8",
}
RESTARTS_MAX = 50
LOOK_S = 0.2
IDENTITY = ("topic", "partition", "offset")
_AS_HEADERS = ", ".join(
    f"named_struct('key', '{name}', 'value', cast(cast({name} as string) as binary))" for name in IDENTITY
)


class Streams:
    """The running queries, by name. `causes` gets a line for each that had to be started again.

    The next one starts when those before it have planned a batch: Python streams that start at once in a new JVM can
    leave their format unusable there ("More streams than one" in kraft/spark/README.md).
    """

    def __init__(self, starts: Mapping[str, Callable[[], StreamingQuery]], causes: Path) -> None:
        self._starts = starts
        self._causes = causes
        self._queries: dict[str, StreamingQuery] = {}
        self._left = RESTARTS_MAX
        for name, start in starts.items():
            while any(query.lastProgress is None for query in self._queries.values()):
                time.sleep(LOOK_S)
                self.keep_running()
            self._queries[name] = start()

    def keep_running(self) -> None:
        """Raises when the JVM is gone, or queries have ended too often."""
        for name, query in self._queries.items():
            if not query.isActive:
                cause = causes_of(query)
                if not self._left:
                    raise RuntimeError(f"the stream {name} ends again and again: {cause}")
                self._left -= 1
                self._queries[name] = self._starts[name]()
                with self._causes.open("a") as file:
                    file.write(json.dumps({"stream": name, "cause": cause}) + "\n")

    def finish(self) -> None:
        """Returns when both have read all that there is, which nobody adds to any more."""
        for name in self._queries:
            while True:
                self.keep_running()
                try:
                    self._queries[name].processAllAvailable()
                except StreamingQueryException:
                    continue  # it is started again
                break
        for query in self._queries.values():
            query.stop()


def causes_of(query: StreamingQuery) -> str:
    """Why a stream has ended: the outermost cause first, down to the root."""
    found = []
    cause = query._jsq.exception().get().getCause()
    while cause is not None:
        found.append(str(cause.toString()))
        cause = cause.getCause()
    return "\nby: ".join(found)


def main(bootstrap: str, source: str, sink: str, folder: Path) -> None:
    spark = local_session("streams to be killed", **CONF)
    records = read(spark.readStream, bootstrap, source).option("startingOffsets", "earliest").load()
    to_topic = (
        records.selectExpr("key", "value", f"array({_AS_HEADERS}) headers")
        .writeStream.format("kraft")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("checkpointLocation", str(folder / "checkpoint-topic"))
    )
    to_files = (
        records.select(*IDENTITY, "value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint-files"))
    )
    streams = Streams(
        {"topic": to_topic.start, "files": lambda: to_files.start(str(folder / "files"))},
        folder / "restarts.jsonl",
    )
    print("running", flush=True)
    is_finishing = threading.Event()
    threading.Thread(target=lambda: is_finishing.set() if sys.stdin.readline() else None, daemon=True).start()
    while not is_finishing.wait(LOOK_S):
        streams.keep_running()
    streams.finish()
    headers = "map_from_entries(transform(headers, h -> struct(h.key, cast(h.value as string))))"
    written = read(spark.read, bootstrap, sink).option("includeHeaders", "true").load()
    written = written.selectExpr(f"{headers} of", "value").selectExpr(
        "of['topic'] topic", "int(of['partition']) partition", "bigint(of['offset']) offset", "value"
    )
    save(written, folder / "topic.jsonl")
    save(spark.read.parquet(str(folder / "files")), folder / "files.jsonl")
    spark.stop()


def read(reader: object, bootstrap: str, topic: str) -> object:
    """Of a batch or of a stream."""
    return reader.format("kraft").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})  # type: ignore[attr-defined]


def save(rows: DataFrame, file: Path) -> None:
    """One pass over all rows. Two values of one record would both be kept."""
    found = rows.selectExpr("partition", "offset", "cast(value as string) value").collect()
    kept = sorted({(row.partition, row.offset, row.value) for row in found})
    file.write_text("".join(f"{json.dumps(row)}\n" for row in kept))
    print(json.dumps({"rows": len(found), "kept": len(kept)}), flush=True)


if __name__ == "__main__":
    status = 0
    try:
        main(*sys.argv[1:4], Path(sys.argv[4]))
    except BaseException:  # noqa: BLE001 - told, and the job's end
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # Spark's hooks would ask a JVM that is gone
