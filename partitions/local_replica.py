"""What a replica is and what it answers; nothing here changes it, but for epochs of its log that prove rotten.

Guarantees: a question is answered only in the leader epoch it was asked in (KIP-320), a follower's only
for its present registration (KIP-903); consumers see what is below the high watermark, at a follower that
follower's own (KIP-392); followers see all.
`Partition` adds what changes a replica; the request handlers ask, the purgatory asks again after a wait.
"""

from __future__ import annotations

from leader_epoch.epoch_cache import EpochCache
from partitions.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    ReplicaOffline,
    UnknownLeaderEpoch,
)
from partitions.isr import AlterPartitionProposal
from partitions.leadership import Leadership
from partitions.lookup_budget import LookupBudget
from partitions.partition_types import ACKS_ALL, NO_EPOCH, NO_LEADER, AckStatus, FollowerFetch, ReplicaContext
from partitions.reads import FetchRead, ListedOffset, list_offset, read
from partitions.replica import Replica
from partitions.replica_log import ReplicaLog
from partitions.topic_partition import TopicPartition


class LocalReplica:
    """The state of one replica on this broker, and the questions it answers."""

    __slots__ = ("_context", "_end", "_leading", "_leading_since_epoch", "high_watermark", "leader_epoch",
                 "leader_id", "log", "partition_epoch", "replicas", "topic_id", "topic_partition")  # fmt: skip

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
        """The AlterPartition in flight; whoever repeats one asks here first whether it still stands."""
        return None if self._leading is None else self._leading.isr.in_flight

    @property
    def is_under_min_isr(self) -> bool:
        leading = self._leading
        return leading is not None and leading.is_under_min_isr(self.log.config.min_insync_replicas)

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

    # Answers

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

    def ack_status(self, required_offset: int, leader_epoch: int | None = None) -> AckStatus:
        """Whether everything below `required_offset` is committed on enough replicas.

        `leader_epoch` is the one of the append: if this broker stopped leading since, others may have
        written at those offsets, and nothing can be said about the append any more.
        """
        leading = self._leading
        if leading is None:
            return self._end or AckStatus.NOT_LEADER_OR_FOLLOWER
        if leader_epoch is not None and leader_epoch < self._leading_since_epoch:
            return AckStatus.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < required_offset:
            return AckStatus.PENDING
        if len(leading.isr.maximal) < leading.effective_min_isr(self.log.config.min_insync_replicas):
            return AckStatus.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return AckStatus.OK

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

    # Who may ask

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

    def _recheck_if_repeated(self, fetch: FollowerFetch) -> Replica | None:
        """The follower; if it asks again for what it was sent and could not use, the log checks that first."""
        follower = None if self._leading is None else self._leading.follower(fetch.replica_id)
        in_session = fetch.session is not None
        if follower is not None and follower.was_handed(fetch.fetch_offset, in_session=in_session):
            self.log.distrust()
        return follower
