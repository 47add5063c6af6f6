"""What travels on the controller listener: msgpack envelopes.

A request is one POST to `/rpc/<method>` whose body is a msgpack map; the answer is a msgpack map
with either a `body` or an `error`. Both are signed (`quorum.rpc.authentication`), so that a stranger's
bytes are refused before they are decoded. The decoder accepts only plain values (no extension types)
and bounds every length by the bytes received. Used by `quorum.rpc.server` and `quorum.rpc.client`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

MAX_REQUEST_BYTES = 16 * 1024 * 1024
MAX_RESPONSE_BYTES = 1024 * 1024 * 1024
"""The largest metadata image that a broker can be sent; memory is taken for what has arrived only."""

Body = dict[str, Any]


ELSEWHERE = frozenset({"NOT_CONTROLLER", "BROKER_NOT_AVAILABLE"})
"""Codes that say to ask another voter."""


class EnvelopeError(ValueError):
    """The bytes are not an envelope of ours; the sentence says why."""


class RpcError(Exception):
    """A call did not succeed. `code` is Kafka's error name; `leader_id` a hint where to go instead;
    `in_doubt` says that what was asked for may have been done, or may yet be, all the same."""

    def __init__(
        self, code: str, message: str, leader_id: int | None = None, *, in_doubt: bool = False
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.leader_id = leader_id
        self.in_doubt = in_doubt


class RpcUnavailable(RpcError):
    """Nobody answered: refused, reset or timed out. Unless it is known that the call was never sent, it
    may or may not have been executed."""

    def __init__(self, message: str, *, in_doubt: bool = True) -> None:
        super().__init__("BROKER_NOT_AVAILABLE", message, in_doubt=in_doubt)


def encode(value: Mapping[str, Any]) -> bytes:
    """Packs an envelope. Raises TypeError for values msgpack does not know, which is a bug of ours."""
    packed: bytes = msgpack.packb(dict(value), use_bin_type=True)
    return packed


def decode(data: bytes) -> Body:
    """Unpacks an envelope. Raises EnvelopeError for anything but one map of plain values."""
    limit = len(data)
    try:
        value = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=False,
            max_str_len=limit,
            max_bin_len=limit,
            max_array_len=limit,
            max_map_len=limit,
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise EnvelopeError(f"not a msgpack envelope: {error}") from error
    if not isinstance(value, dict):
        raise EnvelopeError(f"an envelope is a map, not a {type(value).__name__}")
    return value


def success(body: Mapping[str, Any]) -> Body:
    """The envelope of an answer."""
    return {"body": dict(body)}


def failure(error: RpcError) -> Body:
    """The envelope of a refusal."""
    return {
        "error": error.code,
        "message": error.message,
        "leader_id": error.leader_id,
        "in_doubt": error.in_doubt,
    }


def unwrap(envelope: Body) -> Body:
    """The body of an answer. Raises RpcError if it is a refusal, EnvelopeError if it is neither."""
    code = envelope.get("error")
    if code is not None:
        leader_id = envelope.get("leader_id")
        if not isinstance(code, str) or not (leader_id is None or isinstance(leader_id, int)):
            raise EnvelopeError("a refusal carries a string code and an integer leader hint")
        in_doubt = envelope.get("in_doubt") is True
        raise RpcError(code, str(envelope.get("message", "")), leader_id, in_doubt=in_doubt)
    body = envelope.get("body")
    if not isinstance(body, dict):
        raise EnvelopeError("an answer carries a body or an error")
    return body
