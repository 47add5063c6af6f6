"""Mutations of truncation: a leader's answer about the point where a follower's log departs from its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fetcher import replication
from fetcher.fetch_state import Step
from fetcher.replication import Replication
from kraft.chaos.scenario import TopicSpec, WorkloadSpec
from leader_epoch.truncation import Truncation
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


def _to_the_leaders_end(
    cache: Any, leader_epoch_answer: tuple[int, int], *, log_end_offset: int, high_watermark: int
) -> Truncation:
    _, leader_end = leader_epoch_answer
    return Truncation(min(leader_end, log_end_offset) if leader_end >= 0 else high_watermark, completed=True)


def _watermarks_first(original: Callable[..., None]) -> Callable[..., None]:
    def take(followers: Any, state: Any, step: Step, answer: Any, now_ms: int) -> None:
        committed = min(answer.high_watermark, state.log.log_end_offset)
        if step is Step.TRUNCATE and committed > state.log.high_watermark:
            state.log._raise_high_watermark(committed)
        original(followers, state, step, answer, now_ms)

    return take


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
        properties=scenarios.SHORT_SESSIONS,
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
    Mutation(
        "cut-at-the-leaders-end",
        "a follower cuts where the leader's epoch ends, though its own epoch of that number ends sooner (KIP-279)",
        ("liveness",),
        FORKS,
        (Patch(replication, "truncation_offset", replaced_by(_to_the_leaders_end)),),
    ),
    Mutation(
        "diverging-answer-believed",
        "a follower takes over the high watermark of an answer that says that its log is another (Fetch v12)",
        ("log-matching",),
        scenarios.ELECTIONS,
        (Patch(Replication, "_take", _watermarks_first),),
    ),
)
