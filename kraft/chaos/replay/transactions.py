"""Transactions on the stage of a replayed history: a coordinator, producers of one transactional id each, and what of
theirs comes late.

The coordinator's decisions are those of the product's own shard, each committed at once; the partition's leader judges
batches and markers. Requests, batches and markers travel when the script says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

from kraft.broker.coordinators.transaction_verification import as_verified
from kraft.chaos.history import Operation, OperationKind, OperationStatus
from kraft.chaos.replay.broker import PARTITION, ReplayError
from kraft.chaos.replay.stage import Stage
from kraft.chaos.transaction_history import Transaction, TransactionEnd, Write
from kraft.coordinator.shard import Decisions, Moment, ProducerIdAndEpoch
from kraft.coordinator.timers import Timers
from kraft.coordinator.transactions.context import (
    TransactionContext,
    TransactionCounters,
    TransactionSettings,
)
from kraft.coordinator.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    SendMarkers,
)
from kraft.coordinator.transactions.shard import TransactionShard
from kraft.protocol.errors import ErrorCode
from partitions.errors import PartitionError
from partitions.log.errors import LogError
from partitions.log.producers.verifications import VERIFICATION_OFF
from partitions.records.builder import build_batch
from partitions.records.control import ControlType
from partitions.records.markers import EndTransactionMarker, build_marker

TIMEOUT_MS = 60_000
COORDINATOR_EPOCH = 0


@dataclass(frozen=True, eq=False)
class LateBatch:
    """A batch on its way to the leader."""

    producer: ReplayProducer
    identity: ProducerIdAndEpoch
    transaction: Transaction
    operation: Operation
    value: str
    sequence: int


class ReplayCoordinator:
    """The coordinator of all transactional ids."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._ids = count(1000)
        self._shard = TransactionShard(
            TransactionContext(
                TransactionSettings(),
                Timers(),
                TransactionCounters(),
                count(1),
                lambda: stage.rule.transaction_version,
            )
        )
        self.outbox: list[SendMarkers] = []
        """Markers that are not on their way yet."""

    def ask(self, request: Any) -> Any:
        """A request arrives; its answer."""
        decisions = Decisions()
        self._shard.handle(0, request, self._now, decisions)
        self.outbox += [effect.what for effect in decisions.effects]
        if not decisions.replies:
            raise ReplayError(f"{request} waits")
        return decisions.replies[0].response

    def written(self, sent: SendMarkers) -> None:
        """Hears that a marker is written."""
        decisions = Decisions()
        self._shard.on_markers_written(sent, sent.partitions, self._now, decisions)

    def new_producer_id(self) -> int:
        return next(self._ids)

    @property
    def _now(self) -> Moment:
        return Moment(self._stage.controller.now_ms, self._stage.controller.now_ms)


