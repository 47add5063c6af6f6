"""The server's side of SASL mechanisms: who a client is, by its tokens in turn.

PLAIN (RFC 4616) compares with passwords of the configuration; `scram.py` has SCRAM, for which this module finds users'
credentials, and false ones for names that nobody has. Pure: credentials and nonces are passed in. Secrets are in no
repr and in no error. `authentication.py` feeds the servers, `kraft.broker.peer_security` says which there are.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from kraft.security.scram import (
    DEFAULT_ITERATIONS,
    HASHES,
    SALT_BYTES,
    SaslError,
    ScramServer,
    StoredCredential,
)


class Step(NamedTuple):
    """What a server does with a token: its own next one, and who the client is once that is proved."""

    token: bytes
    username: str | None = None
    lifetime_ms: int | None = None
    """For how long the client is believed, where the mechanism says so."""


class SaslServer(Protocol):
    """One authentication."""

    def respond(self, token: bytes) -> Step:
        """Raises SaslError; nothing may follow then."""


class PlainServer:
    """Compares with the passwords of all users in a time that tells nothing of them."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def respond(self, token: bytes) -> Step:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError as error:
            raise SaslError("Authentication failed: Invalid SASL/PLAIN response: it is not UTF-8") from error
        if len(parts) != 3:
            raise SaslError(
                f"Authentication failed: Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        authorization, username, password = parts
        if not username:
            raise SaslError("Authentication failed: username not specified")
        if not password:
            raise SaslError("Authentication failed: password not specified")
        expected = self._passwords.get(username)
        # Digests, since a comparison of texts would take as long as they are.
        is_right = hmac.compare_digest(_digest(password), _digest(expected or ""))
        if expected is None or not is_right:
            raise SaslError("Authentication failed: Invalid username or password")
        if authorization not in ("", username):
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Step(b"", username)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


class ScramUserServer:
    """`ScramServer` among the servers."""

    def __init__(self, mechanism: str, users: ScramUsers, nonce: str) -> None:
        self._server = ScramServer(mechanism, lambda name: users.credential(mechanism, name), nonce)

    def respond(self, token: bytes) -> Step:
        return Step(*self._server.respond(token))


class _FalseCredential(NamedTuple):
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


Credentials = Mapping[tuple[str, int], StoredCredential]
"""By a user's name and Kafka's code of the mechanism."""
CODES: Final[Mapping[str, int]] = {mechanism: code for code, mechanism in enumerate(HASHES, 1)}
"""Kafka's codes of the SCRAM mechanisms."""


class ScramUsers:
    """The credentials that there are now, and false ones for all other names.

    A false salt is the same each time, on every broker that has the same `secret`, and looks like most others: nobody
    can tell names that exist from those that do not.
    """

    def __init__(self, credentials: Callable[[], Credentials], secret: bytes) -> None:
        self._credentials = credentials
        self._secret = secret
        self._seen: Credentials | None = None
        self._usual: dict[int, tuple[int, int]] = {}
        """By mechanism: the salt's size in bytes and the iterations of most credentials."""

    def credential(self, mechanism: str, name: str) -> tuple[StoredCredential, bool]:
        """A credential for any name, and whether it is a user's."""
        code = CODES[mechanism]
        found = self._credentials().get((name, code))
        false = self._false(mechanism, name)  # made for every name: it takes its time
        return (false, False) if found is None else (found, True)

    def _false(self, mechanism: str, name: str) -> _FalseCredential:
        salt_bytes, iterations = self._usual_of(CODES[mechanism])
        salt, size = b"", hashlib.new(HASHES[mechanism]).digest_size
        while len(salt) < salt_bytes:
            seed = b"\0".join((b"salt", mechanism.encode(), len(salt).to_bytes(2, "big"), name.encode()))
            salt += hmac.digest(self._secret, seed, "sha256")
        return _FalseCredential(salt[:salt_bytes], iterations, bytes(size), bytes(size))

    def _usual_of(self, code: int) -> tuple[int, int]:
        credentials = self._credentials()
        if credentials is not self._seen:
            counts: dict[int, Counter[tuple[int, int]]] = {}
            for (_, mechanism), one in credentials.items():
                counts.setdefault(mechanism, Counter())[len(one.salt), one.iterations] += 1
            self._usual = {mechanism: count.most_common(1)[0][0] for mechanism, count in counts.items()}
            self._seen = credentials
        return self._usual.get(code, (SALT_BYTES, DEFAULT_ITERATIONS))
