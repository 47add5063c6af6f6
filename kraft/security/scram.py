"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677; KIP-84): proof of a password that is never sent.

`ScramClient` is the client's side: three messages in fixed order, then the server's signature, which it alone can make
that knows the password's keys. What a server asks for is bounded: too few iterations would give the password away to
guessing, too many would keep the client busy. As in Kafka, passwords are UTF-8 as they are (no SASLprep) and there is
no channel binding. The nonce is passed in. `mechanisms.py` makes clients.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

HASHES: Final[Mapping[str, str]] = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})
"""Mechanism → Python's name of its hash function."""
MIN_ITERATIONS: Final = 4096
"""Kafka's, and RFC 7677's."""
MAX_ITERATIONS: Final = 1 << 20
"""Kafka's brokers store 16384 at most; this many take about a second."""
MAX_MESSAGE_BYTES: Final = 16 << 10

_NO_BINDING = "n,,"
_NO_BINDING_TEXT = binascii.b2a_base64(_NO_BINDING.encode(), newline=False).decode()


class SaslError(ValueError):
    """The other side does not keep to the mechanism, or did not prove what it has to; holds no secret."""


class ScramClient:
    """One authentication: `first`, `respond` to the server's challenge, `respond` to its verdict."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        """`nonce` is a new random text of printable ASCII without commas, for this authentication alone."""
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        self._first_bare = f"n={_escaped(username)},r={nonce}"
        self._signature: bytes | None = None
        """What the server must show; None until its challenge has come."""

    def first(self) -> bytes:
        return f"{_NO_BINDING}{self._first_bare}".encode()

    def respond(self, message: bytes) -> bytes | None:
        text = _text(message)
        if self._signature is None:
            return self._prove(text)
        self._believe(text)
        return None

    def _prove(self, challenge: str) -> bytes:
        fields = _fields(challenge, "r", "s", "i")
        nonce, salt, iterations = fields["r"], _decoded(fields["s"]), _iterations(fields["i"])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslError("the server's nonce does not continue the client's")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c={_NO_BINDING_TEXT},r={nonce}"
        signed = f"{self._first_bare},{challenge},{without_proof}".encode()
        client_signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(one ^ other for one, other in zip(client_key, client_signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={binascii.b2a_base64(proof, newline=False).decode()}".encode()

    def _believe(self, verdict: str) -> None:
        if verdict.startswith("e="):
            raise SaslError("the server refuses the name or the password")
        signature = _decoded(_fields(verdict, "v")["v"])
        assert self._signature is not None
        if not hmac.compare_digest(signature, self._signature):
            raise SaslError("the server does not know the password: it may be another one than it says")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _escaped(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise SaslError(f"the server's message has {len(message)} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise SaslError("the server's message is not UTF-8") from error


def _fields(text: str, *names: str) -> dict[str, str]:
    """The first fields, in this order; what follows are extensions, which may be left unread."""
    pairs = [part.partition("=") for part in text.split(",")]
    if [name for name, _, _ in pairs[: len(names)]] != list(names):
        raise SaslError(f"the server's message lacks the fields {', '.join(names)} in this order")
    return {name: value for name, _, value in pairs[: len(names)]}


def _decoded(text: str) -> bytes:
    try:
        data = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError as error:
        raise SaslError("the server's message holds what is not base64") from error
    if not data:
        raise SaslError("the server's message holds an empty salt or signature")
    return data


def _iterations(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not MIN_ITERATIONS <= int(text[:20]) <= MAX_ITERATIONS:
        raise SaslError(f"the server asks for iterations outside {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)
