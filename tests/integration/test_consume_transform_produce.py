"""Consume, transform, produce: each input is among the committed outputs once, whoever's coordinator dies between.

The first test speaks transaction.version 2 byte by byte, which adds partitions with what is sent to them; the second
is librdkafka, which adds them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraft.protocol.schema import Message
from kraft.protocol.schemas.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kraft.protocol.schemas.producers import InitProducerIdRequest
from kraft.protocol.schemas.transactions import EndTxnRequest
from tests.support.node_processes import until
from tests.support.raw_client import RawConnection, batch
from tests.support.real_clients import QUIET
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
GROUP = "readers"
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
PASSING = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


@pytest.fixture(scope="module")
def running() -> Iterator[ThreadedCluster]:
    with threaded_cluster(3, PROPERTIES) as cluster:
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "first", **QUIET})
        topic = cluster.create_topic()
        consumer.commit(offsets=[ClientPartition(topic, 0, 0)], asynchronous=False)
        consumer.close()
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "first", **QUIET})
        producer.init_transactions(90)
        yield cluster


class Processor:
    """One producer and its group, by transaction.version 2."""

    def __init__(self, running: ThreadedCluster, name: str, source: str, sink: str) -> None:
        self.running = running
        self.name, self.source, self.sink = name, source, sink
        request = InitProducerIdRequest(name, 60_000)
        answer = self.ask(TRANSACTIONS, request, 5, lambda answer: int(answer.error_code))
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def ask(self, topic: str, message: Message, version: int, code_of: Callable[[Any], int]) -> Any:
        """The answer of the topic's leader, once what passes has passed."""

        def once() -> tuple[Any] | None:
            try:
                node_id = self.running.leader(topic)
                with RawConnection(("127.0.0.1", self.running.cluster.ports[node_id])) as connection:
                    answer = connection.call(message, version)
            except OSError:
                return None  # it has just been killed
            return None if code_of(answer) in PASSING else (answer,)

        answer = until(once, f"{type(message).__name__} is answered")[0]
        assert code_of(answer) == ErrorCode.NONE, ErrorCode(code_of(answer)).name
        return answer

    def position(self) -> int:
        wanted = [OffsetFetchRequestTopics(self.source, partition_indexes=[0])]
        group = OffsetFetchRequestGroup(GROUP, topics=wanted)
        request = OffsetFetchRequest(groups=[group], require_stable=True)

        def code_of(answer: Any) -> int:
            (group,) = answer.groups
            return int(group.error_code or group.topics[0].partitions[0].error_code)

        answer = self.ask(OFFSETS, request, 8, code_of)
        return max(0, int(answer.groups[0].topics[0].partitions[0].committed_offset))

    def produce(self, value: bytes) -> None:
        records = batch(
            value,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        data = TopicProduceData(
            name=self.sink, partition_data=[PartitionProduceData(index=0, records=records)]
        )
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=10_000, topic_data=[data])
        self.ask(
            self.sink, request, 12, lambda answer: int(answer.responses[0].partition_responses[0].error_code)
        )
        self.sequence += 1

    def commit_offset(self, offset: int) -> None:
        part = TxnOffsetCommitRequestPartition(0, offset, committed_metadata="")
        topics = [TxnOffsetCommitRequestTopic(self.source, [part])]
        request = TxnOffsetCommitRequest(self.name, GROUP, self.producer_id, self.epoch, topics=topics)
        self.ask(OFFSETS, request, 5, lambda answer: int(answer.topics[0].partitions[0].error_code))

    def end(self, *, is_commit: bool) -> None:
        """Every end has an epoch of its own, in which sequences begin anew."""
        request = EndTxnRequest(self.name, self.producer_id, self.epoch, is_commit)
        answer = self.ask(TRANSACTIONS, request, 5, lambda answer: int(answer.error_code))
        assert (answer.producer_id, answer.producer_epoch) == (self.producer_id, self.epoch + 1)
        self.epoch, self.sequence = answer.producer_epoch, 0


def committed_values(running: ThreadedCluster, topic: str, count: int) -> list[bytes]:
    """All that a read_committed consumer sees until it has so many, and a little after."""
    consumer = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    consumer.assign([ClientPartition(topic, 0, 0)])
    found: list[bytes] = []
    is_at_end = False
    while not (is_at_end and len(found) >= count):
        for message in consumer.consume(100, 0.5):
            is_at_end = message.error() is not None
            if not is_at_end:
                found.append(message.value())
    consumer.close()
    return found


def test_version_2_while_both_coordinators_die(running: ThreadedCluster) -> None:
    source, sink = running.create_topic("source"), running.create_topic("sink")
    processor = Processor(running, "processor", source, sink)
    inputs, tries = 6, 0
    while (at := processor.position()) < inputs:
        tries += 1
        assert tries < 100, "it does not come on"
        processor.produce(b"%d" % at)
        processor.commit_offset(at + 1)
        if tries in (3, 6):
            victim = running.leader(OFFSETS if tries == 3 else TRANSACTIONS)
            running.kill(victim)
            running.wait_seen(victim, live=False)
            running.start(victim)
            running.wait_seen(victim, live=True)
        processor.end(is_commit=tries % 3 != 2)
    assert tries == inputs + len([number for number in range(1, tries + 1) if number % 3 == 2])
    assert committed_values(running, sink, inputs) == [b"%d" % number for number in range(inputs)]


def test_librdkafka(running: ThreadedCluster) -> None:
    source, sink = running.create_topic("source"), running.create_topic("sink")
    inputs = [b"%d" % number for number in range(20)]
    feeding = Producer({"bootstrap.servers": running.bootstrap, **QUIET})
    for value in inputs:
        feeding.produce(source, value)
    assert feeding.flush(90) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": "librdkafka",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **QUIET,
        }
    )
    consumer.subscribe([source])
    producer = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": "librdkafka", **QUIET})
    producer.init_transactions(90)
    committed, tries = 0, 0
    while committed < len(inputs):
        messages = consumer.consume(4, 5)
        if not messages:
            continue
        assert not [message.error() for message in messages if message.error()]
        tries += 1
        producer.begin_transaction()
        for message in messages:
            producer.produce(sink, message.value())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 90)
        if tries % 3 == 2:
            producer.abort_transaction(90)
            for known in consumer.committed(consumer.assignment(), timeout=90):
                consumer.seek(known)
        else:
            producer.commit_transaction(90)
            committed += len(messages)
    assert committed_values(running, sink, len(inputs)) == inputs
    (told,) = consumer.committed([ClientPartition(source, 0)], timeout=90)
    assert told.offset == len(inputs)
    consumer.close()
