"""The two clocks of the real world, as functions that are passed to code that needs time."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Wall-clock time in milliseconds since the Unix epoch; may jump when the host's clock is set."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """Seconds that never go back, for code that runs beside the event loop (the Raft lane)."""
    return time.monotonic()
