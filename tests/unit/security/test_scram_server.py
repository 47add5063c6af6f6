"""The server's side of SCRAM and PLAIN: the RFC's example, our own clients, and clients that do not keep to it."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import NamedTuple

import pytest

from kraft.security.mechanisms import Credentials, sasl_client
from kraft.security.sasl_servers import CODES, PlainServer, SaslServer, ScramUsers, ScramUserServer
from kraft.security.scram import SaslError, ScramServer, salted_password, scram_keys

CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


class Stored(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def stored(mechanism: str, password: str, salt: bytes = SALT, iterations: int = 4096) -> Stored:
    keys = scram_keys(mechanism, salted_password(mechanism, password, salt, iterations))
    return Stored(salt, keys.stored, keys.server, iterations)


def test_the_example_of_the_rfc() -> None:
    """RFC 7677, section 3."""
    credential = stored("SCRAM-SHA-256", "pencil")
    server = ScramServer("SCRAM-SHA-256", lambda name: (credential, name == "user"), SERVER_NONCE)
    assert server.respond(f"n,,n=user,r={CLIENT_NONCE}".encode()) == (
        f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(),
        None,
    )
    proof = "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server.respond(f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},{proof}".encode()) == (
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        "user",
    )


def users_of(**passwords: str) -> ScramUsers:
    credentials = {
        (name, CODES[mechanism]): stored(mechanism, password)
        for name, password in passwords.items()
        for mechanism in CODES
    }
    return ScramUsers(lambda: credentials, b"secret")


def server_of(mechanism: str, **passwords: str) -> SaslServer:
    if mechanism == "PLAIN":
        return PlainServer(passwords)
    return ScramUserServer(mechanism, users_of(**passwords), "server")


def authenticate(server: SaslServer, credentials: Credentials) -> str | None:
    client = sasl_client(credentials, "client")
    token: bytes | None = client.first()
    name = None
    while token is not None:
        step = server.respond(token)
        token, name = client.respond(step.token), step.username
    return name


@pytest.mark.parametrize("mechanism", ["PLAIN", *CODES])
@pytest.mark.parametrize(("name", "password"), [("alice", "secret"), ("a=2C,ü", "pä=ss,wörd €")])
def test_who_knows_the_password_is_let_in(mechanism: str, name: str, password: str) -> None:
    passwords = {name: password, "other": "x"}
    assert authenticate(server_of(mechanism, **passwords), Credentials(mechanism, name, password)) == name


@pytest.mark.parametrize("mechanism", ["PLAIN", *CODES])
@pytest.mark.parametrize(("name", "password"), [("alice", "Secret"), ("bob", "secret"), ("alice", "")])
def test_who_does_not_is_refused(mechanism: str, name: str, password: str) -> None:
    with pytest.raises(SaslError) as refused:
        authenticate(server_of(mechanism, alice="secret"), Credentials(mechanism, name, password))
    assert "secret" not in str(refused.value).lower()


@pytest.mark.parametrize(
    "first",
    [
        "p=tls-unique,,n=user,r=x",  # a binding that is not offered
        "n,,m=ext,n=user,r=x",  # an extension that must be understood
        "n,a=admin,n=user,r=x",
        "n,,n=user",
        "n,,r=x,n=user",
        "n,,n=us=er,r=x",
        "n,,n=,r=x",
        "n,,n=user,r=",
        "n,,n=user,r=x y",
        "",
        "\0",
        "n,,n=user,r=\xff",
    ],
)
def test_first_messages_that_are_none(first: str) -> None:
    server = server_of("SCRAM-SHA-256", user="pencil")
    with pytest.raises(SaslError):
        server.respond(first.encode("latin-1"))


@pytest.mark.parametrize(
    "final",
    [
        "c=biws,r=clientserver",
        "c=biws,r=client,p=AAAA",
        "c=biws,r=clientserverx,p=AAAA",
        "c=eSws,r=clientserver,p=AAAA",  # began with n, ends with y
        "r=clientserver,c=biws,p=AAAA",
        "c=biws,r=clientserver,p=AAAA",  # too short
        "c=biws,r=clientserver,p=" + base64.b64encode(bytes(32)).decode(),
        "c=biws,r=clientserver,p=?",
        "c=biws,r=clientserver,p=",
        ",p=",
    ],
)
def test_last_messages_that_are_none(final: str) -> None:
    server = server_of("SCRAM-SHA-256", user="pencil")
    server.respond(b"n,,n=user,r=client")
    with pytest.raises(SaslError):
        server.respond(final.encode())


def test_keys_of_zeros_open_nothing() -> None:
    """What a false credential is made of: whoever knows that has a proof for it, and is refused."""
    users = users_of()
    server = ScramUserServer("SCRAM-SHA-256", users, "server")
    challenge = server.respond(b"n,,n=nobody,r=client").token.decode()
    without_proof = "c=biws,r=clientserver"
    credential, is_known = users.credential("SCRAM-SHA-256", "nobody")
    assert not is_known
    # A proof whose client key hashes to the stored key cannot be made: the stored key is no hash that anybody knows.
    assert hashlib.sha256(bytes(32)).digest() != credential.stored_key
    with pytest.raises(SaslError, match="does not know the password"):
        server.respond(f"{without_proof},p={base64.b64encode(bytes(32)).decode()}".encode())
    assert challenge.startswith("r=clientserver,s=")


def salt_told(users: ScramUsers, name: str, mechanism: str = "SCRAM-SHA-256") -> tuple[str, str]:
    answer = ScramUserServer(mechanism, users, "server").respond(f"n,,n={name},r=client".encode())
    found = re.fullmatch(r"r=clientserver,s=([^,]+),i=(\d+)", answer.token.decode())
    assert found is not None
    return found[1], found[2]


def test_a_name_that_nobody_has_looks_like_one_that_somebody_has() -> None:
    credentials = {("alice", 1): stored("SCRAM-SHA-256", "x", bytes(40), 8192)}
    users = ScramUsers(lambda: credentials, b"secret")
    salt, iterations = salt_told(users, "nobody")
    assert (len(base64.b64decode(salt)), iterations) == (40, "8192")
    assert salt_told(users, "nobody") == (salt, iterations)
    assert salt_told(users, "another")[0] != salt
    elsewhere = ScramUsers(lambda: dict(credentials), b"secret")
    assert salt_told(elsewhere, "nobody") == (salt, iterations), "the next broker tells the same"
    assert salt_told(ScramUsers(lambda: credentials, b"other"), "nobody")[0] != salt
    assert salt_told(users, "nobody", "SCRAM-SHA-512")[1] == "4096"


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"\0alice\0secret\0more", "expected 3 tokens, got 4"),
        (b"alice", "expected 3 tokens, got 1"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"bob\0alice\0secret", "different from username"),
        (b"\0alice\0\xff", "not UTF-8"),
    ],
)
def test_tokens_that_are_not_plain(token: bytes, reason: str) -> None:
    with pytest.raises(SaslError, match=reason):
        PlainServer({"alice": "secret"}).respond(token)
    assert PlainServer({"alice": "secret"}).respond(b"alice\0alice\0secret").username == "alice"
