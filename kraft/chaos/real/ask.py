"""One question of Kafka's protocol to one broker, for those who watch a cluster: past the relays, so that no fault of
the network hurts it, from the relays' own address, so that it is no client that went around them."""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

from kraft.chaos.real.relay import LOCALHOST, WATCHER_HOST
from kraft.protocol.errors import ProtocolError
from kraft.protocol.headers import decode_response_header
from kraft.protocol.messages import decode_response, encode_request_frame
from kraft.protocol.schema import Message

CLIENT_ID: Final = "kraft-chaos"
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_LENGTH: Final = struct.Struct(">i")


class NoAnswerError(Exception):
    """The broker did not answer; the text says why."""


def ask(
    port: int,
    request: Message,
    version: int,
    timeout_s: float,
    *,
    asked_from: str = WATCHER_HOST,
    host: str = LOCALHOST,
) -> Any:
    """The answer of who listens on a port of `host`. `timeout_s` is for each step of the exchange; `asked_from` is the
    address of who asks. Raises NoAnswerError."""
    api_key = request.API_KEY
    try:
        with socket.create_connection(
            (host, port), timeout=timeout_s, source_address=(asked_from, 0)
        ) as connection:
            connection.sendall(encode_request_frame(request, version, correlation_id=1, client_id=CLIENT_ID))
            (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
            if not 0 <= length <= ANSWER_BYTES_MAX:
                raise NoAnswerError(f"port {port} answered with {length} bytes")
            frame = _receive(connection, length)
        _, position = decode_response_header(api_key, version, frame)
        return decode_response(api_key, version, frame, position)
    except (OSError, ProtocolError) as error:
        raise NoAnswerError(f"port {port} does not answer {api_key.name}: {error}") from error


def _receive(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise ConnectionError("it closed the connection")
        data += chunk
    return bytes(data)
