"""Relays before a server that echoes: what passes, what does not, and who went around."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.chaos.real.relay import (
    CLIENTS,
    WHOLE,
    Condition,
    Link,
    Passage,
    Relays,
    combined,
    connections_around,
)
from tests.support.node_processes import until

NODE = 1
THERE, BACK = Link(CLIENTS, NODE), Link(NODE, CLIENTS)
ANSWER_S = 10.0
CLOCK_S = 0.005
"""Timers of a loop go by a clock of milliseconds, and may be that much early."""


class Echo:
    """A server that sends back what it gets."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def relays() -> Iterator[Relays]:
    made = Relays(lambda node_id: os.getpid(), [NODE], seed=1)
    yield made
    made.close()


@pytest.fixture
def client(echo: Echo, relays: Relays) -> Iterator[socket.socket]:
    port = relays.relay(NODE, echo.port, clients=True)
    with socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
        yield connection


def asked(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return client.recv(len(text))


def test_what_is_sent_passes_and_is_counted(client: socket.socket, relays: Relays) -> None:
    assert asked(client, b"hello") == b"hello"
    until(lambda: relays.traffic([BACK]).passed_bytes == 5, "what came back is counted")
    traffic = relays.traffic([THERE])
    assert (traffic.connections, traffic.passed_bytes, traffic.hurt) == (1, 5, 0)


@pytest.mark.parametrize("cut", [THERE, BACK])
def test_what_a_cut_holds_back_comes_when_it_heals(client: socket.socket, relays: Relays, cut: Link) -> None:
    assert asked(client, b"before") == b"before"
    passed = relays.impose(Condition(Passage.STALLED), [cut]).passed_bytes
    client.sendall(b"later")
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(5)
    until(lambda: relays.traffic([cut]).hurt == 1, "the relay holds it back")
    assert relays.traffic([cut]).passed_bytes == passed
    client.settimeout(ANSWER_S)
    relays.heal()
    assert client.recv(5) == b"later"


def test_who_gave_up_during_a_cut_is_not_connected_when_it_heals(
    client: socket.socket, relays: Relays
) -> None:
    assert asked(client, b"before") == b"before"
    relays.cut(THERE, BACK)
    with socket.create_connection(client.getpeername(), ANSWER_S) as impatient:
        impatient.sendall(b"anybody?")
    relays.heal()
    assert asked(client, b"after") == b"after"
    assert asked_anew(client.getpeername()[1], b"new") == b"new"
    assert relays.traffic([THERE]).connections == 2


def test_a_reset_ends_connections_and_refuses_new_ones_until_it_heals(
    client: socket.socket, relays: Relays
) -> None:
    port = client.getpeername()[1]
    assert asked(client, b"before") == b"before"
    relays.impose(Condition(Passage.RESET), [THERE])
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionError):
        asked_anew(port, b"meanwhile")
    relays.heal()
    assert asked_anew(port, b"after") == b"after"


def asked_anew(port: int, text: bytes) -> bytes:
    """Asks on a connection of its own; an end without an answer is one without a handshake, too."""
    with socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
        return asked(connection, text) or asked(connection, text)


def test_a_half_open_connection_swallows_and_is_reset_when_it_heals(
    client: socket.socket, relays: Relays
) -> None:
    assert asked(client, b"before") == b"before"
    relays.impose(Condition(Passage.HALF_OPEN), [THERE])
    client.sendall(b"lost")
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(1)
    until(lambda: relays.traffic([THERE]).hurt == 1, "the relay has taken it")
    client.settimeout(ANSWER_S)
    relays.impose(WHOLE, [THERE])
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_latency_and_bandwidth_are_lower_bounds(client: socket.socket, relays: Relays) -> None:
    relays.impose(Condition(latency_s=0.1), [THERE, BACK])
    began_s = time.monotonic()
    assert asked(client, b"slow") == b"slow"
    assert time.monotonic() - began_s >= 0.2 - CLOCK_S
    relays.impose(Condition(bytes_per_s=100_000.0), [THERE])
    began_s = time.monotonic()
    client.sendall(b"x" * 30_000)
    received = 0
    while received < 30_000:
        received += len(client.recv(1 << 16))
    assert time.monotonic() - began_s >= 0.3 - CLOCK_S
    assert relays.traffic([THERE]).hurt >= 2


