"""Mutations of the log: epochs, indexes, recovery, checkpoints, and the remains of deletion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from partitions.log.epochs.epoch_file import EpochFile
from partitions.log.index import OffsetIndex, TimeIndex
from partitions.log.log import PartitionLog
from partitions.log.opening import recovery
from partitions.log.scan import Damage
from partitions.log_manager import LogManager
from partitions.records.batch import CorruptBatchError, parse_header
from tests.chaos.mutations import scenarios
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by


def _epoch_after_the_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    def append_as_leader(log: Any, records: Any, *, leader_epoch: int, **options: Any) -> Any:
        is_new = leader_epoch != log.epochs.latest_epoch
        info = original(log, records, leader_epoch=leader_epoch, **options)
        if is_new and not info.duplicate:
            log.epochs.truncate_from_end(info.first_offset)
            log.epochs.assign(leader_epoch, log.log_end_offset)
            log.epoch_file.is_durable = False
        return info

    return append_as_leader


def _any_checksum(file: Any, end: int) -> Iterator[Any]:
    position = 0
    data = file.read(0, end)
    while position < end:
        try:
            header = parse_header(data, position)
        except CorruptBatchError as error:
            yield Damage(position, str(error))
            return
        if position + header.size_bytes > end:
            yield Damage(position, "the file ends inside the batch")
            return
        yield position, header
        position += header.size_bytes


async def _checkpoint_without_flush(manager: Any) -> None:
    for log in manager._logs.values():
        log.flushes.recovery_point = log.log_end_offset
        log._offsets_moved()
    await manager.checkpoints.write_recovery_points()


async def _delete_nothing(manager: Any, partitions: Any) -> None:
    return


def _take_over(log: Any, topic_id: bytes) -> None:
    log.topic_id = topic_id


HINTS = (
    "An index is a hint. A lookup compares what an entry names with the header at that place, and makes indexes anew"
    " that are wrong, from the headers and with a warning; an entry behind the log's end is not looked up before"
    " something else is there. So a stale entry costs time, and no answer depends on it."
)

MUTATIONS = (
    Mutation(
        "epoch-cache-after-append",
        "a new leader's epoch enters the epoch cache after its first batch, from the log's end on (KIP-101)",
        ("log-matching",),
        scenarios.ELECTIONS,
        (
            Patch(EpochFile, "begin", replaced_by(lambda epoch_file, epoch, log_end_offset: True)),
            Patch(PartitionLog, "append_as_leader", _epoch_after_the_batch),
        ),
    ),
    Mutation(
        "index-not-truncated-with-the-log",
        "the entries of what was cut stay in a segment's indexes",
        ("liveness",),
        scenarios.TRUNCATIONS,
        (
            Patch(OffsetIndex, "truncate", replaced_by(lambda index, relative_offset: None)),
            Patch(TimeIndex, "truncate", replaced_by(lambda index, relative_offset: None)),
        ),
        equivalent=HINTS,
    ),
    Mutation(
        "recovery-keeps-a-torn-tail",
        "recovery believes a batch whose checksum is wrong",
        ("log-matching",),
        scenarios.POWER,
        (Patch(recovery, "walk_checked", replaced_by(_any_checksum)),),
    ),
    Mutation(
        "checkpoint-before-flush",
        "the recovery point is checkpointed before what it covers is flushed",
        ("liveness",),
        scenarios.POWER,
        (Patch(LogManager, "checkpoint_recovery_points", replaced_by(_checkpoint_without_flush)),),
    ),
    Mutation(
        "deleted-topic-keeps-its-log",
        "a new topic of the same name gets the deleted one's log",
        ("log-matching",),
        scenarios.DELETED_TOPICS,
        (
            Patch(LogManager, "delete", replaced_by(_delete_nothing)),
            Patch(PartitionLog, "claim", replaced_by(_take_over)),
        ),
    ),
)
