"""Transactions over three nodes, request by request: both versions, fences, timeouts, a coordinator that moves while a
commit is under way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import OffsetSpec

from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.elections import ElectionType, ElectLeadersRequest, TopicPartitions
from kraft.protocol.schemas.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.integration.test_read_committed import with_confluent
from tests.support.node_processes import NOT_SERVED_YET, until
from tests.support.raw_client import RawConnection
from tests.support.raw_transactions import ADDING_PRODUCE_VERSION, RawProducer, address_of
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

NONE = ErrorCode.NONE
STATE = "__transaction_state"
SMALL = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    """Three nodes; a test that stops one starts it again."""
    with threaded_cluster(properties=SMALL) as running:
        yield running


def end_of(cluster: ThreadedCluster, topic: str, level: IsolationLevel) -> int:
    """The high watermark, or the last stable offset."""
    key = ClientPartition(topic, 0)
    return int(
        cluster.admin.list_offsets({key: OffsetSpec.latest()}, isolation_level=level)[key].result().offset
    )


def until_stable(cluster: ThreadedCluster, topic: str, marked: int) -> None:
    """Returns when no transaction is open, and the log has so many records and markers."""

    def is_stable() -> bool:
        try:
            stable = end_of(cluster, topic, IsolationLevel.READ_COMMITTED)
            return stable == end_of(cluster, topic, IsolationLevel.READ_UNCOMMITTED) >= marked
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() not in NOT_SERVED_YET:
                raise
            return False  # its leader is new

    until(is_stable, f"the transactions of {topic} have ended")


def test_version_2_from_begin_to_end(cluster: ThreadedCluster) -> None:
    topic = cluster.create_topic("v2")
    producer = RawProducer(cluster, "two")
    assert producer.init() == NONE
    first_epoch = producer.epoch
    assert producer.produce(topic, b"kept", version=ADDING_PRODUCE_VERSION) == NONE
    assert end_of(cluster, topic, IsolationLevel.READ_COMMITTED) == 0
    assert producer.end(commits=True) == NONE
    assert producer.epoch == first_epoch + 1
    assert producer.produce(topic, b"lost", version=ADDING_PRODUCE_VERSION) == NONE
    assert producer.end(commits=False) == NONE
    assert producer.produce(topic, b"kept too", version=ADDING_PRODUCE_VERSION) == NONE
    ended = producer.epoch
    assert producer.end(commits=True) == NONE
    now, producer.epoch = producer.epoch, ended
    assert producer.end(commits=True) == NONE, "its retry at the epoch before"
    assert producer.epoch == now
    until_stable(cluster, topic, 6)
    assert with_confluent(cluster.bootstrap, topic, 2, True) == [b"kept", b"kept too"]


def test_older_versions_name_their_partitions_and_keep_their_epoch(cluster: ThreadedCluster) -> None:
    topic = cluster.create_topic("v0", partitions=2)
    producer = RawProducer(cluster, "old")
    assert producer.init() == NONE
    epoch = producer.epoch
    assert producer.produce(topic, b"unknown") == ErrorCode.TRANSACTION_ABORTABLE, (
        "nobody added its partition"
    )
    assert producer.add(topic, 0, 1) == {NONE}
    assert producer.produce(topic, b"a") == NONE
    assert producer.end(commits=True, version=3) == NONE
    assert producer.add(topic, 0) == {NONE}
    assert producer.produce(topic, b"b") == NONE
    assert producer.end(commits=True, version=3) == NONE
    assert producer.epoch == epoch
    until_stable(cluster, topic, 4)
    assert with_confluent(cluster.bootstrap, topic, 2, True) == [b"a", b"b"]


def test_a_new_instance_fences_the_old_one_and_aborts_its_transaction(cluster: ThreadedCluster) -> None:
    topic = cluster.create_topic("fence")
    zombie, fresh = RawProducer(cluster, "one"), RawProducer(cluster, "one")
    assert zombie.init() == NONE
    assert zombie.produce(topic, b"lost", version=ADDING_PRODUCE_VERSION) == NONE
    assert fresh.init() == NONE
    assert fresh.producer_id == zombie.producer_id
    assert fresh.epoch > zombie.epoch
    assert zombie.end(commits=True) == ErrorCode.PRODUCER_FENCED
    assert zombie.add(topic, 0) == {ErrorCode.PRODUCER_FENCED}
    assert zombie.produce(topic, b"no", version=ADDING_PRODUCE_VERSION) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert fresh.produce(topic, b"kept", version=ADDING_PRODUCE_VERSION) == NONE
    assert fresh.end(commits=True) == NONE
    until_stable(cluster, topic, 4)
    assert with_confluent(cluster.bootstrap, topic, 1, True) == [b"kept"]


def test_a_transaction_that_is_open_for_too_long_is_aborted(cluster: ThreadedCluster) -> None:
    topic = cluster.create_topic("late")
    producer = RawProducer(cluster, "slow", timeout_ms=3_000)
    assert producer.init() == NONE
    assert producer.produce(topic, b"lost", version=ADDING_PRODUCE_VERSION) == NONE
    until_stable(cluster, topic, 2)
    assert producer.described().transaction_state == "CompleteAbort"
    assert producer.end(commits=True) != NONE


def test_a_coordinator_that_moves_in_mid_commit(cluster: ThreadedCluster) -> None:
    """While a replica is away no marker can be written; the next coordinator finds the commit, and writes it."""
    topic = cluster.create_topic("moved", min_insync_replicas="3")
    producer = RawProducer(cluster, "moves")
    assert producer.init() == NONE
    assert producer.produce(topic, b"kept", version=ADDING_PRODUCE_VERSION) == NONE
    number, before = state_partition(cluster, producer)
    away, after = (node_id for node_id in (1, 2, 3) if node_id != before)
    cluster.stop(away)
    try:
        cluster.wait_seen(away, live=False)
        assert producer.end(commits=True) == NONE
        move_leadership(cluster, number, [after, before, away])
        assert producer.coordinator() == after
        assert producer.described().transaction_state == "PrepareCommit"
    finally:
        cluster.start(away)
    until_stable(cluster, topic, 2)
    assert with_confluent(cluster.bootstrap, topic, 1, True) == [b"kept"]
    until(lambda: producer.described().transaction_state == "CompleteCommit", "the commit is complete")


def state_partition(cluster: ThreadedCluster, producer: RawProducer) -> tuple[int, int]:
    """Where the producer's id is: the partition, and who leads it."""
    coordinator = producer.coordinator()
    broker = cluster.cluster.nodes[coordinator].broker
    assert broker is not None
    number = broker.transactions.partition_of(producer.name)
    assert number is not None
    return number, coordinator


def move_leadership(cluster: ThreadedCluster, number: int, replicas: list[int]) -> None:
    """To the first of the partition's replicas."""
    wanted = ReassignableTopic(
        name=STATE, partitions=[ReassignablePartition(partition_index=number, replicas=replicas)]
    )
    elected = TopicPartitions(topic=STATE, partitions=[number])
    with RawConnection(address_of(cluster, replicas[0])) as connection:
        connection.call(AlterPartitionReassignmentsRequest(topics=[wanted]), 0)
        connection.call(
            ElectLeadersRequest(election_type=ElectionType.PREFERRED, topic_partitions=[elected]), 2
        )
    until(lambda: cluster.partitions(STATE)[number].leader == replicas[0], f"{replicas[0]} leads it")
