"""A broker whose disk has no room, seen from outside: by producers, in the ISR, on its pages."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from partitions.topic_partition import TopicPartition
from tests.support.node_processes import until
from tests.support.real_clients import LIBRARIES, QUIET
from tests.support.threaded_cluster import ThreadedCluster, metrics, threaded_cluster

RETRIES = "kafka_server_replicafetchermanager_retries_total"
SHRINKS = "kafka_server_replicamanager_isrshrinks_total"
EXPANDS = "kafka_server_replicamanager_isrexpands_total"
REFUSING = "kafka_log_logmanager_refusinglogdirectorycount"
LAG_MS = 6_000


@pytest.fixture
def running() -> Iterator[ThreadedCluster]:
    with threaded_cluster(properties={"replica.lag.time.max.ms": str(LAG_MS)}) as made:
        yield made


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Folders below which appends find no room."""
    folders: set[str] = set()
    pwritev = os.pwritev

    def writing(fd: int, buffers: Sequence[Any], offset: int) -> int:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if any(path.startswith(f"{folder}/") for folder in folders):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwritev(fd, buffers, offset)

    monkeypatch.setattr(os, "pwritev", writing)
    return folders


def acknowledged(running: ThreadedCluster, topic: str, timeout_ms: int = 10_000) -> KafkaError | None:
    """Sends one record with acks=all, once; None, or why it was refused."""
    settings = {"bootstrap.servers": running.bootstrap, "acks": "all", "retries": 0, "linger.ms": 0, **QUIET}
    producer = Producer({**settings, "request.timeout.ms": timeout_ms, "message.timeout.ms": timeout_ms})
    outcomes: list[KafkaError | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush()
    return outcomes[0]


def isr_at(running: ThreadedCluster, leader: int, topic: str) -> tuple[int, ...]:
    """The ISR that the leader goes by; another broker's metadata may be newer."""
    broker = running.cluster.nodes[leader].broker
    assert broker is not None
    leading = broker.replicas.partition(TopicPartition(topic, 0)).leadership
    assert leading is not None
    return leading.isr.committed


def test_a_follower_without_room_leaves_the_isr_for_as_long_as_it_lasts(
    running: ThreadedCluster, full: set[str]
) -> None:
    """Below min.insync.replicas the high watermark stands still, and a follower that only asks is not below it."""
    topic = running.create_topic("full", replication_factor=2, min_insync_replicas="2")
    leader = running.leader(topic)
    [follower] = set(running.partitions(topic)[0].replicas) - {leader}
    assert acknowledged(running, topic) is None
    broker = running.cluster.nodes[follower].broker
    assert broker is not None
    (directory,) = broker.logs.usable_directories
    before = metrics(running, leader)
    full.add(f"{directory}/{topic}-0")
    late = acknowledged(running, topic, 1_000)
    assert late is not None
    assert late.code() in (KafkaError.REQUEST_TIMED_OUT, KafkaError._MSG_TIMED_OUT)
    until(lambda: isr_at(running, leader, topic) == (leader,), "the leader knows that the follower has left")
    refusals = [acknowledged(running, topic)]
    tried = metrics(running, follower)[RETRIES]
    until(lambda: metrics(running, follower)[RETRIES] >= tried + 4, "it has asked again and again")
    refusals.append(acknowledged(running, topic))
    assert [error.code() for error in refusals if error] == [KafkaError.NOT_ENOUGH_REPLICAS] * 2
    seen = metrics(running, leader)
    assert [seen[name] - before[name] for name in (SHRINKS, EXPANDS)] == [1, 0]
    answer = running.get_json(follower, "/health/ready")
    assert answer["ready"] is True
    assert [
        warning for warning in answer["warnings"] if "takes no appends" in warning and directory in warning
    ]
    assert metrics(running, follower)[REFUSING] == 1
    assert "warnings" not in running.get_json(leader, "/health/ready")
    full.clear()
    running.wait_in_sync(topic)
    assert acknowledged(running, topic) is None
    assert LIBRARIES[0].consume(running.bootstrap, topic, {0: 3}) == {0: [b"x"] * 3}
    until(lambda: metrics(running, follower)[REFUSING] == 0, "its directory takes appends again")
    assert running.get_json(follower, "/health/ready") == {"ready": True, "reasons": []}
