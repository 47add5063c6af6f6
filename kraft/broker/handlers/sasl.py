"""SaslHandshake (17) and SaslAuthenticate (36): a connection says who it is (KIP-43, KIP-152, KIP-368).

`kraft.security.authentication` decides; this tells the session, and lets a refusal wait: who guesses passwords gets its
answer, and loses its connection, after `connection.failed.authentication.delay.ms` (KIP-306). On a listener without
SASL both are out of place.
"""

from __future__ import annotations

import asyncio

from kraft.broker.request import HandlerResult, Request
from kraft.broker.services import BrokerServices
from kraft.network.response import Deferred
from kraft.network.session import Session
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kraft.security.authentication import Answer


def handle_sasl_handshake(services: BrokerServices, request: Request[SaslHandshakeRequest]) -> HandlerResult:
    """Agrees on a mechanism."""
    session = request.session
    if session.authentication is None:
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    answer = session.authentication.handshake(request.body.mechanism, session.now_s)
    response = SaslHandshakeResponse(answer.code, session.authentication.mechanisms)
    return _delayed(services, session, answer, response) if answer.is_final else response


def handle_sasl_authenticate(
    services: BrokerServices, request: Request[SaslAuthenticateRequest]
) -> HandlerResult:
    """Takes one token of the mechanism. The client is who it says once the last one is right."""
    session = request.session
    authentication = session.authentication
    if authentication is None:
        return SaslAuthenticateResponse(
            ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received on a listener without SASL"
        )
    answer = authentication.authenticate(bytes(request.body.auth_bytes), session.now_s)
    response = SaslAuthenticateResponse(answer.code, answer.message, answer.token, answer.session_lifetime_ms)
    if answer.is_final:
        return _delayed(services, session, answer, response)
    if authentication.principal is not None and authentication.principal != session.principal:
        session.recognize(authentication.principal)
    return response


def _delayed(services: BrokerServices, session: Session, answer: Answer, response: Message) -> HandlerResult:
    """The last answer of a connection, when its time has come."""
    services.refused_clients.warning(
        listener=session.listener_name, peer=session.peer[0], error=answer.code.name, reason=answer.message
    )
    session.finish()
    due: asyncio.Future[None] = services.loop.create_future()
    delay_s = services.config.get("connection.failed.authentication.delay.ms") / 1000
    services.loop.call_later(delay_s, _settle, due)
    return Deferred(due, lambda _: response)


def _settle(due: asyncio.Future[None]) -> None:
    if not due.done():  # done: the connection was lost before
        due.set_result(None)
