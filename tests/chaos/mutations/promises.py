"""Mutations of the promises of a topic's configs, a log's start and a dead leader's partitions.

Each is broken where the product looks it up: a judge that asked the product as well would believe every one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kraft.broker.replicas.replica_logs import TopicLogConfigs
from kraft.chaos.scenario import WorkloadSpec
from kraft.protocol.schemas.offsets import EARLIEST_TIMESTAMP
from partitions.log import retention
from partitions.partition import Partition
from quorum.controller import partition_change_builder
from quorum.controller.election import Elected
from quorum.metadata.records import NO_LEADER
from tests.chaos.mutations import scenarios
from tests.chaos.mutations.registry import Mutation, Patch
from tests.chaos.mutations.stages import ClusterStage, Storm

RETENTION = ClusterStage(
    "retention",
    Storm(
        ("restart", "kill", "kill-leader"),
        mean_s=1.5,
        topics=scenarios.topic(segment_bytes="16384", retention_bytes="65536", retention_ms="8000"),
    ),
)
"""Segments go for their size and for their age."""

STARTS_APART = ClusterStage(
    "starts apart",
    Storm(
        ("clock-jump",),
        mean_s=0.3,
        topics=scenarios.topic(segment_bytes="16384", retention_ms="8000"),
        workloads=(scenarios.IDEMPOTENT, WorkloadSpec("list-offsets", 1, scenarios.ORDERS, per_second=20.0)),
    ),
)
"""A host whose clock is ahead cuts its replica's log first."""


def _one_in_sync_is_enough(original: Callable[..., Any]) -> Callable[..., Any]:
    def of_topic(configs: Any, image: Any, topic: str) -> Any:
        return replace(original(configs, image, topic), min_insync_replicas=1)

    return of_topic


def _an_eighth_of_the_size(original: Callable[..., int]) -> Callable[..., int]:
    def surplus(segments: Any, config: Any) -> int:
        limit: int = config.retention_bytes
        return original(segments, config) + (limit - limit // 8 if limit >= 0 else 0)

    return surplus


def _a_quarter_of_the_age(original: Callable[..., bool]) -> Callable[..., bool]:
    def is_expired(segment: Any, config: Any, now_ms: int) -> bool:
        limit: int = config.retention_ms
        return original(segment, config, now_ms + (limit - limit // 4 if limit >= 0 else 0))

    return is_expired


def _a_record_late(original: Callable[..., Any]) -> Callable[..., Any]:
    def list_offset(replica: Any, timestamp: int, **options: Any) -> Any:
        found = original(replica, timestamp, **options)
        if timestamp == EARLIEST_TIMESTAMP and found.offset < replica.high_watermark:
            return found._replace(offset=found.offset + 1)
        return found

    return list_offset


def _where_the_followers_begin(original: Callable[..., Any]) -> Callable[..., Any]:
    def list_offset(replica: Any, timestamp: int, **options: Any) -> Any:
        found = original(replica, timestamp, **options)
        if timestamp != EARLIEST_TIMESTAMP or replica._leading is None:
            return found
        starts = (follower.log_start_offset for follower in replica._leading._followers.values())
        return found._replace(offset=max(found.offset, min(max(starts, default=0), replica.high_watermark)))

    return list_offset


def _not_at_once(original: Callable[..., Elected]) -> Callable[..., Elected]:
    def elect(partition: Any, election: Any, acceptable: Any, **wanted: Any) -> Elected:
        if partition.leader >= 0 and not acceptable(partition.leader):
            return Elected(NO_LEADER)
        return original(partition, election, acceptable, **wanted)

    return elect


MUTATIONS = (
    Mutation(
        "min-isr-of-no-topic",
        "a broker's logs go by min.insync.replicas=1, whatever their topics ask for",
        ("strong-isr",),
        scenarios.FEW_IN_SYNC,
        (Patch(TopicLogConfigs, "of_topic", _one_in_sync_is_enough),),
    ),
    Mutation(
        "retention-at-an-eighth",
        "logs are cut when they have an eighth of retention.bytes",
        ("retention-limits",),
        RETENTION,
        (Patch(retention, "surplus_bytes", _an_eighth_of_the_size),),
    ),
    Mutation(
        "retention-before-its-time",
        "segments go after a quarter of retention.ms",
        ("retention-limits",),
        RETENTION,
        (Patch(retention, "is_expired", _a_quarter_of_the_age),),
    ),
    Mutation(
        "earliest-a-record-late",
        "clients are told that a log starts one record behind its start",
        ("earliest-behind-log-start",),
        scenarios.LISTED_OFFSETS,
        (Patch(Partition, "list_offset", _a_record_late),),
    ),
    Mutation(
        "earliest-of-another-replica",
        "clients are told that a log starts where a follower's does, which retention has cut further",
        ("earliest-behind-log-start",),
        STARTS_APART,
        (Patch(Partition, "list_offset", _where_the_followers_begin),),
    ),
    Mutation(
        "no-election-for-a-dead-leader",
        "a leader that may lead no more is taken away, and nobody elected until something else changes",
        ("leader-elected",),
        scenarios.ELECTIONS,
        (Patch(partition_change_builder, "elect", _not_at_once),),
    ),
)
