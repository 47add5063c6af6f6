"""The start of every message: the frame's length, the request header, the response header.

Flexible versions of an API have flexible headers (KIP-482), with two exceptions that let a client and a broker talk
before they know each other's versions: the client id is always an old-style string, and the response header of
ApiVersions is always version 0 (KIP-511).
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from kraft.protocol.api import APIS, ApiKey
from kraft.protocol.errors import ProtocolError, UnsupportedVersion
from kraft.protocol.primitives import (
    MALFORMED,
    UNENCODABLE,
    Buffer,
    overrun,
    skip_tagged_fields,
)

FRAME_LENGTH_BYTES = 4
"""A frame is this many bytes of big-endian length, not counting themselves, and the message."""

_SERVED: dict[int, tuple[ApiKey, int]] = {int(key): (key, api.flexible_from) for key, api in APIS.items()}
"""The facts about an API that headers need: its key, and its first flexible version."""
_NEVER = 32768
_TAGGED_RESPONSES_FROM: dict[int, int] = {
    key: _NEVER if key == ApiKey.API_VERSIONS else api.flexible_from for key, api in APIS.items()
}
"""The first version whose response header ends with tagged fields."""
_REQUEST_START = Struct(">hhi")
_CLIENT_ID_LENGTH = Struct(">h")
_CLIENT_ID_START = _REQUEST_START.size + _CLIENT_ID_LENGTH.size
_API_KEY_AND_VERSION = Struct(">hh")
_CORRELATION_ID = Struct(">i")
_CORRELATION_ID_AND_TAGS = Struct(">ix")
_FRAMED_CORRELATION_ID = Struct(">ii")
_FRAMED_CORRELATION_ID_AND_TAGS = Struct(">iix")


class RequestHeader(NamedTuple):
    """The request that follows, and the correlation id of its answer."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header at the start of a frame (without its length), and the position of the body.

    Any version of a served API passes: an ApiVersions request above our range must be answered, so its header is
    read as a flexible one. `decode_request` decides whether the body can be read.

    Raises UnsupportedVersion for an API that is not served (with the correlation id), ProtocolError
    for a malformed header.
    """
    try:
        api_key, api_version, correlation_id = _REQUEST_START.unpack_from(frame)
        served = _SERVED.get(api_key)
        if served is None or api_version < 0:
            raise UnsupportedVersion(api_key, api_version, correlation_id)
        (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, _REQUEST_START.size)
        position = _CLIENT_ID_START
        client_id = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise overrun("a string", length, len(frame) - _CLIENT_ID_START)
            client_id = str(frame[_CLIENT_ID_START:position], "utf-8")
        if api_version >= served[1]:
            position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
    except MALFORMED as error:
        raise ProtocolError(f"the request header is malformed: {error}") from error
    return RequestHeader(served[0], api_version, correlation_id, client_id), position


def encode_request_header(header: RequestHeader) -> bytes:
    """The header as a client sends it, without the frame's length."""
    return b"".join(request_header_parts(*header))


def request_header_parts(
    api_key: ApiKey, api_version: int, correlation_id: int, client_id: str | None
) -> tuple[bytes, bytes, bytes]:
    """As `encode_request_header`, in three parts. Raises ProtocolError."""
    try:
        before, behind = _around_correlation_id(api_key, api_version, client_id)
        return before, _CORRELATION_ID.pack(correlation_id), behind
    except UNENCODABLE as error:
        raise ProtocolError(f"the request header cannot be encoded: {error}") from error


@lru_cache(maxsize=256)
def _around_correlation_id(api_key: ApiKey, api_version: int, client_id: str | None) -> tuple[bytes, bytes]:
    """The parts of the header that stay the same in a client's requests of one API and version."""
    name = b"" if client_id is None else client_id.encode()
    behind = _CLIENT_ID_LENGTH.pack(-1 if client_id is None else len(name)) + name
    if api_version >= APIS[api_key].flexible_from:
        behind += b"\0"
    return _API_KEY_AND_VERSION.pack(api_key, api_version), behind


def has_flexible_response_header(api_key: ApiKey, api_version: int) -> bool:
    """Whether the response header ends with a section of tagged fields."""
    return api_version >= _TAGGED_RESPONSES_FROM[api_key]


def encode_response_header(api_key: ApiKey, api_version: int, correlation_id: int) -> bytes:
    """The header as a broker sends it, without the frame's length."""
    if api_version >= _TAGGED_RESPONSES_FROM[api_key]:
        return _CORRELATION_ID_AND_TAGS.pack(correlation_id)
    return _CORRELATION_ID.pack(correlation_id)


def encode_response_start(api_key: ApiKey, api_version: int, correlation_id: int, body_bytes: int) -> bytes:
    """The frame's length and the response header, for a body of this size."""
    if api_version >= _TAGGED_RESPONSES_FROM[api_key]:
        return _FRAMED_CORRELATION_ID_AND_TAGS.pack(body_bytes + 5, correlation_id)
    return _FRAMED_CORRELATION_ID.pack(body_bytes + 4, correlation_id)


def decode_response_header(api_key: ApiKey, api_version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id at the start of a frame, and where the body starts. Raises ProtocolError."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        position = _CORRELATION_ID.size
        if api_version >= _TAGGED_RESPONSES_FROM[api_key]:
            position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
    except MALFORMED as error:
        raise ProtocolError(f"the response header is malformed: {error}") from error
    return correlation_id, position
