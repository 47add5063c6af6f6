"""Mutations of replica.lag.time.max.ms: the followers that a leader drops from the ISR (KIP-16, KIP-227, KIP-497)."""

from __future__ import annotations

from typing import Any

from kraft.chaos.scenario import TopicSpec, WorkloadSpec
from partitions.leadership import Leadership
from partitions.replica import Replica
from tests.chaos.mutations import scenarios
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by
from tests.chaos.mutations.stages import ClusterStage, Storm


def _at_the_end_or_behind(follower: Any, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
    return bool(follower.log_end_offset == leader_end_offset)


STANDING_STILL = ClusterStage(
    "partitions that stand still",
    Storm(
        ("high-latency", "high-latency", "slow-link"),
        mean_s=0.5,
        topics=(TopicSpec(scenarios.ORDERS, 6, 3, {"min.insync.replicas": "1", "segment.bytes": "65536"}),),
        workloads=(
            WorkloadSpec("idempotent-producer", 0, scenarios.ORDERS, per_second=6.0),
            WorkloadSpec("producer", 1, scenarios.ORDERS, acks=1, per_second=6.0),
        ),
        properties={"replica.lag.time.max.ms": "400", "replica.fetch.wait.max.ms": "100"},
    ),
)
"""Between two records of a partition more time passes than followers may lag. They ask in their sessions all the
time, without naming it, and then take a moment for what is new.
"""

NO_ROOM = ClusterStage(
    "followers without room",
    Storm(
        ("disk-full", "disk-full", "pause", "clogged-link"),
        topics=(TopicSpec(scenarios.ORDERS, 4, 2, {"min.insync.replicas": "2", "segment.bytes": "65536"}),),
        workloads=(
            WorkloadSpec("idempotent-producer", 0, scenarios.ORDERS, per_second=20.0),
            WorkloadSpec("producer", 1, scenarios.ORDERS, acks=1, per_second=60.0),
        ),
        properties={"replica.lag.time.max.ms": "400", "replica.fetch.wait.max.ms": "100"},
    ),
)
"""Both replicas have to be in sync, and one asks for what it cannot append, or takes a long time to ask."""

MUTATIONS = (
    Mutation(
        "session-requests-prove-nothing",
        "a leader forgets, when it appends, that followers' sessions asked for the partition until then (KIP-227)",
        ("isr-by-lag",),
        STANDING_STILL,
        (Patch(Replica, "catch_up_with_session", replaced_by(lambda follower, leader_end_offset: None)),),
    ),
    Mutation(
        "dropped-without-delay",
        "a follower that is not at the leader's end is dropped, however short a time that is so (KIP-497)",
        ("isr-by-lag",),
        scenarios.FLAPPING_ISR,
        (Patch(Replica, "is_caught_up", replaced_by(_at_the_end_or_behind)),),
    ),
    Mutation(
        "laggards-stay",
        "who lags stays in the ISR, and acks=all waits for it (replica.lag.time.max.ms, KIP-497)",
        ("isr-by-lag",),
        scenarios.FLAPPING_ISR,
        (Patch(Leadership, "propose_shrink", replaced_by(lambda leading, leader_end_offset, now_ms: None)),),
    ),
    Mutation(
        "joins-and-is-dropped-at-once",
        "who joins the ISR behind the leader's end has no time to get there (KIP-497)",
        ("isr-by-lag",),
        scenarios.FLAPPING_ISR,
        (Patch(Replica, "join_isr", replaced_by(lambda follower, now_ms: None)),),
    ),
    Mutation(
        "rejoins-where-it-was-dropped",
        "who was dropped for lagging joins again though it has copied nothing since, and acks=all waits for it",
        ("isr-by-lag",),
        NO_ROOM,
        (Patch(Replica, "ends_where_it_lagged", lambda _: property(lambda follower: False)),),
    ),
)