def test_a_link_carries_what_its_bandwidth_allows_and_the_rest_at_once_when_it_is_whole(
    client: socket.socket, relays: Relays
) -> None:
    """At one byte a second 30 kB would take hours."""
    relays.impose(Condition(bytes_per_s=1.0), [THERE])
    client.sendall(b"x" * 30_000)
    assert client.recv(1) == b"x"
    assert relays.traffic([THERE]).passed_bytes < 30_000
    relays.lift([THERE])
    received = 1
    while received < 30_000:
        received += len(client.recv(1 << 16))


def test_a_fault_that_ends_leaves_another_one_on_the_same_link(client: socket.socket, relays: Relays) -> None:
    """Two cuts and a delay overlap: bytes pass when the last cut is over, and late as long as the delay lasts."""
    assert asked(client, b"before") == b"before"
    relays.impose(Condition(Passage.STALLED), [THERE], "first")
    relays.impose(Condition(latency_s=0.1), [THERE], "late")
    relays.impose(Condition(Passage.STALLED), [THERE, BACK], "second")
    client.sendall(b"later")
    relays.lift([THERE], "first")
    assert relays.are_shut([THERE])
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(5)
    until(
        lambda: (relays.hurt_by("second", [THERE]), relays.hurt_by("late", [THERE])) == (1, 1),
        "both have struck",
    )
    client.settimeout(ANSWER_S)
    relays.lift([THERE, BACK], "second")
    assert client.recv(5) == b"later"
    assert not relays.are_shut([THERE, BACK])
    began_s = time.monotonic()
    assert asked(client, b"slow") == b"slow"
    assert time.monotonic() - began_s >= 0.1 - CLOCK_S
    assert relays.hurt_by("second", [THERE]) == 0, "what is over is to blame for nothing"


@pytest.mark.parametrize(
    ("passages", "worst"),
    [
        ((), Passage.OPEN),
        ((Passage.OPEN, Passage.HALF_OPEN), Passage.HALF_OPEN),
        ((Passage.HALF_OPEN, Passage.STALLED), Passage.STALLED),
        ((Passage.STALLED, Passage.RESET), Passage.RESET),
    ],
)
def test_faults_add_up(passages: tuple[Passage, ...], worst: Passage) -> None:
    several = [Condition(one, 1.0, 0.5, rate) for one, rate in zip(passages, (0.0, 9.0), strict=False)]
    whole = combined(several)
    assert (whole.passage, whole.latency_s, whole.jitter_s) == (worst, len(several), len(several) / 2)
    assert whole.bytes_per_s == (9.0 if len(several) > 1 else 0.0)


def test_a_connection_that_goes_around_the_relays_is_known_after_it_was_closed(
    client: socket.socket, relays: Relays, echo: Echo
) -> None:
    assert asked(client, b"through") == b"through"
    of_earlier_tests = connections_around(relays.node_ports)
    with socket.create_connection(("127.0.0.1", echo.port), ANSWER_S) as stranger:
        port = stranger.getsockname()[1]
        assert asked(stranger, b"around") == b"around"
        assert connections_around(relays.node_ports) - of_earlier_tests == {(echo.port, port)}
    assert (echo.port, port) in connections_around(relays.node_ports), (
        "it ended first: the kernel remembers it"
    )


@pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="this host has no IPv6")
def test_a_connection_of_an_ipv6_socket_around_the_relays_is_known_too(relays: Relays) -> None:
    """Java's sockets are such. The kernel remembers the end of whoever closed first."""
    with socket.create_server(("127.0.0.1", 0)) as node, socket.socket(socket.AF_INET6) as stranger:
        near = node.getsockname()[1]
        relays.relay(1, near)
        stranger.connect(("::ffff:127.0.0.1", near))
        far = stranger.getsockname()[1]
        accepted, _ = node.accept()
        with accepted:
            stranger.close()
            assert accepted.recv(1) == b""
    assert (near, far) in connections_around(relays.node_ports)


def test_bytes_for_a_side_that_is_gone_break_the_connection(relays: Relays) -> None:
    async def passed_on() -> None:
        gone: Any = SimpleNamespace(transport=SimpleNamespace(is_closing=lambda: True))
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        waiting.put_nowait((0.0, b"x"))
        await relays._pass_on(relays._state(THERE), waiting, gone)

    with pytest.raises(ConnectionResetError):
        asyncio.run(passed_on())
    assert relays.traffic([THERE]).passed_bytes == 0


def test_links_around_a_node() -> None:
    made = Relays(lambda node_id: None, [1, 2, 3])
    try:
        assert made.around(2) == ([Link(2, 1), Link(2, 3)], [Link(1, 2), Link(3, 2)])
    finally:
        made.close()
