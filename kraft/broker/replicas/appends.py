"""Appends to partitions that this broker leads, for anybody, and when they are committed.

The Produce handler calls it, and so does what keeps its own records in a partition. `append` is done in the same
call, but for records that have to pass a gate first: a topic may ask for checks that take long, which the executor
runs. Guarantees: what a caller hands in for a partition is appended in that order, also where one append passes a
gate and the next needs none; records that were checked are appended by the rules of that moment, to the log that
they were checked for; one batch is open at a time, since a batch may unfold to many times its size. A batch that would
open a transaction is verified first (KIP-890), at a gate that only batches of its producer wait at.

`AckCondition` is the one condition of an acknowledgement: `when_committed` waits until it is decided for acks=all,
`when_flushed` for acks=1. Owned by the
replica manager, on its event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from kraft.broker.metrics import BrokerMetrics
from kraft.broker.purgatory.offset_waits import OffsetPurgatory, Outcomes
from kraft.broker.replicas.append_refusals import AppendRefusals
from kraft.broker.replicas.undecided_partitions import UndecidedPartitions
from kraft.broker.vital_task import start_vital_task
from kraft.coordinator.shard import TransactionMarker
from partitions.disk import Buffer
from partitions.errors import FencedLeaderEpoch, NotLeaderOrFollower, PartitionError
from partitions.log.errors import AppendError, LogError
from partitions.log.producers.verifications import VERIFICATION_OFF, VerificationGuard
from partitions.log.validation import CheckedBatches
from partitions.partition import ACKS_ALL, AckStatus, Partition
from partitions.ports import Executor, Halt
from partitions.records.control import ControlType
from partitions.records.markers import EndTransactionMarker, build_marker
from partitions.replica_log import AppendInfo, AppendOrigin, ReplicaLog, ReplicationConfig
from partitions.topic_partition import TopicPartition

WAITING_MAX: Final = 10_000
"""Appends that may wait at gates at once; more are refused."""
WAITING_MAX_BYTES: Final = 256 * 1024 * 1024
"""Bytes of records that may wait at once: two requests of the size that socket.request.max.bytes allows by
default, which stay in memory until their records are appended. One that finds nothing waiting is always taken."""

Checked = Buffer | CheckedBatches
Check = Callable[[], CheckedBatches]
Passed = TypeVar("Passed")


ASKED_AT_MOST: Final = 3
"""How often a coordinator is asked about one batch. A marker that comes meanwhile is mostly that of the transaction
before, whose end the producer did not wait for; only what the coordinator says after it is about this one."""


class TooManyWaiting(AppendError):
    """The gates do not keep up; a client tries again."""

    def __init__(self, count: int, size_bytes: int) -> None:
        super().__init__(
            "REQUEST_TIMED_OUT", f"{count} batches of {size_bytes} bytes wait to be checked or verified"
        )


class CheckedForAnotherLog(PartitionError):
    """The topic was made anew, or its log opened anew, while the records were checked: a client sends them again."""

    code = "NOT_LEADER_OR_FOLLOWER"

    def __init__(self, key: TopicPartition) -> None:
        super().__init__(f"the records were checked for another log than that of {key} now")


class TransactionalBatch(NamedTuple):
    """What is to be known of a batch in a transaction before it is appended."""

    producer_id: int
    epoch: int
    sequence: int
    supports_epoch_bump: bool
    """Whether the producer speaks transaction.version 2."""
    verify: Callable[[], Awaitable[None]] | None
    """Asks the coordinator whether the partition is in the producer's transaction. Raises AppendError if it is not;
    None where verification is switched off."""


class LedReplicas(Protocol):
    """Where appends go; the replica manager fits."""

    def newest_partition(self, key: TopicPartition) -> Partition:
        """The replica, in line with the newest metadata if it leads. Raises PartitionError."""

    def monotonic_ms(self) -> int:
        """The time that replicas reckon lag in."""


class AckCondition(NamedTuple):
    """What has to hold before a caller tells anybody what a leader's log says: it is committed up to an offset."""

    partition: Partition
    """As it was then: a topic of the same name that was made since is another."""
    offset: int
    """Behind the last record."""
    leader_epoch: int
    """If this broker stopped leading since, somebody else's records may be at its offsets."""

    @property
    def status(self) -> AckStatus:
        """As of now."""
        return self.partition.ack_status(self.offset, self.leader_epoch)

    @property
    def flush_status(self) -> AckStatus:
        """As of now, for who asks for no more than this leader."""
        return self.partition.flush_status(self.offset, self.leader_epoch)

    def and_then(self, later: AckCondition) -> AckCondition:
        """This one and that of a later append to the partition. It does not hold if the leadership was lost between."""
        # A duplicate's offset may be below that of what was appended before it.
        return self._replace(offset=max(self.offset, later.offset))


