"""The connector over topics of real nodes that change: created anew, truncated, grown, their brokers restarted; no JVM.

`Reading` is what Spark does with a stream's reader and its offsets, JSON and pickle included.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kraft.spark import stream_plan
from kraft.spark.errors import DataLossError, TopicChangedError
from kraft.spark.schema import source_schema
from kraft.spark.stream import KraftStreamReader
from tests.support.node_processes import until
from tests.support.real_clients import QUIET
from tests.support.threaded_cluster import ThreadedCluster

CALL_S = 90.0
PARTITIONS = 3
COLUMNS = ("partition", "offset", "value")

Rows = list[tuple[int, int, bytes]]


class Reading:
    """A running stream from the beginning of a topic; `rows` is what its micro-batches had so far."""

    def __init__(self, cluster: ThreadedCluster, topic: str, **options: str) -> None:
        fixed = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "columns": ",".join(COLUMNS),
        }
        self._reader = KraftStreamReader({**fixed, **options}, source_schema(COLUMNS))
        self._executors = pickle.dumps(self._reader)
        self.rows: Rows = []
        self._at = _kept(self._reader.initialOffset())

    def close(self) -> None:
        self._reader.stop()

    def trigger(self) -> Rows:
        """One micro-batch: its rows, which may be none."""
        end = _kept(self._reader.latestOffset(self._at, ReadAllAvailable()))
        rows: Rows = []
        if end != self._at:
            copy = pickle.loads(self._executors)
            for part in self._reader.partitions(self._at, end):
                for batch in copy.read(part):
                    rows += zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)
        self._at = end
        self.rows += rows
        return rows

    def read(self, count: int) -> Rows:
        """Micro-batches until there are so many rows more; the last bring no surplus."""
        before = len(self.rows)
        until(
            lambda: self.trigger() is not None and len(self.rows) - before >= count, f"{count} rows", CALL_S
        )
        return sorted(self.rows[before:])


def _kept(offset: dict[str, Any]) -> dict[str, Any]:
    """As the checkpoint keeps it."""
    kept: dict[str, Any] = json.loads(json.dumps(offset))
    return kept


Start = Callable[..., Reading]


@pytest.fixture
def start() -> Iterator[Start]:
    """Makes readings, stopped at the end."""
    made: list[Reading] = []

    def start(cluster: ThreadedCluster, topic: str, **options: str) -> Reading:
        made.append(Reading(cluster, topic, **options))
        return made[-1]

    yield start
    for reading in made:
        reading.close()


def send(cluster: ThreadedCluster, topic: str, word: str, *counts: int) -> Rows:
    """So many records into each partition, from 0 on, all acknowledged; the rows that they are, if these are the
    first."""
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, **QUIET})
    rows = [
        (partition, number, b"%s %d" % (word.encode(), number))
        for partition, count in enumerate(counts)
        for number in range(count)
    ]
    for partition, _, value in rows:
        producer.produce(
            topic,
            value,
            partition=partition,
            on_delivery=lambda error, _: error and failures.append(str(error)),
        )
    assert (producer.flush(CALL_S), failures) == (0, [])
    return rows


def create_anew(cluster: ThreadedCluster, topic: str, partitions: int) -> None:
    cluster.admin.delete_topics([topic])[topic].result(CALL_S)

    def create() -> bool:
        made = cluster.admin.create_topics([NewTopic(topic, partitions, 3)])[topic]
        return made.exception(CALL_S) is None

    until(create, f"{topic} is created anew")


@pytest.mark.parametrize(
    ("age_s", "counts"),
    [(0.0, (9, 9, 9)), (3600.0, (9, 9, 9)), (3600.0, (2, 2, 2)), (3600.0, (9,))],
    ids=["known", "stale and longer", "stale and shorter", "stale and with fewer partitions"],
)
def test_a_topic_created_anew_ends_the_stream(
    shared_cluster: ThreadedCluster,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    age_s: float,
    counts: tuple[int, ...],
) -> None:
    """Stale: what the stream knows of topics is from before, as within the second for which it counts."""
    monkeypatch.setattr(stream_plan, "METADATA_MAX_AGE_S", age_s)
    topic = shared_cluster.create_topic("recreated", partitions=PARTITIONS)
    old = send(shared_cluster, topic, "old", 5, 5, 5)
    reading = start(shared_cluster, topic)
    assert reading.read(len(old)) == old
    create_anew(shared_cluster, topic, len(counts))
    send(shared_cluster, topic, "new", *counts)
    with pytest.raises(TopicChangedError, match=f"{topic}.*created anew"):
        reading.read(1)
    assert sorted(reading.rows) == old


def test_a_lossy_stream_reads_all_of_a_topic_created_anew(
    shared_cluster: ThreadedCluster,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One micro-batch is planned with what was known before, and its rows are not there; the next has them all."""
    monkeypatch.setattr(stream_plan, "METADATA_MAX_AGE_S", 3600.0)
    topic = shared_cluster.create_topic("recreated")
    old = send(shared_cluster, topic, "old", 5)
    reading = start(shared_cluster, topic, failOnDataLoss="false")
    assert reading.read(len(old)) == old
    create_anew(shared_cluster, topic, 2)
    new = send(shared_cluster, topic, "new", 9, 9)
    assert reading.trigger() == []
    monkeypatch.setattr(stream_plan, "METADATA_MAX_AGE_S", 0.0)
    assert reading.read(len(new)) == new
    assert any(f"Topic {topic} was deleted and created anew" in text for text in caplog.messages)


