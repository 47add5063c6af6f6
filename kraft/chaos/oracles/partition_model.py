"""One partition as the oracles of data see it: its replicas, what is committed, and who led it when. Pure."""

from __future__ import annotations

from typing import NamedTuple

from kraft.chaos.history import TopicKey
from kraft.chaos.oracles.committed import CommittedPrefix
from kraft.chaos.oracles.compaction import CompactedBatches
from kraft.chaos.oracles.shadow_log import ShadowLog


class LeaderView(NamedTuple):
    """What a leader goes by when it moves its high watermark."""

    epoch: int
    isr: tuple[int, ...]
    """The committed ISR as it knows it."""
    maximal_isr: tuple[int, ...]
    """Every broker that may be in the ISR by now."""
    replicas: int
    """How many replicas the partition has."""


class PartitionModel:
    """One partition: its replicas, what is committed, and who led it when."""

    __slots__ = ("committed", "compaction", "key", "leaders", "leading", "removed", "replicas", "seen")

    def __init__(self, key: TopicKey) -> None:
        self.key = key
        self.committed = CommittedPrefix()
        self.compaction = CompactedBatches()
        self.replicas: dict[int, ShadowLog] = {}
        self.removed: dict[int, ShadowLog] = {}
        """The log that each node removed last."""
        self.leaders: dict[int, int] = {}
        """Who really led, by leader epoch."""
        self.leading: dict[int, int] = {}
        """The epoch that each node's process leads in now."""
        self.seen: dict[int, int] = {}
        """The highest high watermark of each leader epoch."""