class Appended(NamedTuple):
    """What an append did, and what has to hold before it is acknowledged."""

    info: AppendInfo
    condition: AckCondition


class Appends:
    """All appends of one broker as leader."""

    def __init__(
        self,
        replicas: LedReplicas,
        committed: OffsetPurgatory,
        flushed: OffsetPurgatory,
        refusals: AppendRefusals,
        metrics: BrokerMetrics,
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
        halt: Halt,
    ) -> None:
        """`committed` is told of the high watermarks of `replicas`, `flushed` of what they count themselves as leaders;
        both of leaderships that end."""
        self._replicas = replicas
        self._committed = committed
        self._flushed = flushed
        self._refusals = refusals
        self._metrics = metrics
        self._executor = executor
        self._one_open = asyncio.Semaphore(1)
        self.undecided = UndecidedPartitions()
        self.gates = Gates(loop, halt)
        self.verifications = Gates(loop, halt)
        """Apart, so that a coordinator that does not answer takes nobody else's room."""

    async def close(self) -> None:
        """What was not appended by now is not."""
        await self.verifications.close()
        await self.gates.close()

    def append(
        self,
        key: TopicPartition,
        records: Buffer,
        *,
        acks: int,
        origin: AppendOrigin = "client",
        leader_epoch: int | None = None,
        guard: VerificationGuard | None = None,
    ) -> Appended | asyncio.Future[Appended]:
        """Appends now, or as soon as what is in the way has gone: only then it is a future.

        With `leader_epoch` it is refused in any other; under `guard` it may open a transaction. Raises
        PartitionError and LogError, and so does the future; nothing was appended then.
        """
        partition = self._replicas.newest_partition(key)
        try:
            check = _check_needed(partition.log, records, origin)
        except LogError:  # refused in the same words, if nothing else speaks against it
            return self._append(partition, records, len(records), acks, origin, leader_epoch, guard)
        if check is None and not self.gates.is_busy(key):
            return self._append(partition, records, len(records), acks, origin, leader_epoch, guard)
        partition.check_append(acks, leader_epoch)  # nothing is opened in vain
        log = partition.log
        return self.gates.pass_then(
            key,
            partial(self._check, log, log.config, records, origin, check),
            partial(self._append_checked, key, log, len(records), acks, origin, leader_epoch, guard),
            len(records),
        )

    def append_transactional(
        self, key: TopicPartition, records: Buffer, batch: TransactionalBatch, *, acks: int
    ) -> Appended | asyncio.Future[Appended]:
        """As `append`, for a client's batch in a transaction: one that would open a transaction in the log is verified
        before, and what the producer sends next to this partition waits behind it; nothing else does."""
        partition = self._replicas.newest_partition(key)
        lane = (key, batch.producer_id)
        if batch.verify is None:
            return self.append(key, records, acks=acks, guard=VERIFICATION_OFF)
        if not self.verifications.is_busy(lane) and _begin(partition, batch) is None:
            return self.append(key, records, acks=acks)
        partition.check_append(acks)  # nobody is asked in vain
        return self.verifications.pass_then(
            lane,
            partial(self._verify_and_append, key, records, batch, batch.verify, acks),
            _itself,
            len(records),
        )

    def append_marker(self, key: TopicPartition, marker: TransactionMarker) -> AckCondition:
        """Judges a marker and writes it, with acks=all; nothing is in its way. What has to hold before anybody is told
        that the transaction has ended here, also where the marker was written before.

        Raises PartitionError, and LogError for what is refused; nothing was written then.
        """
        partition = self._replicas.newest_partition(key)
        partition.check_append(ACKS_ALL)
        kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
        end, producer = EndTransactionMarker(kind, marker.coordinator_epoch), marker.producer
        if not partition.judge_marker(*producer, end, marker.transaction_version):
            return AckCondition(partition, partition.log_end_offset, partition.leader_epoch)
        records = build_marker(
            *producer, kind, coordinator_epoch=marker.coordinator_epoch, timestamp=partition.log.now_ms()
        )
        return self._append(partition, records, len(records), ACKS_ALL, "coordinator", None, None).condition

    async def _verify_and_append(
        self,
        key: TopicPartition,
        records: Buffer,
        batch: TransactionalBatch,
        verify: Callable[[], Awaitable[None]],
        acks: int,
    ) -> Appended:
        """The turn of one batch. The guard is looked at in the call that appends. Raises PartitionError, LogError."""
        for _ in range(ASKED_AT_MOST):
            partition = self._replicas.newest_partition(key)
            guard, leader_epoch = _begin(partition, batch), partition.leader_epoch
            if guard is None:
                break
            await verify()
            if partition.leader_epoch != leader_epoch or partition.is_verified(guard, batch.producer_id):
                break
        try:
            appended = self.append(key, records, acks=acks, leader_epoch=leader_epoch, guard=guard)
            return appended if isinstance(appended, Appended) else await appended
        except FencedLeaderEpoch as error:  # no word for producers: some give up for it
            raise NotLeaderOrFollower(f"{key} began another leader epoch while the batch waited") from error

    def when_committed(
        self, conditions: Mapping[TopicPartition, AckCondition], timeout_s: float
    ) -> Outcomes | asyncio.Future[Outcomes]:
        """What becomes of appends with acks=all: at once if that is decided by now, else later as one future.

        None for a partition whose condition holds, else the name of Kafka's error: leadership or the topic is gone,
        too few replicas are in sync, or `timeout_s` seconds are over. From this call on the end of this broker's
        leadership is not missed. Cancelling the future ends the wait.
        """
        statuses = {key: condition.status for key, condition in conditions.items()}
        return _wait(self._committed, conditions, statuses, timeout_s)

    def when_flushed(
        self, conditions: Mapping[TopicPartition, AckCondition], timeout_s: float
    ) -> Outcomes | asyncio.Future[Outcomes]:
        """As `when_committed`, for acks=1 where a flush is due by flush.messages: when this leader counts the records,
        whatever its followers do."""
        statuses = {key: condition.flush_status for key, condition in conditions.items()}
        return _wait(self._flushed, conditions, statuses, timeout_s)

    async def _check(
        self,
        log: ReplicaLog,
        config: ReplicationConfig,
        records: Buffer,
        origin: AppendOrigin,
        check: Check | None,
    ) -> Checked:
        """The records as they are to be appended, by the rules that hold when the check is over. Raises LogError."""
        while True:
            checked: Checked = records
            if check is None:
                await asyncio.sleep(0)  # others have their turn between those that waited
            else:
                async with self._one_open:
                    checked = await self._executor.run(check)
            if log.config == config:
                return checked
            config = log.config
            check = _check_needed(log, records, origin)

    def _append_checked(
        self,
        key: TopicPartition,
        log: ReplicaLog,
        size_bytes: int,
        acks: int,
        origin: AppendOrigin,
        leader_epoch: int | None,
        guard: VerificationGuard | None,
        checked: Checked,
    ) -> Appended:
        partition = self._replicas.newest_partition(key)
        if partition.log is not log:
            raise CheckedForAnotherLog(key)
        return self._append(partition, checked, size_bytes, acks, origin, leader_epoch, guard)

    def _append(
        self,
        partition: Partition,
        records: Checked,
        size_bytes: int,
        acks: int,
        origin: AppendOrigin,
        leader_epoch: int | None,
        guard: VerificationGuard | None,
    ) -> Appended:
        try:
            info = partition.append_records(
                records,
                acks=acks,
                now_ms=self._replicas.monotonic_ms(),
                leader_epoch_expected=leader_epoch,
                origin=origin,
                guard=guard,
            )
        except (PartitionError, LogError) as error:
            self._refusals.on_refused(partition.topic_partition, error)
            raise
        self.undecided.look(partition)
        end_offset = info.last_offset + 1
        topic = partition.topic_partition.topic
        self._metrics.on_produced(topic, end_offset - info.first_offset, size_bytes)
        return Appended(info, AckCondition(partition, end_offset, partition.leader_epoch))


