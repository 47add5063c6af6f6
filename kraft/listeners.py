"""How listeners are written in server.properties, and what may be advertised of them.

Pure parsing; every error is a ValueError whose text is the end of a sentence that begins with the key.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import NamedTuple

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The security protocols that a listener can have."""
WILDCARD_HOSTS = ("", "0.0.0.0", "::")
MAX_PORT = 65535


class Endpoint(NamedTuple):
    """A listener: its name, where it binds or is reached, and how it is secured."""

    name: str
    host: str
    port: int
    protocol: str

    @property
    def is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")


def is_loopback(host: str) -> bool:
    """Whether only this host reaches it; an empty host is every interface."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def split_host_port(text: str) -> tuple[str, int]:
    """host:port, an IPv6 address in brackets; an empty host is every interface, port 0 any free one."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > MAX_PORT:
        raise ValueError(f"{text!r} is not host:port with a port from 0 to {MAX_PORT}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} has an IPv6 address without brackets; write [address]:port")
    if any(character.isspace() or character in "/@,[]" for character in host):
        raise ValueError(f"{host!r} is no name of a host")
    try:
        host.encode("idna")  # as a resolver does
    except UnicodeError:
        raise ValueError(
            f"{host!r} is no name of a host: what stands between its dots must have 1 to 63 characters"
        ) from None
    return host, int(port)


def parse_listeners(texts: tuple[str, ...], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """NAME://host:port of each listener; names differ, and each has a protocol in the map."""
    endpoints: list[Endpoint] = []
    for text in texts:
        name, separator, address = text.partition("://")
        name = name.upper()
        if not separator or not name:
            raise ValueError(f"{text!r} is not NAME://host:port")
        host, port = split_host_port(address)
        if any(name == other.name for other in endpoints):
            raise ValueError(f"the listener {name} is there twice; give each its own name")
        protocol = protocols.get(name)
        if protocol is None:
            raise ValueError(
                f"the listener {name} has no protocol; add {name}:PLAINTEXT to listener.security.protocol.map"
            )
        endpoints.append(Endpoint(name, host, port, protocol))
    return tuple(endpoints)


def check_ports(endpoints: tuple[Endpoint, ...]) -> None:
    """Two listeners on one port would keep the node from starting."""
    for position, endpoint in enumerate(endpoints):
        for other in endpoints[:position]:
            same_host = (
                endpoint.host == other.host or endpoint.host in WILDCARD_HOSTS or other.host in WILDCARD_HOSTS
            )
            if endpoint.port and endpoint.port == other.port and same_host:
                raise ValueError(
                    f"{other.name} and {endpoint.name} both have port {endpoint.port}; give each its own port"
                )


def parse_protocols(texts: tuple[str, ...]) -> dict[str, str]:
    """LISTENER:PROTOCOL of each listener."""
    protocols: dict[str, str] = {}
    for text in texts:
        name, separator, protocol = (part.strip().upper() for part in text.partition(":"))
        if not separator or not name or protocol not in PROTOCOLS:
            raise ValueError(f"{text!r} is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}")
        if name in protocols:
            raise ValueError(f"the listener {name} is there twice")
        protocols[name] = protocol
    return protocols


def parse_voters(texts: tuple[str, ...]) -> dict[int, str]:
    """id@host:port of each voter, as node id → address."""
    voters: dict[int, str] = {}
    for text in texts:
        id_text, separator, address = text.partition("@")
        if not separator or not id_text.isdecimal():
            raise ValueError(f"{text!r} is not id@host:port")
        host, port = split_host_port(address)
        if host in WILDCARD_HOSTS or not port:
            raise ValueError(f"{text!r} has no address that the other nodes can reach")
        if int(id_text) in voters:
            raise ValueError(f"node {int(id_text)} is there twice")
        if address in voters.values():
            raise ValueError(f"two voters have the address {address}")
        voters[int(id_text)] = address
    if not voters:
        raise ValueError("no voter is named; write id@host:port of each controller")
    return voters


def advertised(named: tuple[Endpoint, ...], listeners: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    """What clients are told of each listener: what is named, else where it binds.

    A listener on every interface that nothing is named for gets an empty host: the node puts its own
    name there.
    """
    for endpoint in named:
        if endpoint.host in WILDCARD_HOSTS:
            raise ValueError(
                f"no client can reach {endpoint.host or 'an empty host'}; name an address of this host"
            )
        if endpoint.name not in {listener.name for listener in listeners}:
            raise ValueError(f"{endpoint.name} is not among the broker's listeners")
    by_name = {endpoint.name: endpoint for endpoint in named}
    return tuple(
        by_name.get(listener.name)
        or (listener._replace(host="") if listener.host in WILDCARD_HOSTS else listener)
        for listener in listeners
    )
