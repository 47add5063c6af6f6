"""What all tests share: a property holds or it does not, however busy the machine is that looks."""

from __future__ import annotations

import gc
import os
import signal
from collections import defaultdict
from itertools import islice

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

LONGEST = (
    "clients/test_readme.py",
    "clients/test_groups.py",
    "clients/test_spark_bench.py",
    "clients/test_ingest_kills.py",
    "clients/test_transactions.py",
    "clients/test_group_commands.py",
    "clients/test_demo.py",
    "clients/test_replication_bench.py",
    "clients/test_chaos_run.py",
    "chaos/test_corpus.py",
)
"""Files of tests that take long, the longest first: each process begins with some, so that none works alone at the
end. None of tests/integration: their cluster lives as long as its process, and simulations and tests of threads want to
be alone in theirs."""


def _skip_what_stays() -> None:
    """What is there now stays until the end: searches for garbage skip it. Every simulation begins with one, and a
    process of thousands of tests comes to hold what takes seconds to search."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`--dist worksteal` gives each process a stretch of the list, and who has done his takes from the end of
    another's: the `LONGEST` are the beginnings of the stretches."""
    if PROCESSES == 1:
        return
    rank = {name: number for number, name in enumerate(LONGEST)}
    by_rank: dict[int | None, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_rank[rank.get("/".join(item.path.parts[-2:]))].append(item)
    others = iter(by_rank.pop(None, []))
    beginnings: list[list[pytest.Item]] = [[] for _ in range(PROCESSES)]
    for turn, number in enumerate(sorted(by_rank)):
        beginnings[turn % PROCESSES] += by_rank[number]
    total, items[:] = len(items), []
    for number, beginning in enumerate(beginnings):
        length = (total - len(items)) // (PROCESSES - number)
        items += [*beginning, *islice(others, max(0, length - len(beginning)))]
    items += others


def pytest_collection_finish() -> None:
    _skip_what_stays()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After each module."""
    if nextitem is not None and nextitem.path != item.path:
        _skip_what_stays()
