"""What all tests share: a property holds or it does not, however busy the machine is that looks."""

from __future__ import annotations

import gc
import os
import signal

from hypothesis import HealthCheck, settings

# Left to itself, Hypothesis fails an example that took 200 ms, and a strategy that is slow to draw from.
# Tests that name health checks of their own keep those.
# KRAFT_FIXED_EXAMPLES: the same examples every time, for a verdict that must not depend on the day.
settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="KRAFT_FIXED_EXAMPLES" in os.environ,
)
settings.load_profile("untimed")

# A shell's background jobs begin with Ctrl-C ignored, and so would what the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What was collected stays until the end: searches for garbage skip it. Every simulation begins with one."""
    gc.collect()
    gc.freeze()
