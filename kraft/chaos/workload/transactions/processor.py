"""The processor that does its work exactly once: it reads, transforms and writes, and commits where it has read to.

A member of a classic group that reads committed records, writes one output for each to another topic, and commits
its offsets within the same transaction, under its generation and member id (KIP-447). What was aborted it reads
again. It freezes and crashes as members do, and is a zombie then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

from kraft.chaos.group_history import GroupAction, GroupOperation
from kraft.chaos.history import OperationStatus
from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.transaction_history import Transaction, TransactionEnd
from kraft.chaos.workload.base import Surroundings
from kraft.chaos.workload.client import Client, PartitionName
from kraft.chaos.workload.groups.classic_member import ClassicMember
from kraft.chaos.workload.groups.member import OUTDATED
from kraft.chaos.workload.reader import Position, Reader
from kraft.chaos.workload.transactions.producer import ABORTED, COMMITTED
from kraft.chaos.workload.transactions.session import (
    ABORTABLE,
    COUNTERS,
    NO_LONGER_KNOWN,
    TAKEN_OVER,
    Batch,
    FencedError,
    MustAbortError,
    NoCoordinatorError,
    TransactionSession,
)
from kraft.chaos.world.host import Process
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.group_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

TIMEOUT_MS = 3_000
TXN_OFFSET_COMMIT_VERSIONS = {1: 3, 2: 5}
ATTEMPTS_MAX = 20
BATCH_MAX_BYTES, RECORD_OVERHEAD_BYTES = 8_192, 32
"""The smallest segments of the output's partitions have 16 KiB."""
SLOW_ODDS, SLOW_S = 0.06, (0.2, 1.5)
"""That something takes long, once before the offsets of a transaction and once behind them."""
DECLINES_ODDS = 0.06
"""Of transactions: that they are aborted although all of them is written."""

OUTDATED_PROCESSOR = "commit of a fenced processor refused"
PROCESSED = "record processed exactly once"
EVENTS = COMMITTED, ABORTED, OUTDATED_PROCESSOR, PROCESSED, *COUNTERS


