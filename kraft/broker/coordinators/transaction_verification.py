"""Asking transaction coordinators whether partitions are in transactions, before batches open them there (KIP-890).

The Produce handler asks before a batch may open a transaction in a log, and the group coordinator before offsets do.
A producer of transaction.version 2 does not add partitions by itself: being asked about one, the coordinator adds it.
Guarantees: one request at a time is on its way to a broker, with all that came up since the one before, and what is
asked of one coordinator never waits for another; a request names a transactional id once. What waits is bounded, in
number and in time. (Kafka's AddPartitionsToTxnManager.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from fetcher.leader_endpoint import LeaderUnavailable
from kraft.broker.replicas.peer_connection import PeerConnection
from kraft.broker.vital_task import start_vital_task
from kraft.coordinator.shard import ProducerIdAndEpoch
from kraft.coordinator.transactions.requests import AddPartitions
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from partitions.ports import Halt
from partitions.topic_partition import TopicPartition

VERSION: Final = 5
CLIENT_ID: Final = "transaction-verification"
WAITING_MAX: Final = 10_000
"""Questions that may wait at once, to all coordinators; more are told to come again."""
PARTITIONS_PER_REQUEST: Final = 1000
REQUEST_TIMEOUT_S: Final = 10.0
"""For a coordinator's answer; a client may wait for less."""
ADDING_VERSION: Final = 2
"""The transaction.version since which coordinators add partitions when brokers ask for them."""
_RETRIED: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""What passes mostly at once: the transaction before is being ended, a coordinator moves, or it does not know the
topic of a partition yet that was asked about in the same request."""

Codes = Mapping[TopicPartition, ErrorCode]


class Coordinators(Protocol):
    """The transaction coordinators as this broker knows them; `TransactionCoordinator` fits."""

    def leader_of(self, transactional_id: str) -> int | None:
        """The broker that coordinates it; None where there is none now."""

    def submit(self, transactional_id: str, request: AddPartitions) -> asyncio.Future[Any]:
        """Asks the shard here: a mapping of partitions to ErrorCode, or an ErrorCode for all."""


class Transaction(NamedTuple):
    """Whose open transaction partitions are looked for in, or added to."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    adds: bool


_Askers = dict[TopicPartition, list[asyncio.Future[ErrorCode]]]


class TransactionVerifier:
    """All that one broker asks of coordinators. `peer(broker_id)` makes a connection to another broker."""

    def __init__(
        self,
        broker_id: int,
        coordinators: Coordinators,
        peer: Callable[[int], PeerConnection],
        loop: asyncio.AbstractEventLoop,
        halt: Halt,
        *,
        retry_backoff_ms: int,
        retry_max_ms: int,
    ) -> None:
        """A coordinator that is busy or moves is asked again every `retry_backoff_ms`, for `retry_max_ms` at most
        (add.partitions.to.txn.retry.backoff.ms and .max.ms)."""
        self._broker_id = broker_id
        self._coordinators = coordinators
        self._peer = peer
        self._loop = loop
        self._halt = halt
        self._backoff_s = retry_backoff_ms / 1000
        self._retry_max_s = retry_max_ms / 1000
        self._queues: dict[int, _Queue] = {}
        self._count = 0

    async def close(self) -> None:
        """What waits is answered as if the coordinators were gone."""
        queues, self._queues = list(self._queues.values()), {}
        for queue in queues:
            await queue.close()

    async def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partition: TopicPartition,
        *,
        adds: bool,
        timeout_s: float,
    ) -> ErrorCode:
        """NONE if the partition is in the producer's open transaction. With `adds` the coordinator adds it: the
        client speaks transaction.version 2, and it is finalized.

        Else what the coordinator said, INVALID_PRODUCER_EPOCH for a producer that was fenced; NETWORK_EXCEPTION
        where it did not answer in `timeout_s` seconds; COORDINATOR_NOT_AVAILABLE where there is none, or too much
        waits.
        """
        if self._count >= WAITING_MAX:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        transaction = Transaction(transactional_id, producer, adds)
        now_s = self._loop.time
        deadline_s = now_s() + timeout_s
        retry_until_s = min(deadline_s, now_s() + self._retry_max_s)
        self._count += 1
        try:
            async with asyncio.timeout_at(deadline_s):
                while True:
                    code = await self._ask(transaction, partition)
                    if code not in _RETRIED or now_s() + self._backoff_s > retry_until_s:
                        return code
                    await asyncio.sleep(self._backoff_s)
        except TimeoutError:
            return ErrorCode.NETWORK_EXCEPTION
        finally:
            self._count -= 1

    async def _ask(self, transaction: Transaction, partition: TopicPartition) -> ErrorCode:
        """Asks whoever coordinates it now, once."""
        leader = self._coordinators.leader_of(transaction.transactional_id)
        if leader is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if leader == self._broker_id:
            request = AddPartitions(
                transaction.transactional_id,
                transaction.producer,
                frozenset({partition}),
                not transaction.adds,
                ADDING_VERSION if transaction.adds else 0,
            )
            reply = await self._coordinators.submit(transaction.transactional_id, request)
            return as_verified(reply if isinstance(reply, ErrorCode) else reply[partition])
        queue = self._queues.get(leader)
        if queue is None:
            queue = self._queues[leader] = _Queue(self._peer(leader), self._loop, self._halt)
        return await queue.ask(transaction, partition)


