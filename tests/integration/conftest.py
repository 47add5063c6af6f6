"""Clusters inside the test's process: one for all who leave it whole, a fresh one for the others."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import structlog

from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster


@pytest.fixture(scope="session", autouse=True)
def nodes_log_to_standard_error() -> Iterator[None]:
    """Standard output belongs to the commands that run in the same process."""
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[ThreadedCluster]:
    """Three nodes that no test may stop."""
    with threaded_cluster() as running:
        yield running


@pytest.fixture
def own_cluster() -> Iterator[ThreadedCluster]:
    """Three nodes for one test."""
    with threaded_cluster() as running:
        yield running