def test_new_partitions_and_restarted_brokers(own_cluster: ThreadedCluster, start: Start) -> None:
    """Nothing is told, and nothing missing; one partition stays empty."""
    topic = own_cluster.create_topic("grown", partitions=2, min_insync_replicas="2")
    reading = start(own_cluster, topic)
    assert reading.trigger() == []
    rows = send(own_cluster, topic, "first", 5, 0)
    assert reading.read(5) == rows
    own_cluster.admin.create_partitions([NewPartitions(topic, 4)])[topic].result(CALL_S)
    until(lambda: len(own_cluster.partitions(topic)) == 4, "there are new partitions")
    second = send(own_cluster, topic, "second", 0, 0, 3)
    assert reading.read(len(second)) == second
    for node_id in sorted(own_cluster.cluster.ports):
        own_cluster.kill(node_id)
        third = send(own_cluster, topic, "third", 1, 0, 1, 2)
        assert [row[2] for row in reading.read(len(third))] == [row[2] for row in third]
        own_cluster.start(node_id)
        own_cluster.wait_in_sync(topic)
    assert len(reading.rows) == 5 + 3 + 3 * 4
    assert len({row[:2] for row in reading.rows}) == len(reading.rows)


def test_a_partition_truncated_below_what_was_read(
    own_cluster: ThreadedCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """An unclean election keeps 2 of 7 records, and more than were lost are written after it."""
    topic = own_cluster.create_topic("unclean", replication_factor=2, unclean_leader_election_enable="true")
    strict, lossy = start(own_cluster, topic), start(own_cluster, topic, failOnDataLoss="false")
    first, second = own_cluster.partitions(topic)[0].replicas
    send(own_cluster, topic, "both", 2)
    own_cluster.kill(second)
    until(lambda: own_cluster.partitions(topic)[0].isrs == [first], "it has left the ISR")
    send(own_cluster, topic, "only the first", 5)
    for reading in (strict, lossy):
        assert len(reading.read(7)) == 7
    own_cluster.kill(first)
    own_cluster.start(second)
    until(lambda: own_cluster.leader(topic) == second, "who lacks records leads")
    new = [(0, 2 + number, value) for _, number, value in send(own_cluster, topic, "new", 9)]
    with pytest.raises(DataLossError, match=f"{topic}-0 was truncated at offset 2 .* read up to 7"):
        strict.read(1)
    assert lossy.read(len(new)) == new
    assert any(f"{topic}-0 was truncated at offset 2" in text for text in caplog.messages)
