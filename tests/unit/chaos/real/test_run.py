"""A run that is interrupted."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import kraft.chaos.real.run as run_module
from tests.unit.chaos.experiments.planted import experiment

WAIT_S = 10.0


class Cluster:
    """Its nodes are those that run."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.nodes = {1, 2, 3}

    def kill_nodes(self) -> None:
        self.nodes.clear()

    def close(self) -> None:
        self.kill_nodes()


class Kill:
    """A method in whose only fault node 1 is down; its end starts the node, and takes a while."""

    def __init__(self, cluster: Cluster) -> None:
        self.stopped = threading.Event()
        self._goes_on = threading.Event()
        self._cluster = cluster
        self._thread = threading.Thread(target=self._end, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def _end(self) -> None:
        assert self._goes_on.wait(WAIT_S)
        self._cluster.nodes.add(1)

    def abandon(self, timeout_s: float) -> None:
        self._goes_on.set()
        self._thread.join(timeout_s)


def test_a_fault_that_ends_late_leaves_no_node_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "ChaosCluster", Cluster)
    run: Any = run_module._Run(experiment(), 1, tmp_path, lambda _: None, lambda _: None, secure=False)
    run._method = method = Kill(run._cluster)
    run.close(None)
    assert method.is_over
    assert run._cluster.nodes == set()
