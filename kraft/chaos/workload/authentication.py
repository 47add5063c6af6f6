"""A simulated client says who it is, on a connection that nobody else uses now: SASL over `ClientConnection`
(KIP-152, KIP-368)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from kraft.chaos.workload.connection import ClientConnection
from kraft.protocol.api import APIS
from kraft.protocol.messages import decode_response
from kraft.security.exchange import SaslRefusal, sasl_exchange
from kraft.security.mechanisms import Credentials
from kraft.security.scram import SaslError


async def authenticate(
    connection: ClientConnection, credentials: Credentials, nonce: str, *, timeout_s: float
) -> float | None:
    """Returns when the broker believes the client, for how many seconds; None: for ever. Raises ConnectionError, with
    the connection closed, if it does not answer or refuses; SaslError if the broker accepted and did not prove that it
    knows the user."""
    steps = sasl_exchange(credentials, nonce)
    loop = asyncio.get_running_loop()
    answer: Any = None
    try:
        while True:
            request = steps.send(answer)
            if connection.closed:
                raise ConnectionError(connection.reason)
            version = APIS[request.API_KEY].versions[-1]
            body: asyncio.Future[memoryview | None] = loop.create_future()
            connection.request(request, version, timeout_s, partial(_settle, body))
            frame = await body
            if frame is None:
                raise ConnectionError(connection.reason)
            answer = decode_response(request.API_KEY, version, frame)
    except StopIteration as done:
        granted_s: float | None = done.value
        return granted_s
    except SaslRefusal as refusal:
        connection.close("authentication failed")
        raise ConnectionError(refusal.code.name) from refusal
    except SaslError:
        connection.close("the broker did not prove who it is")
        raise


def _settle(body: asyncio.Future[memoryview | None], frame: memoryview | None) -> None:
    if not body.done():  # done: its caller was cancelled
        body.set_result(frame)
