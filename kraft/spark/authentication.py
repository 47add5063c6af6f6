"""One connection says who it is: SaslHandshake, then the mechanism's tokens in SaslAuthenticate (KIP-43, KIP-152).

A refusal is final: waiting does not change a password. Its error names the broker, the mechanism and what to look at,
and never the password, even where a broker repeats it. `connection.py` calls it, also when a session ends (KIP-368).
"""

from __future__ import annotations

import secrets
from typing import Any, Protocol, TypeVar

from kraft.protocol import ErrorCode, Message
from kraft.protocol.schemas.sasl import (
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kraft.security.exchange import SaslRefusal, sasl_exchange
from kraft.security.mechanisms import Credentials
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
    steps = sasl_exchange(credentials, secrets.token_urlsafe(_NONCE_BYTES))
    answer: Any = None
    try:
        while True:
            request = steps.send(answer)
            is_handshake = isinstance(request, SaslHandshakeRequest)
            answer = exchange(request, SaslHandshakeResponse if is_handshake else SaslAuthenticateResponse)
    except StopIteration as end:
        lifetime_s: float | None = end.value
        return lifetime_s
    except SaslRefusal as refusal:
        raise _refused(address, credentials, refusal) from None
    except SaslError as error:
        raise AuthenticationError(
            f"Authentication by {credentials.mechanism} with broker {address} failed: {error}. Check that"
            " kafka.bootstrap.servers are the right brokers, and name and password in kafka.sasl.jaas.config."
        ) from None


def _refused(address: object, credentials: Credentials, refusal: SaslRefusal) -> AuthenticationError:
    code = refusal.code
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        advice = (
            f"It offers {', '.join(refusal.mechanisms) or 'none'}: set kafka.sasl.mechanism to one of these."
        )
    elif code is ErrorCode.ILLEGAL_SASL_STATE:
        advice = "A listener without SASL says so: kafka.security.protocol would be PLAINTEXT or SSL there."
    else:
        advice = f"{_cut(refusal.message, credentials.password)} Check name and password in kafka.sasl.jaas.config."
    return AuthenticationError(
        f"Broker {address} refuses authentication by {credentials.mechanism}: {code.name}. {advice}"
    )


def _cut(reason: str, password: str) -> str:
    """What a broker said, as one sentence; nothing of it where it repeats the password."""
    if password in reason:
        return ""
    return reason[:_MAX_REASON].rstrip(". ") + "."
