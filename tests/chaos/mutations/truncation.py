"""Mutations of truncation: what a leader says about where a follower's log parts from its own."""

from __future__ import annotations

from typing import Any

from kraft.chaos.scenario import TopicSpec, WorkloadSpec
from partitions import reads
from partitions.log.errors import OffsetOutOfRange
from partitions.reads import UNDEFINED_EPOCH, DivergingEpoch
from tests.chaos.mutations import scenarios
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by
from tests.chaos.mutations.stages import ClusterStage, Storm


def _as_if_it_knew_every_epoch(log: Any, fetch_offset: int, last_fetched_epoch: int) -> DivergingEpoch | None:
    epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
    if epoch == UNDEFINED_EPOCH or fetch_offset < log.log_start_offset:
        raise OffsetOutOfRange(fetch_offset, log.log_start_offset, log.log_end_offset)
    return DivergingEpoch(last_fetched_epoch, end_offset) if end_offset < fetch_offset else None


FORKS = ClusterStage(
    "forks",
    Storm(
        ("isolate-leader", "isolate-leader", "isolate-leader", "pause-leader"),
        mean_s=0.35,
        brokers=2,
        controllers=(11,),
        topics=(TopicSpec(scenarios.ORDERS, 4, 2, {"min.insync.replicas": "2", "segment.bytes": "65536"}),),
        workloads=(
            WorkloadSpec("producer", 0, scenarios.ORDERS, acks=1, per_second=80.0),
            WorkloadSpec("producer", 1, scenarios.ORDERS, acks=1, per_second=80.0),
            scenarios.IDEMPOTENT,
        ),
        properties={"broker.session.timeout.ms": "600"},
    ),
)
"""Two replicas that lead in turns, cut off from each other and not from their clients: both are eligible, and each
has records of its own when the other one follows it.
"""

MUTATIONS = (
    Mutation(
        "epoch-that-the-leader-lacks",
        "a leader says where a follower's epoch ended, and not that it never had that epoch (KIP-279)",
        ("log-matching",),
        FORKS,
        (Patch(reads, "diverging_epoch", replaced_by(_as_if_it_knew_every_epoch)),),
    ),
    Mutation(
        "no-diverging-epoch",
        "a leader serves a follower whose log parts from its own (Fetch v12)",
        ("log-matching",),
        scenarios.ELECTIONS,
        (
            Patch(
                reads,
                "diverging_epoch",
                replaced_by(lambda log, fetch_offset, last_fetched_epoch: None),
            ),
        ),
    ),
)
