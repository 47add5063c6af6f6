"""Transactions as their coordinators know them, and the producers of partitions as their leaders do (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

from kraft.cli.shared.admin_client import CHANGE_TIMEOUT_MS, AdminClient, raise_for
from kraft.cli.shared.coordinators import MOVING, Coordinators, Failure, failure_of, until_settled
from kraft.coordinator.shard import ProducerIdAndEpoch
from kraft.network.client import ConnectionLostError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.find_coordinator import CoordinatorType
from kraft.protocol.schemas.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducerState,
)
from kraft.protocol.schemas.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError
from partitions.topic_partition import TopicPartition

LIST_VERSION = 1
LIST_PATTERN_VERSION = 2
"""Asked only for a pattern: brokers of Kafka before 4.1 do not speak it."""
DESCRIBE_VERSION = 0
DESCRIBE_PRODUCERS_VERSION = 0
INIT_PRODUCER_ID_VERSION = 4
WRITE_MARKERS_VERSION = 1
"""Without a transaction version: the marker is judged as of version 0, in which the epoch of an open transaction ends
it. Kafka's tool sends the same (KIP-1228)."""
BATCH_MAX = 500
"""Transactional ids, or partitions, of one request."""
_LEADER_MOVES = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        *MOVING,
    }
)

Item = TypeVar("Item")


class Transaction(NamedTuple):
    """`coordinator` is a broker's id; the partitions are those of the open transaction, or, while it ends, those whose
    markers are not written. `started_ms` is when the last one began, wall time in ms since 1970; None if none did."""

    transactional_id: str
    producer_id: int
    epoch: int | None
    state: str
    coordinator: int
    partitions: list[TopicPartition]
    started_ms: int | None
    timeout_ms: int | None


class Filters(NamedTuple):
    """Of transactions; an empty one lets all through. `duration_ms` below zero: of any age."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    duration_ms: int = -1
    pattern: str | None = None


class ProducersOf(NamedTuple):
    """What some partitions' replicas know of producers, and why others did not tell."""

    found: dict[TopicPartition, list[ProducerState]]
    failures: dict[TopicPartition, Failure]