def _wait(
    purgatory: OffsetPurgatory,
    conditions: Mapping[TopicPartition, AckCondition],
    statuses: Mapping[TopicPartition, AckStatus],
    timeout_s: float,
) -> Outcomes | asyncio.Future[Outcomes]:
    decided: Outcomes = {}
    required: dict[TopicPartition, int] = {}
    for key, status in statuses.items():
        if status is AckStatus.PENDING:
            required[key] = conditions[key].offset
        else:
            decided[key] = None if status is AckStatus.OK else status.value
    return purgatory.wait(required, timeout_s, decided) if required else decided


def _check_needed(log: ReplicaLog, records: Buffer, origin: AppendOrigin) -> Check | None:
    """What the log's rules of this moment ask for before an append: only a client's records. Raises LogError."""
    return log.check_beside(records) if origin == "client" else None


def _begin(partition: Partition, batch: TransactionalBatch) -> VerificationGuard | None:
    """The guard for the batch; None if it goes on with an open transaction. Raises PartitionError."""
    return partition.begin_verification(
        batch.producer_id, batch.epoch, batch.sequence, supports_epoch_bump=batch.supports_epoch_bump
    )


def _itself(appended: Appended) -> Appended:
    return appended


class _Waiting(NamedTuple):
    gate: Callable[[], Awaitable[Any]]
    then: Callable[[Any], Appended]
    done: asyncio.Future[Appended]
    size_bytes: int


