"""From frames to requests: decodes the header before the broker's handler sees the request.

`decoding(handler)` is the `FrameHandler` that a broker gives to its `SocketServer`. A header that
cannot be decoded closes the connection, as in Kafka: without a correlation id there is nothing to answer.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.network.connection import CloseConnectionError, Connection, FrameHandler
from kraft.network.response import Answer
from kraft.network.session import Session
from kraft.protocol.errors import ProtocolError
from kraft.protocol.headers import RequestHeader, decode_request_header


class RequestContext:
    """One request: its header, its body (a view that stays valid while it is held), its connection's session."""

    __slots__ = ("body", "header", "session")

    def __init__(self, header: RequestHeader, body: memoryview, session: Session) -> None:
        self.header = header
        self.body = body
        self.session = session


Handler = Callable[[RequestContext], Answer]
"""Answers one request; see `kraft.network.connection` for what it may rely on."""


def malformed_request(error: ProtocolError) -> CloseConnectionError:
    """What to raise for a request that cannot be decoded. What cannot be encoded is no fault of the client."""
    return CloseConnectionError(f"it sent a malformed request: {error}")


def decoding(handler: Handler) -> FrameHandler:
    """The frame handler that decodes request headers for `handler`.

    A header that is malformed closes the connection with a log line that blames the client.
    """

    def handle(frame: memoryview, connection: Connection) -> Answer:
        try:
            header, position = decode_request_header(frame)
        except ProtocolError as error:
            raise malformed_request(error) from error
        return handler(RequestContext(header, frame[position:], connection.session))

    return handle
