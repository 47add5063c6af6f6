"""What all tests share: a property holds or it does not, however busy the machine is that looks."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from kraft.runtime import free_ports
from tests.support.examples import IS_FIXED, examples

# Left to itself, Hypothesis fails an example that took 200 ms, and a strategy that is slow to draw from.
# Tests that name health checks of their own keep those.
# KRAFT_FIXED_EXAMPLES: the same examples every time, for a verdict that must not depend on the day.
settings.register_profile(
    "untimed",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=IS_FIXED,
)
settings.load_profile("untimed")

# A shell's background jobs begin with Ctrl-C ignored, and so would what the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

# Each process of a run has ports of its own: between the choice of one and its use another process could take it.
_number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES
_size = len(free_ports.FREE_PORTS) // PROCESSES
free_ports.FREE_PORTS = free_ports.FREE_PORTS[_number * _size : (_number + 1) * _size]


def _skip_what_stays() -> None:
    """What is there now stays until the end: searches for garbage skip it. Every simulation begins with one, and a
    process of thousands of tests comes to hold what takes seconds to search."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    _skip_what_stays()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After each module."""
    if nextitem is not None and nextitem.path != item.path:
        _skip_what_stays()