class EndMarker(NamedTuple):
    """What an abort marker says. `coordinator_epoch` -1, of a producer that never ended a transaction: 0 is sent, as
    Kafka's tool does, which no coordinator is below."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class TransactionClient:
    """Asks through one admin client."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._coordinators = Coordinators(admin, CoordinatorType.TRANSACTION)

    # -- coordinators

    async def listed(self, filters: Filters) -> tuple[list[Transaction], list[UserError]]:
        """The transactions of all brokers, by id, and why some brokers did not tell theirs."""
        transactions: dict[str, Transaction] = {}
        failures: list[UserError] = []
        for broker in (await self._admin.metadata([])).brokers:
            try:
                transactions |= await self._listed_of(broker.node_id, filters)
            except ConnectionLostError as error:
                text = f"the transactions of broker {broker.node_id} are not known: {error}"
                failures.append(UserError(text, EXIT_UNDECIDED))
            except UserError as error:
                if error.exit_code == EXIT_USAGE:
                    raise
                failures.append(error)
        return [transactions[key] for key in sorted(transactions)], failures

    async def _listed_of(self, broker_id: int, filters: Filters) -> dict[str, Transaction]:
        request = ListTransactionsRequest(
            state_filters=list(filters.states),
            producer_id_filters=list(filters.producer_ids),
            duration_filter=filters.duration_ms,
            transactional_id_pattern=filters.pattern,
        )
        version = LIST_VERSION if filters.pattern is None else LIST_PATTERN_VERSION

        async def ask() -> Message:
            return await self._admin.request_of(broker_id, request, version=version)

        answer = cast("ListTransactionsResponse", await until_settled(ask, _code_of_list))
        if answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise UserError(f"--pattern is an expression of RE2, not {filters.pattern!r}", EXIT_USAGE)
        raise_for(answer.error_code, None, f"the transactions of broker {broker_id} are not known")
        listed = {
            one.transactional_id: Transaction(
                one.transactional_id,
                one.producer_id,
                None,
                one.transaction_state,
                broker_id,
                [],
                None,
                None,
            )
            for one in answer.transaction_states
        }
        for ids in batches(list(listed)):
            request_more = DescribeTransactionsRequest(transactional_ids=ids)
            told = await self._admin.request_of(broker_id, request_more, version=DESCRIBE_VERSION)
            for one in cast("DescribeTransactionsResponse", told).transaction_states:
                if not one.error_code:  # one that has expired since, or has moved, stays as it was listed
                    listed[one.transactional_id] = _transaction(one, broker_id)
        return listed

    async def described(self, transactional_id: str) -> Transaction | None:
        """By its coordinator; None for an id that is not there. Raises UserError."""
        answer = await self._coordinators.ask(
            transactional_id,
            DescribeTransactionsRequest(transactional_ids=[transactional_id]),
            DESCRIBE_VERSION,
            DescribeTransactionsResponse,
            lambda told: told.transaction_states[0].error_code,
        )
        found = answer.transaction_states[0]
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        raise_for(found.error_code, None, f"transactional id {transactional_id}")
        return _transaction(found, self._coordinators.found[transactional_id])

    async def fence(self, transactional_id: str) -> ProducerIdAndEpoch | Failure:
        """Bumps the id's epoch, so that its producers are fenced and an open transaction is aborted; returns the
        producer's id and new epoch, or why it was refused. Raises UserError where the transaction does not end."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=CHANGE_TIMEOUT_MS
        )
        answer = await self._coordinators.ask(
            transactional_id,
            request,
            INIT_PRODUCER_ID_VERSION,
            InitProducerIdResponse,
            lambda told: told.error_code,
            again=MOVING | {ErrorCode.CONCURRENT_TRANSACTIONS},
            failed=f"transactional id {transactional_id} was not fenced in time",
        )
        if answer.error_code:
            return failure_of(answer.error_code)
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    # -- replicas

    async def producers(self, replicas: Mapping[TopicPartition, int]) -> ProducersOf:
        """What the broker that is named for each partition knows of its producers. A broker that cannot be asked
        fails its partitions alone."""
        by_broker: dict[int, list[TopicPartition]] = {}
        for key, broker_id in sorted(replicas.items()):
            by_broker.setdefault(broker_id, []).append(key)
        told = ProducersOf({}, {})
        for broker_id, keys in by_broker.items():
            for some in batches(keys):
                await self._producers_of(broker_id, some, told)
        return told

    async def _producers_of(self, broker_id: int, keys: list[TopicPartition], told: ProducersOf) -> None:
        topics = [
            DescribeProducersTopic(name=name, partition_indexes=numbers)
            for name, numbers in by_topic(keys).items()
        ]
        if broker_id < 0:
            told.failures.update(dict.fromkeys(keys, failure_of(ErrorCode.LEADER_NOT_AVAILABLE)))
            return
        try:
            answer = cast(
                "DescribeProducersResponse",
                await self._admin.request_of(
                    broker_id, DescribeProducersRequest(topics=topics), version=DESCRIBE_PRODUCERS_VERSION
                ),
            )
        except (UserError, ConnectionLostError) as error:
            told.failures.update(dict.fromkeys(keys, (ErrorCode.NETWORK_EXCEPTION, str(error))))
            return
        for topic in answer.topics:
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                if partition.error_code:
                    code, text = failure_of(partition.error_code)
                    told.failures[key] = code, partition.error_message or text
                else:
                    told.found[key] = partition.active_producers

    async def write_abort(self, key: TopicPartition, marker: EndMarker) -> None:
        """Writes an abort marker into the partition, through its leader. Raises UserError."""
        wanted = WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=key.topic, partition_indexes=[key.partition])],
            coordinator_epoch=max(marker.coordinator_epoch, 0),
        )
        request = WriteTxnMarkersRequest(markers=[wanted])

        async def ask() -> Message:
            leader = (await leaders(self._admin, [key.topic])).get(key, -1)
            return await self._admin.request_of(leader, request, version=WRITE_MARKERS_VERSION)

        what = f"the transaction of producer {marker.producer_id} in {key}"
        answer = await until_settled(
            ask, _code_of_marker, _LEADER_MOVES, f"{what} was not aborted: its leader does not answer"
        )
        raise_for(_code_of_marker(answer), None, f"{what} was not aborted", change=f"{what} was aborted")


async def leaders(admin: AdminClient, topics: Iterable[str] | None) -> dict[TopicPartition, int]:
    """The leader's id of each partition of these topics, or of all; -1 for none. Raises UserError for a topic that is
    not there."""
    found = {}
    for topic in (await admin.metadata(topics)).topics:
        raise_for(topic.error_code, None, f"topic {topic.name}")
        for partition in topic.partitions:
            found[TopicPartition(topic.name or "", partition.partition_index)] = partition.leader_id
    return found


async def replicas_on(
    admin: AdminClient, topics: Iterable[str] | None, broker_id: int
) -> dict[TopicPartition, int]:
    """The broker for each partition of these topics, or of all, that it has a replica of. Raises UserError."""
    found = {}
    for topic in (await admin.metadata(topics)).topics:
        raise_for(topic.error_code, None, f"topic {topic.name}")
        for partition in topic.partitions:
            if broker_id in partition.replica_nodes:
                found[TopicPartition(topic.name or "", partition.partition_index)] = broker_id
    return found


def by_topic(keys: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of partitions by their topics."""
    topics: dict[str, list[int]] = {}
    for name, number in keys:
        topics.setdefault(name, []).append(number)
    return topics


def batches(items: Sequence[Item], size: int = BATCH_MAX) -> Iterator[list[Item]]:
    """The items in their order, so many at a time."""
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def _transaction(described: DescribedTransaction, coordinator: int) -> Transaction:
    started_ms = described.transaction_start_time_ms
    return Transaction(
        described.transactional_id,
        described.producer_id,
        described.producer_epoch,
        described.transaction_state,
        coordinator,
        sorted(
            TopicPartition(topic.topic, number) for topic in described.topics for number in topic.partitions
        ),
        started_ms if started_ms >= 0 else None,
        described.transaction_timeout_ms,
    )


def _code_of_list(answer: Message) -> int:
    return cast("ListTransactionsResponse", answer).error_code


def _code_of_marker(answer: Message) -> int:
    return cast("WriteTxnMarkersResponse", answer).markers[0].topics[0].partitions[0].error_code
