"""One replica of one partition on this broker: leader or follower, and what it may do as such.

Guarantees (KIP-101, KIP-320, KIP-392, KIP-497, KIP-903): a request of another leader epoch changes nothing and
is not answered; a new leader takes no append before it is durable where its epoch starts; the high watermark
never goes back in a leader epoch and never passes a member of the maximal ISR, nor what this replica counts
while a flush that flush.messages made due is outstanding; consumers see what is below it,
at a follower that follower's own; a log is truncated only in the epoch that asked for it. A leader owns one
`Leadership` for each of its epochs. Callers: the replica manager (metadata changes, produce and fetch requests,
ISR timers), the AlterPartition manager, and the fetcher, to which this is the `FollowerLog`.

Pure: no IO but through the `ReplicaLog`; monotonic time comes in as `now_ms`. The one `PartitionListener` is told
of each change after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, NamedTuple, Protocol

from leader_epoch.epoch_cache import EpochCache
from partitions.disk import Buffer
from partitions.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    PolicyViolation,
    ReplicaOffline,
    UnknownLeaderEpoch,
)
from partitions.isr import AlterPartitionProposal, AlterPartitionResult, Outcome
from partitions.lag_schedule import LagSchedule
from partitions.leadership import BrokerEligibility, LeaderAndIsr, Leadership
from partitions.log.errors import HoleTooWide, NotVerified, OffsetOutOfRange, UnexpectedAppendOffset
from partitions.log.producers.verifications import VerificationGuard
from partitions.log.validation import CheckedBatches
from partitions.lookup_budget import LookupBudget
from partitions.reads import FetchRead, ListedOffset, list_offset, read
from partitions.records.header import NO_SEQUENCE
from partitions.records.markers import EndTransactionMarker
from partitions.replica import FetchClock, Replica
from partitions.replica_log import AppendInfo, AppendOrigin, ReplicaLog
from partitions.topic_partition import TopicPartition

ACKS_ALL: Final = -1
NO_LEADER: Final = -1
NO_EPOCH: Final = -1


class Transition(Enum):
    """What a metadata change did to the replica."""

    IGNORED = "ignored"
    """Older than, or the same as, what the replica knows."""
    UPDATED = "updated"
    """The same leader epoch with a newer ISR or assignment; fetchers go on."""
    BECAME_LEADER = "became leader"
    BECAME_FOLLOWER = "became follower"
    """In a new leader epoch: a fetcher has to start anew, from `leader_id` unless that is -1."""


class AckStatus(StrEnum):
    """Where a delayed acks=-1 append stands. Any member but the first two is Kafka's error name."""

    PENDING = "PENDING"
    OK = "OK"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    NOT_LEADER_OR_FOLLOWER = "NOT_LEADER_OR_FOLLOWER"
    KAFKA_STORAGE_ERROR = "KAFKA_STORAGE_ERROR"


class FollowerFetch(NamedTuple):
    """One partition of a follower's Fetch request, with the request's ReplicaState."""

    replica_id: int
    broker_epoch: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int = NO_EPOCH
    """-1 from a follower whose log is empty."""
    log_start_offset: int = 0
    session: FetchClock | None = None
    """The fetch session that repeats this fetch from now on without naming the partition (KIP-227).

    One without leaves it to the session before, if there is one, which goes on by itself.
    """


class PartitionListener(Protocol):
    """Told what changed; called synchronously, after the change, by the call that made it."""

    def on_append(self, partition: Partition, log_end_offset: int) -> None:
        """Records were appended: followers' delayed fetches may go on."""

    def on_high_watermark(self, partition: Partition, high_watermark: int) -> None:
        """It rose: delayed produces and consumers' delayed fetches may go on."""

    def on_low_watermark(self, partition: Partition) -> None:
        """It may have risen: a log of the partition starts later, or one less counts."""

    def on_state_change(self, partition: Partition) -> None:
        """Role, leader epoch, ISR or assignment changed, or the replica came to its end."""

    def on_alter_partition(self, partition: Partition, proposal: AlterPartitionProposal) -> None:
        """The proposal has to be sent; its result goes to `Partition.on_alter_partition_result`."""


@dataclass(frozen=True, slots=True)
class ReplicaContext:
    """What all replicas of a broker share."""

    broker_id: int
    eligibility: BrokerEligibility
    listener: PartitionListener
    lag_schedule: LagSchedule[Partition]
    replica_lag_time_max_ms: int = 30_000


