"""Mutations of AlterPartition: the proposals that a controller accepts, and a leader's reaction to a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kraft.broker.replicas import alter_partition_manager
from kraft.chaos.scenario import TopicSpec
from partitions.isr import _OUT_OF_DATE, IsrState, Outcome, Resolution
from partitions.leadership import Leadership
from quorum.controller import replication_control
from tests.chaos.mutations import scenarios
from tests.chaos.mutations.registry import Mutation, Patch
from tests.chaos.mutations.stages import ClusterStage, Storm, default


def _of_any_partition_epoch(original: Callable[..., str]) -> Callable[..., str]:
    def refusal(view: Any, broker_id: int, partition: Any, item: Any) -> str:
        epoch = max(item.partition_epoch, partition.partition_epoch)
        return original(view, broker_id, partition, replace(item, partition_epoch=epoch))

    return refusal


def _out_of_date_means_refused(original: Callable[..., Any]) -> Callable[..., Any]:
    def resolve(isr: Any, proposal: Any, result: Any) -> Any:
        if proposal == isr.in_flight and getattr(result, "code", None) in _OUT_OF_DATE:
            isr._clear()
            return Resolution(Outcome.ROLLED_BACK)
        return original(isr, proposal, result)

    return resolve


IMPATIENT = ClusterStage(
    "impatient leaders",
    Storm(
        ("high-latency", "high-latency", "slow-link", "pause", "clogged-link"),
        mean_s=0.3,
        topics=(TopicSpec(scenarios.ORDERS, 6, 3, {"min.insync.replicas": "1", "segment.bytes": "65536"}),),
        properties={"replica.lag.time.max.ms": "400", "replica.fetch.wait.max.ms": "100"},
    ),
    settings=(
        default(alter_partition_manager, "CALL_TIMEOUT_S", 0.15),
        default(Leadership, "_is_joining", lambda *_: False),
    ),
)
"""Leaders ask again long before an answer can be there: copies of proposals arrive when others have been decided."""

MUTATIONS = (
    Mutation(
        "older-partition-epoch-accepted",
        "the controller takes an AlterPartition that was made for an ISR of the past (INVALID_UPDATE_VERSION)",
        ("leader-candidate-completeness",),
        IMPATIENT,
        (Patch(replication_control, "_refusal", _of_any_partition_epoch),),
    ),
    Mutation(
        "out-of-date-means-refused",
        "a leader whose proposal was out of date goes on with the ISR that it knew, and not with the controller's",
        ("strong-isr",),
        IMPATIENT,
        (Patch(IsrState, "resolve", _out_of_date_means_refused),),
    ),
)
