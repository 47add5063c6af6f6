"""Control records (KIP-98, KIP-595): the type in the key of a record in a control batch.

Guarantees: a key of an unknown type is told from a broken one, since readers skip the former and report the latter.
Called by every reader of control batches: the log's producer state, read_committed readers, the Raft journal.
"""

from __future__ import annotations

import struct
from enum import IntEnum

_KEY = struct.Struct(">hh")
_KEY_VERSION = 0


class ControlType(IntEnum):
    """The types of Kafka's control records, by their number on the wire."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    OPAQUE = 0x6B72
    """Not Kafka's: an entry of the quorum's journal that carries no metadata records."""


def decode_control_type(key: bytes | None) -> ControlType:
    """The type in a control record's key; UNKNOWN if it is none of ours.

    Later versions of the key may append fields. Raises ValueError if the key cannot be one.
    """
    if key is None or len(key) < _KEY.size:
        raise ValueError(f"a control record's key needs {_KEY.size} bytes: {key!r}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise ValueError(f"a control record's key has the impossible version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def encode_control_key(control_type: ControlType) -> bytes:
    """The key of a control record of this type."""
    return _KEY.pack(_KEY_VERSION, control_type)
