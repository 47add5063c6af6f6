"""What members of classic groups tell each other, in the forms that all Kafka consumers use (version 0).

ConsumerProtocolSubscription names the topics that a member reads, ConsumerProtocolAssignment the partitions that the
leader gives it. Coordinators look into the former only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from struct import Struct

from kraft.chaos.workload.client import PartitionName

PROTOCOL_TYPE, PROTOCOL = "consumer", "range"
_int16, _int32 = Struct(">h"), Struct(">i")
_NO_USER_DATA = _int32.pack(-1)
_VERSION_0 = _int16.pack(0)


def subscription(topics: Sequence[str]) -> bytes:
    return b"".join((_VERSION_0, _int32.pack(len(topics)), *map(_string, topics), _NO_USER_DATA))


def assignment(names: Collection[PartitionName]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(names):
        by_topic.setdefault(topic, []).append(number)
    parts = [
        b"".join((_string(topic), _int32.pack(len(numbers)), *map(_int32.pack, numbers)))
        for topic, numbers in by_topic.items()
    ]
    return b"".join((_VERSION_0, _int32.pack(len(parts)), *parts, _NO_USER_DATA))


def assigned(data: bytes) -> frozenset[PartitionName]:
    """The partitions of an assignment; none where the leader left the member out."""
    if not data:
        return frozenset()
    names: set[PartitionName] = set()
    at = _int16.size
    topics, at = _take(data, at)
    for _ in range(topics):
        (size,) = _int16.unpack_from(data, at)
        at += _int16.size
        topic, at = data[at : at + size].decode(), at + size
        numbers, at = _take(data, at)
        for _ in range(numbers):
            number, at = _take(data, at)
            names.add((topic, number))
    return frozenset(names)


def spread(names: Sequence[PartitionName], members: Sequence[str]) -> Mapping[str, Sequence[PartitionName]]:
    """Each partition to one member, as evenly as can be."""
    ordered = sorted(members)
    return {member: names[number :: len(ordered)] for number, member in enumerate(ordered)}


def _string(text: str) -> bytes:
    data = text.encode()
    return _int16.pack(len(data)) + data


def _take(data: bytes, at: int) -> tuple[int, int]:
    (value,) = _int32.unpack_from(data, at)
    return value, at + _int32.size
