"""Faults through a node's ports: they take effect when the node met them, they end, and one leaves the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.chaos.real.doors import Doors, open_doors
from kraft.chaos.real.faults import FAULTS, Aim
from kraft.chaos.real.faults.ports import PortFault
from kraft.config import load_config
from kraft.local_cluster.cluster import LocalCluster
from kraft.local_cluster.spec import node_config
from kraft.runtime.disk import RealDisk
from kraft.runtime.injected_faults import FaultFile, Faults, FaultyDisk

NODE = 1


class Node:
    """What a node does with its disk; it ends when an operation fails, if it is made so."""

    def __init__(self, path: str, folder: Path, *, halts: bool) -> None:
        self.pid: int | None = 100
        self.spawned = 0
        self._halts = halts
        self.door = FaultFile.open(path)
        self._log = FaultyDisk(RealDisk(), self.door).open(str(folder / "log"), create=True)

    def works(self) -> None:
        try:
            self._log.append([b"record"])
            self._log.sync()
        except OSError:
            if self._halts:
                self.pid = None

    def spawn(self, _node: int) -> None:
        self.spawned += 1
        self.pid = 100 + self.spawned


class World:
    """A cluster of that one node."""

    def __init__(self, folder: Path, *, halts: bool) -> None:
        door = FaultFile.make(str(folder / "door"))
        self.doors = Doors({NODE: door})
        self.node = Node(door.path, folder, halts=halts)
        local = SimpleNamespace(
            pid=lambda node: self.node.pid,
            spawn=self.node.spawn,
            kill=lambda node: setattr(self.node, "pid", None),
            log_tail=lambda node: "",
            readiness=lambda node: {"ready": self.node.pid is not None},
        )
        self.cluster: Any = SimpleNamespace(doors=self.doors, local=local, has_disks=False)
        self.stopped = threading.Event()
        self.stopped.set()  # nobody waits for what does not come

    def fault(self, name: str, **parameters: float) -> PortFault:
        made = FAULTS[name](Aim(self.cluster, (NODE,), (), Path(), parameters, self.stopped))
        assert isinstance(made, PortFault)
        return made


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(tmp_path, halts=getattr(request, "param", True))
    yield made
    made.doors.close()
    made.node.door.close()


@pytest.mark.parametrize("name", ["disk-full", "failing-disk"])
def test_a_node_that_ends_of_its_disk_is_started_again(world: World, name: str) -> None:
    fault = world.fault(name)
    fault.begin()
    assert fault.proof().holds is False, "it has met nothing yet"
    world.node.works()
    proof = fault.proof()
    assert proof.holds, proof
    assert proof.text.startswith("node 1: 1 writes")
    fault.end()
    assert world.node.spawned == 1
    world.node.works()
    assert fault.heal_proof() == (
        True,
        "node 1 finds no fault in disk and clock; node 1 is ready (process 101)",
    )


@pytest.mark.parametrize("world", [False], indirect=True)
def test_a_node_that_goes_on_after_a_failed_fsync_is_no_effect_and_is_killed(world: World) -> None:
    fault = world.fault("failing-disk")
    fault.begin()
    world.node.works()
    proof = fault.proof()
    assert (proof.holds, proof.text.partition(", and ")[2]) == (False, "it goes on as if nothing were")
    fault.end()
    assert world.node.pid == 101, "what it held for durable may not be"


def test_a_node_that_ends_just_after_the_fault_is_started_again(world: World) -> None:
    fault = world.fault("disk-full")
    fault.begin()
    world.node.works()
    world.node.pid = 100  # it takes its time
    fault.end()
    world.node.pid = None
    assert fault.heal_proof().holds
    assert world.node.spawned == 1


def test_a_node_that_ends_of_a_slow_disk_is_not_started_again(world: World) -> None:
    fault = world.fault("slow-disk", sync=0.001)
    fault.begin()
    world.node.works()
    assert fault.proof() == (True, "node 1: 1 fsyncs took 0.001 s longer")
    world.node.pid = None
    fault.end()
    assert world.node.spawned == 0
    assert fault.heal_proof().holds is False


def test_one_fault_that_ends_leaves_the_others(world: World) -> None:
    doors = world.doors
    first, second = world.fault("slow-disk", sync=0.001), world.fault("slow-disk", sync=0.002)
    clock, other_clock = world.fault("clock-offset", offset=60.0), world.fault("clock-offset", offset=-20.0)
    for fault in (first, second, clock, other_clock):
        fault.begin()
    assert doors.found(NODE) == Faults(sync_us=2000, clock_offset_ms=40_000)
    second.end()
    clock.end()
    clock.end()
    assert doors.found(NODE) == Faults(sync_us=1000, clock_offset_ms=-20_000)
    assert clock.heal_proof().text.startswith("node 1 finds sync_us=1000, clock_offset_ms=-20000")
    first.end()
    other_clock.end()
    assert doors.found(NODE) == Faults()


def test_a_fault_that_stays_in_the_file_is_not_over(world: World) -> None:
    fault = world.fault("clock-offset", offset=60.0)
    fault.begin()
    fault.end()
    world.node.door.impose(Faults(clock_offset_ms=60_000))
    assert fault.heal_proof().holds is False


def test_nodes_with_doors_are_configured_so(tmp_path: Path) -> None:
    local = LocalCluster(tmp_path)
    local.create(2, 9092, {})
    doors = open_doors(local)
    for node in (1, 2):
        config = load_config(node_config(tmp_path, node).read_text())
        assert config.get("chaos.enable") is True
        FaultFile.open(config.get("chaos.faults.file")).close()
        assert doors.found(node) == Faults()
    doors.close()
