"""One replica of one partition on this broker: leader or follower, and what it may do as such.

Guarantees (KIP-101, KIP-320, KIP-497, KIP-903): requests of another leader epoch change nothing; a new
leader takes no append before it is durable where its epoch starts; the high watermark never goes back in a
leader epoch and never passes a member of the maximal ISR; a log is truncated only in the epoch that asked
for it. Callers: the replica manager (metadata changes, produce and fetch requests, ISR timers), the
AlterPartition manager, and the fetcher, to which this is the `FollowerLog`.

Pure: no IO but through the `ReplicaLog`; monotonic time comes in as `now_ms`. What others have to act upon
goes out through the one `PartitionListener`, after the state has changed.
"""

from __future__ import annotations

from partitions.disk import Buffer
from partitions.errors import NotLeaderOrFollower, PolicyViolation
from partitions.isr import AlterPartitionProposal, AlterPartitionResult, Outcome
from partitions.leadership import Leadership
from partitions.local_replica import LocalReplica
from partitions.log.errors import HoleTooWide, OffsetOutOfRange, UnexpectedAppendOffset
from partitions.log.validation import CheckedBatches
from partitions.partition_types import (
    NO_EPOCH,
    NO_LEADER,
    AckStatus,
    FollowerFetch,
    LeaderState,
    MetadataState,
    PartitionListener,
    ReplicaContext,
    Transition,
)
from partitions.reads import FetchRead
from partitions.replica import Replica
from partitions.replica_log import AppendInfo, AppendOrigin, ReplicaLog

__all__ = [
    "AckStatus",
    "FollowerFetch",
    "LeaderState",
    "MetadataState",
    "Partition",
    "PartitionListener",
    "ReplicaContext",
    "ReplicaLog",
    "Transition",
]


class Partition(LocalReplica):
    """One replica. All methods are synchronous and run on the event loop."""

    __slots__ = ()

    # Transitions

    def apply_state(self, state: MetadataState, now_ms: int) -> Transition:
        """Takes over the partition's state from the metadata, as leader or as follower."""
        if state.leader == self._context.broker_id:
            return self.make_leader(state, now_ms)
        return self.make_follower(state, now_ms)

    def make_leader(self, state: MetadataState, now_ms: int) -> Transition:
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

    def make_follower(self, state: MetadataState, now_ms: int) -> Transition:
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

    def _is_news(self, state: MetadataState) -> bool:
        return (
            self._end is None
            and state.leader_epoch >= self.leader_epoch
            and state.partition_epoch > self.partition_epoch
        )

    def _take_assignment(self, state: MetadataState, now_ms: int) -> Transition:
        """Of a state that is no news, at most the assignment is: AlterPartition's answer does not tell it."""
        is_same = (state.leader_epoch, state.partition_epoch) == (self.leader_epoch, self.partition_epoch)
        if self._end is not None or not is_same or state.replicas == self.replicas:
            return Transition.IGNORED
        self.replicas = state.replicas
        if self._leading is not None:
            self._leading.update_assignment(state, now_ms)
            self._settle(self._leading, now_ms)
        return Transition.UPDATED

    def _take_over(self, state: MetadataState) -> None:
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = state.replicas

    def _leave_leadership(self) -> None:
        self._leading = None
        self._leading_since_epoch = NO_EPOCH
        self._context.lag_schedule.disarm(self)

    def _settle(self, leading: Leadership, now_ms: int) -> None:
        """What follows from a new ISR or assignment; nobody waits for a replica that is gone."""
        self._context.listener.on_low_watermark(self)
        self._advance_high_watermark(leading, now_ms)
        self._watch_lag(leading, now_ms)
        self._context.listener.on_state_change(self)

    # Produce

    def append_records(
        self,
        records: Buffer | CheckedBatches,
        *,
        acks: int,
        now_ms: int,
        leader_epoch_expected: int | None = None,
        origin: AppendOrigin = "client",
    ) -> AppendInfo:
        """Appends as leader. Raises PartitionError or LogError, and then nothing was appended.

        With acks=-1 the answer has to wait for `ack_status(info.last_offset + 1, leader_epoch)`.
        """
        leading = self.check_append(acks, leader_epoch_expected)
        leading.before_append(self.log.log_end_offset)
        info = self.log.append_as_leader(records, leader_epoch=self.leader_epoch, origin=origin)
        if not info.duplicate:
            self._advance_high_watermark(leading, now_ms)
            self._watch_lag(leading, now_ms)
            self._context.listener.on_append(self, self.log.log_end_offset)
        return info

    def delete_records(self, offset: int | None) -> int:
        """Gives up, as leader, the records below `offset`, or below the high watermark if it is None.

        Returns that offset; all live replicas have done so once `low_watermark` has reached it (KIP-107).
        Raises PolicyViolation, OffsetOutOfRange, and what `check_epoch` raises.
        """
        self.check_epoch(None)
        if not self.log.config.deletes:
            raise PolicyViolation(f"the records of {self.topic_partition} are compacted and never deleted")
        wanted = self.high_watermark if offset is None else offset
        if not 0 <= wanted <= self.high_watermark:
            raise OffsetOutOfRange(wanted, self.log.log_start_offset, self.high_watermark)
        if self.log.raise_log_start_offset(wanted):
            self._context.listener.on_low_watermark(self)
        return wanted

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
        if offset is not None and offset > self.high_watermark:
            self._raise_high_watermark(offset)

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
        # A new leader may know less than the one before; what was committed stays committed.
        committed = min(leader_high_watermark, self.log.log_end_offset)
        if committed > self.high_watermark:
            self._raise_high_watermark(committed)
        start_offset = min(leader_log_start_offset, self.high_watermark)
        if start_offset > self.log.log_start_offset:
            self.log.raise_log_start_offset(start_offset)
            self._context.listener.on_low_watermark(self)

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

    def truncate_fully_and_start_at(self, offset: int, *, leader_epoch: int) -> None:
        """Gives up the whole log and starts anew at `offset`, the start of what the leader still has."""
        self._check_following(leader_epoch)
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset

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
