"""One question of Kafka's protocol to one broker, for those who watch a cluster: past the relays, so that no fault of
the network hurts it, from the relays' own address, so that it is no client that went around them."""

from __future__ import annotations

import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kraft.chaos.real.relay import LOCALHOST, WATCHER_HOST
from kraft.protocol.errors import ProtocolError
from kraft.protocol.headers import decode_response_header
from kraft.protocol.messages import decode_response, encode_request_frame
from kraft.protocol.schema import Message
from kraft.protocol.schemas.sasl import SaslHandshakeRequest
from kraft.security.mechanisms import Credentials
from kraft.security.token_login import TokenLogin
from kraft.spark.authentication import authenticate
from kraft.spark.errors import AuthenticationError

CLIENT_ID: Final = "kraft-chaos"
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_LENGTH: Final = struct.Struct(">i")


R = TypeVar("R", bound=Message)
SASL_HANDSHAKE_VERSION: Final = 1
SASL_AUTHENTICATE_VERSION: Final = 2


class NoAnswerError(Exception):
    """The broker did not answer; the text says why."""


@dataclass(frozen=True)
class Introduction:
    """How who asks is known: what its connection is wrapped with, and who it says it is."""

    tls: ssl.SSLContext | None = None
    credentials: Credentials | TokenLogin | None = None


UNKNOWN: Final = Introduction()
"""Of who asks in plain text."""


def ask(
    port: int,
    request: Message,
    version: int,
    timeout_s: float,
    *,
    asked_from: str = WATCHER_HOST,
    host: str = LOCALHOST,
    introduction: Introduction = UNKNOWN,
) -> Any:
    """The answer of who listens on a port of `host`. `timeout_s` is for each step of the exchange; `asked_from` is the
    address of who asks, and `introduction` its name. Raises NoAnswerError."""
    try:
        with _connected((host, port), timeout_s, asked_from, introduction.tls) as connection:
            if introduction.credentials is not None:
                _introduce(connection, port, introduction.credentials)
            return _exchange(connection, request, version)
    except (OSError, ProtocolError, AuthenticationError) as error:
        raise NoAnswerError(f"port {port} does not answer {request.API_KEY.name}: {error}") from error


def _connected(
    address: tuple[str, int], timeout_s: float, asked_from: str, tls: ssl.SSLContext | None
) -> socket.socket:
    connection = socket.create_connection(address, timeout=timeout_s, source_address=(asked_from, 0))
    return connection if tls is None else tls.wrap_socket(connection, server_hostname=address[0])


def _introduce(connection: socket.socket, port: int, credentials: Credentials | TokenLogin) -> None:
    def step(request: Message, answer: type[R]) -> R:
        is_handshake = isinstance(request, SaslHandshakeRequest)
        version = SASL_HANDSHAKE_VERSION if is_handshake else SASL_AUTHENTICATE_VERSION
        answered: R = _exchange(connection, request, version)
        return answered

    authenticate(step, f"port {port}", credentials)


def _exchange(connection: socket.socket, request: Message, version: int) -> Any:
    connection.sendall(encode_request_frame(request, version, correlation_id=1, client_id=CLIENT_ID))
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
    if not 0 <= length <= ANSWER_BYTES_MAX:
        raise ProtocolError(f"{length} bytes are no answer")
    frame = _receive(connection, length)
    _, position = decode_response_header(request.API_KEY, version, frame)
    return decode_response(request.API_KEY, version, frame, position)


def _receive(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise ConnectionError("it closed the connection")
        data += chunk
    return bytes(data)
