"""Network namespaces: packets are truly dropped, in one direction, and nothing of them stays. Where this host can have
none (no root, no `ip`, no `nft`), it says which."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.chaos.real import namespaces as module
from kraft.chaos.real.faults import Aim, refusals
from kraft.chaos.real.faults.packets import SwitchFault
from kraft.chaos.real.folders import HELPERS, OWNER, run_folder
from kraft.chaos.real.namespaces import Namespaces
from kraft.chaos.real.relay import CLIENTS, Link
from kraft.user_error import UserError
from tests.support.node_processes import until
from tests.unit.chaos.experiments.planted import experiment

PORT = 9092
KILL = "{fault: kill, target: leader of orders-0, at: 2s, for: 5s}"
THERE, BACK = Link(CLIENTS, 1), Link(1, CLIENTS)
ECHO = """
import socketserver, sys

class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(100):
            self.request.sendall(data)

server = socketserver.ThreadingTCPServer((sys.argv[1], 9092), Echo)
print("listens", flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespaces | None]:
    """Two nodes; None where this host says that it cannot."""
    if module.refusal():
        yield None
        return
    made = Namespaces([1, 2], tmp_path_factory.mktemp("helpers"))
    yield made
    made.close()


@pytest.fixture
def echo(network: Namespaces | None) -> Iterator[subprocess.Popen[bytes] | None]:
    """Node 1, which sends back what it gets."""
    if network is None:
        yield None
        return
    command = [*network.entering(1), sys.executable, "-c", ECHO, network.address(1)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listens\n"
        yield process
        process.kill()


def connected(network: Namespaces, asked_from: str) -> socket.socket:
    return socket.create_connection((network.address(1), PORT), 10, source_address=(asked_from, 0))


def test_a_cut_in_one_direction_drops_packets_and_is_seen_by_nobody_else(
    network: Namespaces | None, echo: object
) -> None:
    """What clients send is lost, and comes when their kernel sends it again; who watches is not hurt."""
    if network is None:
        assert "network: namespaces` needs" in module.refusal()
        return
    cluster: Any = SimpleNamespace(namespaces=network, node_ids=[1, 2], answers_clients=lambda node: True)
    aim = Aim(cluster, (1,), (), Path(), {"from": "clients", "direction": "in"}, threading.Event())
    with (
        connected(network, network.address(CLIENTS)) as client,
        connected(network, network.watcher) as watcher,
    ):
        client.sendall(b"before")
        assert client.recv(10) == b"before"
        fault, other = SwitchFault(aim, [THERE]), SwitchFault(aim, [Link(2, 1)])
        fault.begin()
        other.begin()
        client.sendall(b"later")
        until(lambda: network.dropped(fault._table)[THERE] > 1, "its kernel sends again")
        watcher.sendall(b"well?")
        assert watcher.recv(10) == b"well?"
        proof = fault.proof()
        assert proof.holds, proof
        assert proof.text.endswith("and 0 passed")
        other.end()
        assert network.tables() == {fault._table}, "one that ends leaves the other"
        fault.end()
        fault.end()
        assert client.recv(10) == b"later"
        assert network.passed()[BACK] > 0
        assert fault.heal_proof().holds
        assert network.tables() == set()


def test_a_fault_that_met_no_packet_has_no_effect(network: Namespaces | None) -> None:
    if network is None:
        assert module.refusal()
        return
    stopped = threading.Event()
    stopped.set()
    cluster: Any = SimpleNamespace(namespaces=network, node_ids=[1, 2])
    fault = SwitchFault(Aim(cluster, (2,), (), Path(), {}, stopped), [Link(1, 2), Link(2, 1)], 0.5)
    fault.begin()
    proof = fault.proof()
    fault.end()
    assert proof.holds is False
    assert proof.text.startswith("no packet of node 2 was dropped")


def test_the_next_run_removes_what_one_that_was_killed_has_left(tmp_path: Path) -> None:
    left = tmp_path / "run-dead"
    (left / HELPERS).mkdir(parents=True)
    (left / OWNER).write_text("1 1\n")
    if module.refusal():
        with pytest.raises(UserError, match="this host has no network namespaces"):
            Namespaces([1], left / HELPERS)
        return
    name = Namespaces([1], left / HELPERS).name
    assert any(name in one for one in made())
    with run_folder(tmp_path):
        assert not any(name in one for one in made())
        assert module._host_end(name) not in subprocess.check_output(["ip", "-br", "link"], text=True)


def made() -> list[str]:
    listed = subprocess.check_output(["ip", "-j", "netns", "list"]) or b"[]"
    return [one["name"] for one in json.loads(listed)]


@pytest.mark.parametrize("missing", ["ip", "nft", "root"])
def test_a_host_that_lacks_something_is_told_what(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "geteuid", lambda: 1 if missing == "root" else 0)
    monkeypatch.setattr(
        module.shutil, "which", lambda command: None if command == missing else f"/sbin/{command}"
    )
    (said,) = refusals(experiment(("  nodes: 3", "  nodes: 3\n  network: namespaces")))
    assert said.startswith(
        f"`network: namespaces` needs {'root' if missing == 'root' else f'the command {missing}'}"
    )


def test_faults_of_relays_are_refused_in_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "refusal", lambda: "")
    slow = "{fault: latency, target: node 1, delay: 30ms, at: 0s, for: 2s}"
    found = experiment((KILL, slow), ("  nodes: 3", "  nodes: 3\n  network: namespaces"))
    assert refusals(found) == [
        "the fault latency is played by relays: take `network: namespaces` out of the file"
    ]
