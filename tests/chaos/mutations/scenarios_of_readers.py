"""The narrower scenarios of the mutations about readers: fetch sessions, racks, throttles, replicas made anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kraft.chaos.scenario import TopicSpec, WorkloadSpec
from kraft.chaos.workload import base
from partitions.leadership import Leadership
from partitions.partition import Partition
from partitions.replica_selector import RACK_AWARE_SELECTOR
from tests.chaos.mutations.registry import Patch
from tests.chaos.mutations.scenarios import CONSUMER, IDEMPOTENT, ORDERS, topic
from tests.chaos.mutations.stages import ClusterStage, Storm, default

RACKS = ("a", "b", "c")
BY_RACK = {"replica.selector.class": RACK_AWARE_SELECTOR}


def _unless_offline(original: Callable[..., None]) -> Callable[..., None]:
    def update_follower(partition: Any, replica_id: int, *rest: Any) -> None:
        if partition._leading is None or replica_id not in partition._leading._offline:
            original(partition, replica_id, *rest)

    return update_follower


def _and_takes_in_whoever_may_join(original: Callable[..., None]) -> Callable[..., None]:
    def settle(partition: Any, leading: Any, now_ms: int) -> None:
        original(partition, leading, now_ms)
        for follower in leading.followers:
            partition._maybe_expand(leading, follower)

    return settle


MADE_ANEW = ClusterStage(
    "replicas made anew",
    Storm(
        ("bit-rot", "bit-rot", "bit-rot", "restart"),
        mean_s=0.7,
        topics=(TopicSpec(ORDERS, 4, 3, {"min.insync.replicas": "1", "segment.bytes": "16384"}),),
        workloads=(
            WorkloadSpec("idempotent-producer", 0, ORDERS, per_second=120.0, operations_max=300),
            WorkloadSpec("idempotent-producer", 1, ORDERS, per_second=3.0),
            *(
                WorkloadSpec("consumer", stream, ORDERS, per_second=60.0, rack=rack)
                for stream, rack in enumerate(RACKS, start=2)
            ),
        ),
        properties={
            "log.flush.offset.checkpoint.interval.ms": "1000",
            "replica.fetch.max.bytes": "1000",
            **BY_RACK,
        },
        racks=RACKS,
    ),
    settings=(
        default(base, "LIFE_S", (1.0, 4.0)),
        default(base, "CRASHING_SHARE", 1.0),
        default(Leadership, "_still_known", lambda leading, broker_id: leading._followers.get(broker_id)),
        Patch(Partition, "update_follower", _unless_offline),
        Patch(Partition, "_settle", _and_takes_in_whoever_may_join),
    ),
)
"""Consumers begin anew all the time, and find damage at followers that have restarted and are in sync. Replicas are
made anew, empty, in partitions that stand still by then, and need many fetches to copy all again. What their leader
knew of them could be corrected before it matters: it forgets it while a replica is offline, unless it hears of its
end and its return at once; and the first fetch tells it anew, unless that is slower than the report. Neither saves
it here. And it considers who may join with every state that it hears of, as it may at any time.
"""
NEW_EPOCHS = ClusterStage(
    "leaders that lead on in a new epoch",
    Storm(
        ("bit-rot", "bit-rot", "restart", "high-latency"),
        mean_s=0.5,
        topics=(TopicSpec(ORDERS, 4, 3, {"min.insync.replicas": "1", "segment.bytes": "16384"}),),
        workloads=(
            IDEMPOTENT,
            WorkloadSpec("consumer", 1, ORDERS, per_second=60.0),
            WorkloadSpec("consumer", 2, ORDERS, per_second=60.0),
            WorkloadSpec("list-offsets", 3, ORDERS, per_second=60.0),
            WorkloadSpec("list-offsets", 4, ORDERS, per_second=60.0),
        ),
        properties={"log.flush.offset.checkpoint.interval.ms": "1000"},
    ),
)
"""A replica that was repaired comes back in a new leader epoch, of which clients do not know."""
READ_BY_RACK = ClusterStage(
    "consumers in racks",
    Storm(
        ("kill", "pause", "partition", "clogged-link"),
        workloads=(
            IDEMPOTENT,
            *(replace(CONSUMER, stream=n, rack=rack) for n, rack in enumerate(RACKS, start=2)),
        ),
        properties=BY_RACK,
        racks=RACKS,
    ),
)
SESSIONS = ClusterStage(
    "fetch sessions",
    Storm(
        ("kill-leader", "reset", "drop", "pause", "clogged-link"),
        mean_s=1.0,
        topics=(TopicSpec(ORDERS, 4, 3, {"min.insync.replicas": "2", "segment.bytes": "65536"}),),
        workloads=(
            WorkloadSpec("idempotent-producer", 0, ORDERS, per_second=30.0),
            WorkloadSpec("consumer", 1, ORDERS, per_second=40.0, fetch_sessions=True),
        ),
        properties={"max.incremental.fetch.session.cache.slots": "3", "replica.lag.time.max.ms": "30000"},
    ),
)
"""Partitions stand still for a while between two batches, and sessions begin again and again. A follower that hears
of nothing is not rescued by leaving the ISR, which would be news.
"""
THROTTLED = ClusterStage(
    "throttled replication",
    Storm(
        ("kill", "kill", "partition"),
        mean_s=2.0,
        topics=topic(leader_replication_throttled_replicas="*", follower_replication_throttled_replicas="*"),
        properties={"replication.quota.window.num": "2"},
        run_time_configs={
            "leader.replication.throttled.rate": "300000",
            "follower.replication.throttled.rate": "150000",
        },
    ),
)
