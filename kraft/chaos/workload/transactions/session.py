"""One transactional producer as Kafka's clients are one: its identity, its transactions, and what their errors mean.

It speaks transaction version 2 (KIP-890: brokers add what is produced to, and every end of a transaction raises the
epoch), or the older protocol, which adds partitions first. One batch is open for each partition. An error is
retriable, or the transaction has to be aborted (`MustAbortError`), or another producer has taken the id over
(`FencedError`), or it is one that a correct client never gets. `producer` and `processor` use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kraft.chaos.history import Operation, OperationStatus, Value
from kraft.chaos.transaction_history import NOT_ASKED, Source, Transaction, TransactionEnd, Write
from kraft.chaos.workload.base import Workload
from kraft.chaos.workload.batches import encode_values
from kraft.chaos.workload.client import CallFailedError, Client, PartitionName
from kraft.chaos.workload.produce import NEVER, produce_request
from kraft.chaos.world.host import Process
from kraft.protocol.errors import ErrorCode
from kraft.protocol.produce import ProduceResponse
from kraft.protocol.schema import Message
from kraft.protocol.schemas.find_coordinator import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kraft.protocol.schemas.producers import InitProducerIdRequest, InitProducerIdResponse
from kraft.protocol.schemas.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
)

FIND_VERSION, INIT_VERSION, ADD_VERSION, ADD_OFFSETS_VERSION = 4, 4, 3, 3
PRODUCE_VERSIONS = {1: 11, 2: 12}
END_VERSIONS = {1: 4, 2: 5}
PATIENCE_S = (0.5, 2.0, 2.0)
"""How long a session waits for the answer to a batch; an impatient one aborts while its batches are under way."""
DELIVERY_TRIES = (1.5, 3.0)
"""How long it tries to deliver a batch, in times of its patience."""
NO_ID = -1

FENCED = "transactional producer fenced"
MUST_ABORT = "transaction had to be aborted"
RETRIED_END = "end of a transaction asked again"
COUNTERS = FENCED, MUST_ABORT, RETRIED_END

ELSEWHERE = frozenset((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))
TAKEN_OVER = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))
"""By the coordinator: another producer of this id was initialised, or the transaction's time was over."""
ABORTABLE = frozenset(
    (
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
    )
)
"""By a partition's leader: the transaction is over, or the leader cannot tell whether it goes on."""
NO_LONGER_KNOWN = frozenset((ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE))
"""By a coordinator that lost what it had committed."""
OUT_OF_LINE = frozenset((ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID))
"""By a log that lost what it had committed."""

Answer = TypeVar("Answer", bound=Message)


class FencedError(Exception):
    """The session is over: another producer has the transactional id."""


class MustAbortError(Exception):
    """The transaction cannot be committed any more."""


class NoCoordinatorError(Exception):
    """The faults are over, and only an operator could give the transactional id a coordinator again, or a partition of
    its transaction a leader: until then the coordinator has a marker to write, and takes no other transaction."""


@dataclass(slots=True, eq=False)
class Batch:
    """What is to be written to one partition."""

    name: PartitionName
    values: tuple[Value, ...]
    sources: tuple[Source, ...] = ()


