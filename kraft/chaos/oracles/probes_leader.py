"""Probes on leaders: the epochs in which they answer, and the followers that they drop for lagging.

Judges epoch-fenced: a question of one leader epoch is not answered in another (KIP-320); only a client that knows no
epoch may send a request without one, never a follower. Feeds `isr_by_lag`. A follower's fetch and an append are hot: a
probe there costs a few microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from kraft.chaos.history import TopicKey
from kraft.chaos.oracles.isr_by_lag import IsrByLag, LeaderEpoch, SessionFetch
from kraft.chaos.oracles.wrapping import Method, Whose, wrapped
from kraft.chaos.verdict import Verdicts
from partitions.leadership import Leadership
from partitions.partition import NO_EPOCH, FollowerFetch, Partition, Transition

EPOCH_FENCED = "epoch-fenced"


class LeaderProbes:
    """Probes on the answers of replicas, and on the lag that leaders see."""

    def __init__(
        self, verdicts: Verdicts, whose: Whose, lag: IsrByLag, lag_max_ms: Callable[[int], int]
    ) -> None:
        """`lag_max_ms`: a node's replica.lag.time.max.ms."""
        self._verdicts = verdicts
        self._whose = whose
        self._lag = lag
        self._lag_max_ms = lag_max_ms
        self._shrinking: Partition | None = None

    def installed(self) -> AbstractContextManager[None]:
        """The probes, for as long as the context lasts."""
        return wrapped(
            {
                (Partition, "read_for_follower"): self._read_for_follower,
                (Partition, "read_for_consumer"): self._answer,
                (Partition, "list_offset"): self._answer,
                (Partition, "end_offset_for_epoch"): self._answer,
                (Partition, "make_leader"): self._make_leader,
                (Partition, "update_follower"): self._update_follower,
                (Partition, "append_records"): self._append,
                (Partition, "maybe_shrink"): self._maybe_shrink,
                (Partition, "on_alter_partition_result"): self._answered_by_the_controller,
                (Leadership, "propose_shrink"): self._propose_shrink,
            }
        )

    # -- epochs

    def _read_for_follower(self, original: Method) -> Method:
        def probe(replica: Partition, fetch: FollowerFetch, **options: Any) -> Any:
            answer = original(replica, fetch, **options)
            if fetch.current_leader_epoch != replica.leader_epoch:
                self._answered(replica, f"replica {fetch.replica_id}", fetch.current_leader_epoch)
            return answer

        return probe

    def _answer(self, original: Method) -> Method:
        def probe(replica: Partition, *arguments: Any, **options: Any) -> Any:
            answer = original(replica, *arguments, **options)
            asked = options.get("current_leader_epoch")
            if asked is not None and asked != NO_EPOCH and asked != replica.leader_epoch:
                self._answered(replica, "a client", asked)
            return answer

        return probe

    def _answered(self, replica: Partition, whom: str, asked: int) -> None:
        node = self._whose.node()
        if node is not None:
            self._verdicts.violated(
                EPOCH_FENCED,
                f"{replica.topic_partition}: node {node}, in leader epoch {replica.leader_epoch}, answered {whom},"
                f" who asked in epoch {asked}",
            )

    # -- lag

    def _make_leader(self, original: Method) -> Method:
        def probe(partition: Partition, state: Any, now_ms: int) -> Any:
            before = partition._leading
            members = () if before is None else before.isr.committed
            transition = original(partition, state, now_ms)
            node, leading = self._whose.node(), partition._leading
            if transition is Transition.BECAME_LEADER and node is not None and leading is not None:
                lag_max_ms = self._lag_max_ms(node)
                self._lag.leads(node, key_of(partition), leading.epoch, state.isr, lag_max_ms, now_ms)
            led = None if leading is None else self._led(partition)
            if led is not None and leading is not None:
                online = (f.broker_id for f in leading.followers if f.broker_id not in leading._offline)
                self._lag.assigned(led, online)
                if leading is before and transition is Transition.UPDATED:
                    self._lag.left(led, set(members).difference(leading.isr.committed))
                    self._lag.joined(led, set(leading.isr.committed).difference(members), now_ms)
            return transition

        return probe

    def _led(self, partition: Partition) -> LeaderEpoch | None:
        node = self._whose.node()
        return None if node is None else self._lag.epoch(node, key_of(partition), partition.leader_epoch)

    def _update_follower(self, original: Method) -> Method:
        fetched = self._lag.fetched

        def probe(
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
                fetched(led, replica_id, fetch_offset, leader_end_offset, now_ms, broker_epoch)

        return probe

    def _answered_by_the_controller(self, original: Method) -> Method:
        def probe(partition: Partition, proposal: Any, result: Any, now_ms: int) -> Any:
            leading = partition._leading
            before = () if leading is None else leading.isr.committed
            retry = original(partition, proposal, result, now_ms)
            led = None if leading is None else self._led(partition)
            if led is not None and leading is not None:
                self._lag.joined(led, set(leading.isr.committed).difference(before), now_ms)
            return retry

        return probe

    def _append(self, original: Method) -> Method:
        def probe(partition: Partition, records: Any, *, now_ms: int, **options: Any) -> Any:
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

        return probe

    def _sessions_until(self, led: LeaderEpoch, leading: Leadership, end: int) -> None:
        """Notes the sessions' requests that came before the append, which took no time."""
        for follower in leading.followers:
            clock = follower.clock
            if clock is not None:
                asked = SessionFetch(clock.fetch_offset, clock.last_fetch_ms)
                self._lag.end_moves(led, follower.broker_id, end, asked)

    def _maybe_shrink(self, original: Method) -> Method:
        def probe(partition: Partition, now_ms: int) -> None:
            self._shrinking = partition
            try:
                original(partition, now_ms)
            finally:
                self._shrinking = None

        return probe

    def _propose_shrink(self, original: Method) -> Method:
        def probe(leading: Leadership, leader_end_offset: int, now_ms: int) -> Any:
            proposal = original(leading, leader_end_offset, now_ms)
            led = None if self._shrinking is None else self._led(self._shrinking)
            if proposal is not None and led is not None:
                gone = set(leading.isr.committed).difference(proposal.new_isr)
                known = (follower.broker_id for follower in leading.followers)
                dropped = [one for one in known if one in gone and one not in leading._offline]
                self._lag.dropped(led, dropped, leader_end_offset, now_ms)
            return proposal

        return probe


def key_of(partition: Partition) -> TopicKey:
    """The partition's topic id and number."""
    return partition.topic_id, partition.topic_partition.partition
