"""The client's side of a SASL mechanism, whichever it is: tokens in turn until the server is believed.

A connection feeds it with what the server sends and sends what it answers; nothing here waits. PLAIN is RFC 4616;
`scram.py` and `oauthbearer_client.py` have the others. Secrets are in no repr and in no error. `exchange.py` calls
`sasl_client`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from kraft.security.oauthbearer_client import OAUTHBEARER, BearerToken, OAuthBearerClient
from kraft.security.scram import HASHES, SaslError, ScramClient

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *HASHES)
"""Those with a name and a password."""
OFFERED: Final = (*MECHANISMS, OAUTHBEARER)
"""All: of listeners, of clients, and of brokers among each other."""


@dataclass(frozen=True)
class Credentials:
    """What a client says who it is with; `mechanism` is one of `MECHANISMS`."""

    mechanism: str
    username: str
    password: str = field(repr=False)

    @property
    def secret(self) -> str:
        """What no message may repeat."""
        return self.password


Shown = Credentials | BearerToken
"""What a client shows in one authentication."""


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


def sasl_client(credentials: Shown, nonce: str) -> SaslClient:
    """A fresh authentication; `nonce` is a new random text each time, which only SCRAM needs. Raises SaslError."""
    if isinstance(credentials, BearerToken):
        return OAuthBearerClient(credentials)
    if credentials.mechanism == PLAIN:
        return PlainClient(credentials.username, credentials.password)
    return ScramClient(credentials.mechanism, credentials.username, credentials.password, nonce)
