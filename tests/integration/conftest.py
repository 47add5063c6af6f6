"""Clusters inside the test's process: one for all who leave it whole, a fresh one for the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster


@pytest.fixture(scope="session", autouse=True)
def nodes_log_to_memory() -> Iterator[None]:
    """What nodes log is shown of a test that failed.

    The standard streams will not do: they belong to the commands that run in the same process, and while a node
    writes from its own thread, they are closed and replaced between two tests.
    """
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=False),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    yield
    root.setLevel(before)
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[ThreadedCluster]:
    """Three nodes that no test may stop. Records may be of any time."""
    with threaded_cluster(properties={"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def own_cluster() -> Iterator[ThreadedCluster]:
    """Three nodes for one test."""
    with threaded_cluster() as running:
        yield running
