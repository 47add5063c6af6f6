"""The client shows its token, and is content only with a broker that is."""

from __future__ import annotations

import pytest

from kraft.protocol.schemas.sasl import (
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kraft.security.authentication import Authentication, Offer
from kraft.security.exchange import SaslRefusal, sasl_exchange
from kraft.security.mechanisms import sasl_client
from kraft.security.oauthbearer import Believed, OAuthBearerServer
from kraft.security.oauthbearer_client import BearerToken
from kraft.security.scram import SaslError

TOKEN = BearerToken("header.hunter2.signature", 2e9, "alice", (("logicalCluster", "lkc-1"), ("pool", "x y")))


def authenticated(judge: object) -> tuple[float | None, str | None]:
    """The seconds that a broker of ours grants, and who it takes the client for."""
    broker = Authentication({"OAUTHBEARER": Offer(lambda: OAuthBearerServer(judge), 0)})  # type: ignore[arg-type]
    steps = sasl_exchange(TOKEN, "nonce")
    answer: object = None
    try:
        while True:
            request = steps.send(answer)
            if isinstance(request, SaslHandshakeRequest):
                said = broker.handshake(request.mechanism, 0.0)
                answer = SaslHandshakeResponse(error_code=said.code, mechanisms=broker.mechanisms)
            else:
                said = broker.authenticate(request.auth_bytes, 0.0)
                answer = SaslAuthenticateResponse(
                    error_code=said.code,
                    error_message=said.message,
                    auth_bytes=said.token,
                    session_lifetime_ms=said.session_lifetime_ms,
                )
    except StopIteration as end:
        return end.value, broker.principal


def test_a_token_that_is_believed() -> None:
    shown: list[str] = []

    def judge(token: str) -> Believed:
        shown.append(token)
        return Believed("alice", 90_000)

    assert authenticated(judge) == (90.0, "User:alice")
    assert shown == [TOKEN.token]


def test_a_token_that_is_refused_is_told_why() -> None:
    def judge(_: str) -> Believed:
        raise SaslError("the token is for another audience")

    with pytest.raises(SaslRefusal) as refused:
        authenticated(judge)
    assert refused.value.message == "Authentication failed: the token is for another audience"


def test_the_first_message_has_the_extensions_behind_the_token() -> None:
    assert sasl_client(TOKEN, "nonce").first() == (
        b"n,,\x01auth=Bearer header.hunter2.signature\x01logicalCluster=lkc-1\x01pool=x y\x01\x01"
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b'{"status":"invalid_token"}', "invalid_token"),
        (b'{"status":"header.hunter2.signature"}', "does not say why"),
        (b"[" * 100_000, "does not say why"),
        (b"\xff", "does not say why"),
        (b"[]", "does not say why"),
    ],
)
def test_a_broker_that_refuses_and_then_lets_in_is_not_believed(answer: bytes, reason: str) -> None:
    client = sasl_client(TOKEN, "nonce")
    assert client.respond(answer) == b"\x01"
    with pytest.raises(SaslError, match=reason) as refused:
        client.respond(b"")
    assert "hunter" not in str(refused.value)


def test_the_token_is_in_no_text() -> None:
    assert "hunter" not in repr(TOKEN)
    assert "lkc" not in repr(TOKEN)
    assert "hunter" not in repr(sasl_client(TOKEN, ""))
