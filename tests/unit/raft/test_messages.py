"""Nothing that is not on the list gets in."""

import pickle

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorum.raft.config import MAX_PEER_MESSAGE_BYTES, MAX_PROPOSAL_BYTES
from quorum.raft.messages import (
    MESSAGE_TYPES,
    MessageRefusedError,
    SnapshotChunk,
    decode_message,
    encode_message,
)

ENTRY = (b"\x00data", 6, 2)
APPEND = {
    "type": "append_entries",
    "term": 3,
    "commit_index": 5,
    "entries": (ENTRY, (b"\x01", 7, 3)),
    "prevLogIdx": 5,
    "prevLogTerm": 2,
}
CHUNK = {
    "type": "append_entries",
    "term": 3,
    "commit_index": 5,
    "serialized": SnapshotChunk(b"bytes", True, False, 9, 2, 0, 100),
}
ACKNOWLEDGED = {
    "type": "next_node_idx",
    "term": 3,
    "next_node_idx": 8,
    "reset": False,
    "success": True,
    "log_end": 7,
}
SOUND = [
    APPEND,
    CHUNK,
    {**CHUNK, "serialized": None},
    {"type": "request_vote", "term": 3, "last_log_index": 7, "last_log_term": 2},
    {"type": "response_vote", "term": 3},
    ACKNOWLEDGED,
    {**ACKNOWLEDGED, "snapshot_index": 20, "snapshot_bytes": 5},
    {"type": "forgotten", "term": 3, "acknowledged": 8},
    {"type": "pre_vote", "term": 3, "round": 1, "last_log_index": 7, "last_log_term": 2},
    {"type": "response_pre_vote", "term": 3, "round": 1, "granted": True},
    {"type": "take_leadership", "term": 3},
]


@pytest.mark.parametrize("message", SOUND, ids=lambda message: message["type"])
def test_every_type_comes_back_as_it_was(message):
    assert decode_message(encode_message(17, message)) == (17, message)


def test_every_type_is_tried_here():
    assert {message["type"] for message in SOUND} == set(MESSAGE_TYPES)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "apply_command", "command": b"x"},
        {"type": "apply_command_response", "request_id": 1},
        {"type": "timeout_now", "term": 3},
        {"type": "status"},
        {"type": ["append_entries"]},
        {"term": 3},
        {},
        {**APPEND, "transmission": "finish", "data": pickle.dumps(1)},
        {**ACKNOWLEDGED, "snapshot_index": 20},
        {**ACKNOWLEDGED, "snapshot_index": 20, "snapshot_bytes": -1},
        {**APPEND, "term": "3"},
        {**APPEND, "term": True},
        {**APPEND, "term": -1},
        {**APPEND, "term": 2**31},
        {**APPEND, "commit_index": 2**63},
        {**APPEND, "entries": None},
        {**APPEND, "entries": (ENTRY, ENTRY)},
        {**APPEND, "entries": ((b"\x00data", 7, 2),)},
        {**APPEND, "entries": ((b"\x00data", 6, 1),)},
        {**APPEND, "entries": ((b"\x00data", 6, 4),)},
        {**APPEND, "entries": ((b"\x02add", 6, 2),)},
        {**APPEND, "entries": ((b"\x03version", 6, 2),)},
        {**APPEND, "entries": ((b"\x01more", 6, 2),)},
        {**APPEND, "entries": ((b"", 6, 2),)},
        {**APPEND, "entries": (("text", 6, 2),)},
        {**APPEND, "entries": ((b"\x00" * (MAX_PROPOSAL_BYTES + 2), 6, 2),)},
        {**APPEND, "entries": ((b"\x00data", 6),)},
        {**CHUNK, "serialized": (b"bytes", True, False)},
        {**CHUNK, "serialized": (b"bytes", 1, False, 9, 2, 0, 100)},
        {"type": "response_vote", "term": 3, "more": 1},
        {"type": "response_vote"},
    ],
)
def test_what_is_not_on_the_list_is_refused(message):
    with pytest.raises(MessageRefusedError):
        decode_message(encode_message(1, message))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        pickle.dumps(APPEND),
        msgpack.packb(APPEND),
        msgpack.packb((1, APPEND, 2)),
        msgpack.packb(("1", APPEND)),
        msgpack.packb((1, [1])),
        encode_message(1, APPEND)[:-1],
        encode_message(1, APPEND) + b"\x00",
        b"\xdd\xff\xff\xff\xff",
        b"\x92" * 5000,
    ],
)
def test_other_bytes_are_refused(data):
    with pytest.raises(MessageRefusedError):
        decode_message(data)


def test_a_message_that_is_too_large_is_not_even_parsed():
    with pytest.raises(MessageRefusedError, match="too many"):
        decode_message(bytes(MAX_PEER_MESSAGE_BYTES + 1))


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data):
    try:
        decode_message(data)
    except MessageRefusedError:
        return
    raise AssertionError("random bytes made a message")


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.binary(max_size=5)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(SOUND), st.data())
def test_a_field_of_another_kind_never_raises_anything_else(message, data):
    field = data.draw(st.sampled_from(sorted(message)))
    forged = {**message, field: data.draw(_VALUES)}
    try:
        decode_message(encode_message(1, forged))
    except MessageRefusedError:
        return
