"""Probes on the cleaner: every cleaned segment is looked at when it is about to take the place of others.

At that one moment both the old bytes and the new ones are on the disk. Later renames, and a start after a crash in
between, are judged like any other event of a log.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.chaos.history import TopicKey
from kraft.chaos.oracles.compaction import Cleaning
from kraft.chaos.oracles.node_disks import NodeDisks
from kraft.chaos.oracles.probes import key_of
from kraft.chaos.oracles.replica_shadows import ReplicaShadows
from kraft.chaos.oracles.wrapping import Method, Probes, Whose, around
from partitions.log.cleaner.compaction import Section
from partitions.log.cleaner.sources import Group
from partitions.log.cleaner.swap import CLEANED_SUFFIX, SegmentSwap
from partitions.log.log import PartitionLog
from partitions.log.segment import Segment


class CleanerProbes(Probes):
    """Probes on the beginning of a cleaning and on the swap that puts its segment into a log."""

    def __init__(
        self,
        whose: Whose,
        replicas: ReplicaShadows,
        disks: NodeDisks,
        delete_retention_ms: Callable[[TopicKey], int | None],
    ) -> None:
        """`delete_retention_ms`: a topic's config, None if the topic is gone."""
        self._whose = whose
        self._replicas = replicas
        self._disks = disks
        self._delete_retention_ms = delete_retention_ms
        self._began_ms: dict[tuple[int, str], int] = {}

    @around(PartitionLog, "cleanable_section")
    def _section(self, original: Method, log: PartitionLog, now_ms: int, high_watermark: int) -> Section:
        """Around the choice of a section, which begins a cleaning and comes once for each."""
        node = self._whose.node()
        if node is not None:
            self._began_ms[node, log.directory] = self._disks.wall_clock_ms(node)
        section: Section = original(log, now_ms, high_watermark)
        return section

    @around(PartitionLog, "begin_swap")
    def _begin_swap(
        self, original: Method, log: PartitionLog, group: Group, new: Segment, **options: bool
    ) -> SegmentSwap:
        key, node = key_of(log), self._whose.node()
        cleaning = None
        delete_retention_ms = None if key is None else self._delete_retention_ms(key)
        if key is not None and node is not None and delete_retention_ms is not None:
            cleaning = Cleaning(
                key,
                node,
                [self._disks.content_of(node, source.path) for source in group],
                self._disks.content_of(node, new.log_path + CLEANED_SUFFIX),
                self._disks.segments_in(node, log.directory),
                self._began_ms[node, log.directory],
                delete_retention_ms,
            )
        swap: SegmentSwap = original(log, group, new, **options)
        if cleaning is not None:
            self._replicas.cleaned(cleaning)
        return swap
