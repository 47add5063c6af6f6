"""What lag tools see of a stream, on real nodes; no JVM."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
from confluent_kafka import ConsumerGroupTopicPartitions

from kraft.spark.lag_group import LagGroup
from kraft.spark.options import parse_options
from kraft.spark.stream_offsets import Position, TopicPositions
from tests.support.fake_broker import FakeCluster
from tests.support.threaded_cluster import ThreadedCluster


def group_of(bootstrap: str, topic: str) -> LagGroup:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "groupIdForLag": "lag-of-spark"}
    options = parse_options(given, streaming=True)
    assert options.group_id_for_lag is not None
    return LagGroup(options, options.group_id_for_lag)


def test_the_group_knows_the_last_commit_when_the_call_returns(shared_cluster: ThreadedCluster) -> None:
    topic = shared_cluster.create_topic("lag", partitions=2)
    group = group_of(shared_cluster.bootstrap, topic)
    for offset in (5, 6):
        group.commit({topic: TopicPositions(bytes(16), {0: Position(offset, 0), 1: Position(7, 0)})})
    group.close()
    asked = ConsumerGroupTopicPartitions("lag-of-spark")
    answer = shared_cluster.admin.list_consumer_group_offsets([asked])["lag-of-spark"].result(30)
    committed = {(one.topic, one.partition): one.offset for one in answer.topic_partitions}
    assert committed == {(topic, 0): 6, (topic, 1): 7}


def test_without_an_answer_the_stream_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.spark.lag_group._ANSWER_S", 0.05)
    with FakeCluster() as cluster:  # it has no coordinators
        cluster.create_topic("lag")
        group = group_of(cluster.bootstrap, "lag")
        group.commit({"lag": TopicPositions(bytes(16), {0: Position(5, 0)})})
        group.commit({})
        group.close()
