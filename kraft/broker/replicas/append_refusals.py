"""Which data directories take no appends, for want of room or of descriptors; told once an episode.

The replica manager owns one. Produce requests and fetchers tell it what a disk refused, `PartitionEvents` tells it
of what was appended while a directory refuses; health pages show what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from partitions.errors import PartitionError
from partitions.log.errors import AppendPostponed, LogError
from partitions.log_manager import LogManager
from partitions.topic_partition import TopicPartition

log = structlog.get_logger(__name__)

TAKEN_AGAIN_AFTER_S: Final = 5.0
"""So long after the last append that was refused one that is taken ends the episode."""
TOLD_FOR_S: Final = 600.0
"""So long after the last append that was refused, at most, its directory counts as one that takes none."""


@dataclass(slots=True)
class _Refusal:
    """An append that a disk did not take; `at_s` is loop time."""

    at_s: float
    reason: str
    took_one_since: bool = False


class AppendRefusals:
    """The directories of one broker that refuse appends."""

    def __init__(self, logs: LogManager, clock_s: Callable[[], float]) -> None:
        """`clock_s` is the loop's time."""
        self._logs = logs
        self._clock_s = clock_s
        self.by_directory: dict[str, _Refusal] = {}
        """By directory, the last append that it refused in an episode that is not over; empty nearly always."""

    @property
    def directories(self) -> Mapping[str, str]:
        """Data directories in use that take no appends; path → reason. One that took some since counts as long as its
        episode may go on; one that nobody asks any more, for `TOLD_FOR_S`."""
        lost, now_s = self._logs.failed_directories, self._clock_s()
        return {
            path: last.reason
            for path, last in self.by_directory.items()
            if path not in lost
            and now_s - last.at_s < (TAKEN_AGAIN_AFTER_S if last.took_one_since else TOLD_FOR_S)
        }

    def on_refused(self, key: TopicPartition, error: LogError | PartitionError) -> None:
        """An append failed; counts if its disk has no room, or the process no descriptors, for it."""
        replica_log = self._logs.get(key)
        if not isinstance(error, AppendPostponed) or replica_log is None:
            return
        directory = _directory_of(replica_log.directory)
        if directory not in self.by_directory:
            log.error("appends are refused", directory=directory, reason=str(error))
        self.by_directory[directory] = _Refusal(self._clock_s(), str(error))

    def on_taken(self, key: TopicPartition) -> None:
        """An append was taken; a disk that is nearly full takes small ones in between."""
        replica_log = self._logs.get(key)
        if replica_log is None:
            return
        directory = _directory_of(replica_log.directory)
        last = self.by_directory.get(directory)
        if last is None:
            return
        last.took_one_since = True
        if self._clock_s() - last.at_s >= TAKEN_AGAIN_AFTER_S:
            del self.by_directory[directory]
            log.info("appends are taken again", directory=directory)


def _directory_of(folder: str) -> str:
    """The data directory that a log's folder is in."""
    return folder.rpartition("/")[0]
