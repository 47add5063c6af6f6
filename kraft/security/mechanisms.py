"""The client's side of a SASL mechanism, whichever it is: tokens in turn until the server is believed.

A connection feeds it with what the server sends and sends what it answers; nothing here waits. PLAIN is RFC 4616;
`scram.py` has the others. Secrets are in no repr and in no error. `kraft.spark.connection` calls `sasl_client`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from kraft.security.scram import HASHES, SaslError, ScramClient

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *HASHES)
"""Those that clients of kraft have, and brokers among each other."""
OAUTHBEARER: Final = "OAUTHBEARER"
OFFERED: Final = (*MECHANISMS, OAUTHBEARER)
"""Those that a listener may offer."""


@dataclass(frozen=True)
class Credentials:
    """What a client says who it is with; `mechanism` is one of `MECHANISMS`."""

    mechanism: str
    username: str
    password: str = field(repr=False)


class SaslClient(Protocol):
    """One authentication."""

    def first(self) -> bytes:
        """What the client sends first."""

    def respond(self, message: bytes) -> bytes | None:
        """The answer to the server's last message. None: all is said, and the server has proved what it must.

        Raises SaslError.
        """


class PlainClient:
    """Name and password as they are: for encrypted connections."""

    def __init__(self, username: str, password: str) -> None:
        if "\0" in username or "\0" in password:
            raise SaslError("A name or password for PLAIN cannot hold a zero character.")
        self._token = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def respond(self, message: bytes) -> bytes | None:
        if message:
            raise SaslError("the broker goes on after PLAIN's only message")
        return None


def sasl_client(credentials: Credentials, nonce: str) -> SaslClient:
    """A fresh authentication; `nonce` is a new random text each time, which only SCRAM needs. Raises SaslError."""
    if credentials.mechanism == PLAIN:
        return PlainClient(credentials.username, credentials.password)
    return ScramClient(credentials.mechanism, credentials.username, credentials.password, nonce)