class Gates:
    """What appends have to pass, one after the other in each lane: that of a partition, or of a producer there.

    A task runs for each lane that something waits in. What waits is appended in its turn also if its client is
    gone: the client may have sent more behind it, which was appended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, halt: Halt) -> None:
        self._loop = loop
        self._halt = halt
        self._lanes: dict[Hashable, deque[_Waiting]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.count = 0
        self.size_bytes = 0
        """Of the records that wait."""

    def is_busy(self, lane: Hashable) -> bool:
        """Whether something waits in this lane: what comes next has to wait behind it."""
        return lane in self._lanes

    def pass_then(
        self,
        name: Hashable,
        gate: Callable[[], Awaitable[Passed]],
        then: Callable[[Passed], Appended],
        size_bytes: int,
    ) -> asyncio.Future[Appended]:
        """When its turn comes, awaits `gate`, then calls `then` with what that returned.

        Either may raise PartitionError or LogError, which the future raises. `size_bytes` is that of the records,
        which stay in memory until then. Raises TooManyWaiting.
        """
        has_room = not self.count or self.size_bytes + size_bytes <= WAITING_MAX_BYTES
        if self.count >= WAITING_MAX or not has_room:
            raise TooManyWaiting(self.count, self.size_bytes)
        self.count += 1
        self.size_bytes += size_bytes
        done: asyncio.Future[Appended] = self._loop.create_future()
        waiting = _Waiting(gate, then, done, size_bytes)
        lane = self._lanes.get(name)
        if lane is not None:
            lane.append(waiting)
            return done
        self._lanes[name] = lane = deque((waiting,))
        task = start_vital_task(self._run(name, lane), "append-gates", self._halt)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return done

    async def _run(self, name: Hashable, lane: deque[_Waiting]) -> None:
        while lane:
            await _pass(lane[0])
            self._ended(lane.popleft())
        del self._lanes[name]

    def _ended(self, waiting: _Waiting) -> None:
        self.count -= 1
        self.size_bytes -= waiting.size_bytes

    async def close(self) -> None:
        """Ends all lanes, also those whose task has not begun."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in self._lanes.values():
            for waiting in lane:
                self._ended(waiting)
                waiting.done.cancel()
        self._lanes.clear()


async def _pass(waiting: _Waiting) -> None:
    gate, then, done, _ = waiting
    try:
        appended = then(await gate())
    except (PartitionError, LogError) as error:
        if not done.done():
            # Its frames hold the records, and it is kept by the future that they hold.
            error.__traceback__ = error.__context__ = error.__cause__ = None
            done.set_exception(error)
            done.exception()  # no warning where nobody is left to ask
        return
    if not done.done():
        done.set_result(appended)