class _Queue:
    """What is asked of one other broker."""

    def __init__(self, connection: PeerConnection, loop: asyncio.AbstractEventLoop, halt: Halt) -> None:
        self._connection = connection
        self._loop = loop
        self._halt = halt
        self._waiting: dict[Transaction, _Askers] = {}
        self._task: asyncio.Task[None] | None = None

    def ask(self, transaction: Transaction, partition: TopicPartition) -> asyncio.Future[ErrorCode]:
        """The coordinator's word; cancelling it withdraws the question."""
        asker: asyncio.Future[ErrorCode] = self._loop.create_future()
        self._waiting.setdefault(transaction, {}).setdefault(partition, []).append(asker)
        if self._task is None:
            self._task = start_vital_task(self._run(), CLIENT_ID, self._halt)
        return asker

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for askers in self._waiting.values():
            _tell(askers, dict.fromkeys(askers, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._waiting.clear()
        self._connection.close()

    async def _run(self) -> None:
        while asked := self._take():
            codes: Mapping[Transaction, Codes] = {}
            try:
                response = await self._connection.request(
                    request_for({one: frozenset(askers) for one, askers in asked.items()}),
                    VERSION,
                    timeout_s=REQUEST_TIMEOUT_S,
                )
                codes = read_answer(response, {one: frozenset(askers) for one, askers in asked.items()})
            except LeaderUnavailable:
                codes = {
                    one: dict.fromkeys(askers, ErrorCode.NETWORK_EXCEPTION) for one, askers in asked.items()
                }
            finally:
                for one, askers in asked.items():
                    _tell(askers, codes.get(one, {}))
        self._task = None

    def _take(self) -> dict[Transaction, _Askers]:
        """What goes into the next request: of one transactional id at most one transaction."""
        taken: dict[Transaction, _Askers] = {}
        names: set[str] = set()
        count = 0
        for transaction in list(self._waiting):
            if transaction.transactional_id in names or count >= PARTITIONS_PER_REQUEST:
                continue
            askers = self._waiting.pop(transaction)
            awaited = {
                key: futures for key, futures in askers.items() if not all(one.done() for one in futures)
            }
            if awaited:
                taken[transaction] = awaited
                names.add(transaction.transactional_id)
                count += len(awaited)
        return taken


def _tell(askers: _Askers, codes: Codes) -> None:
    for partition, futures in askers.items():
        for asker in futures:
            if not asker.done():
                asker.set_result(codes.get(partition, ErrorCode.COORDINATOR_NOT_AVAILABLE))


def request_for(asked: Mapping[Transaction, frozenset[TopicPartition]]) -> AddPartitionsToTxnRequest:
    """The question, transactions in their order."""
    transactions = []
    for (transactional_id, producer, adds), partitions in asked.items():
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(partitions):
            topics.setdefault(topic, []).append(number)
        transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=not adds,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
                ],
            )
        )
    return AddPartitionsToTxnRequest(transactions=transactions)


def read_answer(
    response: AddPartitionsToTxnResponse, asked: Mapping[Transaction, frozenset[TopicPartition]]
) -> dict[Transaction, Codes]:
    """What the answer says of each partition; UNKNOWN_SERVER_ERROR of one that it leaves out."""
    if response.error_code:
        code = as_verified(_known(response.error_code))
        return {transaction: dict.fromkeys(partitions, code) for transaction, partitions in asked.items()}
    told = {
        (result.transactional_id, topic.name, one.partition_index): one.partition_error_code
        for result in response.results_by_transaction
        for topic in result.topic_results
        for one in topic.results_by_partition
    }
    unknown = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    return {
        transaction: {
            key: as_verified(_known(told.get((transaction.transactional_id, *key), unknown)))
            for key in partitions
        }
        for transaction, partitions in asked.items()
    }


def _known(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def as_verified(code: ErrorCode) -> ErrorCode:
    """A coordinator's word as producers know it: a fenced one hears of its epoch, and none of the brokers' rights."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE
    return code
