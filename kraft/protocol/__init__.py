"""Kafka's wire protocol, pure: bytes in, values out. No sockets, no clocks, no server.

    header, position = decode_request_header(frame)
    request = decode_request(header.api_key, header.api_version, frame, position)
    parts, size_bytes = encode_response_frame(response, header.api_version, correlation_id=...)

`api.SUPPORTED` is the table of served APIs. Message classes are in `produce`, `fetch` and `schemas`; they, and the
codecs, are loaded when an API is first used.
"""

from kraft.protocol.api import SUPPORTED, ApiKey, api_name, is_supported
from kraft.protocol.errors import ErrorCode, ProtocolError, UnsupportedVersion
from kraft.protocol.headers import (
    FRAME_LENGTH_BYTES,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from kraft.protocol.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_request_frame,
    encode_response,
    encode_response_frame,
)
from kraft.protocol.primitives import Buffer, Encoded, Segment, Slice
from kraft.protocol.schema import Message

__all__ = [
    "FRAME_LENGTH_BYTES",
    "SUPPORTED",
    "ApiKey",
    "Buffer",
    "Encoded",
    "ErrorCode",
    "Message",
    "ProtocolError",
    "RequestHeader",
    "Segment",
    "Slice",
    "UnsupportedVersion",
    "api_name",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "decode_response_header",
    "encode_request",
    "encode_request_frame",
    "encode_request_header",
    "encode_response",
    "encode_response_frame",
    "encode_response_header",
    "is_supported",
]
