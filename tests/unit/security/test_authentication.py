"""One connection that says who it is: what may come when, what it is told, and when it has to say so again."""

from __future__ import annotations

import pytest

from kraft.protocol.api import APIS, ApiKey
from kraft.protocol.errors import ErrorCode
from kraft.security.authentication import Authentication, Offer
from kraft.security.sasl_servers import PlainServer, SaslServer, Step

HELLO = b"\0alice\0secret"
OTHER = b"\0bob\0hidden"
USERS = {"alice": "secret", "bob": "hidden"}


class Slow:
    """A mechanism of two messages, whose session ends by itself."""

    def __init__(self, lifetime_ms: int | None = None) -> None:
        self._lifetime_ms = lifetime_ms
        self._asked = False

    def respond(self, token: bytes) -> Step:
        if not self._asked:
            self._asked = True
            return Step(b"who?")
        return Step(b"welcome", token.decode(), self._lifetime_ms)


def plain() -> SaslServer:
    return PlainServer(USERS)


def connection(max_session_ms: int = 0, lifetime_ms: int | None = None) -> Authentication:
    return Authentication(
        {
            "PLAIN": Offer(plain, max_session_ms),
            "SLOW": Offer(lambda: Slow(lifetime_ms), max_session_ms),
        }
    )


def known(max_session_ms: int = 0) -> Authentication:
    auth = connection(max_session_ms)
    auth.handshake("PLAIN", 0)
    assert auth.authenticate(HELLO, 0).code is ErrorCode.NONE
    return auth


def allowed(auth: Authentication, now_s: float = 0.0) -> set[ApiKey]:
    return {key for key in APIS if auth.problem(key, now_s) is None}


def test_a_connection_says_who_it_is() -> None:
    auth = connection()
    before = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert (allowed(auth), auth.principal) == (before, None)
    assert auth.handshake("SLOW", 0) == (ErrorCode.NONE, None, b"", 0, False)
    assert allowed(auth) == {ApiKey.SASL_AUTHENTICATE}
    assert auth.authenticate(b"hello", 0).token == b"who?"
    assert (allowed(auth), auth.principal) == ({ApiKey.SASL_AUTHENTICATE}, None)
    assert auth.authenticate(b"carol", 0) == (ErrorCode.NONE, None, b"welcome", 0, False)
    assert (allowed(auth), auth.principal) == (set(APIS), "User:carol")
    assert allowed(auth, 1e9) == set(APIS), "its session does not end"


def test_an_unknown_mechanism_is_the_end() -> None:
    auth = connection()
    answer = auth.handshake("GSSAPI", 0)
    assert (answer.code, answer.is_final) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, True)
    assert (allowed(auth), auth.mechanisms) == (set(), ["PLAIN", "SLOW"])


def test_a_wrong_password_is_the_end() -> None:
    auth = connection()
    auth.handshake("PLAIN", 0)
    answer = auth.authenticate(b"\0alice\0wrong", 0)
    assert (answer.code, answer.is_final) == (ErrorCode.SASL_AUTHENTICATION_FAILED, True)
    assert answer.message == "Authentication failed: Invalid username or password"
    assert (allowed(auth), auth.principal) == (set(), None)


def test_tokens_before_a_handshake_are_the_end() -> None:
    auth = connection()
    answer = auth.authenticate(HELLO, 0)
    assert (answer.code, answer.is_final) == (ErrorCode.ILLEGAL_SASL_STATE, True)
    assert auth.principal is None


def test_who_is_known_for_good_need_not_say_it_again() -> None:
    auth = known()
    for answer in (auth.handshake("PLAIN", 9), auth.authenticate(HELLO, 9)):
        assert (answer.code, answer.is_final) == (ErrorCode.ILLEGAL_SASL_STATE, False)
    assert (allowed(auth), auth.principal) == (set(APIS), "User:alice")


def test_a_session_ends_unless_it_is_renewed() -> None:
    auth = connection(10_000)
    auth.handshake("PLAIN", 5)
    assert auth.authenticate(HELLO, 5).session_lifetime_ms == 10_000
    assert allowed(auth, 14.9) == set(APIS)
    assert allowed(auth, 15) == {ApiKey.SASL_HANDSHAKE}
    assert auth.handshake("PLAIN", 15).code is ErrorCode.NONE
    assert allowed(auth, 15) == {ApiKey.SASL_AUTHENTICATE}
    assert auth.authenticate(HELLO, 16).session_lifetime_ms == 10_000
    assert allowed(auth, 25.9) == set(APIS)
    assert allowed(auth, 26) == {ApiKey.SASL_HANDSHAKE}


@pytest.mark.parametrize(("limit_ms", "token_ms", "told"), [(0, 7, 7), (5, 7, 5), (9, 7, 7), (5, None, 5)])
def test_the_shorter_of_two_times_holds(limit_ms: int, token_ms: int | None, told: int) -> None:
    auth = connection(limit_ms, token_ms)
    auth.handshake("SLOW", 0)
    auth.authenticate(b"", 0)
    assert auth.authenticate(b"carol", 0).session_lifetime_ms == told


def test_another_principal_cannot_take_a_connection_over() -> None:
    auth = known(10_000)
    auth.handshake("PLAIN", 5)
    answer = auth.authenticate(OTHER, 5)
    assert (answer.code, answer.is_final) == (ErrorCode.SASL_AUTHENTICATION_FAILED, True)
    assert answer.message == "Cannot change principals during re-authentication from alice: bob"
    assert (allowed(auth, 5), auth.principal) == (set(), "User:alice")


def test_nor_can_another_mechanism() -> None:
    auth = known(10_000)
    assert auth.handshake("SLOW", 5).code is ErrorCode.NONE
    answer = auth.authenticate(b"alice", 5)
    assert (answer.code, answer.is_final) == (ErrorCode.SASL_AUTHENTICATION_FAILED, True)
    assert allowed(auth, 5) == set()


def test_it_is_not_renewed_all_the_time() -> None:
    auth = known(10_000)
    for now_s, code in ((5, ErrorCode.NONE), (5.9, ErrorCode.ILLEGAL_SASL_STATE), (6, ErrorCode.NONE)):
        assert auth.handshake("PLAIN", now_s).code is code
        if code is ErrorCode.NONE:
            auth.authenticate(HELLO, now_s)
    assert auth.principal == "User:alice"
