"""One leader epoch of one partition at its leader: followers, ISR, and what is committed.

Guarantees (KIP-497, KIP-841, KIP-903, KIP-966): the high watermark it computes is covered by the leader,
by every member of the maximal ISR and by every follower that is about to join; it moves only while the
ISR is large enough and nobody outside it is an eligible leader replica. A follower joins only when it is
eligible, has fetched in this epoch and has everything below the high watermark and below the start of
the epoch; one that lagged too long only when it has copied something since. `Partition` makes one in
`make_leader` and drops it when the epoch ends. Times are monotonic milliseconds.
"""

from __future__ import annotations

from typing import Protocol

from partitions.isr import (
    UNKNOWN_BROKER_EPOCH,
    AlterPartitionProposal,
    AlterPartitionResult,
    IsrState,
    Resolution,
)
from partitions.replica import Replica


class LeaderAndIsr(Protocol):
    """What the metadata says about a partition; the image's partition fits."""

    @property
    def leader(self) -> int:
        """Broker id, -1 when there is no leader."""

    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def elr(self) -> tuple[int, ...]:
        """Eligible leader replicas: those outside the ISR that have everything committed (KIP-966)."""

    @property
    def offline_replicas(self) -> tuple[int, ...]:
        """Those whose brokers cannot serve their logs."""


class BrokerEligibility(Protocol):
    """What the metadata says about brokers."""

    def registered_epoch(self, broker_id: int) -> int | None:
        """The epoch of the broker's present registration; None if it has none."""

    def may_join_isr(self, broker_id: int) -> bool:
        """Whether it is registered, not fenced and not in controlled shutdown."""


