"""The new leader's id, epoch and address in answers of Produce and Fetch (KIP-951).

A client whose request went to a former leader can go on at once instead of asking for metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from kraft.protocol.primitives import (
    Buffer,
    read_array_length,
    read_nullable_string,
    read_string,
    skip_tagged_fields,
    uvarint,
    write_nullable_string,
    write_string,
)
from kraft.protocol.schema import Message, message

_INT32 = Struct(">i")
_LEADER = Struct(">iix")
_LEADER_FIELDS = Struct(">ii")
MIN_NODE_ENDPOINT_BYTES = 11


@message
class LeaderIdAndEpoch(Message):
    """The current leader of a partition; -1 where it is unknown."""

    leader_id: int = -1
    leader_epoch: int = -1


@message
class NodeEndpoint(Message):
    """Where a broker can be reached."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


def encode_leader(leader: LeaderIdAndEpoch) -> bytes:
    """The value of a tagged field."""
    return _LEADER.pack(leader.leader_id, leader.leader_epoch)


def decode_leader(data: Buffer, position: int) -> tuple[LeaderIdAndEpoch, int]:
    """Reads the value of a tagged field; returns it and the position behind it."""
    leader = LeaderIdAndEpoch(*_LEADER_FIELDS.unpack_from(data, position))
    return leader, skip_tagged_fields(data, position + _LEADER_FIELDS.size)


def encode_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The value of a tagged field."""
    out = bytearray(uvarint(len(endpoints) + 1))
    for endpoint in endpoints:
        out += _INT32.pack(endpoint.node_id)
        write_string(out, endpoint.host, True)
        out += _INT32.pack(endpoint.port)
        write_nullable_string(out, endpoint.rack, True)
        out += b"\0"
    return bytes(out)


def decode_node_endpoints(data: Buffer, position: int) -> tuple[list[NodeEndpoint], int]:
    """Reads the value of a tagged field; returns it and the position behind it."""
    count, position = read_array_length(data, position, MIN_NODE_ENDPOINT_BYTES, True)
    endpoints = []
    for _ in range(count):
        (node_id,) = _INT32.unpack_from(data, position)
        host, position = read_string(data, position + 4, True)
        (port,) = _INT32.unpack_from(data, position)
        rack, position = read_nullable_string(data, position + 4, True)
        position = skip_tagged_fields(data, position)
        endpoints.append(NodeEndpoint(node_id, host, port, rack))
    return endpoints, position