class Partition:
    """One replica. All methods are synchronous and run on the event loop."""

    __slots__ = ("_context", "_end", "_leading", "_leading_since_epoch", "_told_high_watermark",
                 "high_watermark", "leader_epoch", "leader_id", "log", "partition_epoch", "replicas", "topic_id",
                 "topic_partition")  # fmt: skip

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        log: ReplicaLog,
        context: ReplicaContext,
        *,
        high_watermark: int = 0,
    ) -> None:
        """`high_watermark` is the checkpointed one; it is bounded by what the log holds."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self._context = context
        self._leading: Leadership | None = None
        self._leading_since_epoch = NO_EPOCH
        self._end: AckStatus | None = None
        """Why the replica is gone; None while it is there."""
        self._told_high_watermark = 0
        """What the leader told last; a follower takes it over as far as it counts itself."""

    def __repr__(self) -> str:
        role = "leader" if self._leading is not None else f"follower of {self.leader_id}"
        return f"Partition({self.topic_partition}, {role}, epoch {self.leader_epoch}.{self.partition_epoch})"

    # What it is

    @property
    def is_leader(self) -> bool:
        return self._leading is not None

    @property
    def leadership(self) -> Leadership | None:
        """The followers and the ISR, at the leader only."""
        return self._leading

    @property
    def isr(self) -> tuple[int, ...]:
        """The committed ISR; empty at a follower, which does not know it."""
        return () if self._leading is None else self._leading.isr.committed

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Every broker that may be in the ISR by now; empty at a follower."""
        return () if self._leading is None else self._leading.isr.maximal

    @property
    def pending_proposal(self) -> AlterPartitionProposal | None:
        """The AlterPartition in flight. The sender asks here whether one still stands before it repeats it."""
        return None if self._leading is None else self._leading.isr.in_flight

    @property
    def is_under_min_isr(self) -> bool:
        leading = self._leading
        return leading is not None and leading.is_under_min_isr(self.log.config.min_insync_replicas)

    @property
    def is_at_min_isr(self) -> bool:
        """One replica less, and acks=all is refused."""
        leading = self._leading
        if leading is None or self.is_under_min_isr:
            return False
        return len(leading.isr.committed) == leading.effective_min_isr(self.log.config.min_insync_replicas)

    @property
    def is_under_replicated(self) -> bool:
        leading = self._leading
        return leading is not None and len(leading.isr.committed) < len(leading.replicas)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def low_watermark(self) -> int:
        """Below which offset no live replica has a record, as the leader knows it; else this log's start."""
        start = self.log.log_start_offset
        return start if self._leading is None else self._leading.low_watermark(start)

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def awaits_flush(self) -> bool:
        """Whether a flush that flush.messages made due is outstanding: a follower does not fetch meanwhile, since
        its leader counts what lies below the offset that it fetches from."""
        return self.log.config.flushes and self.log.awaits_flush

    @property
    def last_stable_offset(self) -> int:
        """Up to where read_committed consumers may read: all transactions below are decided."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def epochs(self) -> EpochCache:
        return self.log.epochs

    # Epoch checks

    def check_epoch(self, current_leader_epoch: int | None) -> Leadership:
        """This broker's leadership, for a request that was sent with `current_leader_epoch` (KIP-320).

        None or -1 is a client that does not know the epoch. Raises FencedLeaderEpoch, UnknownLeaderEpoch,
        NotLeaderOrFollower, ReplicaOffline.
        """
        self._check_usable(current_leader_epoch)
        if self._leading is None:
            raise NotLeaderOrFollower(
                f"broker {self._context.broker_id} does not lead {self.topic_partition} in epoch {self.leader_epoch}"
            )
        return self._leading

    def _check_readable(self, current_leader_epoch: int | None, *, at_follower: bool) -> None:
        """As `check_epoch`; if `at_follower`, it need not lead, but be a replica still."""
        if not at_follower:
            self.check_epoch(current_leader_epoch)
            return
        self._check_usable(current_leader_epoch)
        if self._end is not None:
            raise NotLeaderOrFollower(
                f"broker {self._context.broker_id} has no replica of {self.topic_partition}"
            )

    def _check_usable(self, current_leader_epoch: int | None) -> None:
        if self._end is AckStatus.KAFKA_STORAGE_ERROR:
            raise ReplicaOffline(f"the log of {self.topic_partition} is on a failed disk of this broker")
        if current_leader_epoch is not None and current_leader_epoch != NO_EPOCH:
            self._check_same_epoch(current_leader_epoch)

    def _check_same_epoch(self, leader_epoch: int) -> None:
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"{self.topic_partition} is in leader epoch {self.leader_epoch}, the request in {leader_epoch}"
            )
        if leader_epoch > self.leader_epoch:
            raise UnknownLeaderEpoch(
                f"{self.topic_partition} is in leader epoch {self.leader_epoch} here, the request in {leader_epoch}"
            )

    # Transitions

    def apply_state(self, state: LeaderAndIsr, now_ms: int) -> Transition:
        """Takes over the partition's state from the metadata, as leader or as follower."""
        if state.leader == self._context.broker_id:
            return self.make_leader(state, now_ms)
        return self.make_follower(state, now_ms)

    def make_leader(self, state: LeaderAndIsr, now_ms: int) -> Transition:
        """Leads from `state.leader_epoch` on, or takes over a newer ISR of the epoch that it leads.

        Of a new epoch the log knows the start when this returns (KIP-101). While that is not durable
        (`awaits_epoch_start`) the replica leads, answers fetches and moves its high watermark, which all speak
        of records of earlier epochs; it refuses appends until `on_epoch_start_durable`. Raises LogError if
        the log cannot be used, or holds a later epoch; the replica is then what it was before.
        """
        assert state.leader == self._context.broker_id, "the metadata names another leader"
        if not self._is_news(state):
            return self._take_assignment(state, now_ms)
        if self._leading is not None and state.leader_epoch == self.leader_epoch:
            self._take_over(state)
            self._leading.adopt(state, now_ms)
            self._settle(self._leading, now_ms)
            return Transition.UPDATED
        start_offset = self.log.log_end_offset
        is_durable = self.log.assign_epoch_start(state.leader_epoch)
        self.log.producer_state.verifications.void_all()
        if self._leading is None:
            self._leading_since_epoch = state.leader_epoch
        self._take_over(state)
        self._leading = Leadership(
            local_id=self._context.broker_id,
            state=state,
            start_offset=start_offset,
            is_epoch_durable=is_durable,
            eligibility=self._context.eligibility,
            max_lag_ms=self._context.replica_lag_time_max_ms,
            now_ms=now_ms,
        )
        self._settle(self._leading, now_ms)
        return Transition.BECAME_LEADER

    @property
    def awaits_epoch_start(self) -> bool:
        """Whether this replica leads and the start of its epoch has to be made durable before it appends."""
        return self._leading is not None and not self._leading.is_epoch_durable

    def on_epoch_start_durable(self, leader_epoch: int) -> None:
        """All that the log knew of epochs when this replica began to lead in `leader_epoch` is durable."""
        if self._leading is not None and self._leading.epoch == leader_epoch:
            self._leading.is_epoch_durable = True

    def make_follower(self, state: LeaderAndIsr, now_ms: int) -> Transition:
        """Follows `state.leader` (-1: nobody for now) from `state.leader_epoch` on."""
        assert state.leader != self._context.broker_id, "the metadata names this broker as leader"
        if not self._is_news(state):
            return self._take_assignment(state, now_ms)
        is_new_epoch = state.leader_epoch > self.leader_epoch
        self._take_over(state)
        self._leave_leadership()
        self._context.listener.on_state_change(self)
        return Transition.BECAME_FOLLOWER if is_new_epoch else Transition.UPDATED

    def take_offline(self, *, storage_failed: bool) -> None:
        """Ends the replica: it is no longer assigned here, or its disk failed. It stays refusing for good."""
        self._end = AckStatus.KAFKA_STORAGE_ERROR if storage_failed else AckStatus.NOT_LEADER_OR_FOLLOWER
        self.leader_id = NO_LEADER
        self._leave_leadership()
        self._context.listener.on_state_change(self)

    def _is_news(self, state: LeaderAndIsr) -> bool:
        return (
            self._end is None
            and state.leader_epoch >= self.leader_epoch
            and state.partition_epoch > self.partition_epoch
        )

    def _take_assignment(self, state: LeaderAndIsr, now_ms: int) -> Transition:
        """Of a state that is no news, at most the assignment is: AlterPartition's answer does not tell it."""
        is_same = (state.leader_epoch, state.partition_epoch) == (self.leader_epoch, self.partition_epoch)
        if self._end is not None or not is_same or state.replicas == self.replicas:
            return Transition.IGNORED
        self.replicas = state.replicas
        if self._leading is not None:
            self._leading.update_assignment(state, now_ms)
            self._settle(self._leading, now_ms)
        return Transition.UPDATED

    def _take_over(self, state: LeaderAndIsr) -> None:
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = state.replicas

    def _leave_leadership(self) -> None:
        self._leading = None
        self._leading_since_epoch = NO_EPOCH
        self.log.producer_state.verifications.void_all()
        self._context.lag_schedule.disarm(self)

    def _settle(self, leading: Leadership, now_ms: int) -> None:
        """What follows from a new ISR or assignment; nobody waits for a replica that is gone."""
        self._context.listener.on_low_watermark(self)
        self._advance_high_watermark(leading, now_ms)
        self._watch_lag(leading, now_ms)
        self._context.listener.on_state_change(self)

    # Appends by clients

    def append_records(
        self,
        records: Buffer | CheckedBatches,
        *,
        acks: int,
        now_ms: int,
        leader_epoch_expected: int | None = None,
        origin: AppendOrigin = "client",
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Appends as leader. Raises PartitionError or LogError, and then nothing was appended.

        `guard`: that of `begin_verification`, if a client's batch may open a transaction. With acks=-1 the answer
        has to wait for `ack_status(info.last_offset + 1, leader_epoch)`, with acks=1 for `flush_status` of the same.
        """
        leading = self.check_append(acks, leader_epoch_expected)
        leading.before_append(self.log.log_end_offset)
        info = self.log.append_as_leader(records, leader_epoch=self.leader_epoch, origin=origin, guard=guard)
        if not info.duplicate:
            self._advance_high_watermark(leading, now_ms)
            self._watch_lag(leading, now_ms)
            self._context.listener.on_append(self, self.log.log_end_offset)
        return info

    def check_append(self, acks: int, leader_epoch_expected: int | None = None) -> Leadership:
        """Whether an append by a client would be refused now, whatever it holds. Raises PartitionError if so."""
        leading = self.check_epoch(leader_epoch_expected)
        if not leading.is_epoch_durable:
            raise NotLeaderOrFollower(
                f"broker {self._context.broker_id} is still writing where epoch {leading.epoch} of"
                f" {self.topic_partition} starts"
            )
        min_isr = self.log.config.min_insync_replicas
        if acks == ACKS_ALL and leading.is_under_min_isr(min_isr):
            raise NotEnoughReplicas(self._too_small(leading, min_isr))
        return leading

    def _too_small(self, leading: Leadership, min_isr: int) -> str:
        isr = leading.isr
        if len(isr.committed) < leading.effective_min_isr(min_isr):
            problem = f"smaller than min.insync.replicas={min_isr}"
        else:
            problem = f"too small for the controller: {list(isr.elr)} may be elected in its place"
        return f"the ISR {list(isr.committed)} of {self.topic_partition} is {problem}"

    # Transactions, at the leader (KIP-98, KIP-890)

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int = NO_SEQUENCE, *, supports_epoch_bump: bool = False
    ) -> VerificationGuard | None:
        """The guard for a transactional batch that is about to be verified with its coordinator.

        None if it goes on with a transaction that is open here: then nothing is to be verified. `sequence` is the
        batch's first, `supports_epoch_bump` that its producer speaks transaction.version 2. Markers of the producer
        and the end of this leader epoch void the guard. Raises PartitionError where this broker does not lead.
        """
        self.check_epoch(None)
        return self.log.begin_verification(
            producer_id, epoch, sequence, supports_epoch_bump=supports_epoch_bump
        )

    def is_verified(self, guard: VerificationGuard, producer_id: int) -> bool:
        """Whether the guard holds still. If not, the coordinator may be asked again, under another."""
        return self.log.producer_state.verifications.holds(guard, producer_id)

    def check_verified(self, guard: VerificationGuard, producer_id: int) -> None:
        """Whether the guard holds still: what is appended in this call opens a transaction that is known to its
        coordinator. Raises NotVerified."""
        if not self.is_verified(guard, producer_id):
            raise NotVerified(producer_id)

    def check_transactional(self, producer_id: int, epoch: int) -> None:
        """Whether a coordinator may append a batch in a transaction of this producer. Raises AppendError
        INVALID_REQUEST, INVALID_PRODUCER_EPOCH."""
        self.log.producer_state.check_transactional(producer_id, epoch)

    def judge_marker(
        self, producer_id: int, epoch: int, marker: EndTransactionMarker, transaction_version: int
    ) -> bool:
        """Whether the marker is to be written; False: all that it could end has been ended. Raises AppendError; see
        `ProducerState.judge_marker`."""
        return self.log.producer_state.judge_marker(producer_id, epoch, marker, transaction_version)

    def ack_status(self, required_offset: int, leader_epoch: int | None = None) -> AckStatus:
        """Whether everything below `required_offset` is committed on enough replicas.

        `leader_epoch` is the one of the append: if this broker stopped leading since, others may have
        written at those offsets, and nothing can be said about the append any more.
        """
        leading = self._leading_since(leader_epoch)
        if leading is None:
            return self._end or AckStatus.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < required_offset:
            return AckStatus.PENDING
        if len(leading.isr.maximal) < leading.effective_min_isr(self.log.config.min_insync_replicas):
            return AckStatus.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return AckStatus.OK

    def flush_status(self, required_offset: int, leader_epoch: int | None = None) -> AckStatus:
        """Whether this leader counts everything below `required_offset`; `leader_epoch` as in `ack_status`."""
        if self._leading_since(leader_epoch) is None:
            return self._end or AckStatus.NOT_LEADER_OR_FOLLOWER
        return AckStatus.PENDING if self.log.counted_end_offset < required_offset else AckStatus.OK

    def _leading_since(self, leader_epoch: int | None) -> Leadership | None:
        """This broker's leadership, if it lasts since that epoch."""
        has_stopped = leader_epoch is not None and leader_epoch < self._leading_since_epoch
        return None if has_stopped else self._leading

    def delete_records(self, offset: int | None) -> int:
        """Gives up, as leader, the records below `offset`, or below the high watermark if it is None.

        Returns that offset; all live replicas have done so once `low_watermark` has reached it (KIP-107).
        Raises PolicyViolation, OffsetOutOfRange, and what `check_epoch` raises.
        """
        self.check_epoch(None)
        config = self.log.config
        if config.is_compacted and not config.deletes:
            raise PolicyViolation(f"the records of {self.topic_partition} are compacted and never deleted")
        wanted = self.high_watermark if offset is None else offset
        if not 0 <= wanted <= self.high_watermark:
            raise OffsetOutOfRange(wanted, self.log.log_start_offset, self.high_watermark)
        if self.log.raise_log_start_offset(wanted):
            self._context.listener.on_low_watermark(self)
        return wanted

    # Answers to readers; they change nothing, but for epochs of the log that prove rotten

    def read_for_follower(
        self, fetch: FollowerFetch, *, max_bytes: int, min_one_batch: bool = True
    ) -> FetchRead:
        """Answers a follower's fetch again, after a wait: reads up to the log's end, learns nothing.

        Raises FencedLeaderEpoch (also for a fetch without an epoch), UnknownLeaderEpoch,
        NotLeaderOrFollower, ReplicaOffline, OffsetOutOfRange.
        """
        self._assigned_follower(fetch.replica_id, fetch.broker_epoch, fetch.current_leader_epoch)
        log, high_watermark = self.log, self.high_watermark
        return read(
            log,
            fetch_offset=fetch.fetch_offset,
            last_fetched_epoch=None if fetch.last_fetched_epoch == NO_EPOCH else fetch.last_fetched_epoch,
            up_to_offset=log.log_end_offset,
            high_watermark=high_watermark,
            last_stable_offset=log.last_stable_offset(high_watermark),
            max_bytes=max_bytes,
            min_one_batch=min_one_batch,
        )

    def read_for_consumer(
        self,
        fetch_offset: int,
        *,
        max_bytes: int,
        current_leader_epoch: int | None = None,
        last_fetched_epoch: int | None = None,
        min_one_batch: bool = True,
        read_committed: bool = False,
        at_follower: bool = False,
    ) -> FetchRead:
        """Answers a consumer's fetch: reads up to the high watermark, or to the last stable offset.

        `at_follower`: a follower answers too, as far as it knows the high watermark (KIP-392). Raises
        FencedLeaderEpoch, UnknownLeaderEpoch, NotLeaderOrFollower, ReplicaOffline, OffsetOutOfRange.
        """
        self._check_readable(current_leader_epoch, at_follower=at_follower)
        last_stable_offset = self.last_stable_offset
        return read(
            self.log,
            fetch_offset=fetch_offset,
            last_fetched_epoch=None if last_fetched_epoch == NO_EPOCH else last_fetched_epoch,
            up_to_offset=last_stable_offset if read_committed else self.high_watermark,
            high_watermark=self.high_watermark,
            last_stable_offset=last_stable_offset,
            max_bytes=max_bytes,
            min_one_batch=min_one_batch,
            read_committed=read_committed,
        )

    def send_to_replica(self, broker_id: int, *, current_leader_epoch: int | None) -> FetchRead:
        """Answers a consumer's fetch with the replica that it shall read from. Raises as `check_epoch`."""
        self.check_epoch(current_leader_epoch)
        return FetchRead(
            None,
            None,
            self.high_watermark,
            self.last_stable_offset,
            self.log.log_start_offset,
            self.log.log_end_offset,
            preferred_read_replica=broker_id,
        )

    def list_offset(
        self,
        timestamp: int,
        *,
        for_client: bool,
        current_leader_epoch: int | None = None,
        read_committed: bool = False,
        budget: LookupBudget | None = None,
    ) -> ListedOffset | None:
        """Answers ListOffsets: a client sees what is committed, a follower all; None if no record fits.

        `read_committed`: a client that sees only what lies below the last stable offset. `budget`: what opening
        batches may cost (None: what it may for one lookup); beyond it a batch is answered by its header.
        Raises FencedLeaderEpoch, UnknownLeaderEpoch, NotLeaderOrFollower, ReplicaOffline, OffsetNotAvailable.
        """
        leading = self.check_epoch(current_leader_epoch)
        up_to_offset = self.log.log_end_offset
        if for_client:
            up_to_offset = self.last_stable_offset if read_committed else self.high_watermark
        return list_offset(
            self.log,
            timestamp,
            up_to_offset=up_to_offset,
            leader_epoch=self.leader_epoch,
            lagging=for_client and self.high_watermark < leading.start_offset,
            budget=budget,
        )

    def end_offset_for_epoch(
        self, leader_epoch: int, *, current_leader_epoch: int | None = None
    ) -> tuple[int, int]:
        """Answers OffsetForLeaderEpoch: the largest epoch <= `leader_epoch` and its end; (-1, -1) if undefined."""
        self.check_epoch(current_leader_epoch)
        return self.log.end_offset_for_epoch(leader_epoch)

    def confirm_epoch_end(self, epoch: int) -> None:
        """Has the log look whether its batches confirm where the epoch ends. Raises LogError."""
        self.log.end_offset_for_epoch(epoch)

    # Fetches by followers, and the ISR, at the leader

    def fetch_as_follower(
        self, fetch: FollowerFetch, *, max_bytes: int, now_ms: int, min_one_batch: bool = True
    ) -> FetchRead:
        """Answers a follower's fetch and learns from it how far the follower is.

        Raises what `read_for_follower` raises, and then has learnt nothing; nor has it from a follower
        whose log diverges.
        """
        follower = self._recheck_if_repeated(fetch)
        answer = self.read_for_follower(fetch, max_bytes=max_bytes, min_one_batch=min_one_batch)
        if answer.diverging_epoch is not None:
            return answer
        if follower is not None:
            follower.fetched_by(fetch.session)
            if answer.size_bytes:
                follower.handed(fetch.fetch_offset, in_session=fetch.session is not None)
        self.update_follower(
            fetch.replica_id,
            fetch.broker_epoch,
            fetch.fetch_offset,
            fetch.log_start_offset,
            answer.log_end_offset,
            now_ms,
        )
        if self.high_watermark == answer.high_watermark:
            return answer
        # The follower may as well hear of the records that its own fetch has committed.
        return answer._replace(high_watermark=self.high_watermark, last_stable_offset=self.last_stable_offset)

    def _recheck_if_repeated(self, fetch: FollowerFetch) -> Replica | None:
        """The follower; if it asks again for what it was sent and could not use, the log checks that first."""
        follower = None if self._leading is None else self._leading.follower(fetch.replica_id)
        in_session = fetch.session is not None
        if follower is not None and follower.was_handed(fetch.fetch_offset, in_session=in_session):
            self.log.distrust()
        return follower

    def _assigned_follower(
        self, replica_id: int, broker_epoch: int, current_leader_epoch: int
    ) -> tuple[Leadership, Replica]:
        """The follower that a fetch comes from, if it may fetch (KIP-320, KIP-903)."""
        leading = self._leading
        if leading is None or self._end is not None or current_leader_epoch != self.leader_epoch:
            if self._end is None:
                self._check_same_epoch(current_leader_epoch)
            leading = self.check_epoch(current_leader_epoch)
        follower = leading.follower(replica_id)
        if follower is None:
            # The metadata that assigns it may not have arrived here: the follower shall ask again.
            raise UnknownLeaderEpoch(f"broker {replica_id} is not a replica of {self.topic_partition} here")
        if not leading.is_registered(replica_id, broker_epoch):
            raise NotLeaderOrFollower(
                f"broker epoch {broker_epoch} of replica {replica_id} is not its registration known here"
            )
        return leading, follower

    def update_follower(
        self,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now_ms: int,
    ) -> None:
        """Learns from a fetch of this leader epoch; `leader_end_offset` is the log's end when it arrived."""
        leading, follower = self._assigned_follower(replica_id, broker_epoch, self.leader_epoch)
        has_moved = fetch_offset != follower.log_end_offset
        starts_later = log_start_offset > follower.log_start_offset
        follower.record_fetch(
            broker_epoch=broker_epoch,
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_end_offset=leader_end_offset,
            now_ms=now_ms,
        )
        self._maybe_expand(leading, follower)
        if starts_later:
            self._context.listener.on_low_watermark(self)
        if has_moved:
            self._advance_high_watermark(leading, now_ms)
            self._watch_lag(leading, now_ms)

    def maybe_shrink(self, now_ms: int) -> None:
        """Called when the lag schedule hands the partition out: drops members that lag too long."""
        leading = self._leading
        if leading is None:
            return
        proposal = leading.propose_shrink(self.log.log_end_offset, now_ms)
        self._advance_high_watermark(leading, now_ms)
        self._watch_lag(leading, now_ms)
        if proposal is not None:
            self._context.listener.on_alter_partition(self, proposal)

    def reconsider(self, now_ms: int) -> None:
        """Called when a replica's eligibility or min.insync.replicas changed: who may join, what is committed."""
        leading = self._leading
        if leading is None:
            return
        for follower in leading.followers:
            self._maybe_expand(leading, follower)
        self._context.listener.on_low_watermark(self)
        self._advance_high_watermark(leading, now_ms)
        self._watch_lag(leading, now_ms)

    def next_lag_deadline_ms(self, now_ms: int) -> int | None:
        """When a follower that lags now will have lagged too long; None if none lags."""
        if self._leading is None:
            return None
        return self._leading.next_lag_deadline_ms(self.log.log_end_offset, now_ms)

    def widen_proposal(self) -> AlterPartitionProposal | None:
        """The proposal in flight, which is about to be sent: an expand that never was names all who may join by now."""
        if self._leading is not None:
            self._leading.widen_expand(self.high_watermark)
        return self.pending_proposal

    def on_alter_partition_result(
        self, proposal: AlterPartitionProposal, result: AlterPartitionResult, now_ms: int
    ) -> AlterPartitionProposal | None:
        """Takes the controller's answer. Returns what is to be sent after a back-off, if anything.

        Every error that is not Kafka's word for "refused" or "out of date" counts as unknown outcome and
        is retried; before it sends, the caller checks that `pending_proposal` is still that proposal. The
        caller never repeats a request by itself: that an attempt had an unknown outcome matters here.
        """
        leading = self._leading
        if leading is None:
            return None
        outcome, retry = leading.resolve(proposal, result, now_ms)
        if outcome in (Outcome.COMMITTED, Outcome.ROLLED_BACK):
            self.partition_epoch = leading.isr.partition_epoch
            self._settle(leading, now_ms)
        return retry

    def _maybe_expand(self, leading: Leadership, follower: Replica) -> None:
        proposal = leading.propose_expand(follower, self.high_watermark)
        if proposal is not None:
            self._context.listener.on_alter_partition(self, proposal)

    def _advance_high_watermark(self, leading: Leadership, now_ms: int) -> None:
        offset = leading.committed_offset(
            self.log.log_end_offset, self.log.config.min_insync_replicas, now_ms
        )
        if offset is None:
            return
        if self.log.config.flushes:
            offset = min(offset, self.log.counted_end_offset)
        if offset > self.high_watermark:
            self._raise_high_watermark(offset)

    def on_flushed(self, now_ms: int) -> None:
        """The log is durable up to a later offset than it was, or waits for no flush any more."""
        if self._leading is not None:
            self._advance_high_watermark(self._leading, now_ms)
        elif self._end is None:
            self._follow_high_watermark()

    def _raise_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        self.log.forget_replicated(offset)
        self._context.listener.on_high_watermark(self, offset)

    def _watch_lag(self, leading: Leadership, now_ms: int) -> None:
        schedule = self._context.lag_schedule
        if self not in schedule:
            deadline_ms = leading.next_lag_deadline_ms(self.log.log_end_offset, now_ms)
            if deadline_ms is not None:
                schedule.arm(self, deadline_ms)

    # Replication, at a follower

    def append_as_follower(
        self, records: Buffer, *, leader_epoch: int, leader_high_watermark: int, leader_log_start_offset: int
    ) -> None:
        """Appends what the leader of `leader_epoch` sent, and takes over its watermarks.

        Raises PartitionError in another epoch or role, LogError or OSError from the log.
        """
        self._check_following(leader_epoch)
        if len(records) > 0:
            self._append_fetched(records, leader_epoch)
        self._told_high_watermark = leader_high_watermark
        self._follow_high_watermark()
        start_offset = min(leader_log_start_offset, self.high_watermark)
        if start_offset > self.log.log_start_offset:
            self.log.raise_log_start_offset(start_offset)
            self._context.listener.on_low_watermark(self)

    def _follow_high_watermark(self) -> None:
        log = self.log
        # A new leader may know less than the one before; what was committed stays committed.
        end_offset = log.counted_end_offset if log.config.flushes else log.log_end_offset
        committed = min(self._told_high_watermark, end_offset)
        if committed > self.high_watermark:
            self._raise_high_watermark(committed)

    def truncate_to(self, offset: int, *, leader_epoch: int) -> None:
        """Cuts the log at `offset`, also the epochs that start there or later without a record."""
        self._check_following(leader_epoch)
        if offset < self.log.log_start_offset:
            self.truncate_fully_and_start_at(offset, leader_epoch=leader_epoch)
            return
        self.log.truncate_to(offset)
        self.high_watermark = max(
            self.log.log_start_offset, min(self.high_watermark, self.log.log_end_offset)
        )
        self._told_high_watermark = min(self._told_high_watermark, self.log.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int, *, leader_epoch: int) -> None:
        """Gives up the whole log and starts anew at `offset`, the start of what the leader still has."""
        self._check_following(leader_epoch)
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = self._told_high_watermark = offset

    def _check_following(self, leader_epoch: int) -> None:
        if self._end is not None or self._leading is not None:
            raise NotLeaderOrFollower(
                f"broker {self._context.broker_id} does not follow {self.topic_partition}"
            )
        self._check_same_epoch(leader_epoch)

    def _append_fetched(self, records: Buffer, leader_epoch: int) -> None:
        log = self.log
        try:
            log.append_as_follower(records, leader_epoch=leader_epoch)
        except UnexpectedAppendOffset as error:
            # The leader's log starts inside its first batch, and batches come whole; or its first batch is farther
            # from the start than one segment reaches. This empty log has to start with that batch too.
            is_elsewhere = error.first_offset < log.log_end_offset or isinstance(error, HoleTooWide)
            if log.log_end_offset != log.log_start_offset or not is_elsewhere:
                raise
            log.truncate_fully_and_start_at(error.first_offset)
            self.high_watermark = error.first_offset
            log.append_as_follower(records, leader_epoch=leader_epoch)
        self._context.listener.on_append(self, log.log_end_offset)
