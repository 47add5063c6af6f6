"""Clusters inside the test's process: one for all who leave it whole, a fresh one for the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster


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
