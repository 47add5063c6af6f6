"""What the log manager found when a node started: for the node's own log, its metrics, its registration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from partitions.log.data_directory import UNKNOWN_BROKER_EPOCH
from partitions.log.errors import LogError
from partitions.log.parts import LogParts
from partitions.log.recovery import RecoveryReport
from partitions.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class StartReport:
    """What was found at start, for the node's log and its registration."""

    clean_shutdown: bool
    """Every data directory was left by a process that closed its logs."""
    previous_broker_epoch: int
    """Of that process; -1 if it did not end cleanly, did not say, or left a log that cannot be used: then
    this broker may lack records that it once had."""
    logs: int
    recovered: Mapping[TopicPartition, RecoveryReport] = field(default_factory=dict)
    """Logs of which a torn tail was cut, or whose leader epochs were taken from their batches."""
    failed: Mapping[TopicPartition, LogError] = field(default_factory=dict)
    """Logs that could not be opened; the partitions are offline here."""
    failed_directories: Mapping[str, str] = field(default_factory=dict)
    """Path and reason of the data directories that cannot be used; the node goes on without them."""
    damaged_checkpoints: tuple[str, ...] = ()
    """Checkpoint files that counted as absent, one sentence each."""


def start_report(parts: LogParts, *, is_complete: bool) -> StartReport:
    """Of the logs that were opened; `is_complete`: all of them were looked at."""
    directories, found = parts.directories, parts.found
    clean = is_complete and all(directory.clean_shutdown for directory in directories)
    epochs = [directory.previous_broker_epoch for directory in directories]
    return StartReport(
        clean_shutdown=clean,
        previous_broker_epoch=min(epochs) if clean and not found.failed else UNKNOWN_BROKER_EPOCH,
        logs=len(found.logs),
        recovered={
            partition: log.recovery for partition, log in found.logs.items() if log.recovery.is_notable
        },
        failed=dict(found.failed),
        failed_directories=directories.failed,
        damaged_checkpoints=tuple(
            reason for directory in directories for reason in directory.damaged_checkpoints.values()
        ),
    )
