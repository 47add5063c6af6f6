"""What lag tools see of a stream, on real nodes; no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("pyspark")
from confluent_kafka import ConsumerGroupTopicPartitions

from kraft.spark.client import ClusterClient
from kraft.spark.lag_group import LagGroup
from kraft.spark.options import parse_bootstrap
from kraft.spark.retry import RetryPolicy
from kraft.spark.stream_offsets import Position, TopicPositions
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
    answer = shared_cluster.admin.list_consumer_group_offsets([asked])["lag-of-spark"].result(30)
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
