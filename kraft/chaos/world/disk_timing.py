"""How long a simulated disk takes: only fsyncs block, reads and writes go through the page cache and cost
nothing. Drawn by `kraft.chaos.world.disk`, made worse by `kraft.chaos.faults.disk`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class DiskTiming:
    """Virtual time of what blocks. Assign a new one to `Storage.timing` at any time to make a disk slow."""

    sync_s: tuple[float, float] = (0.000_3, 0.002)
    hiccup_odds: float = 0.0
    """The probability that an fsync takes `hiccup_s` longer."""
    hiccup_s: tuple[float, float] = (0.5, 2.0)

    def draw_sync_s(self, draw: Callable[[float, float], float]) -> float:
        """How long one fsync takes."""
        cost_s = draw(*self.sync_s)
        if self.hiccup_odds and draw(0.0, 1.0) < self.hiccup_odds:
            cost_s += draw(*self.hiccup_s)
        return cost_s