class Processor(ClassicMember):
    """One processor, with a transactional id of its own, life after life."""

    requires_stable = True

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        around.verdicts.declare(EVENTS)
        self.topics = [spec.topic, spec.output]
        self._session: TransactionSession | None = None
        self._outputs = 0
        self._commit_operations: list[GroupOperation] = []

    # -- life

    def new_reader(self, client: Client) -> Reader:
        return Reader(self, client, committed=True)

    async def run(self, process: Process, client: Client) -> None:
        self._session = TransactionSession(self, process, client, TIMEOUT_MS)
        try:
            while not await self._takes_over():
                pass
            await super().run(process, client)
        except NoCoordinatorError:
            self._session.abandon("no coordinator")
            self.forget()
            self.around.board.gone(self.spec.group, self.name)

    async def _takes_over(self) -> bool:
        """Has its id to itself. False: its own earlier request came in between."""
        assert self._session is not None, "a life has one"
        try:
            await self._session.init()
        except FencedError:
            return False
        return True

    def abandon(self, why: str) -> None:
        super().abandon(why)
        self._commit_operations.clear()
        if self._session is not None:
            self._session.abandon(why)

    # -- as a member

    @property
    def subscribed(self) -> list[str]:
        return [self.spec.topic]

    async def own(self, names: Collection[PartitionName]) -> None:
        """It needs the offsets of all: those of open transactions it is told once these have ended."""
        await super().own(names)
        readable = self.client.partitions_of(self.spec.topic)
        missing = [name for name in names if name in readable]
        while not self.is_over and any(name not in self.positions for name in missing):
            if not await self.beat():
                self.positions.clear()
                return
            await self.client.back_off()
            await super().own(names)
        for position in self.positions.values():
            position.kept = [] if position.kept is None else position.kept

    async def commit(self, positions: object) -> None:
        """It commits in transactions alone."""

    async def _step(self) -> None:
        by_leader: dict[int, list[Position]] = {}
        for position in list(self.positions.values()):
            broker = self.reader.target(position)
            if broker is not None:
                by_leader.setdefault(broker, []).append(position)
        for broker, together in by_leader.items():
            await self.reader.fetch(broker, together, 0)
        read = [position for position in self.positions.values() if position.kept]
        if not read:
            return
        try:
            await self._process(read)
        except FencedError:
            while not await self._takes_over():
                pass
            await self._read_anew()

    async def _read_anew(self) -> None:
        """From what is committed: it does not know whether its last commit is."""
        names = list(self.positions)
        self.positions.clear()
        await self.own(names)

    # -- transactions

    async def _process(self, read: list[Position]) -> None:
        """Raises FencedError."""
        assert self._session is not None, "a life has one"
        session = self._session
        transaction = session.begin(group=self.spec.group)
        is_refused = False
        try:
            for batches in _rounds(self._batches(read)):
                await session.send(batches)
            await session.add_offsets(self.spec.group)
            await self._dawdle()
            is_refused = not await self._commit_offsets(session, transaction, read)
            await self._dawdle()
            is_refused = is_refused or (not self.is_calm and self.rng.random() < DECLINES_ODDS)
            if not is_refused:
                await session.commit()
        except MustAbortError:
            is_refused = True
        except FencedError:
            self._answer_commits(transaction)
            raise
        if is_refused:
            await self._abort(session, transaction)
            await self._read_anew()
            return
        self._answer_commits(transaction)
        records = sum(len(position.kept or ()) for position in read)
        self.around.verdicts.happened(COMMITTED, self.process_name)
        self.around.verdicts.happened(PROCESSED, self.process_name, records)
        for position in read:
            position.kept = []

    async def _dawdle(self) -> None:
        if not self.is_calm and self.rng.random() < SLOW_ODDS:
            await asyncio.sleep(self.rng.uniform(*SLOW_S))

    async def _abort(self, session: TransactionSession, transaction: Transaction) -> None:
        try:
            await session.abort()
        finally:
            self._answer_commits(transaction)
        self.around.verdicts.happened(ABORTED, self.process_name)

    def _batches(self, read: list[Position]) -> list[Batch]:
        """An output for each record, in the partition of that number."""
        topic = self.around.topics[self.spec.output]
        batches: dict[PartitionName, Batch] = {}
        for position in read:
            source = position.topic_id, position.name[1]
            name = topic.name, position.name[1] % topic.partitions
            before = batches.get(name, Batch(name, ()))
            values, sources = list(before.values), list(before.sources)
            for offset, value in position.kept or ():
                self._outputs += 1
                made_of = f"<{position.name[1]}@{offset}=".encode() + value.rstrip(b".")
                values.append(f"{name[0]}-{name[1]}/{self.process_name}:{self._outputs}".encode() + made_of)
                sources.append((source, offset))
            batches[name] = Batch(name, tuple(values), tuple(sources))
        return [batches[name] for name in sorted(batches)]

    async def _commit_offsets(
        self, session: TransactionSession, transaction: Transaction, read: list[Position]
    ) -> bool:
        """Whether the group took them. Raises MustAbortError, FencedError."""
        request = TxnOffsetCommitRequest(
            session.transactional_id,
            self.spec.group,
            session.producer_id,
            session.epoch,
            self.generation,
            self.member_id,
        )
        watch, sender = self.around.groups, self.sender
        for position in read:
            topic, number = position.name
            self._commits += 1
            tag = f"{self.process_name}/{self._commits}"
            key = position.topic_id, number
            transaction.tags.append(tag)
            transaction.consumed[key] = position.offset
            broker = await self.find_coordinator()
            epoch = self.epoch_of(broker)
            self._commit_operations.append(
                watch.history.ask(GroupAction.COMMIT, sender, epoch, key=key, offset=position.offset, tag=tag)
            )
            part = TxnOffsetCommitRequestPartition(number, position.offset, committed_metadata=tag)
            request.topics.append(TxnOffsetCommitRequestTopic(topic, [part]))
        expected = OUTDATED | ABORTABLE | TAKEN_OVER
        if self.around.transactions.is_forgotten(session.transactional_id):
            expected |= NO_LONGER_KNOWN
        for _ in range(ATTEMPTS_MAX):
            broker = await self.find_coordinator()
            version = TXN_OFFSET_COMMIT_VERSIONS[session.version]
            answer = await self.ask(broker, request, version, TxnOffsetCommitResponse)
            if answer is None:
                await self.client.back_off()
                continue
            codes = [
                self.code_of(broker, "TxnOffsetCommit", one.error_code, expected)
                for topic in answer.topics
                for one in topic.partitions
            ]
            code = next((one for one in codes if one is not ErrorCode.NONE), ErrorCode.NONE)
            if code is ErrorCode.NONE:
                return True
            if code in OUTDATED:
                self.around.verdicts.happened(OUTDATED_PROCESSOR, f"{self.process_name}: {code.name}")
            if code in OUTDATED or not code.retriable:
                return False
            await self.client.back_off()
        return False

    def _answer_commits(self, transaction: Transaction) -> None:
        """What became of its commits of offsets: they count as accepted once the transaction is committed."""
        is_committed = transaction.end is TransactionEnd.COMMITTED
        status = OperationStatus.OK if is_committed else OperationStatus.INFO
        for operation in self._commit_operations:
            epoch = self.epoch_of(self._coordinator) if self._coordinator is not None else operation.epoch
            self.around.groups.history.answer(operation, status, epoch)
        self._commit_operations.clear()


def _rounds(batches: Sequence[Batch]) -> Iterator[list[Batch]]:
    """The batches in pieces that every log takes, one of each at a time: after a long wait much is read at once."""
    pieces = [list(_pieces(batch)) for batch in batches]
    for together in zip_longest(*pieces):
        yield [piece for piece in together if piece is not None]


def _pieces(batch: Batch) -> Iterator[Batch]:
    start = size_bytes = 0
    for number, value in enumerate(batch.values):
        if number > start and size_bytes + len(value) + RECORD_OVERHEAD_BYTES > BATCH_MAX_BYTES:
            yield Batch(batch.name, batch.values[start:number], batch.sources[start:number])
            start, size_bytes = number, 0
        size_bytes += len(value) + RECORD_OVERHEAD_BYTES
    if start < len(batch.values):
        yield Batch(batch.name, batch.values[start:], batch.sources[start:])
