"""Where tokens come from: settings of Kafka and librdkafka, requests, answers, and when the next one is wanted."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.security.jaas import parse_jaas
from kraft.security.oauthbearer_client import TOKEN_MAX_BYTES, BearerToken
from kraft.security.token_login import (
    BACKOFF,
    BACKOFF_MAX,
    CLIENT_ID,
    CLIENT_SECRET,
    JAAS,
    MODULE,
    SCOPE,
    URL,
    KeptToken,
    LoginError,
    TokenError,
    TokenLogin,
    parse_token_login,
    read_token,
    token_of_answer,
    token_request,
)
from tests.support.examples import examples

HTTPS = "https://issuer.example/token?tenant=hunter1"
OIDC = {URL: HTTPS, CLIENT_ID: "app", CLIENT_SECRET: "hunter2"}
LOGIN = TokenLogin(HTTPS, "app", "hunter2", "read write")
NOW_S = 1_000_000.0


def parse(jaas: str | None = None, **given: str) -> TokenLogin:
    module = None if jaas is None else parse_jaas(f"{MODULE} required {jaas};")
    return parse_token_login(given, module)


def jwt(**claims: Any) -> str:
    parts = ({"alg": "RS256"}, claims)
    texts = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join((*texts, "hunter-signature"))


def answer_of(**values: Any) -> bytes:
    return json.dumps(values).encode()


# -- settings


@pytest.mark.parametrize(
    ("jaas", "given"),
    [
        (None, OIDC | {SCOPE: "read write"}),
        ('clientId="app" clientSecret="hunter2" scope="read write"', {URL: HTTPS}),
        ('clientId="other" clientSecret="hunter3" scope="none"', OIDC | {SCOPE: "read write"}),
        (
            None,
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "app",
                "sasl.oauthbearer.client.secret": "hunter2",
                SCOPE: " read write ",
                URL: HTTPS,
                "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer"
                ".ClientCredentialsJwtRetriever",
                "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.secured"
                ".OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.expected.audience": "of a server, in the same file",
                "sasl.login.refresh.window.factor": "0.9",
            },
        ),
    ],
)
def test_the_names_of_java_and_of_librdkafka_say_the_same(jaas: str | None, given: dict[str, str]) -> None:
    assert parse(jaas, **given) == LOGIN


def test_extensions_authorities_and_times() -> None:
    login = parse(
        'extension_logicalCluster="lkc-1" ssl.truststore.location="/ca.pem" ssl.truststore.type=PEM',
        **OIDC,
        **{"sasl.oauthbearer.extensions": "pool=x", BACKOFF: "300", BACKOFF_MAX: "1000"},
    )
    assert login.extensions == (("pool", "x"), ("logicalCluster", "lkc-1"))
    assert login.trusted_file == "/ca.pem"
    assert list(login.pauses_s()) == [0.3, 0.6]
    assert login.limit_s == 21.0
    assert login.place == "https://issuer.example/token"
    assert parse(**OIDC, **{"https.ca.pem": "PEM"}).trusted == "PEM"
    assert parse(**{URL: "file:///a%20b"}).path == "/a b"


@pytest.mark.parametrize(
    ("jaas", "given", "sentence"),
    [
        (None, {}, f"{URL} is not set: it says where tokens come from, as file:///PATH"),
        (None, {URL: "ftp://hunter/"}, "it must be like file:///PATH, https://HOST/PATH"),
        (None, {URL: "https://a:hunter@b/"}, "without a password"),
        (None, {URL: HTTPS}, f"set {CLIENT_ID} and {CLIENT_SECRET}, or clientId and clientSecret in {JAAS}"),
        ('clientId="hunter"', {URL: HTTPS}, "asks who the client is"),
        ('unsecuredLoginStringClaim_sub="hunter"', {}, "tokens that nobody signs"),
        ('clientSecrett="hunter"', OIDC, "has an option that is not supported for OAUTHBEARER; there are clientId,"),
        ('ssl.truststore.type="JKS"', OIDC, "only PEM is read"),
        (None, OIDC | {"sasl.oauthbearer.method": "hunter"}, "only oidc or default is supported"),
        (None, OIDC | {"sasl.oauthbearer.grant.type": "hunter"}, "only client_credentials is supported"),
        (None, OIDC | {"sasl.oauthbearer.jwt.retriever.class": "a.JwtBearerJwtRetriever"}, "is supported. Tokens come"),
        (None, OIDC | {"sasl.login.callback.handler.class": "com.hunter.Own"}, "only OAuthBearerLoginCallbackHandler"),
        (None, OIDC | {"sasl.login.class": "com.hunter.Own"}, "only DefaultLogin is supported"),
        (None, OIDC | {"sasl.oauthbearer.assertion.claim.sub": "hunter"}, "claim.sub is not supported: of OAUTHBEARER"),
        (None, OIDC | {"sasl.oauthbearer.header.urlencode": "hunter"}, "is true or false"),
        (None, OIDC | {"sasl.login.read.timeout.ms": "hunter"}, "must be a time in ms, from 1 to 600000"),
        (None, OIDC | {"sasl.login.read.timeout.ms": "0"}, "must be a time in ms"),
        (None, OIDC | {BACKOFF_MAX: "999999"}, "must be a time in ms"),
        (None, OIDC | {"sasl.oauthbearer.extensions": "auth=hunter"}, "an extension has a name of letters, not auth"),
        (None, OIDC | {"sasl.oauthbearer.extensions": "a1=hunter"}, "an extension has"),
        (None, OIDC | {"https.ca.pem": "hunter", "https.ca.location": "/hunter"}, "give one"),
    ],
)  # fmt: skip
def test_what_is_not_done_is_refused_in_a_sentence(
    jaas: str | None, given: dict[str, str], sentence: str
) -> None:
    with pytest.raises(LoginError) as refused:
        parse(jaas, **given)
    assert sentence in str(refused.value)
    assert "hunter" not in str(refused.value)


def test_another_login_module_is_refused_and_names_have_their_prefix() -> None:
    with pytest.raises(LoginError, match=r"^kafka\.sasl\.jaas\.config must name .*OAuthBearerLoginModule"):
        parse_token_login({URL: HTTPS}, parse_jaas("a.ScramLoginModule required;"), "kafka.")


def test_secrets_are_in_no_text() -> None:
    assert "hunter2" not in repr(LOGIN)
    assert "hunter1" not in LOGIN.place


# -- requests and answers


def test_the_client_credentials_grant() -> None:
    request = token_request(LOGIN)
    assert request.body == b"grant_type=client_credentials&scope=read+write"
    assert request.headers["Authorization"] == f"Basic {b64encode(b'app:hunter2').decode()}"
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    encoding = TokenLogin(HTTPS, "a:b", "c d", url_encodes=True)
    assert token_request(encoding).headers["Authorization"] == f"Basic {b64encode(b'a%3Ab:c+d').decode()}"
    assert token_request(encoding).body == b"grant_type=client_credentials"


def test_an_answer() -> None:
    token = jwt(sub="alice", exp=NOW_S + 60)
    answer = answer_of(access_token=f"{token}\n", token_type="Bearer", expires_in=60)
    assert token_of_answer(LOGIN, 200, answer, NOW_S) == BearerToken(token, NOW_S + 60, "alice")


@pytest.mark.parametrize(
    ("status", "content", "sentence", "is_final"),
    [
        (401, answer_of(error="invalid_client", error_description="hunter2"), "answers 401 (invalid_client)", True),
        (400, answer_of(error="hunter2 is wrong"), "answers 400", True),
        (403, b"<html>hunter2", "answers 403", True),
        (429, b"", "answers 429", False),
        (503, b"[]", "answers 503", False),
        (501, b"", "answers 501", True),
        (302, b"", "answers 302, and redirections are not followed", True),
        (200, b"hunter2", "answers no JSON with an access_token", True),
        (200, b"[" * 60_000, "answers no JSON", True),
        (200, answer_of(id="hunter2"), "answers no JSON with an access_token", True),
        (200, answer_of(access_token=["hunter2"]), "an access_token that is no text", True),
        (200, answer_of(access_token="hunter2"), "is no signed JWT", True),
        (200, answer_of(access_token=jwt(sub="hunter2", exp=NOW_S - 60)), "has expired", True),
    ],
)  # fmt: skip
def test_answers_that_give_no_token(status: int, content: bytes, sentence: str, is_final: bool) -> None:
    with pytest.raises(TokenError) as refused:
        token_of_answer(LOGIN, status, content, NOW_S)
    assert sentence in str(refused.value)
    assert refused.value.is_final is is_final
    assert "hunter" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is no signed JWT"),
        ("hunter\x01.a.b", "is no signed JWT"),
        ("a.b.", "is no signed JWT"),
        ("a.b.c.d", "is no signed JWT"),
        ("a" * TOKEN_MAX_BYTES + ".b.c", "is no signed JWT"),
        ("a.b.c", "has no claims with exp"),
        (f"a.{urlsafe_b64encode(b'[1]').decode().rstrip('=')}.c", "has no claims with exp"),
        (f"a.{urlsafe_b64encode(b'[' * 9000).decode()}.c", "has no claims with exp"),
        (jwt(sub="hunter"), "has no claims with exp"),
        (jwt(sub="hunter", exp="hunter"), "has an exp that is no time"),
        (jwt(sub="hunter", exp=True), "has an exp that is no time"),
        (jwt(sub="hunter", exp=float("nan")), "has an exp that is no time"),
        (jwt(sub="hunter", exp=-1), "has an exp that is no time"),
    ],
)
def test_texts_that_are_no_tokens(text: str, sentence: str) -> None:
    with pytest.raises(TokenError) as refused:
        read_token(LOGIN, text, NOW_S)
    assert sentence in str(refused.value)
    assert "hunter" not in str(refused.value)


@pytest.mark.parametrize(
    ("claims", "name"),
    [({"sub": " alice "}, "alice"), ({"sub": 5}, "somebody without a name"), ({}, "somebody without a name")],
)
def test_whom_a_token_names_is_for_the_broker_to_judge(claims: dict[str, Any], name: str) -> None:
    assert read_token(LOGIN, jwt(exp=NOW_S + 1, **claims), NOW_S).username == name


def test_clocks_may_differ_a_little() -> None:
    assert read_token(LOGIN, jwt(exp=NOW_S - 29), NOW_S).expires_at_s == NOW_S - 29


@settings(max_examples=examples(200))
@given(status=st.integers(0, 999), content=st.binary(max_size=300))
def test_no_answer_breaks_the_client(status: int, content: bytes) -> None:
    with pytest.raises(TokenError):
        token_of_answer(LOGIN, status, content, NOW_S)


# -- when the next one is wanted


def test_a_token_is_renewed_before_it_ends_and_counts_on_where_there_is_no_other() -> None:
    kept = KeptToken(LOGIN)
    assert kept.usable(0.0) is None
    assert kept.is_due(0.0)
    first = BearerToken("a", 100.0, "alice")
    kept.fetched(first, 0.0)
    assert [kept.is_due(now_s) for now_s in (0.0, 74.9, 75.0)] == [False, False, True]
    assert kept.failed(75.0) is first
    assert [kept.is_due(now_s) for now_s in (93.7, 93.8)] == [False, True]
    assert kept.failed(99.9) is first
    assert kept.due_at_s == 100.9, "not more often than once a second"
    assert kept.usable(100.0) is None
    assert kept.failed(100.0) is None
    second = BearerToken("b", 200.0, "alice")
    kept.fetched(second, 101.0)
    assert kept.usable(101.0) is second


def test_a_file_is_read_each_time() -> None:
    kept = KeptToken(TokenLogin("file:///token"))
    kept.fetched(BearerToken("a", 100.0, "alice"), 0.0)
    assert kept.is_due(0.0)
