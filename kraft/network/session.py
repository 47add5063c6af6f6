"""What belongs to one connection: who is at its other end, how it came in, and until when it is not read.

A connection makes its session when it is accepted, and requests carry it to their handlers. What is found out later
(the client's software, who the client is) is noted here by who finds it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraft.security.authentication import Authentication

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that did not authenticate, in Kafka's words."""
UNKNOWN_SOFTWARE: Final = "unknown"
"""Of a client whose ApiVersions did not tell (KIP-511)."""


class Session:
    """One connection, as handlers see it."""

    __slots__ = (
        "_finish",
        "_mute",
        "_recognize",
        "arrived_s",
        "authentication",
        "client_id",
        "client_software_name",
        "client_software_version",
        "listener_name",
        "now_s",
        "peer",
        "principal",
    )

    def __init__(
        self,
        listener_name: str,
        peer: tuple[str, int] = ("", 0),
        mute: Callable[[float], None] | None = None,
        finish: Callable[[], None] | None = None,
        recognize: Callable[[], None] | None = None,
    ) -> None:
        self.listener_name = listener_name
        """The listener that the client came through; answers name addresses of it."""
        self.peer = peer
        """Host and port of the client."""
        self.principal = ANONYMOUS
        self.authentication: Authentication | None = None
        """How the client says who it is; None on listeners where none has to, or a certificate says it."""
        self.client_id = ""
        """As its first request told it."""
        self.client_software_name = UNKNOWN_SOFTWARE
        self.client_software_version = UNKNOWN_SOFTWARE
        self.arrived_s = 0.0
        """Loop time of the last bytes that were read: when the request that is being handled had arrived."""
        self.now_s = 0.0
        """Loop time as last looked at in this turn: when the handling of the present request began."""
        self._mute = mute
        self._finish = finish
        self._recognize = recognize

    def mute_until(self, at_s: float) -> None:
        """Has nothing more of the connection read or handled before `at_s` of the loop's time, `MUTE_MAX_S` at most."""
        if self._mute is not None:
            self._mute(at_s)

    def recognize(self, principal: str) -> None:
        """The client has proved who it is: it may send as much as any, for as long as it likes."""
        self.principal = principal
        if self._recognize is not None:
            self._recognize()

    def finish(self) -> None:
        """Has nothing more of the connection read or handled, and closes it once what is owed was answered."""
        if self._finish is not None:
            self._finish()

    def end(self) -> None:
        """The connection is gone."""
        self._mute = self._finish = self._recognize = None
