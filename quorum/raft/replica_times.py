"""The times at which a leader last heard of each follower, and at which the follower last had its whole log (KIP-836).

A follower has caught up when it reaches the log end that the leader had at the follower's previous fetch: it need not
reach an end that keeps moving. Pure. The Raft lane keeps one table for voters, the controller's listener one for
observers; DescribeQuorum shows both.
"""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = -1


@dataclass(slots=True)
class ReplicaTimes:
    """One follower. Offsets are one past the last entry; times are Unix times in ms, -1 if unknown."""

    replica_id: int
    log_end_offset: int = UNKNOWN
    last_fetch_ms: int = UNKNOWN
    last_caught_up_ms: int = UNKNOWN
    leader_end_at_fetch: int = UNKNOWN


class ReplicaTimesTable:
    """The followers of one leader in one epoch; the next epoch begins empty."""

    def __init__(self) -> None:
        self._epoch = UNKNOWN
        self._replicas: dict[int, ReplicaTimes] = {}

    def fetched(
        self, epoch: int, replica_id: int, end_offset: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """Notes how far a follower's log reaches."""
        if epoch != self._epoch:
            self._epoch, self._replicas = epoch, {}
        replica = self._replicas.setdefault(replica_id, ReplicaTimes(replica_id))
        if end_offset >= leader_end_offset:
            replica.last_caught_up_ms = max(replica.last_caught_up_ms, now_ms)
        elif UNKNOWN < replica.leader_end_at_fetch <= end_offset:
            replica.last_caught_up_ms = max(replica.last_caught_up_ms, replica.last_fetch_ms)
        replica.leader_end_at_fetch = leader_end_offset
        replica.log_end_offset = end_offset
        replica.last_fetch_ms = max(replica.last_fetch_ms, now_ms)

    def of(self, epoch: int, replica_id: int) -> ReplicaTimes:
        """The times of a follower in this epoch."""
        known = self._replicas.get(replica_id) if epoch == self._epoch else None
        return known or ReplicaTimes(replica_id)

    def heard_since(self, epoch: int, since_ms: int) -> list[ReplicaTimes]:
        """Followers by ascending id; forgets those not heard of since then."""
        if epoch != self._epoch:
            return []
        self._replicas = {n: times for n, times in self._replicas.items() if times.last_fetch_ms >= since_ms}
        return [self._replicas[replica_id] for replica_id in sorted(self._replicas)]
