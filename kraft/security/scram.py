"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677; KIP-84): proof of a password that is never sent.

`ScramClient` is the client's side: three messages in fixed order, then the server's signature, which it alone can make
that knows the password's keys. What a server asks for is bounded: too few iterations would give the password away to
guessing, too many would keep the client busy. `ScramServer` is the other side: it knows keys, and no password. A name
that nobody has is asked for its proof like any other, and the proof is refused. As in Kafka, passwords are UTF-8 as
they are (no SASLprep) and there is no channel binding. Nonces are passed in. `mechanisms.py` makes clients,
`sasl_servers.py` servers.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

HASHES: Final[Mapping[str, str]] = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})
"""Mechanism → Python's name of its hash function."""
MIN_ITERATIONS: Final = 4096
"""Kafka's, and RFC 7677's."""
MAX_ITERATIONS: Final = 1 << 20
"""Kafka's brokers store 16384 at most; this many take about a second."""
MAX_MESSAGE_BYTES: Final = 16 << 10
DEFAULT_ITERATIONS: Final = 4096
SALT_BYTES: Final = 24

_CLIENT_KEY = b"Client Key"
_SERVER_KEY = b"Server Key"
_NAME = r"(?:[^,=\0]|=2C|=3D)+"
_CLIENT_FIRST = re.compile(
    rf"(?P<binding>[ny],(?:a=(?P<authorization>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,\0]+)*)"
)
"""Mandatory extensions (m=) and channel bindings (p=) are none that this server knows. `y`: the client would bind, and
believes that the server cannot, which is so."""
_NO_BINDING = "n,,"
_NO_BINDING_TEXT = binascii.b2a_base64(_NO_BINDING.encode(), newline=False).decode()


class SaslError(ValueError):
    """The other side does not keep to the mechanism, or did not prove what it has to; holds no secret."""


class ScramKeys(NamedTuple):
    """What a server needs to know a password by: StoredKey and ServerKey of RFC 5802."""

    stored: bytes
    server: bytes


class StoredCredential(Protocol):
    """What a server keeps of one user's password."""

    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's SaltedPassword: as good as the password. Takes about a ms for each 4096 iterations."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def scram_keys(mechanism: str, salted: bytes) -> ScramKeys:
    """The keys to keep, of a salted password."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, _CLIENT_KEY, name)
    return ScramKeys(hashlib.new(name, client_key).digest(), hmac.digest(salted, _SERVER_KEY, name))


class ScramServer:
    """One authentication: `respond` to the client's first message, then to its proof."""

    def __init__(
        self, mechanism: str, credential_of: Callable[[str], tuple[StoredCredential, bool]], nonce: str
    ) -> None:
        """`credential_of` a name also says whether it is a user's; it gives every name one, and the same each time.
        `nonce` is a new random text as for the client."""
        self._hash = HASHES[mechanism]
        self._credential_of = credential_of
        self._own_nonce = nonce
        self._first_bare = self._binding = self._nonce = self._challenge = ""
        self._credential: StoredCredential | None = None
        self._is_known = False
        self._name = ""

    def respond(self, message: bytes) -> tuple[bytes, str | None]:
        """The next message, and the user's name once it is proved. Raises SaslError; nothing may follow then."""
        text = _text(message)
        return (self._ask(text), None) if self._credential is None else (self._judge(text), self._name)

    def _ask(self, text: str) -> bytes:
        first = _CLIENT_FIRST.fullmatch(text)
        if first is None:
            raise SaslError("the client's first message is not SCRAM's")
        self._name = _unescaped(first["name"])
        self._binding, self._first_bare = first["binding"], first["bare"]
        authorization = first["authorization"]
        if authorization is not None and _unescaped(authorization) != self._name:
            raise SaslError("the client wants to act for another user than it is")
        self._nonce = first["nonce"] + self._own_nonce
        credential, self._is_known = self._credential_of(self._name)
        self._credential = credential
        salt = binascii.b2a_base64(credential.salt, newline=False).decode()
        self._challenge = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._challenge.encode()

    def _judge(self, text: str) -> bytes:
        without_proof, separator, proof_text = text.rpartition(",p=")
        if not separator:
            raise SaslError("the client's last message is not SCRAM's")
        fields = _fields(without_proof, "c", "r")
        if fields["r"] != self._nonce:
            raise SaslError("the client's nonce is not the one of this authentication")
        if _decoded(fields["c"]) != self._binding.encode():
            raise SaslError("the client's channel binding is not the one that it began with")
        credential, proof = self._credential, _decoded(proof_text)
        assert credential is not None
        signed = f"{self._first_bare},{self._challenge},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise SaslError("the client's proof has another length than the mechanism's")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        shown = hashlib.new(self._hash, client_key).digest()
        if not hmac.compare_digest(shown, credential.stored_key) or not self._is_known:
            raise SaslError("the client does not know the password")
        verdict = hmac.digest(credential.server_key, signed, self._hash)
        return b"v=" + binascii.b2a_base64(verdict, newline=False)


class ScramClient:
    """One authentication: `first`, `respond` to the server's challenge, `respond` to its verdict."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        """`nonce` is a new random text of printable ASCII without commas, for this authentication alone."""
        self._mechanism = mechanism
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
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        client_key = self._hmac(salted, _CLIENT_KEY)
        without_proof = f"c={_NO_BINDING_TEXT},r={nonce}"
        signed = f"{self._first_bare},{challenge},{without_proof}".encode()
        client_signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(one ^ other for one, other in zip(client_key, client_signature, strict=True))
        self._signature = self._hmac(scram_keys(self._mechanism, salted).server, signed)
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


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise SaslError(f"the other side's message has {len(message)} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise SaslError("the other side's message is not UTF-8") from error


def _fields(text: str, *names: str) -> dict[str, str]:
    """The first fields, in this order; what follows are extensions, which may be left unread."""
    pairs = [part.partition("=") for part in text.split(",")]
    if [name for name, _, _ in pairs[: len(names)]] != list(names):
        raise SaslError(f"the other side's message lacks the fields {', '.join(names)} in this order")
    return {name: value for name, _, value in pairs[: len(names)]}


def _decoded(text: str) -> bytes:
    try:
        data = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError as error:
        raise SaslError("the other side's message holds what is not base64") from error
    if not data:
        raise SaslError("the other side's message holds an empty salt, proof or signature")
    return data


def _iterations(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not MIN_ITERATIONS <= int(text[:20]) <= MAX_ITERATIONS:
        raise SaslError(f"the server asks for iterations outside {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)
