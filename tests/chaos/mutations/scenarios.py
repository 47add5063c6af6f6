"""The narrower scenarios of the mutations, with the few kinds of faults that make the broken rule matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from kraft.chaos.scenario import TopicSpec, WorkloadSpec
from partitions.leadership import Leadership
from quorum.raft.driver import RaftDriver
from quorum.raft.events import NOT_COMMITTED, ProposalOutcome
from tests.chaos.mutations.registry import Patch
from tests.chaos.mutations.stages import ClusterStage, Storm, default

ORDERS = "orders"
REFUSED_ONE_IN = 6
SHORT_SESSIONS = {"broker.session.timeout.ms": "600", "broker.heartbeat.interval.ms": "130"}
IDEMPOTENT = WorkloadSpec("idempotent-producer", 0, ORDERS, per_second=60.0)
ACKS_1 = WorkloadSpec("producer", 1, ORDERS, acks=1, per_second=40.0)
CONSUMER = WorkloadSpec("consumer", 2, ORDERS, per_second=40.0)
CHURN = WorkloadSpec("topic-churn", 3, per_second=10.0)


def topic(**configs: str) -> tuple[TopicSpec, ...]:
    """The one topic, of two partitions on three brokers; keys with `_` for `.`."""
    settings = {"min.insync.replicas": "2", "segment.bytes": "65536"}
    settings.update({key.replace("_", "."): value for key, value in configs.items()})
    return (TopicSpec(ORDERS, 2, 3, settings),)


def _refusing_some(original: Callable[..., None]) -> Callable[..., None]:
    """As a driver does that has too many proposals pending."""
    proposals: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def propose(driver: Any, event: Any) -> None:
        proposals[driver] = proposals.get(driver, 0) + 1
        if proposals[driver] % REFUSED_ONE_IN:
            original(driver, event)
        else:
            driver._effects.append(ProposalOutcome(event.request_id, None, NOT_COMMITTED))

    return propose


FLAPPING_ISR = ClusterStage(
    "flapping ISR",
    Storm(
        ("pause", "clogged-link", "high-latency", "drop", "reset", "isolate-controller", "pause-controller"),
        topics=topic(min_insync_replicas="1"),
        properties={"replica.lag.time.max.ms": "600"},
    ),
)
SLOW_CONTROL = ClusterStage(
    "slow control",
    Storm(
        ("high-latency", "high-latency", "slow-disk", "reset", "drop", "pause", "clogged-link"),
        mean_s=0.3,
        topics=(TopicSpec(ORDERS, 6, 3, {"min.insync.replicas": "1", "segment.bytes": "65536"}),),
        properties={"replica.lag.time.max.ms": "500", "replica.fetch.wait.max.ms": "100"},
    ),
    settings=(default(Leadership, "_is_joining", lambda *_: False),),
)
"""Proposals, answers and metadata take their time, overtake each other, and get lost; ISRs change all the time.

