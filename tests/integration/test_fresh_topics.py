"""A client that asks for a topic the moment its brokers know of it, and does not ask twice."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.support.threaded_cluster import ThreadedCluster

PARTITIONS = 40
TOPICS = 5


def test_offsets_of_a_topic_that_was_just_created(
    shared_cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka does not ask for offsets again after NOT_LEADER_OR_FOLLOWER. However slow the disk is that the
    replicas are made on."""
    monkeypatch.setattr("kraft.broker.ready_requests.WAIT_MAX_S", 60.0)
    monkeypatch.setattr("kraft.broker.purgatory.pending_replicas.WAIT_MAX_S", 60.0)
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap})
    for _ in range(TOPICS):
        name = f"fresh-{uuid.uuid4().hex}"
        admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(90)
        shared_cluster.wait_known(name)
        asked = {TopicPartition(name, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        answers = admin.list_offsets(asked, request_timeout=90)
        assert [answer.result(90).offset for answer in answers.values()] == [0] * PARTITIONS
