"""A transactional producer as requests, one by one, for what no client library would do."""

from __future__ import annotations

from typing import Any

from kraft.protocol.api import ApiKey
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraft.protocol.schemas.find_coordinator import CoordinatorType, FindCoordinatorRequest
from kraft.protocol.schemas.producers import InitProducerIdRequest
from kraft.protocol.schemas.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
)
from tests.support.node_processes import until
from tests.support.raw_client import RawConnection
from tests.support.threaded_cluster import ThreadedCluster
from tests.support.transactions import transactional

ADDING_PRODUCE_VERSION = 12
LATER = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


class RawProducer:
    """One incarnation of a transactional id. What passes by itself is asked again; other errors are returned."""

    def __init__(self, cluster: ThreadedCluster, name: str, *, timeout_ms: int = 60_000) -> None:
        self._cluster = cluster
        self.name = name
        self._timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def coordinator(self) -> int:
        """The node that coordinates it now."""

        def ask() -> int | None:
            request = FindCoordinatorRequest(
                key_type=CoordinatorType.TRANSACTION, coordinator_keys=[self.name]
            )
            with self._connection(self._any_node()) as connection:
                (found,) = connection.call(request, 4).coordinators
            return found.node_id if found.error_code == ErrorCode.NONE else None

        return int(until(ask, f"{self.name} has a coordinator"))

    def init(self, **fields: Any) -> ErrorCode:
        body = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=self._timeout_ms, **fields
        )
        answer = self._ask(body, 5, lambda answer: answer.error_code)
        if answer.error_code == ErrorCode.NONE:
            self._becomes(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def add(self, topic: str, *partitions: int) -> set[ErrorCode]:
        body = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )

        def codes(answer: Any) -> list[int]:
            topics = answer.results_by_topic_v3_and_below
            return [one.partition_error_code for result in topics for one in result.results_by_partition]

        answer = self._ask(body, 3, lambda answer: codes(answer)[0])
        return {ErrorCode(code) for code in codes(answer)}

    def produce(self, topic: str, value: bytes, partition: int = 0, *, version: int = 11) -> ErrorCode:
        """Version 12 adds the partition to the transaction."""
        place = (topic, partition)
        sequence = self.sequences.get(place, 0)
        records = transactional(self.producer_id, value, epoch=self.epoch, sequence=sequence)
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=partition, records=records)]
        )
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=10_000, topic_data=[data])

        def ask() -> list[ErrorCode] | None:
            with self._connection(self._cluster.leader(topic, partition)) as connection:
                answer = connection.call(request, version).responses[0].partition_responses[0]
            code = ErrorCode(answer.error_code)
            return None if code in LATER else [code]

        (code,) = until(ask, f"{topic}-{partition} is written")
        if code is ErrorCode.NONE:
            self.sequences[place] = sequence + 1
        return ErrorCode(code)

    def end(self, *, commits: bool, version: int = 5) -> ErrorCode:
        body = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )
        answer = self._ask(body, version, lambda answer: answer.error_code)
        if version >= 5 and answer.error_code == ErrorCode.NONE:
            self._becomes(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def described(self) -> Any:
        body = DescribeTransactionsRequest(transactional_ids=[self.name])
        answer = self._ask(body, 0, lambda answer: answer.transaction_states[0].error_code)
        return answer.transaction_states[0]

    def _becomes(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def _ask(self, body: Any, version: int, code_of: Any) -> Any:
        def ask() -> Any:
            try:
                with self._connection(self.coordinator()) as connection:
                    answer = connection.call(body, version)
            except OSError:
                return None  # the coordinator has just gone
            return None if code_of(answer) in LATER else answer

        return until(ask, f"{ApiKey(body.API_KEY).name} of {self.name} is answered")

    def _connection(self, node_id: int) -> RawConnection:
        return RawConnection(address_of(self._cluster, node_id))

    def _any_node(self) -> int:
        return next(number for number, node in self._cluster.cluster.nodes.items() if node.broker is not None)


def address_of(cluster: ThreadedCluster, node_id: int) -> tuple[str, int]:
    host, port = cluster.bootstrap.split(",")[node_id - 1].rsplit(":", 1)
    return host, int(port)