No leader waits for followers that are only about to join: that is a kindness to them, and hides rules.
"""
ALL_IN_SYNC = ClusterStage(
    "all in sync or nothing",
    Storm(
        ("power-loss", "power-loss", "partition", "partition-one-way", "clogged-link", "clogged-link"),
        topics=topic(min_insync_replicas="3"),
        mean_s=0.4,
        properties={"replica.lag.time.max.ms": "600", "replica.fetch.max.bytes": "1000"},
    ),
)
"""min.insync.replicas is the replication factor: nothing is committed while anybody is missing, so what a
leader knows of a broker that lost its power would still be enough. Cut links keep it from knowing better.
"""
FEW_IN_SYNC = ClusterStage("few in sync", Storm(("kill", "pause", "partition"), mean_s=0.8))
RESTARTS = ClusterStage(
    "restarts", Storm(("kill", "kill-leader", "kill-leader", "kill-all", "restart"), mean_s=0.9)
)
ALL_DOWN = ClusterStage(
    "all down, some cleanly",
    Storm(
        ("kill-all", "kill-leader", "restart", "restart", "isolate-controller"),
        mean_s=0.6,
        properties={"broker.session.timeout.ms": "800", "broker.heartbeat.interval.ms": "180"},
    ),
)
"""Brokers leave small ISRs and come back in any order, with and without a clean stop."""
STALE_HIGH_WATERMARKS = ClusterStage(
    "stale high watermarks",
    Storm(
        ("kill", "kill-leader", "kill-leader", "kill-all"),
        mean_s=0.7,
        properties={
            "replica.high.watermark.checkpoint.interval.ms": "20000",
            "replica.fetch.max.bytes": "1000",
        },
    ),
)
"""A restarted leader knows little of what is committed, and a follower needs many fetches to catch up."""
ZOMBIES = ClusterStage(
    "zombies",
    Storm(
        ("isolate-controller", "partition", "partition", "partition-one-way", "isolate-leader"),
        mean_s=0.9,
        properties=SHORT_SESSIONS,
    ),
)
"""Leaders that are deposed without hearing of it, and go on with the clients and followers they reach."""
ELECTIONS = ClusterStage(
    "elections",
    Storm(("kill-leader", "isolate-leader", "pause-leader", "partition", "restart"), mean_s=0.7),
)
POWER = ClusterStage(
    "power losses", Storm(("power-loss", "power-loss-mid-operation", "power-loss", "kill-leader"), mean_s=0.9)
)
CUT_OFF = ClusterStage(
    "cut off from the controller",
    Storm(("isolate-controller", "partition", "partition-one-way", "pause-controller"), mean_s=0.9),
)
CONTROLLERS = ClusterStage(
    "controllers",
    Storm(
        ("kill-controller", "kill-controller", "isolate-controller", "pause-controller", "kill", "restart"),
        properties={"metadata.log.max.record.bytes.between.snapshots": "2000"},
        workloads=(IDEMPOTENT, CONSUMER, CHURN),
    ),
)
OVERLOADED_QUORUM = ClusterStage(
    "overloaded quorum",
    Storm(
        ("slow-disk", "slow-disk", "restart", "kill", "pause"),
        mean_s=0.5,
        workloads=(IDEMPOTENT, CHURN, WorkloadSpec("topic-churn", 4, per_second=20.0)),
    ),
    settings=(Patch(RaftDriver, "_propose", _refusing_some),),
)
"""The Raft lane has no room for some proposals, and may have it again for the next one."""
DELETED_TOPICS = ClusterStage(
    "deleted topics", Storm(("kill", "pause", "reset"), mean_s=2.0, workloads=(IDEMPOTENT, CHURN))
)
RETRIES = ClusterStage(
    "retries",
    Storm(
        ("reset", "drop", "kill-leader", "isolate-leader", "clogged-link", "reset"),
        workloads=(IDEMPOTENT, WorkloadSpec("idempotent-producer", 1, ORDERS, per_second=60.0), CONSUMER),
    ),
)
PIPELINES = ClusterStage(
    "pipelines",
    Storm(
        (
            "partial-writes",
            "partial-writes",
            "high-latency",
            "slow-link",
            "pause",
            "isolate-leader",
            "pause-leader",
        ),
        topics=(TopicSpec(ORDERS, 3, 3, {"min.insync.replicas": "3", "segment.bytes": "65536"}),),
        workloads=(
            WorkloadSpec("idempotent-producer", 0, ORDERS, per_second=100.0),
            WorkloadSpec("idempotent-producer", 1, ORDERS, per_second=100.0),
        ),
        properties={"replica.lag.time.max.ms": "600"},
    ),
)
"""Batches of one producer arrive apart, and what becomes of one need not become of the next."""
TRUNCATIONS = ClusterStage(
    "truncations",
    Storm(
        ("kill-leader", "isolate-leader", "pause-leader", "partition"),
        mean_s=0.8,
        topics=topic(index_interval_bytes="200", segment_bytes="1048576"),
    ),
)
FEW_FOR_PLAIN_PRODUCERS = ClusterStage(
    "few in sync, plain producers",
    Storm(
        ("kill", "pause", "partition"),
        mean_s=0.8,
        workloads=(WorkloadSpec("producer", 0, ORDERS, acks=-1, per_second=80.0), CONSUMER),
    ),
)
"""Only a producer that gives up can be told that what it sent has failed."""
LISTED_OFFSETS = ClusterStage(
    "offsets asked for",
    Storm(
        ("kill-leader", "kill-leader", "kill-all", "isolate-leader"),
        mean_s=0.9,
        workloads=(IDEMPOTENT, WorkloadSpec("list-offsets", 1, ORDERS, per_second=20.0)),
        properties={
            "replica.high.watermark.checkpoint.interval.ms": "20000",
            "replica.fetch.max.bytes": "1000",
        },
    ),
)
"""A new leader knows little of what is committed, and is asked at once."""
ROT = ClusterStage(
    "rot",
    Storm(
        ("bit-rot", "bit-rot", "bit-rot", "kill-leader", "restart"),
        mean_s=0.7,
        topics=topic(segment_bytes="16384"),
        workloads=(IDEMPOTENT, CONSUMER, WorkloadSpec("operator", 3, ORDERS, per_second=2.0)),
        properties={"log.flush.offset.checkpoint.interval.ms": "1000"},
    ),
)
"""Leaders change all the time, so that old segments are read by a process that did not write them."""
ROT_ALL_IN_SYNC = ClusterStage(
    "rot, all in sync or nothing",
    Storm(
        ("bit-rot", "bit-rot", "bit-rot", "kill-leader", "restart"),
        mean_s=0.7,
        topics=topic(segment_bytes="16384", min_insync_replicas="3"),
        workloads=(IDEMPOTENT, CONSUMER, WorkloadSpec("operator", 3, ORDERS, per_second=2.0)),
        properties={"log.flush.offset.checkpoint.interval.ms": "1000"},
    ),
)
"""Whoever leaves the ISR would be an eligible leader replica."""
UNCLEAN = ClusterStage(
    "leaders that may be unclean",
    Storm(
        ("kill", "kill-leader", "isolate-leader", "pause-leader"),
        mean_s=0.6,
        topics=topic(unclean_leader_election_enable="true", min_insync_replicas="1"),
        properties={**SHORT_SESSIONS, "replica.lag.time.max.ms": "600"},
    ),
)
COMPACTED = topic(
    cleanup_policy="compact",
    segment_bytes="16384",
    min_cleanable_dirty_ratio="0.1",
    delete_retention_ms="2000",
    min_insync_replicas="1",
)
COMPACTION = ClusterStage(
    "compaction",
    Storm(
        ("kill", "kill-leader", "kill-mid-operation", "kill-mid-operation"),
        mean_s=1.5,
        topics=COMPACTED,
        workloads=(IDEMPOTENT, ACKS_1, CONSUMER),
        properties={"log.cleaner.backoff.ms": "300"},
    ),
)
COMPACTION_BEHIND_FOLLOWERS = ClusterStage(
    "compaction far ahead of the followers",
    Storm(
        ("partition-one-way", "pause", "clogged-link", "partition"),
        mean_s=0.8,
        topics=COMPACTED,
        workloads=(IDEMPOTENT, ACKS_1, CONSUMER),
        properties={"log.cleaner.backoff.ms": "300", "replica.lag.time.max.ms": "3000"},
    ),
)
"""A leader writes on with acks=1 while nobody fetches, and its segments are full before anything is committed.
"""
FULL = ClusterStage("full disks", Storm(("disk-full", "disk-full", "kill-leader"), mean_s=0.7, log_dirs=2))
FAILING_DISKS = ClusterStage(
    "failing disks", Storm(("fsync-error", "fsync-error", "reset"), seconds=25.0, mean_s=0.8, log_dirs=2)
)
"""Nobody is killed: a broker has seconds to go on without the directory that failed, or with it.
"""
FIVE_VOTERS = ClusterStage(
    "five voters",
    Storm(
        (
            "kill-controller",
            "kill-controller",
            "isolate-controller",
            "pause-controller",
            "high-latency",
            "high-latency",
        ),
        mean_s=0.5,
        brokers=5,
        workloads=(IDEMPOTENT,),
        properties={"controller.quorum.election.timeout.ms": "150"},
    ),
)
"""Two candidates of one term find voters each, and no majority."""
