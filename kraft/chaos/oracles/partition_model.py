"""The model of one partition for the oracles of data: its replicas, its committed records, its leaders by epoch.
Pure."""

from __future__ import annotations

from typing import NamedTuple

from kraft.chaos.history import TopicKey
from kraft.chaos.oracles.committed import CommittedPrefix
from kraft.chaos.oracles.compaction import CompactedBatches
from kraft.chaos.oracles.shadow_log import ShadowLog


class LeaderView(NamedTuple):
    """The facts by which a leader moves its high watermark."""

    epoch: int
    isr: tuple[int, ...]
    """The committed ISR, as the leader knows it."""
    maximal_isr: tuple[int, ...]
    """Every broker that may be in the ISR by now."""
    replicas: int
    """The number of replicas of the partition."""


class PartitionModel:
    """One partition: its replicas, its committed records, its leaders by epoch."""

    __slots__ = ("committed", "compaction", "key", "leaders", "leading", "removed", "replicas", "seen")

    def __init__(self, key: TopicKey) -> None:
        self.key = key
        self.committed = CommittedPrefix()
        self.compaction = CompactedBatches()
        self.replicas: dict[int, ShadowLog] = {}
        self.removed: dict[int, ShadowLog] = {}
        """The log that each node removed last."""
        self.leaders: dict[int, int] = {}
        """The brokers that really led, by leader epoch."""
        self.leading: dict[int, int] = {}
        """The epoch that each node's process leads in now."""
        self.seen: dict[int, int] = {}
        """The highest high watermark of each leader epoch."""
