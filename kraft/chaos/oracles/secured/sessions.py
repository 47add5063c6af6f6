"""The judge of sessions: who is at the other end of a connection, by what it sent, and for how long that is believed.

- authentication: nobody is served who did not say who he is, where he has to; nobody is believed whom the broker's
  metadata did not know at any time of his saying it;
- principal-changed: a connection is, for ever, of who said first that it is his (KIP-368);
- session-outlived: nothing but saying it again is served after the end of a session (`connections.max.reauth.ms`).

The model reads names out of the tokens of SASL and looks at the metadata; it knows nothing of the product's states.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kraft.broker.dispatch import Dispatcher
from kraft.broker.guards import finished
from kraft.broker.request import HandlerResult, Request
from kraft.broker.services import BrokerServices
from kraft.chaos import security
from kraft.chaos.oracles.wrapping import Method, Probes, Whose, around
from kraft.chaos.verdict import Verdicts
from kraft.network.connection import CloseConnectionError
from kraft.network.session import Session
from kraft.protocol.api import ApiKey
from kraft.protocol.schema import Message
from kraft.security.mechanisms import PLAIN

RENEWED = "session renewed in time or after its end"
REFUSED = "renewal of a session refused"
REMOVED = "renewal refused since the user is no more"
ENDED = "session ended, and its connection with it"
EVENTS = (RENEWED, REFUSED, REMOVED, ENDED)
TOKENS: Final = {PLAIN: 1, security.MECHANISM: 2}
"""How many the client sends to prove who it is."""
_SAYING = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_FREE = (ApiKey.API_VERSIONS, *_SAYING)


@dataclass
class Known:
    """What one connection has said and proved so far."""

    mechanism: str = ""
    tokens: int = 0
    claimed: str = ""
    users: set[str] = field(default_factory=set)
    """Those of the metadata, at any time since the handshake."""
    proved: str = ""
    """Who it is since it proved it first."""
    ends_s: float | None = None
    """When it is believed no longer; None: never."""

    def handshake(self, mechanism: str, users: set[str]) -> None:
        """It begins, once more perhaps."""
        self.mechanism, self.tokens, self.users = mechanism, 0, users

    def token(self, token: bytes, users: set[str]) -> None:
        """It sent this."""
        self.tokens += 1
        self.users |= users
        if self.tokens == 1:
            self.claimed = claimed(self.mechanism, token)

    @property
    def has_said_all(self) -> bool:
        """Whether the mechanism wants no more of it."""
        return self.tokens >= TOKENS.get(self.mechanism, 1)


def claimed(mechanism: str, token: bytes) -> str:
    """The name in a client's first token (RFC 4616, RFC 5802)."""
    text = token.decode()
    if mechanism == PLAIN:
        return text.split("\0")[1]
    return next(part[2:] for part in text.split(",") if part.startswith("n="))


class Sessions(Probes):
    """Probes on the dispatchers of secured brokers."""

    def __init__(self, verdicts: Verdicts, whose: Whose, *, session_max_s: float) -> None:
        """`session_max_s`: how long guests are believed; 0: for ever."""
        self._verdicts = verdicts
        self._whose = whose
        self._session_max_s = session_max_s
        self._known: dict[Session, Known] = {}
        verdicts.declare(EVENTS)

    @around(Dispatcher, "__call__")
    def _asked(self, original: Method, dispatcher: Dispatcher, context: Any) -> Any:
        try:
            return original(dispatcher, context)
        except CloseConnectionError:
            known = self._known.get(context.session)
            if known is not None and self._is_over(known, dispatcher._services):
                self._verdicts.happened(ENDED, known.proved)
            raise

    @around(Dispatcher, "_handle")
    def _handled(
        self, original: Method, dispatcher: Dispatcher, key: ApiKey, request: Request[Any]
    ) -> HandlerResult:
        session, services = request.session, dispatcher._services
        if session.listener_name != security.CLIENTS or self._whose.node() is None:
            result: HandlerResult = original(dispatcher, key, request)
            return result
        known = self._known.setdefault(session, Known())
        if key not in _FREE:
            self._judge(known, key, services)
        if key is ApiKey.SASL_HANDSHAKE:
            known.handshake(request.body.mechanism, _users(services))
        elif key is ApiKey.SASL_AUTHENTICATE:
            known.token(bytes(request.body.auth_bytes), _users(services))
        result = original(dispatcher, key, request)

        def answered(answer: Message | None) -> Message | None:
            if answer is not None and self._whose.node() is not None:
                self._told(known, session, answer, services)
            return answer

        return finished(result, answered) if key in _SAYING else result

    def _judge(self, known: Known, key: ApiKey, services: BrokerServices) -> None:
        node = self._whose.node()
        if not known.proved:
            self._verdicts.violated(
                "authentication", f"node {node} served {key.name} to somebody who did not say who he is"
            )
        elif self._is_over(known, services):
            self._verdicts.violated(
                "session-outlived",
                f"node {node} served {key.name} to {known.proved} after the end of the session",
            )

    def _is_over(self, known: Known, services: BrokerServices) -> bool:
        return known.ends_s is not None and services.loop.time() >= known.ends_s

    def _told(self, known: Known, session: Session, answer: Any, services: BrokerServices) -> None:
        """The connection is told what became of what it said."""
        if answer.error_code:
            if known.proved:
                is_removed = known.claimed == known.proved and known.proved not in known.users
                self._verdicts.happened(REMOVED if is_removed else REFUSED, known.proved)
            return
        if answer.API_KEY is not ApiKey.SASL_AUTHENTICATE or not known.has_said_all:
            return
        node = self._whose.node()
        if known.mechanism == security.MECHANISM and known.claimed not in known.users:
            self._verdicts.violated(
                "authentication", f"node {node} believed {known.claimed}, whom its metadata did not know"
            )
        if known.proved:
            self._verdicts.happened(RENEWED, known.claimed)
        known.proved = known.proved or known.claimed
        if known.claimed != known.proved or session.principal != f"User:{known.proved}":
            self._verdicts.violated(
                "principal-changed",
                f"node {node} takes the connection of {known.proved} for one of {session.principal}",
            )
        if known.mechanism == security.MECHANISM and self._session_max_s:
            known.ends_s = services.loop.time() + self._session_max_s


def _users(services: BrokerServices) -> set[str]:
    return {name for name, _ in services.metadata.image.scram_credentials}
