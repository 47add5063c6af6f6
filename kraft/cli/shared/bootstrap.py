"""`HOST:PORT[,…]` of --bootstrap-server: every command reads it here, for our client and for librdkafka."""

from __future__ import annotations

import ipaddress
import re

from kraft.user_error import EXIT_USAGE, UserError

MAX_PORT = 65535
_PORT = re.compile(r"0*[0-9]{1,5}")
_HOST = re.compile(r"[A-Za-z0-9._-]+")

HostPort = tuple[str, int]


def parse_bootstrap(text: str, option: str = "--bootstrap-server") -> list[HostPort]:
    """The addresses in such a text; of an IPv6 address without its brackets. Empty parts are passed over, as Kafka
    does. Raises UserError for anything else, and where there is none."""
    addresses = []
    for part in [part for part in map(str.strip, text.split(",")) if part] or [text]:
        host, _, port = part.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
            is_host = _is_ipv6(host)
        else:
            is_host = _is_name(host) or _is_ipv6(host)
        if not is_host or not _PORT.fullmatch(port) or not 0 < int(port[-5:]) <= MAX_PORT:
            raise UserError(f"{option} takes HOST:PORT[,…], not {text!r}", EXIT_USAGE)
        addresses.append((host, int(port[-5:])))
    return addresses


def address_text(host: str, port: int) -> str:
    """One address as everybody takes it: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bootstrap_text(text: str) -> str:
    """The same addresses for librdkafka, which would try whatever it is given. Raises UserError."""
    return ",".join(address_text(host, port) for host, port in parse_bootstrap(text))


def _is_name(host: str) -> bool:
    """Whether a resolver takes it: an IPv4 address, or a name, of any script."""
    try:
        return _HOST.fullmatch(host.encode("idna").decode()) is not None
    except UnicodeError:
        return False


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
