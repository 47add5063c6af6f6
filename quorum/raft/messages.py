"""The messages between voters and their encoding: msgpack, with a closed list of message types.

Guarantees: `decode_message` returns a message whose type, fields, field types and inner order are exactly those
below, or raises MessageRefusedError. It never runs code, never unpickles, and allocates no more than a few times the
bytes it was given. The library also knows forwarded commands, membership changes, utility calls and entries cut in
pieces; they are not on the list.

A message travels as `(sequence, {"type": ..., fields})`. Sequences grow within a session, so that the receiver drops
duplicates and stragglers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import msgpack

from quorum.raft.config import MAX_PEER_MESSAGE_BYTES, MAX_PROPOSAL_BYTES

Entry: TypeAlias = tuple[bytes, int, int]
"""(command, index, term), as the library keeps it."""
Message: TypeAlias = dict[str, Any]

PROPOSAL = b"\x00"
"""First byte of a command that carries a proposal."""
BARRIER = b"\x01"
"""The whole command of a leader's barrier (a no-op)."""

_MAX_INDEX = 2**62
_MAX_TERM = 2**31 - 1


class MessageRefusedError(ValueError):
    """Bytes from a peer that are no message; the session goes on without them."""


class SnapshotChunk(NamedTuple):
    """A piece of a snapshot file. The library looks at nothing but the first three, by position."""

    data: bytes
    is_first: bool
    is_last: bool
    last_index: int
    last_term: int
    position: int
    total_bytes: int


def is_index(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAX_INDEX


def is_term(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_TERM


def _is_bool(value: object) -> bool:
    return type(value) is bool


def is_command(value: object) -> bool:
    """A barrier, or a proposal within the size limit."""
    if type(value) is not bytes:
        return False
    return value == BARRIER or (value[:1] == PROPOSAL and len(value) <= MAX_PROPOSAL_BYTES + 1)


def is_entry(value: object) -> bool:
    """A tuple (command, index, term) with sound values."""
    if type(value) is not tuple or len(value) != 3:
        return False
    return is_command(value[0]) and is_index(value[1]) and is_term(value[2])


def _is_entries(value: object) -> bool:
    return type(value) is tuple and all(is_entry(entry) for entry in value)


def _is_chunk(value: object) -> bool:
    if value is None:
        return True
    if type(value) is not tuple or len(value) != len(SnapshotChunk._fields):
        return False
    data, is_first, is_last, last_index, last_term, position, total_bytes = value
    return (
        type(data) is bytes
        and _is_bool(is_first)
        and _is_bool(is_last)
        and is_index(last_index)
        and is_term(last_term)
        and is_index(position)
        and is_index(total_bytes)
    )


_Check: TypeAlias = Callable[[object], bool]
_LOG_END: dict[str, _Check] = {"last_log_index": is_index, "last_log_term": is_term}
_ACKNOWLEDGEMENT: dict[str, _Check] = {
    "term": is_term,
    "next_node_idx": is_index,
    "reset": _is_bool,
    "success": _is_bool,
    "log_end": is_index,
}
"""The answer to a chunk also says how many bytes of which snapshot are here."""
_SHAPES: dict[str, tuple[dict[str, _Check], ...]] = {
    "request_vote": ({"term": is_term, **_LOG_END},),
    "response_vote": ({"term": is_term},),
    "append_entries": (
        {
            "term": is_term,
            "commit_index": is_index,
            "entries": _is_entries,
            "prevLogIdx": is_index,
            "prevLogTerm": is_term,
        },
        {"term": is_term, "commit_index": is_index, "serialized": _is_chunk},
    ),
    "next_node_idx": (
        _ACKNOWLEDGEMENT,
        {**_ACKNOWLEDGEMENT, "snapshot_index": is_index, "snapshot_bytes": is_index},
    ),
    "forgotten": ({"term": is_term, "acknowledged": is_index},),
    "pre_vote": ({"term": is_term, "round": is_index, **_LOG_END},),
    "response_pre_vote": ({"term": is_term, "round": is_index, "granted": _is_bool},),
    "take_leadership": ({"term": is_term},),
}
MESSAGE_TYPES = tuple(_SHAPES)


def encode_message(sequence: int, message: Message) -> bytes:
    """The bytes of one message of this session. `message` has one of the shapes above."""
    packed: bytes = msgpack.packb((sequence, message), use_bin_type=True)
    return packed


def decode_message(data: bytes) -> tuple[int, Message]:
    """(sequence, message); arrays are tuples. Raises MessageRefusedError on anything else."""
    if len(data) > MAX_PEER_MESSAGE_BYTES:
        raise MessageRefusedError(f"{len(data)} bytes are too many for one message")
    try:
        outer = msgpack.unpackb(data, raw=False, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise MessageRefusedError(f"not msgpack: {error}") from error
    if type(outer) is not tuple or len(outer) != 2 or not is_index(outer[0]) or type(outer[1]) is not dict:
        raise MessageRefusedError("not a pair of a sequence number and a message")
    sequence, message = outer
    _check_shape(message)
    if "entries" in message:
        _check_order(message)
    elif message.get("serialized") is not None:
        message["serialized"] = SnapshotChunk(*message["serialized"])
    return sequence, message


class Acknowledged(NamedTuple):
    """The position of a follower, as its acknowledgement says."""

    term: int
    next_index: int
    log_end: int


_ACKNOWLEDGES = msgpack.packb("type") + msgpack.packb("next_node_idx")
"""In the bytes of every acknowledgement, and hardly in any others."""


def acknowledged_in(data: bytes) -> Acknowledged | None:
    """The acknowledgement of a follower that took everything sent to it; None for any other message."""
    if _ACKNOWLEDGES not in data:
        return None
    try:
        _, message = decode_message(data)
    except MessageRefusedError:
        return None
    if not message.get("success") or message["reset"]:
        return None
    return Acknowledged(message["term"], message["next_node_idx"], message["log_end"])


def _check_shape(message: Message) -> None:
    kind = message.get("type")
    shapes = _SHAPES.get(kind) if type(kind) is str else None
    if shapes is None:
        raise MessageRefusedError(f"unknown type of message: {str(kind)[:40]!r}")
    for shape in shapes:
        if len(message) == len(shape) + 1:
            for name, check in shape.items():
                if name not in message or not check(message[name]):
                    break
            else:
                return
    raise MessageRefusedError(f"{kind} with missing, unknown or impossible fields")


def _check_order(message: Message) -> None:
    """Refuses entries that leave a gap, whose terms go back, or exceed the sender's."""
    index, term = message["prevLogIdx"], message["prevLogTerm"]
    for entry in message["entries"]:
        index += 1
        if entry[1] != index or entry[2] < term:
            raise MessageRefusedError(f"append_entries with entry {entry[1]} where {index} was due")
        term = entry[2]
    if term > message["term"]:
        raise MessageRefusedError("append_entries with an entry of a later term than its sender's")
