"""The server's side of SASL, for fake brokers: PLAIN, SCRAM, OAUTHBEARER, from the RFCs, without the product's code.

`SaslStage` is one connection's: it takes tokens and gives tokens. `SaslUsers` is what all brokers of a fake cluster
know. Tests script what a server must not do with `distort`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

SCRAM_HASHES = {"SCRAM-SHA-256": hashlib.sha256, "SCRAM-SHA-512": hashlib.sha512}


class Refused(Exception):
    """The client is not who it says it is."""


@dataclass
class SaslUsers:
    """Passwords by name, and how sessions are."""

    passwords: dict[str, str]
    mechanisms: Sequence[str] = ("PLAIN", *SCRAM_HASHES)
    tokens: dict[str, str] = field(default_factory=dict)
    """Names by the token that is theirs, where OAUTHBEARER is offered."""
    handshake_error: int = 0
    """What every handshake is answered with instead."""
    iterations: int = 4096
    lifetime_ms: int = 0
    clock: Callable[[], float] = lambda: 0.0
    """Seconds; by it sessions end."""
    distort: Callable[[bytes], bytes] = lambda token: token
    """What becomes of the server's tokens."""
    reason: str = "Authentication failed."
    """What a refusal says."""
    authenticated: list[tuple[int, str]] = field(default_factory=list)
    """Connection and name, of every success."""


class SaslStage:
    """One connection."""

    def __init__(self, users: SaslUsers, connection: int) -> None:
        self._users = users
        self._connection = connection
        self._mechanism = ""
        self._first = self._challenge = self._name = ""
        self._is_refused = False
        self._ends_at: float | None = -1.0

    def is_open(self) -> bool:
        """Whether other requests may come."""
        return self._ends_at is None or self._users.clock() < self._ends_at

    def begin(self, mechanism: str) -> bool:
        """Whether the mechanism is offered."""
        self._mechanism, self._challenge, self._is_refused = mechanism, "", False
        return mechanism in self._users.mechanisms

    def answer(self, token: bytes) -> bytes:
        """Raises Refused."""
        if self._mechanism == "PLAIN":
            _, name, password = token.decode().split("\0")
            if self._users.passwords.get(name) != password:
                raise Refused
            return self._finish(name, b"")
        if self._mechanism == "OAUTHBEARER":
            return self._look_up(token)
        if not self._challenge:
            return self._users.distort(self._ask(token.decode()))
        return self._judge(token.decode())

    def _look_up(self, message: bytes) -> bytes:
        """A refusal is told in JSON first; the client says that it has heard, and then the exchange fails."""
        if self._is_refused:
            assert message == b"\x01"
            raise Refused
        header, *pairs, last, end = message.split(b"\x01")
        assert (header, last, end) == (b"n,,", b"", b"")
        token = dict(pair.split(b"=", 1) for pair in pairs)[b"auth"].removeprefix(b"Bearer ")
        name = self._users.tokens.get(token.decode())
        if name is not None:
            return self._finish(name, b"")
        self._is_refused = True
        return b'{"status":"invalid_token"}'

    def _ask(self, message: str) -> bytes:
        binding, authorization, self._first = message.split(",", 2)
        assert (binding, authorization) == ("n", "")
        fields = dict(part.split("=", 1) for part in self._first.split(","))
        self._name = fields["n"].replace("=2C", ",").replace("=3D", "=")
        if self._name not in self._users.passwords:
            raise Refused
        salt = base64.b64encode(hashlib.md5(self._name.encode()).digest()).decode()
        self._challenge = f"r={fields['r']}andmine,s={salt},i={self._users.iterations}"
        return self._challenge.encode()

    def _judge(self, message: str) -> bytes:
        new = SCRAM_HASHES[self._mechanism]
        fields = dict(part.split("=", 1) for part in self._challenge.split(","))
        salted = _hi(
            new, self._users.passwords[self._name].encode(), base64.b64decode(fields["s"]), int(fields["i"])
        )
        without_proof, _, proof = message.rpartition(",p=")
        assert without_proof == f"c=biws,r={fields['r']}"
        signed = ",".join((self._first, self._challenge, without_proof)).encode()
        client_key = hmac.new(salted, b"Client Key", new).digest()
        expected = int.from_bytes(client_key, "big") ^ int.from_bytes(
            hmac.new(new(client_key).digest(), signed, new).digest(), "big"
        )
        if int.from_bytes(base64.b64decode(proof), "big") != expected:
            raise Refused
        signature = hmac.new(hmac.new(salted, b"Server Key", new).digest(), signed, new).digest()
        return self._finish(self._name, self._users.distort(b"v=" + base64.b64encode(signature)))

    def _finish(self, name: str, token: bytes) -> bytes:
        users = self._users
        self._ends_at = users.clock() + users.lifetime_ms / 1000 if users.lifetime_ms else None
        users.authenticated.append((self._connection, name))
        return token


def _hi(new: Callable[[bytes], hashlib._Hash], password: bytes, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's Hi, as it is written there."""
    block = hmac.new(password, salt + b"\0\0\0\1", new).digest()
    result = int.from_bytes(block, "big")
    for _ in range(iterations - 1):
        block = hmac.new(password, block, new).digest()
        result ^= int.from_bytes(block, "big")
    return result.to_bytes(len(block), "big")
