"""The connector's clients and brokers that speak TLS; no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa

from kraft.spark.client import ClusterClient
from kraft.spark.data_loss import LossPolicy
from kraft.spark.errors import ClusterUnavailableError
from kraft.spark.options import ReadOptions, parse_options
from kraft.spark.plan import plan
from kraft.spark.reading import read_slice
from kraft.spark.retry import RetryPolicy
from kraft.spark.stream_wait import NewsWatch
from kraft.spark.write_options import parse_write_options
from kraft.spark.writer import write_rows
from partitions.topic_partition import TopicPartition
from tests.support.threaded_cluster import threaded_cluster

PEM = Path(__file__).parent.parent / "unit" / "network" / "localhost.pem"
TLS_OF_BROKERS = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SSL",
    "ssl.keystore.location": str(PEM),
    "ssl.truststore.location": str(PEM),
    "ssl.client.auth": "required",
}
TLS = {
    "kafka.security.protocol": "SSL",
    "kafka.ssl.truststore.location": str(PEM),
    "kafka.ssl.keystore.location": str(PEM),
}
TOPIC = "tls"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """One node; the topic is created by the first write."""
    with threaded_cluster(1, TLS_OF_BROKERS) as running:
        yield running.bootstrap


def read_options(bootstrap: str, **more: str) -> ReadOptions:
    return parse_options({"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, **more})


def client_of(options: ReadOptions, policy: RetryPolicy) -> ClusterClient:
    return ClusterClient(options.bootstrap, client_id="test", policy=policy, security=options.security)


def test_written_waited_for_and_read(bootstrap: str) -> None:
    writing = parse_write_options({"kafka.bootstrap.servers": bootstrap, "topic": TOPIC, **TLS})
    values = [b"%d" % number for number in range(1000)]
    assert write_rows(writing, [pa.RecordBatch.from_pydict({"value": values})]).records == 1000
    options = read_options(bootstrap, columns="value", **TLS)
    with client_of(options, RetryPolicy()) as client:
        parts = plan(client, options, LossPolicy())
        assert sum(part.end for part in parts) == 1000
        watch = NewsWatch(client)
        watch.wait({TopicPartition(TOPIC, part.partition): (part.topic_id, 0) for part in parts})
        watch.close()
    found = [
        value
        for part in parts
        for batch in read_slice(options, LossPolicy(), part)
        for value in batch["value"]
    ]
    assert sorted(int(value.as_py()) for value in found) == list(range(1000))


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        ("kafka.ssl.truststore.location", "certificate verify failed"),
        ("kafka.ssl.keystore.location", ""),  # the broker closes the connection
    ],
)
def test_strangers_are_told_why(bootstrap: str, left_out: str, reason: str) -> None:
    options = read_options(bootstrap, **{name: value for name, value in TLS.items() if name != left_out})
    with (
        client_of(options, RetryPolicy(first_answer_s=0.5)) as client,
        pytest.raises(ClusterUnavailableError, match=rf"No broker answers \({bootstrap}: .*{reason}"),
    ):
        client.topics([TOPIC])