class TransactionSession:
    """A producer with a transactional id, for one life of a workload."""

    def __init__(self, workload: Workload, process: Process, client: Client, timeout_ms: int) -> None:
        self.transactional_id = workload.spec.transactional_id
        self.version = workload.spec.transaction_version
        self.timeout_s = timeout_ms / 1000
        self._patience_s = workload.rng.choice(PATIENCE_S)
        self._delivery_s = self._patience_s * workload.rng.choice(DELIVERY_TRIES)
        self.producer_id, self.epoch = NO_ID, NO_ID
        self._workload = workload
        self._process = process
        self._client = client
        self._watch = workload.around.transactions
        self._coordinator: int | None = None
        self._sequences: dict[PartitionName, int] = {}
        self._added: set[PartitionName] = set()
        self._is_in_doubt = False
        """Whether a batch's outcome is unknown, so that its sequence cannot be told."""
        self._open: Transaction | None = None
        self._sends: dict[PartitionName, Operation] = {}

    # -- life

    async def init(self) -> None:
        """Takes the id over: whoever had it is fenced, and its open transaction aborted. Raises FencedError if
        somebody else has, NoCoordinatorError."""
        request = InitProducerIdRequest(self.transactional_id, int(self.timeout_s * 1000))
        if self.producer_id != NO_ID:  # KIP-360
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        while True:
            answer = await self._ask(request, INIT_VERSION, InitProducerIdResponse)
            if answer is None:
                continue
            code = await self._code_of("InitProducerId", answer.error_code, TAKEN_OVER)
            if code is ErrorCode.NONE:
                self._take(answer.producer_id, answer.producer_epoch)
                return
            if code in TAKEN_OVER:
                raise self._fenced("InitProducerId", code)

    def begin(self, *, group: str = "") -> Transaction:
        """Begins a transaction, which costs no request."""
        around, name = self._workload.around, self._workload.process_name
        transaction = self._watch.history.begin(self.transactional_id, name, around.now_s, group=group)
        self._open = transaction
        return transaction

    def abandon(self, why: str) -> None:
        """Its process is gone: what is open ends as unknown."""
        for operation in self._sends.values():
            self._workload.complete(operation, OperationStatus.INFO, error=why)
        self._sends.clear()
        if self._open is not None:
            self._end_open(TransactionEnd.OPEN)

    @property
    def has_open_operations(self) -> bool:
        return self._open is not None

    # -- within a transaction

    async def send(self, batches: Sequence[Batch]) -> None:
        """Writes the batches, of as many partitions, and returns when all are acknowledged. Raises MustAbortError,
        FencedError, NoCoordinatorError."""
        if self.version == 1:
            await self._add([batch.name for batch in batches])
        outcomes = await asyncio.gather(*map(self._send, batches), return_exceptions=True)
        failures = [one for one in outcomes if isinstance(one, BaseException)]
        for kind in (NoCoordinatorError, FencedError, MustAbortError):
            for one in failures:
                if isinstance(one, kind):
                    raise one
        for one in failures:
            raise one

    async def add_offsets(self, group: str) -> None:
        """Adds the group's offsets; version 2 needs no request. Raises as `send` does."""
        if self.version > 1:
            return
        request = AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, self.epoch, group)
        while True:
            answer = await self._ask(request, ADD_OFFSETS_VERSION, AddOffsetsToTxnResponse)
            if answer is not None and await self._is_added("AddOffsetsToTxn", answer.error_code):
                self._added.add((group, NO_ID))
                return

    async def commit(self) -> None:
        """Returns when the coordinator has said that the transaction is committed. Raises FencedError."""
        assert self._open is not None, "a transaction was begun"
        self._open.commit_asked_s = self._workload.around.now_s
        await self._end(committed=True)

    async def abort(self) -> None:
        """As `commit`; the outcome is certain if no commit was asked."""
        if self.version > 1 or self._added:
            await self._end(committed=False)
        else:
            self._end_open(TransactionEnd.ABORTED)
        if self._is_in_doubt and self.version == 1:
            await self.init()
        self._is_in_doubt = False

    # -- sending

    async def _add(self, names: Collection[PartitionName]) -> None:
        fresh = [name for name in names if name not in self._added]
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, number in fresh:
            topics.setdefault(topic, AddPartitionsToTxnTopic(topic, [])).partitions.append(number)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=list(topics.values()),
        )
        while fresh:
            answer = await self._ask(request, ADD_VERSION, AddPartitionsToTxnResponse)
            if answer is None:
                continue
            codes = [
                one.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ]
            decisive = next((code for code in codes if code), 0)
            if await self._is_added("AddPartitionsToTxn", decisive):
                self._added.update(fresh)
                return

    async def _is_added(self, what: str, error_code: int) -> bool:
        expected = TAKEN_OVER | {ErrorCode.TRANSACTION_ABORTABLE}
        code = await self._code_of(what, error_code, expected)
        if code in TAKEN_OVER:
            raise self._fenced(what, code)
        if code is ErrorCode.TRANSACTION_ABORTABLE:
            raise self._must_abort(what, code.name)
        return code is ErrorCode.NONE

    async def _send(self, batch: Batch) -> None:
        """Sends one batch until it is acknowledged."""
        workload, name = self._workload, batch.name
        topic, number = name
        key = self._client.topic_ids[topic], number
        operation = self._sends[name] = workload.invoke_send(key, topic, batch.values, idempotent=True)
        assert self._open is not None, "a transaction was begun"
        write = Write(key, batch.values, batch.sources)
        self._open.writes.append(write)
        sequence = self._sequences.get(name, 0)
        records = encode_values(
            batch.values,
            self._process.now_ms(),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        deadline_s = self._client.loop.time() + self._delivery_s
        while self._client.loop.time() < deadline_s:
            code, offset = await self._produce(name, records)
            if code is ErrorCode.NONE:
                self._sequences[name] = sequence + len(batch.values)
                self._added.add(name)
                write.base_offset = offset
                del self._sends[name]
                workload.complete(operation, OperationStatus.OK, base_offset=offset)
                return
            if code.retriable and code not in NEVER:
                await self._client.back_off()
                continue
            self._give_up(name, code.name)
            if code is ErrorCode.PRODUCER_FENCED:
                raise self._fenced("Produce", code)
            self._judge_refusal(name, key, code)
            raise self._must_abort("Produce", code.name)
        self._give_up(name, "delivery timeout")
        raise self._must_abort("Produce", "delivery timeout")

    def _judge_refusal(self, name: PartitionName, key: tuple[bytes, int], code: ErrorCode) -> None:
        if code in ABORTABLE:
            return
        if code in OUT_OF_LINE and self._watch.is_cut(key):
            return
        if code in NO_LONGER_KNOWN and self._watch.is_forgotten(self.transactional_id):
            return
        leader = self._client.leader(name)
        broker = self._client.any_broker() if leader is None else leader.broker
        self._client.surprise(broker, f"a batch of {self} for {name} was refused with {code.name}")

    def _give_up(self, name: PartitionName, why: str) -> None:
        self._is_in_doubt = True
        self._workload.complete(self._sends.pop(name), OperationStatus.INFO, error=why)

    async def _produce(self, name: PartitionName, records: bytes) -> tuple[ErrorCode, int]:
        """One attempt."""
        leader = self._client.leader(name)
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_ID
        request = produce_request({name: records}, -1, self.transactional_id)
        version = PRODUCE_VERSIONS[self.version]
        try:
            answer = await self._client.call(
                leader.broker, request, version, ProduceResponse, self._patience_s
            )
        except CallFailedError:
            self._client.forget_leader(name, leader.broker)
            return ErrorCode.NETWORK_EXCEPTION, NO_ID
        found = answer.responses[0].partition_responses[0]
        code = ErrorCode.of(found.error_code)
        if code.retriable:
            self._client.forget_leader(name, leader.broker)
        elif code in NEVER:
            self._client.surprise(leader.broker, f"a batch of {self} for {name} was refused with {code.name}")
        return code, found.base_offset

    # -- the end of a transaction

    async def _end(self, *, committed: bool) -> None:
        """Asks until the coordinator says that it ended so, or that it is not this producer's to end any more. The
        first refusal is certain; after an attempt without a clear answer one is not."""
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, committed)
        is_doubtful = False
        while True:
            answer = await self._ask(request, END_VERSIONS[self.version], EndTxnResponse)
            code = ErrorCode.NETWORK_EXCEPTION
            if answer is not None:
                code = await self._code_of("EndTxn", answer.error_code, TAKEN_OVER | NO_LONGER_KNOWN)
            if code is ErrorCode.NONE and answer is not None:
                self._end_open(TransactionEnd.COMMITTED if committed else TransactionEnd.ABORTED)
                if self.version > 1:
                    self._take(answer.producer_id, answer.producer_epoch)
                self._added.clear()
                return
            if not code.retriable:
                is_certain = not committed or not is_doubtful
                self._end_open(TransactionEnd.ABORTED if is_certain else TransactionEnd.UNKNOWN)
                # An abort because the time was over raises the epoch as a retry expects it: it is taken for one.
                is_too_late = code is ErrorCode.INVALID_TXN_STATE and committed and self.version > 1
                is_explained = is_too_late or self._watch.is_forgotten(self.transactional_id)
                if code not in TAKEN_OVER and not is_explained:
                    self._surprise(f"EndTxn of {self} was answered with {code.name}")
                raise self._fenced("EndTxn", code)
            is_doubtful = is_doubtful or code is not ErrorCode.CONCURRENT_TRANSACTIONS
            self._workload.around.verdicts.coverage[RETRIED_END] += 1

    def _end_open(self, end: TransactionEnd) -> None:
        assert self._open is not None, "it was begun"
        if end is TransactionEnd.OPEN and self._open.commit_asked_s != NOT_ASKED:
            end = TransactionEnd.UNKNOWN
        self._open.end, self._open = end, None

    def _take(self, producer_id: int, epoch: int) -> None:
        """Its identity from now on, with which sequences begin anew."""
        self.producer_id, self.epoch = producer_id, epoch
        self._sequences.clear()
        self._added.clear()
        self._is_in_doubt = False

    # -- errors

    def _fenced(self, what: str, code: ErrorCode) -> FencedError:
        if self._open is not None:
            self._end_open(TransactionEnd.OPEN)
        self.producer_id = self.epoch = NO_ID
        self._workload.around.verdicts.happened(FENCED, f"{self}: {what} {code.name}")
        return FencedError(code.name)

    def _must_abort(self, what: str, why: str) -> MustAbortError:
        self._workload.around.verdicts.happened(MUST_ABORT, f"{self}: {what} {why}")
        return MustAbortError(why)

    async def _code_of(self, what: str, error_code: int, expected: Collection[ErrorCode]) -> ErrorCode:
        """Judges a coordinator's error, which must be a transient one or be expected; waits where it is transient."""
        code = ErrorCode.of(error_code)
        if code in ELSEWHERE:
            self._coordinator = None
        if code is ErrorCode.CONCURRENT_TRANSACTIONS and self._is_healed and self._waits_for_an_operator:
            raise NoCoordinatorError
        if code is not ErrorCode.NONE and code.retriable:
            await self._client.back_off()
        elif code is not ErrorCode.NONE and code not in expected:
            if code not in NO_LONGER_KNOWN or not self._watch.is_forgotten(self.transactional_id):
                self._surprise(f"{what} of {self} was answered with {code.name}")
            raise self._fenced(what, code)
        return code

    @property
    def _is_healed(self) -> bool:
        return self._workload.is_calm or self._workload.stopping

    @property
    def _waits_for_an_operator(self) -> bool:
        """Whether what it reads or writes has a partition that nobody can lead: a marker may be due there."""
        return any(map(self._workload.is_beyond_repair, self._workload.partitions()))

    def _surprise(self, text: str) -> None:
        broker = self._client.any_broker() if self._coordinator is None else self._coordinator
        self._client.surprise(broker, text)

    def __str__(self) -> str:
        return f"{self._workload.process_name} ({self.transactional_id}, {self.producer_id}/{self.epoch})"

    # -- the coordinator

    async def _ask(self, request: Message, version: int, answers: type[Answer]) -> Answer | None:
        """The coordinator's answer; None where there is none. Raises NoCoordinatorError."""
        broker = await self._find_coordinator()
        try:
            return await self._client.call(broker, request, version, answers)
        except CallFailedError:
            self._coordinator = None
            await self._client.back_off()
            return None

    async def _find_coordinator(self) -> int:
        request = FindCoordinatorRequest(
            key_type=CoordinatorType.TRANSACTION, coordinator_keys=[self.transactional_id]
        )
        while self._coordinator is None:
            broker, answer = await self._client.call_any(request, FIND_VERSION, FindCoordinatorResponse)
            found = answer.coordinators[0]
            code = ErrorCode.of(found.error_code)
            if code is ErrorCode.NONE:
                self._coordinator = found.node_id
                break
            if not code.retriable:
                self._client.surprise(broker, f"FindCoordinator was answered with {code.name}")
            if self._is_healed and self._watch.is_beyond_repair(self.transactional_id):
                raise NoCoordinatorError
            await self._client.back_off()
        return self._coordinator
