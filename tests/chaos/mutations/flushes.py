"""Mutations of what waits for a flush that flush.messages made due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.broker.replicas.appends import AckCondition
from partitions import log_manager
from partitions.log.log import PartitionLog
from partitions.partition import AckStatus, Partition
from tests.chaos.mutations import scenarios
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by
from tests.chaos.mutations.stages import ClusterStage, Storm

FLUSHED = ClusterStage(
    "flushed",
    Storm(
        ("power-loss-all", "power-loss", "slow-disk", "slow-disk", "kill", "clogged-link"),
        mean_s=1.0,
        topics=scenarios.topic(segment_bytes="16384", flush_messages="1"),
        workloads=(scenarios.IDEMPOTENT, scenarios.ACKS_1, scenarios.CONSUMER),
    ),
)
"""Every record is flushed before it counts; disks are slow at times, and all machines lose their power at once."""


def _all_of_it(original: Callable[..., Any]) -> Callable[..., Any]:
    """As a leader's high watermark, whatever is on its disk."""

    def advance(partition: Any, leading: Any, now_ms: int) -> None:
        log = partition.log
        offset = leading.committed_offset(log.log_end_offset, log.config.min_insync_replicas, now_ms)
        if offset is not None and offset > partition.high_watermark:
            partition._raise_high_watermark(offset)

    return advance


def _files_alone(original: Callable[..., Any]) -> Callable[..., Any]:
    def run_flush(disk: Any, job: Any) -> None:
        original(disk, job._replace(directory=None))

    return run_flush


MUTATIONS = (
    Mutation(
        "leader-counts-unflushed",
        "a leader's high watermark rises to where its log ends, whatever of that is on its disk",
        ("counted-before-flushed",),
        FLUSHED,
        (Patch(Partition, "_advance_high_watermark", _all_of_it),),
    ),
    Mutation(
        "follower-fetches-beyond-its-disk",
        "a follower fetches on while its flush is outstanding, and its leader counts what it has",
        ("counted-before-flushed",),
        FLUSHED,
        (Patch(Partition, "awaits_flush", lambda _: property(lambda partition: False)),),
    ),
    Mutation(
        "acks-1-before-the-flush",
        "an append with acks=1 is acknowledged at once",
        ("counted-before-flushed",),
        FLUSHED,
        (Patch(AckCondition, "flush_status", lambda _: property(lambda condition: AckStatus.OK)),),
    ),
    Mutation(
        "follower-shows-unflushed",
        "a follower takes the high watermark over up to where its log ends, whatever of that is on its disk",
        ("counted-before-flushed",),
        FLUSHED,
        (
            Patch(
                Partition,
                "_follow_high_watermark",
                replaced_by(
                    lambda partition: (
                        partition._raise_high_watermark(offset)
                        if (offset := min(partition._told_high_watermark, partition.log.log_end_offset))
                        > partition.high_watermark
                        else None
                    )
                ),
            ),
        ),
    ),
    Mutation(
        "folder-not-flushed",
        "a flush makes the contents of the files durable, and not the names of new segments",
        ("counted-before-flushed",),
        FLUSHED,
        (Patch(log_manager, "run_flush", _files_alone),),
    ),
    Mutation(
        "flush-after-restart-forgotten",
        "a log that a process opens counts as flushed, although the one before it may not have done that",
        ("counted-before-flushed",),
        FLUSHED,
        (Patch(PartitionLog, "_reckon_due_flush", replaced_by(lambda log: None)),),
    ),
)
