"""What a client sends to say who it is: SaslHandshake, then tokens in SaslAuthenticate (KIP-43, KIP-152).

`sasl_exchange` is driven by whoever has a connection: it yields a request and is sent the answer. Pure. The Spark
connector drives it with a blocking connection, brokers and commands with `kraft.network.authentication`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kraft.security.mechanisms import Shown, sasl_client


class SaslRefusal(Exception):
    """The broker refuses. `message` is what it says, which may repeat what it was sent."""

    def __init__(self, code: ErrorCode, message: str | None, mechanisms: list[str]) -> None:
        super().__init__(code.name)
        self.code = code
        self.message = message or code.message
        self.mechanisms = mechanisms
        """What it offers, where the mechanism is what it refuses."""


Exchange = Generator[SaslHandshakeRequest | SaslAuthenticateRequest, Any, float | None]


def sasl_exchange(credentials: Shown, nonce: str) -> Exchange:
    """Yields requests, is sent their answers, and returns for how many seconds the broker grants the session; None:
    for ever. `nonce` is a new random text. Raises SaslRefusal, or SaslError if the broker breaks the rules."""
    client = sasl_client(credentials, nonce)
    offered = yield SaslHandshakeRequest(credentials.mechanism)
    if offered.error_code:
        raise SaslRefusal(ErrorCode.of(offered.error_code), None, list(offered.mechanisms))
    token: bytes | None = client.first()
    answer: Any = None
    while token is not None:
        answer = yield SaslAuthenticateRequest(token)
        if answer.error_code:
            raise SaslRefusal(ErrorCode.of(answer.error_code), answer.error_message, [])
        token = client.respond(answer.auth_bytes)
    lifetime_ms: int = answer.session_lifetime_ms
    return lifetime_ms / 1000 if lifetime_ms > 0 else None
