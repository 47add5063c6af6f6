"""How a node's process uses Python's cyclic garbage collector. `kraft server` calls it.

A broker's objects live as long as their request, and then reference counts free them, or as long as its partitions. The
default thresholds look for cycles after every 700 new containers. That takes some 8 % of a busy broker's CPU, and walks
through all partitions again and again: a pause of the event loop that grows with them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any, Final

THRESHOLDS: Final = (10_000, 1, 500)
"""New containers, and collections of a generation, before the next one is looked at (`gc.set_threshold`). The middle
generation is looked at often: it is walked through whole, and at a quarter of a microsecond for each container that
lives on, twenty collections of the youngest one make a pause of 50 ms where partitions are made."""
KEPT_PARTITIONS: Final = 1_000
"""So many more than ever before are kept for good, too: some 50,000 containers."""
MIDDLE: Final = 1


def collect_seldom() -> None:
    """For a process that begins."""
    gc.set_threshold(*THRESHOLDS)


def keep_for_good() -> None:
    """Once a node serves: what it has made so far stays, and is not walked through any more."""
    gc.freeze()


class KeptPartitions:
    """Keeps for good what comes with partitions that are made while the node serves, as `keep_for_good` does: or each
    collection of the oldest generation would walk through all of them, 100 ms for ten thousand.

    It looks after the collections of the middle generation, when what was garbage there is gone. Cycles that became
    garbage later are kept with the rest; that is bounded by the most partitions that there ever were.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        """`count()` is how many the node has now; it is asked on any thread."""
        self._count = count
        self._kept = count()
        gc.callbacks.append(self._look)

    def close(self) -> None:
        """Looks no more. Idempotent."""
        if self._look in gc.callbacks:
            gc.callbacks.remove(self._look)

    def _look(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase != "stop" or info["generation"] < MIDDLE:
            return
        count = self._count()
        if count >= self._kept + KEPT_PARTITIONS:
            self._kept = count
            keep_for_good()


def collect_no_more() -> None:
    """Once a node ends: all that there is goes with the process, and nothing is gained by walking through it, here
    or as the interpreter ends. With ten thousand partitions that is an eighth of the CPU that a stop takes."""
    gc.disable()
    gc.freeze()
