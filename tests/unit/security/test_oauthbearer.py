"""Tokens of OAUTHBEARER: who is believed, and every attack on signatures and claims refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc.jwk import OctKey, RSAKey

from kraft.protocol.errors import ErrorCode
from kraft.security.authentication import Authentication, Offer
from kraft.security.oauthbearer import (
    TOKEN_MAX_BYTES,
    OAuthBearerServer,
    TokenRules,
    UnknownKeyError,
    judge_token,
    parse_jwks,
)
from kraft.security.scram import SaslError
from tests.support.tokens import AUDIENCE, ISSUER, Issuer

NOW_S = 1_700_000_000.0
RULES = TokenRules((AUDIENCE, "other"), ISSUER)
ISSUES = Issuer()
KEYS = parse_jwks(ISSUES.jwks())


def judge(token: str) -> Any:
    return judge_token(token, KEYS, RULES, NOW_S)


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def part(document: dict[str, Any]) -> str:
    return b64(json.dumps(document).encode())


def unsigned(algorithm: str) -> str:
    return f"{part({'alg': algorithm})}.{part(ISSUES.claims(NOW_S))}."


def confused(secret: bytes) -> str:
    """Signed by HMAC, with what everybody knows of the key as the secret."""
    text = f"{part({'alg': 'HS256', 'kid': 'rsa-1'})}.{part(ISSUES.claims(NOW_S))}"
    return f"{text}.{b64(hmac.digest(secret, text.encode(), hashlib.sha256))}"


def claiming(**claims: Any) -> str:
    """Claims of None are left out."""
    given = ISSUES.claims(NOW_S) | claims
    return ISSUES.sign({name: value for name, value in given.items() if value is not None})


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256"])
def test_a_good_token_is_believed_until_it_expires(algorithm: str) -> None:
    believed = judge(ISSUES.sign(ISSUES.claims(NOW_S), algorithm))
    assert believed == ("alice", 3_600_000)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["x", AUDIENCE]},
        {"exp": NOW_S - 29},
        {"nbf": NOW_S + 29},
        {"iat": NOW_S + 29},
        {"scope": ["a", "b"]},
        {"scope": None},
    ],
)
def test_clocks_may_differ_a_little_and_claims_have_more_than_one_form(claims: dict[str, Any]) -> None:
    if claims.get("exp", NOW_S) < NOW_S:
        claims = claims | {"iat": NOW_S - 100}
    assert judge(claiming(**claims)).name == "alice"


def test_a_token_that_only_the_skew_lets_in_ends_its_session_at_once_and_not_never() -> None:
    assert judge(claiming(exp=NOW_S - 29, iat=NOW_S - 100)).lifetime_ms == 1


PEM = ISSUES.rsa.as_pem(private=False)
STRANGER = RSAKey.generate_key(2048, {"kid": "rsa-1"})
ATTACKS: dict[str, Callable[[], str]] = {
    "none": lambda: unsigned("none"),
    "None": lambda: unsigned("nOnE"),
    "no signature": lambda: ISSUES.token(NOW_S).rpartition(".")[0] + ".",
    "HS256 with the public PEM": lambda: confused(PEM),
    "HS256 with the public JWK": lambda: confused(json.dumps(ISSUES.rsa.as_dict(private=False)).encode()),
    "HS256 with nothing": lambda: confused(b""),
    "another key of the same id": lambda: _signed_by(STRANGER),
    "a key of the token's own": lambda: _signed_by(STRANGER, jwk=STRANGER.as_dict(private=False)),
    "an EC algorithm with the RSA key": lambda: ISSUES.sign(ISSUES.claims(NOW_S), "ES256", kid="rsa-1"),
    "a critical header": lambda: _with_header(crit=["b64"], b64=True),
    "another issuer": lambda: claiming(iss="https://evil.example"),
    "no issuer": lambda: claiming(iss=None),
    "another audience": lambda: claiming(aud="console"),
    "no audience": lambda: claiming(aud=None),
    "an audience that begins alike": lambda: claiming(aud=AUDIENCE + "2"),
    "expired": lambda: claiming(exp=NOW_S - 30, iat=NOW_S - 100),
    "no expiry": lambda: claiming(exp=None),
    "an expiry of text": lambda: claiming(exp="2100-01-01"),
    "a boolean expiry": lambda: claiming(exp=True),
    "an endless expiry": lambda: _raw_claims('{"sub":"alice","exp":Infinity,"iat":1}'),
    "an expiry beyond floats": lambda: _raw_claims('{"sub":"alice","iat":1,"exp":1' + "0" * 400 + "}"),
    "not yet": lambda: claiming(nbf=NOW_S + 31),
    "issued in the future": lambda: claiming(iat=NOW_S + 31),
    "not issued": lambda: claiming(iat=None),
    "nobody": lambda: claiming(sub=None),
    "an empty name": lambda: claiming(sub=" "),
    "a name that is none": lambda: claiming(sub=["alice"]),
    "scopes that are none": lambda: claiming(scope=[1]),
    "claims that are a list": lambda: _raw_claims("[]"),
    "claims of brackets": lambda: _raw_claims("[" * 10_000),
    "a huge token": lambda: "a" * (TOKEN_MAX_BYTES + 1),
    "a header of brackets": lambda: f"{b64(b'[' * 10_000)}.e30.AAAA",
    "a header that is a list": lambda: f"{b64(b'[]')}.e30.AAAA",
    "a header that is a list with alg": lambda: b64(b'["alg", "kid"]') + ".e30.AAAA",
    "a header that is a text with alg": lambda: b64(b'"alg"') + ".e30.AAAA",
    "an id that is none": lambda: _with_header(kid=7),
    "garbage": lambda: "garbage",
    "nothing": lambda: "",
    "five parts": lambda: "e30.e30.e30.e30.e30",
}


def _signed_by(key: RSAKey, **header: Any) -> str:
    other = Issuer.__new__(Issuer)
    other.rsa = key
    return other.sign(ISSUES.claims(NOW_S), **header)


def _with_header(**header: Any) -> str:
    return f"{part({'alg': 'RS256', 'kid': 'rsa-1', **header})}.{part(ISSUES.claims(NOW_S))}.AAAA"


def _raw_claims(text: str) -> str:
    """Rightly signed."""
    from joserfc import jws

    return jws.serialize_compact({"alg": "RS256", "kid": "rsa-1"}, text, ISSUES.rsa, ["RS256"])


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_refused_and_no_error_shows_the_token(attack: str) -> None:
    token = ATTACKS[attack]()
    with pytest.raises(SaslError) as refusal:
        judge(token)
    assert not token or token[:20] not in str(refusal.value)


def test_an_id_that_no_key_has_is_told_apart() -> None:
    with pytest.raises(UnknownKeyError, match="rsa-2"):
        judge(ISSUES.sign(ISSUES.claims(NOW_S), kid="rsa-2"))


def test_a_token_without_an_id_needs_the_only_key_that_fits() -> None:
    token = ISSUES.sign(ISSUES.claims(NOW_S), kid=None)
    assert judge(token).name == "alice"
    two = parse_jwks(ISSUES.jwks({**STRANGER.as_dict(private=False), "kid": "rsa-2"}))
    with pytest.raises(SaslError, match="2 keys would fit"):
        judge_token(token, two, RULES, NOW_S)


def test_only_keys_for_signatures_of_this_kind_are_taken_from_a_jwks() -> None:
    rsa = ISSUES.rsa.as_dict(private=False)
    small = {**rsa, "kid": "small", "n": b64(b"\xff" * 128)}
    keys = parse_jwks(
        ISSUES.jwks(
            OctKey.generate_key(256, {"kid": "secret"}).as_dict(),
            small,
            {**rsa, "kid": "enc", "use": "enc"},
            {**rsa, "kid": "signs", "key_ops": ["sign"]},
            {**rsa, "kid": "no list", "key_ops": 5},
            {**rsa, "kid": "null", "key_ops": None},
            {**rsa, "kid": "hs", "alg": "HS256"},
            {"kty": "RSA", "kid": "broken", "n": "!", "e": 3},
            {**rsa, "kid": "only-384", "alg": "RS384"},
            {"kid": "nothing"},
        )
    )
    assert {name: key.algorithms[:1] for name, key in keys.by_id.items()} == {
        "rsa-1": ("RS256",),
        "ec-1": ("ES256",),
        "only-384": ("RS384",),
    }


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"keys":{}}', b'{"keys":[]}', b"[" * 100_000, b"\xff"])
def test_what_is_no_jwks_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"JWK Set|no RSA key"):
        parse_jwks(text)


def first(token: str, authorization: str = "") -> bytes:
    start = f"n,a={authorization}," if authorization else "n,,"
    return f"{start}\x01auth=Bearer {token}\x01traceId=1\x01\x01".encode()


def test_a_client_that_is_not_believed_is_told_in_json_and_fails_then() -> None:
    """RFC 7628, 3.2.2 and 3.2.3."""
    door = Authentication({"OAUTHBEARER": Offer(lambda: OAuthBearerServer(judge), 0)})
    door.handshake("OAUTHBEARER", 0.0)
    told = door.authenticate(first(claiming(aud="console")), 0.0)
    assert (told.code, json.loads(told.token), told.is_final) == (
        ErrorCode.NONE,
        {"status": "invalid_token"},
        False,
    )
    assert door.principal is None
    last = door.authenticate(b"\x01", 0.0)
    assert (last.code, last.message, last.is_final) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        "Authentication failed: the token is for another audience",
        True,
    )


def test_a_good_token_after_a_bad_one_lets_nobody_in() -> None:
    server = OAuthBearerServer(judge)
    server.respond(first(claiming(aud="console")))
    with pytest.raises(SaslError):
        server.respond(first(ISSUES.token(NOW_S)))


@pytest.mark.parametrize(
    ("max_session_ms", "session_ms"), [(0, 3_600_000), (1000, 1000), (7_200_000, 3_600_000)]
)
def test_a_session_ends_with_the_token_or_earlier(max_session_ms: int, session_ms: int) -> None:
    door = Authentication({"OAUTHBEARER": Offer(lambda: OAuthBearerServer(judge), max_session_ms)})
    door.handshake("OAUTHBEARER", 0.0)
    answer = door.authenticate(first(ISSUES.token(NOW_S)), 0.0)
    assert (answer.code, answer.session_lifetime_ms) == (ErrorCode.NONE, session_ms)
    assert door.principal == "User:alice"


@pytest.mark.parametrize(("subject", "code"), [("alice", ErrorCode.NONE), ("bob", 58)])
def test_a_renewed_session_keeps_its_principal(subject: str, code: int) -> None:
    door = Authentication({"OAUTHBEARER": Offer(lambda: OAuthBearerServer(judge), 0)})
    for at_s, name in ((0.0, "alice"), (10.0, subject)):
        door.handshake("OAUTHBEARER", at_s)
        answer = door.authenticate(first(ISSUES.token(NOW_S, name)), at_s)
    assert answer.code == code


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer a\x01",
        b"n,a=\xff,\x01auth=Bearer a\x01\x01",
        b"n,,\x01x=y\x01\x01",
    ],
)
def test_first_messages_that_are_none_fail_at_once(message: bytes) -> None:
    with pytest.raises(SaslError, match="first message"):
        OAuthBearerServer(judge).respond(message)


def test_who_wants_to_be_somebody_else_is_refused() -> None:
    assert OAuthBearerServer(judge).respond(first(ISSUES.token(NOW_S), "alice")).username == "alice"
    with pytest.raises(SaslError, match="authorization id"):
        OAuthBearerServer(judge).respond(first(ISSUES.token(NOW_S), "bob"))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_token_that_was_changed_anywhere_is_refused(data: st.DataObject) -> None:
    token = GOOD
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("ABab01-_.~"))
    changed = token[:place] + letter + token[place + 1 :]
    same = [base64.urlsafe_b64decode(text + "==") for text in token.split(".")]
    try:
        judge(changed)
    except SaslError:
        return
    parts = [base64.urlsafe_b64decode(text + "==") for text in changed.split(".")]
    assert parts == same, "only bits that stand for nothing may differ"


GOOD = ISSUES.token(NOW_S)


@given(st.binary(max_size=200))
def test_no_message_of_a_stranger_ends_anything_but_its_authentication(message: bytes) -> None:
    try:
        step = OAuthBearerServer(judge).respond(message)
    except SaslError:
        return
    assert step.username is None
