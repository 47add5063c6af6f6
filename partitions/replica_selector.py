"""Which replica a consumer should read from, as the partition's leader decides it (KIP-392): pure.

Guarantees: a consumer is sent only to a follower that is in the ISR and whose log contains the offset that
it asks for; one that names no rack, or whose rack has no such replica, or has the leader, reads from the
leader. A follower outside the ISR is never named: its lag may grow for ever, and the consumer's with it. What
the consumer reads there is bounded by the follower's own high watermark (`Partition.read_for_consumer`).
The names are Kafka's classes, since that is what `replica.selector.class` is set to. Called by
`kraft.broker.replicas.read_replicas` for fetches of consumers. Offsets are log offsets, times monotonic ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from partitions.leadership import Leadership

NO_PREFERRED_REPLICA: Final = -1

LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReplicaView(NamedTuple):
    """A replica that the consumer could read from."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    ms_since_caught_up: int
    """0 for the leader."""


ReplicaSelector: TypeAlias = Callable[[str, ReplicaView, Iterable[ReplicaView]], ReplicaView]
"""(the consumer's rack, the leader, the followers that qualify) → who is to be read from."""


def select_leader(rack: str, leader: ReplicaView, followers: Iterable[ReplicaView]) -> ReplicaView:
    """Always the leader."""
    return leader


def select_by_rack(rack: str, leader: ReplicaView, followers: Iterable[ReplicaView]) -> ReplicaView:
    """The leader if it is in the consumer's rack, else the follower there that is furthest, else the leader.

    Among followers of one rack the longest log counts, then who was caught up last, then the larger id.
    """
    if not rack or leader.rack == rack:
        return leader
    near = (follower for follower in followers if follower.rack == rack)
    return max(near, key=_progress, default=leader)


def _progress(view: ReplicaView) -> tuple[int, int, int]:
    return view.log_end_offset, -view.ms_since_caught_up, view.broker_id


SELECTORS: Final[Mapping[str, ReplicaSelector]] = {
    LEADER_SELECTOR: select_leader,
    RACK_AWARE_SELECTOR: select_by_rack,
}
"""By the value of `replica.selector.class`."""


def preferred_read_replica(
    selector: ReplicaSelector,
    leading: Leadership,
    rack_of: Callable[[int], str | None],
    *,
    leader_id: int,
    leader_end_offset: int,
    rack: str,
    fetch_offset: int,
    now_ms: int,
) -> int:
    """The follower that a consumer in `rack` should read `fetch_offset` from; -1: from the leader.

    `rack_of` gives the rack of a broker that consumers can reach now, None for any other. O(replicas).
    """
    leader = ReplicaView(leader_id, rack_of(leader_id), leader_end_offset, 0)
    in_sync = leading.isr.committed
    followers = [
        ReplicaView(
            follower.broker_id,
            rack_of(follower.broker_id),
            follower.log_end_offset,
            now_ms - follower.last_caught_up_ms,
        )
        for follower in leading.followers
        if follower.broker_id in in_sync
        and 0 <= follower.log_start_offset <= fetch_offset <= follower.log_end_offset
    ]
    chosen = selector(rack, leader, followers)
    return NO_PREFERRED_REPLICA if chosen.broker_id == leader_id else chosen.broker_id
