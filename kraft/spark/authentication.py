"""One connection says who it is: SaslHandshake, then the mechanism's tokens in SaslAuthenticate (KIP-43, KIP-152).

A refusal is final: waiting does not change a password. Its error names the broker, the mechanism and what to look at,
and never the password or the token, even where a broker repeats it. `connection.py` calls it, also when a session ends
(KIP-368): a token is a new one then, if the one before will not do.
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
from kraft.security.mechanisms import Credentials, Shown
from kraft.security.oauthbearer_client import OAUTHBEARER
from kraft.security.scram import SaslError
from kraft.security.token_login import TokenError, TokenLogin
from kraft.spark.errors import AuthenticationError

_NONCE_BYTES = 24
_MAX_REASON = 200

R = TypeVar("R", bound=Message)


class Exchange(Protocol):
    """Sends a request and returns its answer."""

    def __call__(self, request: Message, answer: type[R]) -> R: ...


def shown(credentials: Credentials | TokenLogin) -> Shown:
    """What is shown to a broker: of a login the token that counts now. Raises AuthenticationError."""
    if isinstance(credentials, Credentials):
        return credentials
    from kraft.runtime.tokens import token_source  # and aiohttp, which nobody else here needs

    try:
        return token_source(credentials).current()
    except TokenError as error:
        raise AuthenticationError(
            f"There is no token for kafka.sasl.mechanism {OAUTHBEARER}: {error}. Check kafka.sasl.oauthbearer.… and"
            " the client's id and secret."
        ) from None


def authenticate(exchange: Exchange, address: object, credentials: Credentials | TokenLogin) -> float | None:
    """Returns for how many seconds the broker grants the session; None: for ever.

    Raises AuthenticationError, and what `exchange` raises.
    """
    return _authenticate(exchange, address, shown(credentials))


def _authenticate(exchange: Exchange, address: object, credentials: Shown) -> float | None:
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
            f" kafka.bootstrap.servers are the right brokers, and {_what_to_check(credentials)}."
        ) from None


def _what_to_check(credentials: Shown) -> str:
    if credentials.mechanism == OAUTHBEARER:
        return "whose token it is, for which audience, and until when"
    return "name and password in kafka.sasl.jaas.config"


def _refused(address: object, credentials: Shown, refusal: SaslRefusal) -> AuthenticationError:
    code = refusal.code
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        advice = (
            f"It offers {', '.join(refusal.mechanisms) or 'none'}: set kafka.sasl.mechanism to one of these."
        )
    elif code is ErrorCode.ILLEGAL_SASL_STATE:
        advice = "A listener without SASL says so: kafka.security.protocol would be PLAINTEXT or SSL there."
    else:
        advice = f"{_cut(refusal.message, credentials.secret)} Check {_what_to_check(credentials)}."
    return AuthenticationError(
        f"Broker {address} refuses authentication by {credentials.mechanism}: {code.name}. {advice}"
    )


def _cut(reason: str, secret: str) -> str:
    """What a broker said, as one sentence; nothing of it where it repeats what is secret."""
    if secret in reason:
        return ""
    return reason[:_MAX_REASON].rstrip(". ") + "."
