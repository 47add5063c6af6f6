"""`kraft ingest` as a process, with Spark, against real nodes: goes on until it is told to end, and ends well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
import pyarrow.dataset as ds
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from deltalake import DeltaTable

from tests.support.node_processes import until
from tests.support.threaded_cluster import ThreadedCluster

pytestmark = pytest.mark.timeout(900)
CALL_S = 90.0
START_S = 400.0
"""For the JVM, on a busy machine."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def start(cluster: ThreadedCluster, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """In a session of its own, so that a signal to the tests is none to it."""
    command = [sys.executable, "-m", "kraft", "ingest", *arguments, "--to", str(folder), "--json"]
    return subprocess.Popen(
        [*command, "--bootstrap-server", cluster.bootstrap, "--master", "local[2]"],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def rows(folder: Path) -> list[dict[str, Any]]:
    table = ds.dataset(DeltaTable(str(folder)).file_uris()).to_table()
    return sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


def has_rows(run: subprocess.Popen[bytes], folder: Path, count: int) -> bool:
    assert run.poll() is None, "the run has ended"
    if not (folder / "_delta_log" / f"{0:020}.json").exists():
        return False
    return ds.dataset(DeltaTable(str(folder)).file_uris()).count_rows() == count


def test_a_topic_is_ingested_while_it_grows(shared_cluster: ThreadedCluster, tmp_path: Path) -> None:
    topic = shared_cluster.create_topic("ingested", partitions=2)
    for number, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": shared_cluster.bootstrap, "compression.type": codec})
        for partition in (0, 1):
            producer.produce(topic, f"{codec}-{partition}", str(number), partition, headers={"codec": codec})
        assert producer.flush(CALL_S) == 0
    words = ("--continuous", "--trigger", "500ms", "--commit-group", f"lag-of-{topic}")
    run = start(shared_cluster, tmp_path / "table", topic, *words)
    try:
        until(lambda: has_rows(run, tmp_path / "table", 10), "the first commit is made", START_S)
        producer = Producer({"bootstrap.servers": shared_cluster.bootstrap, "transactional.id": topic})
        producer.init_transactions(CALL_S)
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.produce(topic, None, "tombstone", 1)
            producer.produce(topic, b"\xff\x00", None, 1)
            assert producer.flush(CALL_S) == 0
            end(CALL_S)
        until(
            lambda: has_rows(run, tmp_path / "table", 12),
            "the committed transaction is in the table",
            START_S,
        )
        os.killpg(run.pid, signal.SIGTERM)  # as service managers do
        output, _ = run.communicate(timeout=START_S)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 0
    told = json.loads(output)
    assert (told["rows"], told["dead_letters"]) == (12, 0)
    assert told["partitions"][0] | {"topic": topic} == {
        "topic": topic, "partition": 0, "from": 0, "to": 5, "records": 5, "control": 0, "aborted": 0, "holes": 0
    }  # fmt: skip
    second = told["partitions"][1]
    assert (second["records"], second["aborted"], second["holes"]) == (7, 2, 0)
    assert second["records"] + second["control"] + second["aborted"] == second["to"]
    found = [(row["partition"], row["key"], row["value"], row["headers"]) for row in rows(tmp_path / "table")]
    of_codecs = [
        (
            partition,
            str(number).encode(),
            f"{codec}-{partition}".encode(),
            [{"key": "codec", "value": codec.encode()}],
        )
        for partition in (0, 1)
        for number, codec in enumerate(CODECS)
    ]
    assert found == [*of_codecs, (1, b"tombstone", None, None), (1, None, b"\xff\x00", None)]
    asked = ConsumerGroupTopicPartitions(f"lag-of-{topic}")
    answer = shared_cluster.admin.list_consumer_group_offsets([asked])[f"lag-of-{topic}"].result(CALL_S)
    assert {one.partition: one.offset for one in answer.topic_partitions} == {0: 5, 1: second["to"]}

    again = start(shared_cluster, tmp_path / "table", topic)
    output, _ = again.communicate(timeout=START_S)
    assert again.returncode == 0
    assert (json.loads(output)["rows"], json.loads(output)["version"]) == (0, told["version"])