class Leadership:
    """The leader's state for one leader epoch."""

    __slots__ = (
        "_eligibility",
        "_followers",
        "_local_id",
        "_max_lag_ms",
        "_offline",
        "epoch",
        "is_epoch_durable",
        "isr",
        "replicas",
        "start_offset",
    )

    def __init__(
        self,
        *,
        local_id: int,
        state: LeaderAndIsr,
        start_offset: int,
        is_epoch_durable: bool = True,
        eligibility: BrokerEligibility,
        max_lag_ms: int,
        now_ms: int,
    ) -> None:
        """`state` names this broker as leader; `start_offset` is the log end offset at which its epoch begins."""
        self.epoch = state.leader_epoch
        self.start_offset = start_offset
        self.is_epoch_durable = is_epoch_durable
        """Whether the start of the epoch is on disk: no append before that."""
        self._local_id = local_id
        self._eligibility = eligibility
        self._max_lag_ms = max_lag_ms
        self._followers: dict[int, Replica] = {}
        self.isr = IsrState(
            isr=state.isr,
            elr=state.elr,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            epoch_of=self._vouching_epoch,
        )
        self.update_assignment(state, now_ms)

    def adopt(self, state: LeaderAndIsr, now_ms: int) -> None:
        """Takes over a newer ISR of this epoch from the metadata, and the assignment."""
        before = self.isr.committed
        for broker_id in before:
            follower = self._followers.get(broker_id)
            if follower is not None and broker_id not in state.isr:
                follower.leave_isr()
        self.isr.adopt(state.isr, state.elr, state.partition_epoch)
        self._welcome(before, now_ms)
        self.update_assignment(state, now_ms)

    def resolve(
        self, proposal: AlterPartitionProposal, result: AlterPartitionResult, now_ms: int
    ) -> Resolution:
        """Takes the controller's answer to a proposal."""
        before = self.isr.committed
        resolution = self.isr.resolve(proposal, result)
        self._welcome(before, now_ms)
        return resolution

    def _welcome(self, before: tuple[int, ...], now_ms: int) -> None:
        for broker_id in self.isr.committed:
            follower = self._followers.get(broker_id)
            if follower is not None and broker_id not in before:
                follower.join_isr(now_ms)

    def update_assignment(self, state: LeaderAndIsr, now_ms: int) -> None:
        """Takes over the assigned replicas; followers that stay keep what is known of them.

        Nobody waits for those that are offline: their brokers live, but cannot serve their logs. What is
        known of one is forgotten, since it may come back with a log that was made anew.
        """
        self.replicas = state.replicas
        self._offline = state.offline_replicas
        self._followers = {
            broker_id: self._still_known(broker_id)
            or Replica(broker_id, in_sync=broker_id in self.isr.committed, now_ms=now_ms)
            for broker_id in state.replicas
            if broker_id != self._local_id
        }

    def _still_known(self, broker_id: int) -> Replica | None:
        return None if broker_id in self._offline else self._followers.get(broker_id)

    def follower(self, broker_id: int) -> Replica | None:
        """What is known of a follower; None for a broker that is not assigned."""
        return self._followers.get(broker_id)

    def before_append(self, leader_end_offset: int) -> None:
        """The log's end is about to move: who was there was in sync until its session's last fetch."""
        for follower in self._followers.values():
            follower.catch_up_with_session(leader_end_offset)

    @property
    def followers(self) -> tuple[Replica, ...]:
        """All followers, in order of preference."""
        return tuple(self._followers.values())

    def is_registered(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether `broker_epoch` is the broker's present registration (KIP-903)."""
        return broker_epoch >= 0 and self._eligibility.registered_epoch(broker_id) == broker_epoch

    def effective_min_isr(self, min_insync_replicas: int) -> int:
        """min.insync.replicas, bounded by what the replication factor allows."""
        return min(min_insync_replicas, len(self.replicas))

    def is_under_min_isr(self, min_insync_replicas: int) -> bool:
        """Whether the committed ISR is too small for acks=-1, and for the high watermark to move.

        While there are eligible leader replicas it is, whatever this broker takes min.insync.replicas to
        be: the controller counts on them to have everything below the high watermark (KIP-966), and it
        learns of a new value of the config before this broker does.
        """
        return bool(self.isr.elr) or len(self.isr.committed) < self.effective_min_isr(min_insync_replicas)

    def committed_offset(self, leader_end_offset: int, min_insync_replicas: int, now_ms: int) -> int | None:
        """Below which offset everything is committed, as far as known; None while the ISR is too small.

        The caller keeps its high watermark where it is if that is higher.
        """
        if self.is_under_min_isr(min_insync_replicas):
            return None
        offset = leader_end_offset
        maximal_isr = self.isr.maximal
        for follower in self._followers.values():
            if follower.log_end_offset < offset and (
                follower.broker_id in maximal_isr or self._is_joining(follower, leader_end_offset, now_ms)
            ):
                offset = follower.log_end_offset
        return offset

    def low_watermark(self, leader_start_offset: int) -> int:
        """Below which offset no live replica has a record; -1 while one of them has not fetched yet."""
        offset = leader_start_offset
        for follower in self._followers.values():
            if follower.log_start_offset < offset and self._may_join(follower):
                offset = follower.log_start_offset
        return offset

    def propose_expand(self, follower: Replica, high_watermark: int) -> AlterPartitionProposal | None:
        """The proposal that takes a follower into the ISR, if it may join and nothing is in flight.

        It needs all of the epoch's beginning, not only what is below the high watermark: a new leader's
        high watermark may lag behind what was committed in the epochs before. And one that lagged too long
        has to have copied something since. Where the ISR without it is too small, the high watermark stands
        still, and so it would be above it again at once: one that fetches and cannot append, for want of room
        on its disk, would join and leave for ever, and acks=all wait for it each time.
        """
        if self.isr.in_flight is not None or not self._is_ready_to_join(follower, high_watermark):
            return None
        return self.isr.expand(follower.broker_id)

    def widen_expand(self, high_watermark: int) -> None:
        """Has an expand that is about to be sent for the first time name all who may join by now.

        After a start every follower of every partition joins: together they cost the controller one change.
        """
        proposal = self.isr.in_flight
        if proposal is None or not self.isr.may_widen:
            return
        joining = [
            follower.broker_id
            for follower in self._followers.values()
            if follower.broker_id not in proposal.new_isr and self._is_ready_to_join(follower, high_watermark)
        ]
        if joining:
            self.isr.widen(joining)

    def _is_ready_to_join(self, follower: Replica, high_watermark: int) -> bool:
        return (
            follower.broker_id not in self.isr.committed
            and follower.log_end_offset >= high_watermark
            and follower.log_end_offset >= self.start_offset
            and not follower.ends_where_it_lagged
            and self._is_eligible(follower)
        )

    def propose_shrink(self, leader_end_offset: int, now_ms: int) -> AlterPartitionProposal | None:
        """The proposal that drops the members that lag too long, if any and nothing is in flight."""
        if self.isr.in_flight is not None:
            return None
        lagging = [
            broker_id
            for broker_id in self.isr.committed
            if broker_id != self._local_id and self._is_lagging(broker_id, leader_end_offset, now_ms)
        ]
        for broker_id in lagging:
            follower = self._followers.get(broker_id)
            if follower is not None:
                follower.lagged_at_offset = follower.log_end_offset
        return self.isr.shrink(lagging) if lagging else None

    def next_lag_deadline_ms(self, leader_end_offset: int, now_ms: int) -> int | None:
        """When the first lagging follower will have lagged too long; None while that cannot happen.

        It concerns members of the ISR (to be dropped then) and followers that the high watermark waits
        for (and no longer will then). While a proposal is in flight nothing can be proposed, and the
        end of the flight asks again.
        """
        if self.isr.in_flight is not None:
            return None
        deadlines = [
            follower.last_caught_up_ms + self._max_lag_ms + 1
            for follower in self._followers.values()
            if follower.log_end_offset != leader_end_offset
            and (
                follower.broker_id in self.isr.committed
                or follower.is_caught_up(leader_end_offset, now_ms, self._max_lag_ms)
            )
        ]
        return min(deadlines, default=None)

    def _is_lagging(self, broker_id: int, leader_end_offset: int, now_ms: int) -> bool:
        follower = self._followers.get(broker_id)
        return follower is None or not follower.is_caught_up(leader_end_offset, now_ms, self._max_lag_ms)

    def _is_joining(self, follower: Replica, leader_end_offset: int, now_ms: int) -> bool:
        """Whether the high watermark has to wait for a follower outside the ISR.

        Without waiting, a follower that copies everything at once might never be at the high watermark
        of an ISR that consists of the leader alone. One that comes back far behind is not waited for: what
        proved it caught up was forgotten when the controller dropped it, or when its broker registered anew;
        one that the leader dropped had proved nothing for long.
        """
        return follower.is_caught_up(leader_end_offset, now_ms, self._max_lag_ms) and self._is_eligible(
            follower
        )

    def _is_eligible(self, follower: Replica) -> bool:
        return (
            follower.broker_epoch is not None
            and self._may_join(follower)
            and self._eligibility.registered_epoch(follower.broker_id) == follower.broker_epoch
        )

    def _may_join(self, follower: Replica) -> bool:
        return follower.broker_id not in self._offline and self._eligibility.may_join_isr(follower.broker_id)

    def _vouching_epoch(self, broker_id: int) -> int:
        """The broker epoch that a proposal names for a member of the ISR.

        For a follower it is the one that it fetched with. A member that has not fetched yet in this
        epoch is named with its registered epoch: it was in the ISR when the controller committed the
        partition epoch that the proposal builds on, and leaves it when it registers anew.
        """
        follower = self._followers.get(broker_id)
        if follower is not None and follower.broker_epoch is not None:
            return follower.broker_epoch
        registered = self._eligibility.registered_epoch(broker_id)
        return UNKNOWN_BROKER_EPOCH if registered is None else registered
