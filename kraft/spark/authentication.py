"""One connection says who it is: SaslHandshake, then the mechanism's tokens in SaslAuthenticate (KIP-43, KIP-152).

A refusal is final: waiting does not change a password. Its error names the broker, the mechanism and what to look at,
and never the password, even where a broker repeats it. `connection.py` calls it, also when a session ends (KIP-368).
"""

from __future__ import annotations

import secrets
from typing import Any, Protocol, TypeVar

from kraft.protocol import ErrorCode, Message
from kraft.protocol.schemas.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kraft.security.mechanisms import Credentials, sasl_client
from kraft.security.scram import SaslError
from kraft.spark.errors import AuthenticationError

_NONCE_BYTES = 24
_MAX_REASON = 200

R = TypeVar("R", bound=Message)


class Exchange(Protocol):
    """Sends a request and returns its answer."""

    def __call__(self, request: Message, answer: type[R]) -> R: ...


def authenticate(exchange: Exchange, address: object, credentials: Credentials) -> float | None:
    """Returns for how many seconds the broker grants the session; None: for ever.

    Raises AuthenticationError, and what `exchange` raises.
    """
    mechanism = credentials.mechanism
    offered = exchange(SaslHandshakeRequest(mechanism), SaslHandshakeResponse)
    if offered.error_code:
        raise _refused(address, credentials, offered)
    try:
        client = sasl_client(credentials, secrets.token_urlsafe(_NONCE_BYTES))
        token: bytes | None = client.first()
        while token is not None:
            answer = exchange(SaslAuthenticateRequest(token), SaslAuthenticateResponse)
            if answer.error_code:
                raise _refused(address, credentials, answer)
            token = client.respond(answer.auth_bytes)
    except SaslError as error:
        raise AuthenticationError(
            f"Authentication by {mechanism} with broker {address} failed: {error}. Check that"
            " kafka.bootstrap.servers are the right brokers, and name and password in kafka.sasl.jaas.config."
        ) from None
    return answer.session_lifetime_ms / 1000 if answer.session_lifetime_ms > 0 else None


def _refused(address: object, credentials: Credentials, answer: Any) -> AuthenticationError:
    code = ErrorCode.of(answer.error_code)
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        advice = (
            f"It offers {', '.join(answer.mechanisms) or 'none'}: set kafka.sasl.mechanism to one of these."
        )
    elif code is ErrorCode.ILLEGAL_SASL_STATE:
        advice = "A listener without SASL says so: kafka.security.protocol would be PLAINTEXT or SSL there."
    else:
        said = getattr(answer, "error_message", None) or code.message
        advice = f"{_cut(said, credentials.password)} Check name and password in kafka.sasl.jaas.config."
    return AuthenticationError(
        f"Broker {address} refuses authentication by {credentials.mechanism}: {code.name}. {advice}"
    )


def _cut(reason: str, password: str) -> str:
    """What a broker said, as one sentence; nothing of it where it repeats the password."""
    if password in reason:
        return ""
    return reason[:_MAX_REASON].rstrip(". ") + "."
