"""Mutations of the defences against disks: rot that is found and repaired, full and failing directories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.broker.replicas.offline_replicas import OfflineReplicas
from partitions.log.checked_bytes import CheckedBytes, CheckedTo
from partitions.log.errors import LogStorageError, NoRoomToAppend
from partitions.log.log import PartitionLog
from partitions.log.opening import open_log
from partitions.log.storage import LogStorage
from quorum.controller import replica_states
from quorum.controller.partition_change_builder import PartitionChangeBuilder
from quorum.metadata.image import PartitionImage
from quorum.rpc.messages import DAMAGED, DIRECTORY
from tests.chaos.mutations import scenarios, scenarios_of_readers
from tests.chaos.mutations.registry import Mutation, Patch, replaced_by


def _as_a_failed_directory(marks: dict[Any, Any]) -> dict[Any, Any]:
    return {**marks, DAMAGED: marks[DIRECTORY]}


def _all_but_offline(original: Callable[..., Any]) -> Callable[..., Any]:
    def without(builder: Any, leaving: Any) -> Any:
        return builder if leaving is builder.target_offline else original(builder, leaving)

    return without


def _tail_from_the_start(original: Callable[..., Any]) -> Callable[..., Any]:
    def recovery(*arguments: Any, **options: Any) -> Any:
        return original(*arguments, **{**options, "recovery_point": 0})

    return recovery


def _only_say_so(storage: Any, reason: str, cause: BaseException | None = None) -> Any:
    raise LogStorageError(reason) from cause


def _leave_what_was_written(log: Any, segment: Any, size_bytes: int, error: OSError) -> Any:
    raise NoRoomToAppend(str(error)) from error


def _in_the_same_epoch(builder: Any, broker_id: int) -> Any:
    return builder.online(broker_id)


MUTATIONS = (
    Mutation(
        "made-anew-in-the-same-epoch",
        "a replica that is back begins no leader epoch, so that its former log vouches for the present one",
        ("leader-candidate-completeness", "strong-isr"),
        scenarios_of_readers.MADE_ANEW,
        (Patch(PartitionChangeBuilder, "renewed", replaced_by(_in_the_same_epoch)),),
        faces="it is in the ISR without what is committed, before (candidate) or after it counts (strong-isr)",
    ),
    Mutation(
        "read-without-check",
        "what a process neither wrote nor checked is handed out without a look at its checksums",
        ("corrupt-batch-served",),
        scenarios.ROT,
        (
            Patch(
                CheckedBytes,
                "check",
                replaced_by(lambda self, segment, file, wanted: CheckedTo(wanted.end, None)),
            ),
        ),
    ),
    Mutation(
        "damage-not-reported",
        "a broker keeps to itself that it cannot serve a replica",
        ("liveness",),
        scenarios.ROT,
        (Patch(OfflineReplicas, "mark", replaced_by(lambda replicas, key, kind: None)),),
    ),
    Mutation(
        "damaged-replica-stays-eligible",
        "a replica whose records cannot be trusted becomes an eligible leader replica (KIP-966)",
        ("leader-candidate-completeness",),
        scenarios.ROT_ALL_IN_SYNC,
        (Patch(replica_states, "_MARK", _as_a_failed_directory),),
    ),
    Mutation(
        "offline-replica-leads-on",
        "a replica that its broker cannot serve stays in the ISR, and may lead",
        ("offline-not-in-isr",),
        scenarios.ROT,
        (
            Patch(PartitionChangeBuilder, "without", _all_but_offline),
            Patch(
                PartitionChangeBuilder,
                "_may_lead",
                replaced_by(lambda builder, broker_id: builder._acceptable(broker_id)),
            ),
            Patch(PartitionImage, "_check_offline", replaced_by(lambda partition: None)),
        ),
    ),
    Mutation(
        "rot-cut-like-a-torn-tail",
        "recovery cuts a log at a bad checksum, however long ago that was flushed",
        ("durable-records-cut",),
        scenarios.ROT,
        (Patch(open_log, "Recovery", _tail_from_the_start),),
    ),
    Mutation(
        "half-an-append-stays",
        "what a full disk took of an append stays in the log",
        ("corrupt-batch-served", "log-matching", "liveness"),
        scenarios.FULL,
        (Patch(PartitionLog, "_undo_write", replaced_by(_leave_what_was_written)),),
        faces="the torn bytes are handed out (corrupt-batch-served), stand in the way of what is sound (log-matching)"
        " or of reading on (liveness)",
    ),
    Mutation(
        "failed-fsync-forgotten",
        "after a failed fsync the directory is used on",
        ("not-halted",),
        scenarios.FAILING_DISKS,
        (Patch(LogStorage, "fail", replaced_by(_only_say_so)),),
    ),
)
