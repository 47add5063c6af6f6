"""The job that `test_spark_kills.py` kills: two streams of one topic, into a topic and into files.

    python stream_job.py BOOTSTRAP SOURCE SINK FOLDER

Its executors are JVMs of their own (`local-cluster`). It prints `running` when both streams run, and ends with status 1
when one fails, as a job does that a supervisor starts again: where it ended stands in the checkpoints below FOLDER.
After a line on standard input it reads what is there by then, stops, and writes to FOLDER/topic.jsonl and
FOLDER/files.jsonl what the sinks hold, without duplicates of (topic, partition, offset): [partition, offset, value] a
line.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

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
    "spark.sql.shuffle.partitions": "2",
}
IDENTITY = ("topic", "partition", "offset")
_AS_HEADERS = ", ".join(
    f"named_struct('key', '{name}', 'value', cast(cast({name} as string) as binary))" for name in IDENTITY
)


def main(bootstrap: str, source: str, sink: str, folder: Path) -> int:
    spark = local_session("streams to be killed", **CONF)
    records = read(spark.readStream, bootstrap, source).option("startingOffsets", "earliest").load()
    to_topic = (
        records.selectExpr("key", "value", f"array({_AS_HEADERS}) headers")
        .writeStream.format("kraft")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("checkpointLocation", str(folder / "checkpoint-topic"))
        .start()
    )
    to_files = (
        records.select(*IDENTITY, "value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint-files"))
        .start(str(folder / "files"))
    )
    threading.Thread(target=end_with_a_stream, args=[spark], daemon=True).start()
    print("running", flush=True)
    sys.stdin.readline()  # nothing is written any more: processAllAvailable waits until there is nothing new
    for query in (to_topic, to_files):
        query.processAllAvailable()
    for query in (to_topic, to_files):
        query.stop()
    headers = "map_from_entries(transform(headers, h -> struct(h.key, cast(h.value as string))))"
    written = read(spark.read, bootstrap, sink).option("includeHeaders", "true").load()
    written = written.selectExpr(f"{headers} of", "value").selectExpr(
        "of['topic'] topic", "int(of['partition']) partition", "bigint(of['offset']) offset", "value"
    )
    save(written, folder / "topic.jsonl")
    save(spark.read.parquet(str(folder / "files")), folder / "files.jsonl")
    spark.stop()
    return 0


def read(reader: object, bootstrap: str, topic: str) -> object:
    """Of a batch or of a stream."""
    return reader.format("kraft").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})  # type: ignore[attr-defined]


def end_with_a_stream(spark: SparkSession) -> None:
    """When one fails, or the JVM is gone; one that was stopped is no reason."""
    stopped = False
    try:
        spark.streams.awaitAnyTermination()
        stopped = True
    finally:
        if not stopped:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)


def save(rows: DataFrame, file: Path) -> None:
    """A pass of Spark over all rows, and one over those that are no duplicates."""
    kept = rows.dropDuplicates(list(IDENTITY)).selectExpr(
        "partition", "offset", "cast(value as string) value"
    )
    lines = [json.dumps([row.partition, row.offset, row.value]) for row in kept.toLocalIterator()]
    file.write_text("".join(f"{line}\n" for line in lines))
    print(json.dumps({"rows": rows.count(), "kept": len(lines)}), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4], Path(sys.argv[4])))
