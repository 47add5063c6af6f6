"""This host's CPU, memory and network: sent to a topic, ingested into a table, asked with Spark SQL, drawn.

    python examples/ingest_and_plot.py 127.0.0.1:9092 FOLDER [SECONDS]

It needs `pip install 'kraft[ingest,examples]'`. `kraft ingest` makes a column of each field of the JSON values. Run it
again with the same folder: the table grows by what is new, each record once.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer

from kraft.cli.demo import picture
from kraft.cli.demo.sources import HostSamples
from kraft.spark.session import local_session

TOPIC = "host-samples"


def sample(bootstrap: str, seconds: float) -> None:
    """Sends what /proc says, five times a second."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for item in HostSamples(seconds).items():
        producer.produce(TOPIC, item.value, key=item.key)
        producer.poll(0)
    if unsent := producer.flush(30):
        sys.exit(f"{unsent} samples stayed unacknowledged")


def ingest(bootstrap: str, table: Path) -> None:
    command = ["ingest", TOPIC, "--to", str(table), "--format", "parquet", "--values", "json"]
    subprocess.run([sys.executable, "-m", "kraft", *command, "--bootstrap-server", bootstrap], check=True)


def plot(table: Path, png: Path) -> None:
    spark = local_session("ingest-and-plot", **{"spark.sql.shuffle.partitions": "2"})
    try:
        spark.read.parquet(str(table)).createOrReplaceTempView("ingested")
        spark.sql("CREATE OR REPLACE TEMPORARY VIEW samples AS SELECT * FROM ingested")
        spark.sql(
            """
            SELECT name AS process, max(user_ticks + system_ticks) - min(user_ticks + system_ticks) AS ticks
            FROM samples WHERE kind = 'process' GROUP BY name ORDER BY ticks DESC, process LIMIT 5
            """
        ).show(truncate=False)
        picture.draw(picture.query(spark), "This host, from a topic through a table", png)
    finally:
        spark.stop()


def main(arguments: list[str]) -> None:
    bootstrap, folder, *seconds = arguments
    table, png = Path(folder) / "table", Path(folder) / "picture.png"
    sample(bootstrap, float(seconds[0]) if seconds else 10.0)
    ingest(bootstrap, table)
    plot(table, png)
    print(png)


if __name__ == "__main__":
    main(sys.argv[1:])
