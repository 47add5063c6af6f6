"""Who watches a run: a node that ends by itself is found, also after a fault of its own; a watch that ends is told."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kraft.chaos.real.method as method_module
from kraft.chaos.experiments.document import Experiment, load
from kraft.chaos.experiments.targets import MetadataView, PartitionView
from kraft.chaos.real.cluster import Health
from kraft.chaos.real.faults import Aim, Proof
from kraft.chaos.real.method import Method
from kraft.chaos.real.watch import ClusterWatch
from tests.unit.chaos.experiments.planted import TEXT

WAIT_S = 60.0


class Cluster:
    """Three nodes, of which some are down."""

    node_ids = (1, 2, 3)
    local = SimpleNamespace(pid=lambda node: None)

    def __init__(self) -> None:
        self.down: tuple[int, ...] = ()

    def health(self) -> Health:
        return Health(offset=1, controller=3, controller_epoch=1, down=self.down, is_known=True)

    def bypasses(self) -> list[str]:
        return []

    def view(self, *_: Any) -> MetadataView:
        led = {("orders", 0): PartitionView(1, (1, 2, 3), (1, 2, 3))}
        return MetadataView((1, 2, 3), frozenset((1, 2, 3)), 3, led)


class Taken:
    """A fault that takes its node until the test has looked."""

    struck = threading.Event()
    may_end = threading.Event()

    def __init__(self, aim: Aim) -> None:
        self.aim = aim

    def begin(self) -> None:
        self.aim.cluster.down = self.aim.nodes  # type: ignore[attr-defined]
        self.struck.set()
        assert self.may_end.wait(WAIT_S)

    def grow(self, share: float) -> None:
        """It has no size."""

    def proof(self) -> Proof:
        return Proof(True, "it was taken")

    def end(self) -> None:
        self.aim.cluster.down = ()  # type: ignore[attr-defined]

    def heal_proof(self) -> Proof:
        return Proof(True, "it is back")


@pytest.fixture
def experiment() -> Experiment:
    return load(TEXT.replace("at: 2s, for: 5s", "at: 0s, for: 100ms").replace("steady: 5s", "steady: 1s"))


def test_a_node_is_excused_while_its_fault_lasts_and_not_afterwards(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(method_module, "FAULTS", {"kill": Taken})
    cluster: Any = Cluster()
    method = Method(experiment, cluster, lambda: 2.0, 1, tmp_path, lambda _: None)
    watch = ClusterWatch(cluster, lambda: 2.0)
    watch.may_be_down = method.struck
    method.start()
    assert Taken.struck.wait(WAIT_S)
    watch.look()
    assert watch.ended == {}, "a fault has it"
    Taken.may_end.set()
    method.stop()
    watch.look()
    assert watch.ended == {}
    cluster.down = (1,)
    watch.look()
    assert watch.ended == {1: 2.0}


def test_a_watch_that_ends_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: Any = Cluster()
    watch = ClusterWatch(cluster, lambda: 0.0)

    def broken() -> list[str]:
        raise KeyError("inode")

    monkeypatch.setattr(cluster, "bypasses", broken)
    watch.start()
    watch.join(WAIT_S)
    assert "the watch of the cluster ended: KeyError: 'inode'" in watch.problem
