"""The cluster that all tests with real clients share: three node processes, gone at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.node_processes import NodeProcesses

TEST_TIMEOUT_S = 150


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole clusters and foreign clients: more time than a unit test has, and never without end."""
    for item in items:
        if item.path.parent.name == "clients" and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcesses]:
    """Three nodes. Whoever stops one of them takes `fragile_cluster` instead."""
    running = NodeProcesses(tmp_path_factory.mktemp("cluster"))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def fragile_cluster(cluster: NodeProcesses) -> Iterator[NodeProcesses]:
    """The same cluster, for a test that stops or pauses nodes: made whole again afterwards."""
    yield cluster
    cluster.restore()
