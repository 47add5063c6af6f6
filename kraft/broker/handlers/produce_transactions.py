"""What Produce has to do about transactions: who is asked whether a batch may open one in a log, and what clients are
told if it may not (KIP-890, KIP-1050)."""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from kraft.broker.replicas.appends import TransactionalBatch
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.coordinator.shard import ProducerIdAndEpoch
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import ProduceRequest
from partitions.disk import Buffer
from partitions.log.errors import AppendError
from partitions.records.batch import HEADER_BYTES
from partitions.records.header import (
    ATTRIBUTES_LOW_POSITION,
    TRANSACTIONAL_BIT,
    CorruptBatchError,
    parse_header,
)
from partitions.topic_partition import TopicPartition

FIRST_VERSION_WITH_ABORTABLE: Final = 11
FIRST_VERSION_THAT_ADDS: Final = 12
"""Since then clients of transaction.version 2 leave it to the broker to add partitions."""
TIMEOUT_MAX_S: Final = 30.0
"""For an answer of the coordinator, whatever a client would wait for."""
_PRODUCER: Final = slice(43, 53)
"""Where a batch has its producer's id and epoch."""
_LATER: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
_SAID: Final = {
    ErrorCode.NOT_ENOUGH_REPLICAS: "the transaction coordinator could not tell now: send the batch again",
    ErrorCode.INVALID_TXN_STATE: "the partition is not in the ongoing transaction: abort it, and begin another",
    ErrorCode.TRANSACTION_ABORTABLE: "the partition is not in the ongoing transaction: abort it, and begin another",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer was fenced by a newer one of its transactional id, or timed out",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the producer id is not that of the transactional id: initialize it anew",
}


class ProducedTransaction(NamedTuple):
    """The transaction of one Produce request."""

    services: BrokerServices
    transactional_id: str
    version: int
    adds: bool
    timeout_s: float
    refusal: ErrorCode | None
    """Why none of its batches can be served."""

    @classmethod
    def of(cls, services: BrokerServices, request: Request[ProduceRequest]) -> ProducedTransaction:
        """For a request that names a transactional id."""
        body = request.body
        assert body.transactional_id is not None
        producers = {
            bytes(data.records[_PRODUCER])
            for topic in body.topic_data
            for data in topic.partition_data
            if data.records is not None
            and len(data.records) >= HEADER_BYTES
            and data.records[ATTRIBUTES_LOW_POSITION] & TRANSACTIONAL_BIT
        }
        return cls(
            services,
            body.transactional_id,
            request.version,
            request.version >= FIRST_VERSION_THAT_ADDS and services.groups.transactions_add_partitions,
            min(max(body.timeout_ms, 0) / 1000, TIMEOUT_MAX_S),
            ErrorCode.INVALID_PRODUCER_ID_MAPPING if len(producers) > 1 else None,
        )

    def batch(self, key: TopicPartition, records: Buffer) -> TransactionalBatch:
        """A batch of it for one partition. Raises AppendError."""
        try:
            header = parse_header(records, 0)
        except CorruptBatchError as error:
            raise AppendError(error.code, str(error)) from error
        producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
        verify = partial(self._verify, producer, key) if self.is_verified else None
        return TransactionalBatch(*producer, header.base_sequence, self.adds, verify)

    @property
    def is_verified(self) -> bool:
        """Whether transaction.partition.verification.enable says so; what adds partitions has to ask in any case."""
        return self.adds or bool(self.services.config.get("transaction.partition.verification.enable"))

    async def _verify(self, producer: ProducerIdAndEpoch, key: TopicPartition) -> None:
        code = await self.services.verifier.verify(
            self.transactional_id, producer, key, adds=self.adds, timeout_s=self.timeout_s
        )
        if code:
            raise VerificationFailed(key, produce_error(code, self.version))


class VerificationFailed(AppendError):
    """The coordinator does not confirm that a partition is in the transaction."""

    def __init__(self, key: TopicPartition, code: ErrorCode) -> None:
        reason = _SAID.get(code, "the transaction coordinator refused it")
        super().__init__(code.name, f"{key} was not verified with the transaction: {reason}")


def produce_error(code: ErrorCode, version: int) -> ErrorCode:
    """What a client of this version of Produce is told for a coordinator's answer.

    What passes is NOT_ENOUGH_REPLICAS: all clients send again for that, without asking for metadata. Those from
    before KIP-1050 do not know TRANSACTION_ABORTABLE.
    """
    if code in _LATER:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_VERSION_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code
