"""What lag tools see of a stream, on real nodes; no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
from confluent_kafka import ConsumerGroupTopicPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kraft.spark.client import ClusterClient
from kraft.spark.columns import COLUMN_NAMES
from kraft.spark.lag_group import LagGroup
from kraft.spark.options import parse_bootstrap
from kraft.spark.retry import RetryPolicy
from kraft.spark.schema import source_schema
from kraft.spark.stream import KraftStreamReader
from kraft.spark.stream_offsets import Position, TopicPositions
from kraft.spark.write_options import parse_write_options
from kraft.spark.writer import write_rows
from tests.support.threaded_cluster import ThreadedCluster


@contextmanager
def group_of(bootstrap: str, policy: RetryPolicy) -> Iterator[LagGroup]:
    with ClusterClient(parse_bootstrap(bootstrap), client_id="test", policy=policy) as client:
        yield LagGroup(client, "lag-of-spark")


def test_the_group_knows_the_last_commit_when_the_call_returns(shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("lag", partitions=2)
    with group_of(shared_cluster.bootstrap, RetryPolicy()) as group:
        topic_id = group._client.topics([topic])[topic].topic_id
        for offset in (5, 6):
            group.commit({topic: TopicPositions(topic_id, {0: Position(offset, 0), 1: Position(7, 0)})})
    asked = ConsumerGroupTopicPartitions("lag-of-spark")
    answer = shared_cluster.admin.list_consumer_group_offsets([asked])["lag-of-spark"].result(90)
    committed = {(one.topic, one.partition): one.offset for one in answer.topic_partitions}
    assert committed == {(topic, 0): 6, (topic, 1): 7}


def test_without_a_coordinator_the_stream_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with group_of("127.0.0.1:1", RetryPolicy(budget_s=0.1)) as group:
        group.commit({"lag": TopicPositions(bytes(16), {0: Position(5, 0)})})
        group.commit({})
    (warning,) = caplog.messages
    assert (
        "could not be committed to group lag-of-spark (groupIdForLag): Broker 127.0.0.1:1 does not answer"
        in warning
    )


def test_a_streams_finished_batches_are_reported(shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("lag")
    given = {
        "kafka.bootstrap.servers": shared_cluster.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "groupIdForLag": topic,
    }
    write_rows(
        parse_write_options({"kafka.bootstrap.servers": shared_cluster.bootstrap, "topic": topic}),
        [pa.RecordBatch.from_pydict({"value": [b"x"] * 9})],
    )
    reader = KraftStreamReader(given, source_schema(COLUMN_NAMES[:-1]))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end["topics"][topic]["offsets"] == {"0": 9}
    reader.commit(end)
    reader.stop()
    asked = ConsumerGroupTopicPartitions(topic)
    (committed,) = (
        shared_cluster.admin.list_consumer_group_offsets([asked])[topic].result(90).topic_partitions
    )
    assert (committed.topic, committed.partition, committed.offset) == (topic, 0, 9)
