"""The partitions led here in whose logs a transaction is undecided: how far readers of what is committed lag there.

Appends and elections tell of partitions, at O(1) each; a scrape looks only at those with a transaction that is open, or
whose marker is not replicated yet, and lets go of the others. On the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from typing import Final, NamedTuple

from partitions.partition import Partition
from partitions.topic_partition import TopicPartition

LISTED_MAX: Final = 100
"""Partitions that have a series of their own: those that lag most."""


class StableLag(NamedTuple):
    """Records between the last stable offset and the high watermark; only partitions where there are some."""

    listed: list[tuple[TopicPartition, int]]
    """At most `LISTED_MAX`, in their order."""
    partitions: int
    """How many lag."""
    max_records: int


class UndecidedPartitions:
    """Those of one broker."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, Partition] = {}

    def look(self, partition: Partition) -> None:
        """Something was appended, or the replica leads now."""
        if partition.log.producer_state.transactions:
            self._partitions[partition.topic_partition] = partition

    def lag(self) -> StableLag:
        """As of now."""
        lags = dict(self._lags())
        listed = nlargest(LISTED_MAX, lags.items(), key=lambda one: one[1])
        return StableLag(sorted(listed), len(lags), max(lags.values(), default=0))

    def _lags(self) -> Iterator[tuple[TopicPartition, int]]:
        for key, partition in list(self._partitions.items()):
            if not partition.is_leader or not partition.log.producer_state.transactions:
                del self._partitions[key]
                continue
            records = partition.high_watermark - partition.last_stable_offset
            if records > 0:
                yield key, records
