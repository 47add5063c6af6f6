"""How one connection of a SASL listener says who it is: handshake, tokens, and again before its session ends.

Pure: requests and times go in, answers and the principal come out (KIP-43, KIP-152, KIP-368). Until the client is known
it may ask for ApiVersions, SaslHandshake and SaslAuthenticate alone. A client that authenticates again is refused if it
is another one than before or comes by another mechanism. After a refusal nothing follows: whoever drives this answers
when the delay of failures is over, and closes. States and words are those of Kafka's SaslServerAuthenticator.
`kraft.broker.handlers.sasl` drives it; the dispatcher asks `problem` before each request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from kraft.protocol.api import ApiKey, api_name
from kraft.protocol.errors import ErrorCode
from kraft.security.sasl_servers import SaslServer
from kraft.security.scram import HASHES, SaslError

USER_PREFIX: Final = "User:"
REAUTHENTICATION_MIN_INTERVAL_S: Final = 1.0
"""A client that authenticates more often is refused, as in Kafka."""
LIFETIME_MAX_MS: Final = 2**63 - 1

_BEFORE = frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))


class Offer(NamedTuple):
    """A mechanism of a listener."""

    begin: Callable[[], SaslServer]
    """Makes a fresh authentication."""
    max_session_ms: int
    """`connections.max.reauth.ms`; 0: sessions do not end."""


class Answer(NamedTuple):
    """What the client is told. `is_final`: nothing more is taken of it, and its answer is delayed."""

    code: ErrorCode
    message: str | None = None
    token: bytes = b""
    session_lifetime_ms: int = 0
    is_final: bool = False


class _State(Enum):
    UNKNOWN = "before the handshake"
    TOKENS = "a mechanism was agreed on, its tokens come"
    KNOWN = "authenticated"
    FAILED = "refused"


class Authentication:
    """One connection's. Times are loop times in seconds."""

    def __init__(self, offers: Mapping[str, Offer]) -> None:
        self._offers = offers
        self._state = _State.UNKNOWN
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._expires_at_s: float | None = None
        self._began_again_at_s: float | None = None
        self._before: tuple[str, str] | None = None
        """Mechanism and principal of the session that is to be renewed."""
        self.principal: str | None = None
        """Who the client is; None until it is known for the first time."""

    @property
    def mechanisms(self) -> list[str]:
        """What is offered."""
        return list(self._offers)

    def problem(self, api_key: int, now_s: float) -> str | None:
        """Why a request is none that may come now, as the end of a sentence; None: it may."""
        if self._state is _State.KNOWN:
            expires_at_s = self._expires_at_s
            if expires_at_s is None or now_s < expires_at_s or api_key == ApiKey.SASL_HANDSHAKE:
                return None
            return "its session has ended, and it did not authenticate again"
        if self._state is _State.FAILED:
            return "it sent more after its authentication failed"
        expected = _BEFORE if self._state is _State.UNKNOWN else (ApiKey.SASL_AUTHENTICATE,)
        if api_key in expected:
            return None
        return f"it sent {api_name(api_key)} and did not say who it is"

    def handshake(self, mechanism: str, now_s: float) -> Answer:
        """Answers a SaslHandshake that `problem` has let pass."""
        if self._state is _State.KNOWN:
            if not self._may_begin_again(now_s):
                return Answer(
                    ErrorCode.ILLEGAL_SASL_STATE,
                    "SaslHandshake request received after successful authentication",
                )
            self._began_again_at_s = now_s
            assert self.principal is not None
            self._before = (self._mechanism, self.principal)
        offer = self._offers.get(mechanism)
        if offer is None:
            return self._failed(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"the broker offers {', '.join(self._offers)}"
            )
        self._mechanism, self._server, self._state = mechanism, offer.begin(), _State.TOKENS
        return Answer(ErrorCode.NONE)

    def authenticate(self, token: bytes, now_s: float) -> Answer:
        """Answers a SaslAuthenticate that `problem` has let pass."""
        if self._state is _State.KNOWN:
            return Answer(
                ErrorCode.ILLEGAL_SASL_STATE,
                "SaslAuthenticate request received after successful authentication",
            )
        if self._server is None:
            return self._failed(
                ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received before SaslHandshake"
            )
        if self._before is not None and self._before[0] != self._mechanism:
            return self._failed(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication of"
                f" mechanism '{self._before[0]}'",
            )
        try:
            step = self._server.respond(token)
        except SaslError as error:
            return self._failed(ErrorCode.SASL_AUTHENTICATION_FAILED, self._told(error))
        if step.username is None:
            return Answer(ErrorCode.NONE, token=step.token)
        return self._known(USER_PREFIX + step.username, step.token, step.lifetime_ms, now_s)

    def _known(self, principal: str, token: bytes, lifetime_ms: int | None, now_s: float) -> Answer:
        if self._before is not None and self._before[1] != principal:
            return self._failed(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                "Cannot change principals during re-authentication from"
                f" {self._before[1].removeprefix(USER_PREFIX)}: {principal.removeprefix(USER_PREFIX)}",
            )
        limits = [limit for limit in (self._offers[self._mechanism].max_session_ms, lifetime_ms) if limit]
        session_ms = min(limits, default=0)
        self._expires_at_s = now_s + session_ms / 1000 if session_ms else None
        self.principal, self._server, self._before, self._state = principal, None, None, _State.KNOWN
        return Answer(ErrorCode.NONE, token=token, session_lifetime_ms=session_ms)

    def _may_begin_again(self, now_s: float) -> bool:
        """Only sessions that end are renewed, and not more often than once in a while."""
        last_s = self._began_again_at_s
        return self._expires_at_s is not None and (
            last_s is None or now_s - last_s >= REAUTHENTICATION_MIN_INTERVAL_S
        )

    def _told(self, error: SaslError) -> str:
        """What the client may know. What is amiss with SCRAM's messages would tell whether a user exists."""
        if self._mechanism not in HASHES:
            return str(error)
        what = "authentication" if self._before is None else "re-authentication"
        return f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self._mechanism}"

    def _failed(self, code: ErrorCode, message: str) -> Answer:
        self._state, self._server = _State.FAILED, None
        return Answer(code, message, is_final=True)
