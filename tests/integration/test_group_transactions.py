"""Offsets in transactions over sockets, while their coordinator moves: what was pending is pending at the next one.

Markers are sent by hand, as transaction coordinators send them, and verification is off: there is no transaction log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kraft.protocol.schemas.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.node_processes import until
from tests.support.raw_client import RawConnection
from tests.support.real_clients import QUIET
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.partition.verification.enable": "false",
}
GROUP = "g"
OFFSETS = "__consumer_offsets"
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def running() -> Iterator[ThreadedCluster]:
    with threaded_cluster(3, PROPERTIES) as cluster:
        yield cluster


def coordinator(running: ThreadedCluster) -> int:
    """That every broker knows, and that has loaded its shard."""

    def ask() -> int | None:
        brokers = {n: node.broker for n, node in running.cluster.nodes.items() if node.broker is not None}
        known = {broker.groups.topic.leader_of(GROUP) for broker in brokers.values()}
        (leader,) = known if len(known) == 1 else {None}
        if leader not in brokers:
            return None
        runtime = brokers[leader].groups.runtime
        return leader if runtime.hosted and not runtime.is_loading else None

    return int(until(ask, "the group has a coordinator"))


def ask(running: ThreadedCluster, message: Message, version: int, code_of: Callable[[Any], int]) -> Any:
    """The coordinator's answer, once it can answer."""
    passing = {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }

    def once() -> tuple[Any] | None:
        with RawConnection(("127.0.0.1", running.cluster.ports[coordinator(running)])) as connection:
            answer = connection.call(message, version)
        return None if code_of(answer) in passing else (answer,)

    return until(once, f"{type(message).__name__} is answered")[0]


def commit(running: ThreadedCluster, topic: str, offset: int, producer_id: int) -> None:
    part = TxnOffsetCommitRequestPartition(0, offset, committed_metadata="")
    topics = [TxnOffsetCommitRequestTopic(topic, [part])]
    request = TxnOffsetCommitRequest("tx", GROUP, producer_id, 0, topics=topics)

    def code_of(answer: Any) -> int:
        return int(answer.topics[0].partitions[0].error_code)

    assert code_of(ask(running, request, 3, code_of)) == ErrorCode.NONE


def fetched(running: ThreadedCluster, topic: str) -> tuple[int, int]:
    wanted = [OffsetFetchRequestTopics(topic, partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=wanted)], require_stable=True)
    answer = ask(running, request, 8, lambda answer: int(answer.groups[0].error_code))
    part = answer.groups[0].topics[0].partitions[0]
    return part.committed_offset, part.error_code


def end(running: ThreadedCluster, producer_id: int, *, is_commit: bool) -> None:
    topics = [WritableTxnMarkerTopic(OFFSETS, [0])]
    request = WriteTxnMarkersRequest([WritableTxnMarker(producer_id, 0, is_commit, topics)])

    def code_of(answer: Any) -> int:
        return int(answer.markers[0].topics[0].partitions[0].error_code)

    assert code_of(ask(running, request, 1, code_of)) == ErrorCode.NONE


def test_pending_offsets_move_with_their_coordinator(running: ThreadedCluster) -> None:
    topic = running.create_topic()
    consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": GROUP, **QUIET})
    consumer.commit(offsets=[ClientPartition(topic, 0, 1)], asynchronous=False)
    commit(running, topic, 5, producer_id=1)
    assert fetched(running, topic) == (-1, UNSTABLE)
    first = coordinator(running)
    running.kill(first)
    running.wait_seen(first, live=False)
    assert coordinator(running) != first
    assert fetched(running, topic) == (-1, UNSTABLE)
    end(running, 1, is_commit=True)
    assert fetched(running, topic) == (5, ErrorCode.NONE)
    commit(running, topic, 6, producer_id=2)
    running.start(first)
    running.wait_seen(first, live=True)
    running.wait_in_sync(OFFSETS)
    second = coordinator(running)
    running.kill(second)
    running.wait_seen(second, live=False)
    assert fetched(running, topic) == (-1, UNSTABLE)
    end(running, 2, is_commit=False)
    assert fetched(running, topic) == (5, ErrorCode.NONE)
    (told,) = consumer.committed([ClientPartition(topic, 0)], timeout=90)
    assert told.offset == 5
    consumer.close()
