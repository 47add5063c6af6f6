"""Whom a page is for: a request that names this node, not one that a foreign page makes a browser send. Pure.

A page of somebody else can have its own name resolve to this node's address (DNS rebinding) and then read what the node
answers: the request names that page's host. So `Host` has to be an address or a name of the node, also on loopback, and
`Origin`, which browsers send for scripts of other pages, the same host. Health is for everybody: probes use names of
their own, and learn nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

FREE: Final = "/health"
"""Paths that begin so are answered whatever the host, and whoever asks."""
_LOCALHOST: Final = "localhost"


def is_for_everybody(path: str) -> bool:
    """Whether a path is of health."""
    return path == FREE or path.startswith(f"{FREE}/")


class AllowedHosts:
    """The names of one node. Addresses, as such, are nobody's but the node's that is reached by them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset((_LOCALHOST, *(_normal(name) for name in names if name)))

    def refusal(self, path: str, host: str | None, origin: str | None) -> str | None:
        """Why a request is refused, in a sentence; None if it is not. `host` None: a client that says none."""
        if is_for_everybody(path):
            return None
        if host is not None and not self._is_own(_name_of(host)):
            return f"this node is not called {host[:100]!r}: use its address, or add the name to http.allowed.hosts"
        if origin is not None and (host is None or origin.partition("://")[2].lower() != host.lower()):
            return f"pages of {origin[:100]!r} may not read what this node shows"
        return None

    def _is_own(self, name: str) -> bool:
        if name in self._names or name.endswith(f".{_LOCALHOST}"):
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def _name_of(host: str) -> str:
    """A Host header's host, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return _normal(host.partition(":")[0])


def _normal(name: str) -> str:
    return name.lower().rstrip(".")
