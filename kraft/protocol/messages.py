"""Bytes to messages and back, for any served API and version: what handlers and clients call.

A codec is compiled from the message's declaration once for each (API, version) and kept.
Decoding ignores bytes behind the message, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import cast

from kraft.protocol.api import APIS, ApiKey, is_flexible
from kraft.protocol.errors import UnsupportedVersion
from kraft.protocol.headers import FRAME_LENGTH_BYTES, encode_response_start, request_header_parts
from kraft.protocol.primitives import COPY_BELOW_BYTES, Buffer, Codec, Encoded
from kraft.protocol.schema import Message


@cache
def request_class(api_key: ApiKey) -> type[Message]:
    """The class of an API's requests. The API must be one of `APIS`."""
    return _class(api_key, "Request")


@cache
def response_class(api_key: ApiKey) -> type[Message]:
    """The class of an API's responses. The API must be one of `APIS`."""
    return _class(api_key, "Response")


def _class(api_key: ApiKey, suffix: str) -> type[Message]:
    api = APIS[api_key]
    module = import_module(f"kraft.protocol.{api.module}")
    return cast("type[Message]", getattr(module, api.stem + suffix))


@cache
def request_codec(api_key: ApiKey, version: int) -> Codec:
    """Encoder and decoder of an API's requests. Raises UnsupportedVersion outside the range."""
    return _codec(api_key, version, request_class)


@cache
def response_codec(api_key: ApiKey, version: int) -> Codec:
    """Encoder and decoder of an API's responses. Raises UnsupportedVersion outside the range."""
    return _codec(api_key, version, response_class)


def _codec(api_key: ApiKey, version: int, find_class: Callable[[ApiKey], type[Message]]) -> Codec:
    if api_key not in APIS or version not in APIS[api_key].versions:
        raise UnsupportedVersion(api_key, version)
    from kraft.protocol.compiler import compile_codec  # not needed before a message is encoded or decoded

    flexible = is_flexible(api_key, version)
    return compile_codec(find_class(api_key), version, flexible, is_request=find_class is request_class)


def decode_request(api_key: ApiKey, version: int, buffer: Buffer, position: int = 0) -> Message:
    """The request whose body starts at `position`. Record sets in it are views of the buffer.

    Raises UnsupportedVersion outside the advertised range, ProtocolError for a malformed body.
    """
    message: Message = request_codec(api_key, version).decode(buffer, position)[0]
    return message


def decode_response(api_key: ApiKey, version: int, buffer: Buffer, position: int = 0) -> Message:
    """The response whose body starts at `position`; raises as `decode_request`."""
    message: Message = response_codec(api_key, version).decode(buffer, position)[0]
    return message


def encode_request(message: Message, version: int) -> bytes:
    """The body of a request. Raises ProtocolError for a value that the version cannot carry."""
    segments, _ = request_codec(message.API_KEY, version).encode(message)
    return b"".join(segments)  # type: ignore[arg-type]  # requests have no slices


def encode_response(message: Message, version: int) -> Encoded:
    """The body of a response: its parts in order (bytes, and file slices as they were given), its size."""
    return response_codec(message.API_KEY, version).encode(message)


def encode_request_frame(
    message: Message, version: int, *, correlation_id: int, client_id: str | None
) -> bytes:
    """A request ready to be sent: the frame's length, the header, the body."""
    before, number, behind = request_header_parts(message.API_KEY, version, correlation_id, client_id)
    segments, body_bytes = request_codec(message.API_KEY, version).encode(message)
    size = len(before) + len(number) + len(behind) + body_bytes
    parts = (size.to_bytes(FRAME_LENGTH_BYTES, "big"), before, number, behind, *segments)
    return b"".join(parts)  # type: ignore[arg-type]  # requests have no slices


def encode_response_frame(message: Message, version: int, *, correlation_id: int) -> Encoded:
    """A response ready to be sent: as `encode_response`, with the frame's length and the header."""
    segments, size_bytes = response_codec(message.API_KEY, version).encode(message)
    start = encode_response_start(message.API_KEY, version, correlation_id, size_bytes)
    first = segments[0]
    if isinstance(first, (bytes, bytearray)) and len(first) < COPY_BELOW_BYTES:
        segments[0] = start + first
    else:
        segments.insert(0, start)
    return segments, size_bytes + len(start)
