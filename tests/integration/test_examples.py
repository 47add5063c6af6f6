"""The programs in examples/, against a cluster."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.support.node_processes import created
from tests.support.real_clients import QUIET
from tests.support.source_tree import ROOT
from tests.support.threaded_cluster import ThreadedCluster

pytestmark = [
    pytest.mark.timeout(1500),  # a JVM starts in here, and one program runs twice
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # pyspark's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

PROGRAM = ROOT / "examples" / "real_time_and_offline.py"
CALL_S = 90.0
MINUTE_MS = 60_000
BEGAN_MS = 1_700_000_040_000
"""The start of a minute: 2023-11-14T22:14:00Z."""


def example() -> Callable[[list[str]], None]:
    program: Callable[[list[str]], None] = runpy.run_path(str(PROGRAM))["main"]
    return program


def send(shared_cluster: ThreadedCluster, topic: str, requests: list[tuple[int, str, int]]) -> None:
    producer = Producer({"bootstrap.servers": shared_cluster.bootstrap, **QUIET})
    for minute, service, status in requests:
        value = json.dumps({"service": service, "status": status})
        producer.produce(topic, value, key=service, timestamp=BEGAN_MS + minute * MINUTE_MS)
    producer.produce(topic, "no JSON", timestamp=BEGAN_MS)
    assert producer.flush(CALL_S) == 0


def told(shared_cluster: ThreadedCluster, topic: str) -> list[tuple[str, Any]]:
    """All records of the topic's only partition: key, value."""
    consumer = Consumer({"bootstrap.servers": shared_cluster.bootstrap, "group.id": "none", **QUIET})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), CALL_S)
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(end, CALL_S) if end else []
        assert len(messages) == end
        return sorted((message.key().decode(), json.loads(message.value())) for message in messages)
    finally:
        consumer.close()


def test_alerts_in_real_time_and_a_table_for_later(
    shared_cluster: ThreadedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Windows that a later record has closed are told of once, over two runs of the stream."""
    main, work = example(), tmp_path / "work"
    requests = shared_cluster.create_topic("requests", partitions=2)
    alerts = shared_cluster.create_topic("alerts")
    first = [(0, "cart", 500)] * 3 + [(0, "shop", 503)] * 2 + [(0, "cart", 200)] * 9 + [(5, "shop", 500)] * 4
    send(shared_cluster, requests, first)
    command = [
        requests,
        alerts,
        str(work),
        "--bootstrap-server",
        shared_cluster.bootstrap,
        "--threshold",
        "3",
    ]
    main(command)
    assert capsys.readouterr().out == f"{len(first)} requests are in {work}/requests.parquet\n"
    cart = {
        "service": "cart",
        "from": "2023-11-14T22:14:00.000Z",
        "end": "2023-11-14T22:15:00.000Z",
        "count": 3,
    }
    assert told(shared_cluster, alerts) == [("cart", cart)]
    later = [(5, "shop", 502), (9, "cart", 500)]
    send(shared_cluster, requests, later)
    main(command)
    assert capsys.readouterr().out.startswith(f"{len(first) + len(later)} requests are in")
    shop = {
        "service": "shop",
        "from": "2023-11-14T22:19:00.000Z",
        "end": "2023-11-14T22:20:00.000Z",
        "count": 5,
    }
    assert told(shared_cluster, alerts) == [("cart", cart), ("shop", shop)]
    folders = {path.name for path in (work / "requests.parquet").glob("service=*")}
    assert folders == {"service=cart", "service=shop"}


def test_samples_of_the_host_become_a_picture(
    shared_cluster: ThreadedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    created(shared_cluster.admin, lambda: NewTopic("host-samples", 2, 3))
    program = runpy.run_path(str(ROOT / "examples" / "ingest_and_plot.py"))["main"]
    program([shared_cluster.bootstrap, str(tmp_path), "2"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == str(tmp_path / "picture.png")
    assert sum(line.startswith("|") for line in printed) == 1 + 5, "the busiest processes"
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
