"""What the modules share that open, make and delete the logs of one node.

Guarantees: nothing by itself; it names the parts, and each of those modules is handed all of them at once. The log
manager puts them together; everything in `FoundLogs` changes on its loop alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from partitions.disk import Disk
from partitions.log.config import LogConfig
from partitions.log.errors import LogError
from partitions.log.log import PartitionLog
from partitions.log.node_logs.checkpointing import CheckpointWriter
from partitions.log.node_logs.data_directory import DataDirectory
from partitions.log.node_logs.directories import LogDirectories
from partitions.log.node_logs.placements import PartitionPlacements
from partitions.log.node_logs.removal import DelayedRemovals
from partitions.ports import Executor, Halt, NowMs
from partitions.topic_partition import TopicPartition


@dataclass(slots=True)
class FoundLogs:
    """The logs of a node by partition; those that failed have a home as well."""

    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    home: dict[TopicPartition, DataDirectory] = field(default_factory=dict)
    failed: dict[TopicPartition, LogError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogParts:
    """The logs of a node, where they are, and what reaches the world for them."""

    disk: Disk
    executor: Executor
    now_ms: NowMs
    halt: Halt
    rng: random.Random
    default_config: LogConfig
    """What a log goes by until its topic's configuration is known."""
    directories: LogDirectories
    found: FoundLogs
    placements: PartitionPlacements
    removals: DelayedRemovals
    checkpoints: CheckpointWriter