class ReplayProducer:
    """A client with a transactional id, which speaks the protocol of the rule's transaction version."""

    def __init__(self, stage: Stage, coordinator: ReplayCoordinator, transactional_id: str) -> None:
        self._stage = stage
        self._coordinator = coordinator
        self.transactional_id = transactional_id
        request = InitProducer(transactional_id, TIMEOUT_MS, None, coordinator.new_producer_id())
        answer = coordinator.ask(request)
        self.identity = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        self._sequence = 0
        self._open: Transaction | None = None

    @property
    def _version(self) -> int:
        return self._stage.rule.transaction_version

    @property
    def _now_s(self) -> float:
        return self._stage.controller.now_ms / 1000

    # -- batches

    def send(self, value: str) -> LateBatch:
        """Sends a record of its transaction, which begins where none is open; the script lets it arrive."""
        stage = self._stage
        if self._open is None:
            self._open = stage.transactions.begin(self.transactional_id, self.transactional_id, self._now_s)
            if self._version == 1:
                self._coordinator.ask(self._adding(self.identity))
        key = stage.controller.topic_id, PARTITION.partition
        operation = stage.history.invoke(
            self.transactional_id,
            OperationKind.SEND,
            self._now_s,
            key=key,
            topic=PARTITION.topic,
            idempotent=True,
            values=[value.encode()],
        )
        batch = LateBatch(self, self.identity, self._open, operation, value, self._sequence)
        self._open.writes.append(Write(key, (value.encode(),)))
        self._sequence += 1
        return batch

    def arrives(self, batch: LateBatch) -> None:
        """The batch arrives at the leader, which verifies and appends it, or refuses it."""
        stage = self._stage
        replica = stage.leader()
        producer_id, epoch = batch.identity
        records = build_batch(
            [(stage.controller.now_ms, None, batch.value.encode(), ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=batch.sequence,
            is_transactional=True,
        )
        guard = VERIFICATION_OFF
        if stage.rule.verifies:
            begun = replica.begin_verification(
                producer_id, epoch, batch.sequence, supports_epoch_bump=self._version > 1
            )
            code = ErrorCode.NONE
            if begun is not None:
                guard = begun
                code = self._coordinator.ask(self._adding(batch.identity, verify=True))
                code = as_verified(code if isinstance(code, ErrorCode) else code[PARTITION])
            if code:
                stage.says(f"{batch.value} refused: {code.name}")
                return
        try:
            info = replica.append_records(records, acks=-1, now_ms=stage.controller.now_ms, guard=guard)
        except (PartitionError, LogError) as error:
            stage.says(f"{batch.value} refused: {error.code}")
            return
        if batch.transaction is not self._open:
            stage.says(f"{batch.value} appended at {info.last_offset}, for nobody")
            return
        batch.transaction.writes[-1].base_offset = info.last_offset
        stage.history.complete(batch.operation, OperationStatus.OK, self._now_s, base_offset=info.last_offset)
        stage.says(f"{batch.value} acknowledged at {info.last_offset}")

    def writes(self, value: str) -> None:
        """A record that arrives at once, and is replicated."""
        self.arrives(self.send(value))
        self._stage.replicate(2)

    def gives_up(self, batch: LateBatch) -> None:
        """It has waited long enough for an answer."""
        self._stage.history.complete(
            batch.operation, OperationStatus.INFO, self._now_s, error="delivery timeout"
        )

    def _adding(self, identity: ProducerIdAndEpoch, *, verify: bool = False) -> AddPartitions:
        only = verify and self._version == 1
        return AddPartitions(self.transactional_id, identity, frozenset({PARTITION}), only, self._version)

    # -- ends

    def ends(self, *, committed: bool) -> tuple[EndTransaction, list[SendMarkers]]:
        """Asks for the end of its transaction, and is told. Returns the request, which may arrive once more, and the
        markers that are to be written."""
        if self._open is None:
            raise ReplayError("there is no transaction to end")
        request = EndTransaction(self.transactional_id, self.identity, committed, self._version, None)
        if committed:
            self._open.commit_asked_s = self._now_s
        answer = self._coordinator.ask(request)
        code = ErrorCode.of(answer.error_code)
        what = "commit" if committed else "abort"
        if code:
            self._stage.says(f"the {what} is refused: {code.name}")
            self._open.end = TransactionEnd.ABORTED
        else:
            self._open.end = TransactionEnd.COMMITTED if committed else TransactionEnd.ABORTED
            self._stage.says(f"the {what} is confirmed")
            if self._version > 1:
                self.identity = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
                self._sequence = 0
        self._open = None
        sent, self._coordinator.outbox = self._coordinator.outbox, []
        return request, sent

    def ends_whole(self, *, committed: bool) -> tuple[EndTransaction, list[SendMarkers]]:
        """As `ends`, and the markers are written and replicated."""
        request, sent = self.ends(committed=committed)
        for marker in sent:
            self.marker_arrives(marker)
        return request, sent

    def end_arrives(self, request: EndTransaction) -> None:
        """A request of before arrives once more; whoever sent it does not wait for the answer any more."""
        answer = self._coordinator.ask(request)
        code = ErrorCode.of(answer.error_code)
        what = "commit" if request.is_commit else "abort"
        self._stage.says(f"the late {what} is answered with {code.name}")
        sent, self._coordinator.outbox = self._coordinator.outbox, []
        for marker in sent:
            self.marker_arrives(marker)

    def marker_arrives(self, sent: SendMarkers) -> None:
        """A marker arrives at the leader, perhaps once more."""
        stage, marker = self._stage, sent.marker
        replica = stage.leader()
        kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
        producer_id, epoch = marker.producer
        what = "commit" if marker.is_commit else "abort"
        try:
            end = EndTransactionMarker(kind, COORDINATOR_EPOCH)
            if replica.judge_marker(producer_id, epoch, end, marker.transaction_version):
                batch = build_marker(
                    producer_id,
                    epoch,
                    kind,
                    coordinator_epoch=COORDINATOR_EPOCH,
                    timestamp=stage.controller.now_ms,
                )
                replica.append_records(batch, acks=-1, now_ms=stage.controller.now_ms, origin="coordinator")
                stage.says(f"the marker of the {what} is written")
            else:
                stage.says(f"the marker of the {what} was written before")
        except (PartitionError, LogError) as error:
            stage.says(f"the marker of the {what} is refused: {error.code}")
        stage.replicate(2)
        self._coordinator.written(sent)
