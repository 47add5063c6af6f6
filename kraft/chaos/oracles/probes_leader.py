"""Probes on leaders: the epochs in which they answer, and the followers that they drop for lagging.

Judges epoch-fenced: a question of one leader epoch is not answered in another (KIP-320); only a client that knows no
epoch may send a request without one, never a follower. Feeds `isr_by_lag`. A follower's fetch and an append are hot: a
probe there costs a few microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraft.chaos.oracles.isr_by_lag import IsrByLag, LeaderEpoch, SessionFetch
from kraft.chaos.oracles.probes import partition_key
from kraft.chaos.oracles.wrapping import Method, Probes, Whose, around
from kraft.chaos.verdict import Verdicts
from partitions.leadership import Leadership
from partitions.partition import NO_EPOCH, FollowerFetch, Partition, Transition

EPOCH_FENCED = "epoch-fenced"


class LeaderProbes(Probes):
    """Probes on the answers of replicas, and on the lag that leaders see."""

    def __init__(
        self, verdicts: Verdicts, whose: Whose, lag: IsrByLag, lag_max_ms: Mapping[int, int]
    ) -> None:
        """`lag_max_ms`: replica.lag.time.max.ms by node."""
        self._verdicts = verdicts
        self._whose = whose
        self._lag = lag
        self._lag_max_ms = lag_max_ms
        self._shrinking: Partition | None = None

    # -- epochs

    @around(Partition, "read_for_follower")
    def _read_for_follower(
        self, original: Method, replica: Partition, fetch: FollowerFetch, **options: Any
    ) -> Any:
        answer = original(replica, fetch, **options)
        if fetch.current_leader_epoch != replica.leader_epoch:
            self._answered(replica, f"replica {fetch.replica_id}", fetch.current_leader_epoch)
        return answer

    @around(Partition, "read_for_consumer")
    @around(Partition, "list_offset")
    @around(Partition, "end_offset_for_epoch")
    def _answer(self, original: Method, replica: Partition, *arguments: Any, **options: Any) -> Any:
        answer = original(replica, *arguments, **options)
        asked = options.get("current_leader_epoch")
        if asked is not None and asked != NO_EPOCH and asked != replica.leader_epoch:
            self._answered(replica, "a client", asked)
        return answer

    def _answered(self, replica: Partition, whom: str, asked: int) -> None:
        node = self._whose.node()
        if node is not None:
            self._verdicts.violated(
                EPOCH_FENCED,
                f"{replica.topic_partition}: node {node}, in leader epoch {replica.leader_epoch}, answered {whom},"
                f" who asked in epoch {asked}",
            )

    # -- lag

    @around(Partition, "make_leader")
    def _make_leader(self, original: Method, partition: Partition, state: Any, now_ms: int) -> Any:
        before = partition._leading
        members = () if before is None else before.isr.committed
        transition = original(partition, state, now_ms)
        node, leading = self._whose.node(), partition._leading
        if transition is Transition.BECAME_LEADER and node is not None and leading is not None:
            lag_max_ms = self._lag_max_ms[node]
            self._lag.leads(node, partition_key(partition), leading.epoch, state.isr, lag_max_ms, now_ms)
        led = None if leading is None else self._led(partition)
        if led is not None and leading is not None:
            online = (f.broker_id for f in leading.followers if f.broker_id not in leading._offline)
            self._lag.assigned(led, online)
            if leading is before and transition is Transition.UPDATED:
                self._lag.left(led, set(members).difference(leading.isr.committed))
                self._lag.joined(led, set(leading.isr.committed).difference(members), now_ms)
        return transition

    def _led(self, partition: Partition) -> LeaderEpoch | None:
        node = self._whose.node()
        return (
            None if node is None else self._lag.epoch(node, partition_key(partition), partition.leader_epoch)
        )

    @around(Partition, "update_follower")
    def _update_follower(
        self,
        original: Method,
        partition: Partition,
        replica_id: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now_ms: int,
    ) -> None:
        original(
            partition, replica_id, broker_epoch, fetch_offset, log_start_offset, leader_end_offset, now_ms
        )
        led = self._led(partition)
        if led is not None:
            self._lag.fetched(led, replica_id, fetch_offset, leader_end_offset, now_ms, broker_epoch)

    @around(Partition, "on_alter_partition_result")
    def _answered_by_the_controller(
        self, original: Method, partition: Partition, proposal: Any, result: Any, now_ms: int
    ) -> Any:
        leading = partition._leading
        before = () if leading is None else leading.isr.committed
        retry = original(partition, proposal, result, now_ms)
        led = None if leading is None else self._led(partition)
        if led is not None and leading is not None:
            self._lag.joined(led, set(leading.isr.committed).difference(before), now_ms)
        return retry

    @around(Partition, "append_records")
    def _append(
        self, original: Method, partition: Partition, records: Any, *, now_ms: int, **options: Any
    ) -> Any:
        leading, before = partition._leading, partition.log.log_end_offset
        led = None if leading is None else self._led(partition)
        info = original(partition, records, now_ms=now_ms, **options)
        if led is not None and leading is not None:
            self._sessions_until(led, leading, before)
            if leading.isr.in_flight is not None:
                self._lag.cannot_drop(led, now_ms)
            else:
                members = [f.broker_id for f in leading.followers if f.broker_id in leading.isr.committed]
                self._lag.appended(led, members, partition.log.log_end_offset, now_ms)
        return info

    def _sessions_until(self, led: LeaderEpoch, leading: Leadership, end: int) -> None:
        """Notes the sessions' requests that came before the append, which took no time."""
        for follower in leading.followers:
            clock = follower.clock
            if clock is not None:
                asked = SessionFetch(clock.fetch_offset, clock.last_fetch_ms)
                self._lag.end_moves(led, follower.broker_id, end, asked)

    @around(Partition, "maybe_shrink")
    def _maybe_shrink(self, original: Method, partition: Partition, now_ms: int) -> None:
        self._shrinking = partition
        try:
            original(partition, now_ms)
        finally:
            self._shrinking = None

    @around(Leadership, "propose_shrink")
    def _propose_shrink(
        self, original: Method, leading: Leadership, leader_end_offset: int, now_ms: int
    ) -> Any:
        proposal = original(leading, leader_end_offset, now_ms)
        led = None if self._shrinking is None else self._led(self._shrinking)
        if proposal is not None and led is not None:
            gone = set(leading.isr.committed).difference(proposal.new_isr)
            known = (follower.broker_id for follower in leading.followers)
            dropped = [one for one in known if one in gone and one not in leading._offline]
            self._lag.dropped(led, dropped, leader_end_offset, now_ms)
        return proposal
