"""Ports of this host that nobody listens on, for clusters of node processes."""

from __future__ import annotations

import secrets
import socket

FREE_PORTS = range(15000, 32000)
"""Below the range that the kernel gives to clients."""


def free_port_range(count: int) -> int:
    """The first of `count` consecutive ports that nobody listens on now."""
    while True:
        first = FREE_PORTS.start + secrets.randbelow(len(FREE_PORTS) - count)
        if all(is_free(port) for port in range(first, first + count)):
            return first


def free_ports(count: int, avoid: set[int]) -> list[int]:
    """Ports that nobody listens on now, all different, below the range that the kernel gives to clients."""
    ports: list[int] = []
    while len(ports) < count:
        port = FREE_PORTS.start + secrets.randbelow(len(FREE_PORTS))
        if port not in avoid and port not in ports and is_free(port):
            ports.append(port)
    return ports


def is_free(port: int) -> bool:
    """Whether nobody listens on the port of this host now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
