"""Faults of the network: each target must have been hurt."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.chaos.real.faults import Aim
from kraft.chaos.real.faults.networks import network_fault
from kraft.chaos.real.relay import Relays
from tests.support.node_processes import until


@pytest.mark.parametrize(("sending", "holds"), [((), False), ((1,), False), ((1, 2), True)])
def test_a_fault_of_two_nodes_has_taken_effect_when_it_met_bytes_of_both(
    tmp_path: Path, sending: tuple[int, ...], holds: bool
) -> None:
    with ExitStack() as stack:
        relays = Relays(lambda node: None, [1, 2])
        stack.callback(relays.close)
        clients = {}
        for node in (1, 2):
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            dialled = relays.relay(node, server.getsockname()[1], clients=True)
            clients[node] = stack.enter_context(socket.create_connection(("127.0.0.1", dialled)))
            accepted, _ = server.accept()
            stack.enter_context(accepted)
        cluster: Any = SimpleNamespace(relays=relays, node_ids=[1, 2])
        stopped = threading.Event()
        aim = Aim(cluster, (1, 2), (), tmp_path, {"from": "clients"}, stopped)
        fault: Any = network_fault("cut-off", aim)
        fault.begin()
        for node in sending:
            clients[node].sendall(b"x")
        until(lambda: relays.traffic(fault._links).hurt == len(sending), "the relays hold it up")
        stopped.set()  # nobody waits for more
        assert fault.proof().holds is holds
