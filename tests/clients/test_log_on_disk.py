"""What real clients send lies on every broker's disk in Kafka's format: other libraries' record readers read
the segments of a running cluster, and `kraft log` finds them sound and shows what is in them."""

from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords as AioKafkaRecords

from tests.support.node_processes import NodeProcesses, until
from tests.support.real_clients import LIBRARIES, Client, How

with warnings.catch_warnings():  # kafka-python reads its schemas by a deprecated call
    warnings.simplefilter("ignore")
    KafkaPythonRecords = importlib.import_module("kafka.record.memory_records").MemoryRecords

KRAFT = (sys.executable, "-m", "kraft.cli.entry")


def values_of(codec: str) -> list[bytes]:
    """Half compressible, some empty."""
    rng = random.Random(codec)
    return [rng.randbytes(number % 40).hex().encode() for number in range(600)]


def read_by(reader: Any, folder: Path) -> list[bytes]:
    """Every value in the segments of a folder, checksums compared."""
    values = []
    for path in sorted(folder.glob("*.log")):
        stored = reader(path.read_bytes())
        while (batch := stored.next_batch()) is not None:
            assert batch.validate_crc()
            values += [record.value for record in batch]
    return values


def kraft_log(*arguments: object) -> Any:
    done = subprocess.run(
        [*KRAFT, "log", *map(str, arguments), "--json"], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("client", LIBRARIES, ids=lambda client: client.name)
def test_segments_of_a_running_cluster(cluster: NodeProcesses, client: Client) -> None:
    topic = cluster.create_topic("on-disk", segment_bytes="40000")
    written = []
    for codec in client.codecs:
        values = values_of(codec)
        written += values
        client.produce(cluster.bootstrap, topic, {0: values}, How(codec=codec, idempotent=True))
    until(lambda: len(cluster.partitions(topic)[0].isrs) == len(cluster.node_ids), "all replicas have all")
    for node_id in cluster.node_ids:
        folder = cluster.local.node_dir(node_id) / "data" / f"{topic}-0"
        for reader in (KafkaPythonRecords, AioKafkaRecords):
            assert read_by(reader, folder) == written, (node_id, reader)
        verified = kraft_log("verify", folder)
        assert verified["verdict"] == "sound"
        assert verified["records"] == len(written)
        dumped = kraft_log("dump", folder, "--print-data")
        batches = [batch for file in dumped["files"] for batch in file.get("batches", ())]
        values = [record["value"].encode() for batch in batches for record in batch["records"]]
        assert values == written
    assert len(list(folder.glob("*.log"))) > 1


def test_a_whole_data_directory_is_sound_while_its_broker_runs(cluster: NodeProcesses) -> None:
    LIBRARIES[0].produce(cluster.bootstrap, cluster.create_topic("sound"), {0: [b"on every replica"]})
    for node_id in cluster.node_ids:
        verified = kraft_log("verify", cluster.local.node_dir(node_id) / "data")
        assert verified["verdict"] == "sound"
        assert verified["partitions"] > 0
