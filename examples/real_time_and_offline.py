"""One topic, two uses: alerts in real time, and a table for later.

    python examples/real_time_and_offline.py requests alerts work --bootstrap-server 127.0.0.1:9092

The topic `requests` holds web requests as JSON, `{"service": "cart", "status": 500}`. A stream counts the failed ones
of each service in windows of event time (the timestamps of the records) and writes a record to the topic `alerts` for
every window in which a service has failed too often: key = service, value = JSON. The same topic is then read as a
batch into Parquet, one folder a service. Both go on where the last run ended (`work/checkpoint`) or start anew
(`work/requests.parquet`). With `--watch` the stream does not end.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming import StreamingQuery

from kraft.spark.session import local_session

FIELDS = "service string, status int"
FAILED = 500
"""HTTP statuses from here on are the server's faults."""
LATENESS = "1 minute"
"""A window is closed, and told of, when records of so much later have come: what comes still later is left out."""


def requests_of(records: DataFrame) -> DataFrame:
    """service, status, timestamp of each record that can be read; others are left out."""
    parsed = sql.from_json(sql.col("value").cast("string"), FIELDS)
    return (
        records.select(parsed.alias("request"), "timestamp")
        .select("request.*", "timestamp")
        .where("service is not null and status is not null")
    )


def alerts_of(requests: DataFrame, window: str, threshold: int) -> DataFrame:
    """key, value of one record for each service and window with at least `threshold` failed requests."""
    failed = requests.where(sql.col("status") >= FAILED).withWatermark("timestamp", LATENESS)
    counted = failed.groupBy(sql.window("timestamp", window), "service").count()
    told = sql.struct("service", sql.col("window.start").alias("from"), "window.end", "count")
    return counted.where(sql.col("count") >= threshold).select(
        sql.col("service").alias("key"), sql.to_json(told).alias("value")
    )


def start_alerts(spark: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    """The sink is at least once: after a failure an alert may come twice."""
    records = (
        spark.readStream.format("kraft")
        .option("kafka.bootstrap.servers", given.bootstrap_server)
        .option("subscribe", given.requests)
        .option("startingOffsets", "earliest")
        .option("columns", "value,timestamp")
        .load()
    )
    alerts = alerts_of(requests_of(records), given.window, given.threshold)
    writer = (
        alerts.writeStream.format("kraft")
        .outputMode("append")
        .option("kafka.bootstrap.servers", given.bootstrap_server)
        .option("topic", given.alerts)
        .option("checkpointLocation", str(given.work / "checkpoint"))
    )
    trigger: dict[str, Any] = {"processingTime": "1 second"} if given.watch else {"availableNow": True}
    return writer.trigger(**trigger).start()


def write_table(spark: SparkSession, given: argparse.Namespace) -> Path:
    """One cut of the whole topic. Returns the folder."""
    records = (
        spark.read.format("kraft")
        .option("kafka.bootstrap.servers", given.bootstrap_server)
        .option("subscribe", given.requests)
        .option("columns", "value,timestamp")
        .load()
    )
    path: Path = given.work / "requests.parquet"
    requests_of(records).write.mode("overwrite").partitionBy("service").parquet(str(path))
    return path


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Alerts in real time, and a table for later, of one topic.")
    parser.add_argument("requests", help="the topic to read")
    parser.add_argument("alerts", help="the topic to write")
    parser.add_argument("work", type=Path, help="the folder of the checkpoint and the table")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    parser.add_argument("--window", default="1 minute", help="length (default: %(default)s)")
    parser.add_argument("--threshold", type=int, default=5, help="failed requests (default: %(default)s)")
    parser.add_argument("--watch", action="store_true", help="go on until Ctrl-C")
    given = parser.parse_args(arguments)
    spark = local_session("real time and offline", **{"spark.sql.shuffle.partitions": "2"})
    try:
        query = start_alerts(spark, given)
        if not given.watch:
            query.awaitTermination()
        path = write_table(spark, given)
        print(f"{spark.read.parquet(str(path)).count()} requests are in {path}")
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
