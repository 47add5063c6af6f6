"""How a node's process uses Python's cyclic garbage collector. `kraft server` calls it.

A broker's objects live as long as their request, and then reference counts free them, or as long as its partitions. The
default thresholds look for cycles after every 700 new containers. That takes some 8 % of a busy broker's CPU, and walks
through all partitions again and again: a pause of the event loop that grows with them.
"""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (10_000, 20, 50)
"""New containers, and collections of a generation, before the next one is looked at (`gc.set_threshold`)."""


def collect_seldom() -> None:
    """For a process that begins."""
    gc.set_threshold(*THRESHOLDS)


def keep_for_good() -> None:
    """Once a node serves: what it has made so far stays, and is not walked through any more."""
    gc.freeze()


def collect_no_more() -> None:
    """Once a node ends: all that there is goes with the process, and nothing is gained by walking through it, here
    or as the interpreter ends. With ten thousand partitions that is an eighth of the CPU that a stop takes."""
    gc.disable()
    gc.freeze()
