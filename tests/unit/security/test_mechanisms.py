"""PLAIN and SCRAM: RFC 7677's example, a server computed from the RFC alone, and servers that do not keep to it."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from kraft.security.mechanisms import Credentials, sasl_client
from kraft.security.scram import MAX_ITERATIONS, MAX_MESSAGE_BYTES, SaslError, ScramClient
from tests.support.sasl_server import Refused, SaslStage, SaslUsers

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = f"r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SALT = "s=W22ZaJ0SNY7soEsUEjb6gQ=="


def test_the_example_of_the_rfc() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)
    assert client.first() == f"n,,n=user,r={NONCE}".encode()
    assert client.respond(CHALLENGE.encode()) == (
        f"c=biws,r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    assert client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def authenticate(credentials: Credentials, users: SaslUsers) -> None:
    stage = SaslStage(users, 1)
    assert stage.begin(credentials.mechanism)
    client = sasl_client(credentials, NONCE)
    token: bytes | None = client.first()
    while token is not None:
        token = client.respond(stage.answer(token))
    assert stage.is_open()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("name", "password"), [("alice", "secret"), ("a=2C,ü", "pä=ss,wörd €")])
def test_a_server_of_its_own(mechanism: str, name: str, password: str) -> None:
    users = SaslUsers({name: password})
    authenticate(Credentials(mechanism, name, password), users)
    assert users.authenticated == [(1, name)]
    with pytest.raises(Refused):
        authenticate(Credentials(mechanism, name, password + "!"), users)


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (f"r={NONCE},{SALT},i=4096", "does not continue"),
        (f"r=x{NONCE}y,{SALT},i=4096", "does not continue"),
        (f"r={NONCE}x,{SALT},i=4095", "iterations outside 4096"),
        (f"r={NONCE}x,{SALT},i={MAX_ITERATIONS + 1}", "iterations outside"),
        (f"r={NONCE}x,{SALT},i=-1", "iterations outside"),
        (f"r={NONCE}x,{SALT},i={'9' * 5000}", "iterations outside"),
        (f"r={NONCE}x,s=,i=4096", "empty salt"),
        (f"r={NONCE}x,s=W22Z?,i=4096", "not base64"),
        (f"r={NONCE}x,s=é,i=4096", "not base64"),
        (f"m=ext,r={NONCE}x,{SALT},i=4096", "lacks the fields r, s, i in this order"),
        (f"r={NONCE}x,{SALT}", "lacks the fields"),
        ("", "lacks the fields"),
        ("e=unknown-user", "lacks the fields"),
        ("x" * (MAX_MESSAGE_BYTES + 1), "has 16385 bytes"),
    ],
)
def test_challenges_that_are_none(challenge: str, reason: str) -> None:
    client = ScramClient("SCRAM-SHA-512", "user", "hunter2", NONCE)
    client.first()
    with pytest.raises(SaslError, match=reason) as refused:
        client.respond(challenge.encode())
    assert "hunter" not in str(refused.value)


def test_what_is_not_utf8() -> None:
    with pytest.raises(SaslError, match="not UTF-8"):
        ScramClient("SCRAM-SHA-512", "user", "x", NONCE).respond(b"r=\xff")


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "does not know the password"),
        (b"v=", "empty salt, proof or signature"),
        (b"e=invalid-proof", "refuses the name or the password"),
        (b"", "lacks the fields v"),
    ],
)
def test_servers_that_do_not_know_the_password(verdict: bytes, reason: str) -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)
    client.respond(CHALLENGE.encode())
    with pytest.raises(SaslError, match=reason):
        client.respond(verdict)


def test_plain_is_one_message() -> None:
    with pytest.raises(SaslError, match="goes on"):
        sasl_client(Credentials("PLAIN", "user", "x"), NONCE).respond(b"more")
    with pytest.raises(SaslError, match="zero character"):
        sasl_client(Credentials("PLAIN", "user", "a\0b"), NONCE)


@pytest.mark.parametrize("make", [repr, str])
def test_no_password_in_a_text(make: Callable[[object], str]) -> None:
    assert "hunter" not in make(Credentials("PLAIN", "alice", "hunter2"))
