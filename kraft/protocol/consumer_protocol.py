"""What the consumers of a classic group tell each other through their coordinator: the topics that each reads, and the
partitions that their leader assigns.

Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment are opaque to the protocol of groups. The
coordinator looks into the first for one thing, whether anybody reads a topic; pages and commands show both to people.
All look only at the fields of version 0, which every later version begins with.
"""

from __future__ import annotations

from functools import cache

from kraft.protocol.compiler import compile_codec
from kraft.protocol.errors import ProtocolError
from kraft.protocol.primitives import Codec
from kraft.protocol.schema import INT32, STRING, Message, array, message, string

PROTOCOL_TYPE = "consumer"
_VERSION_BYTES = 2


@message
class _Subscription(Message):
    topics: list[str] = array(STRING, "0+")


@message
class _AssignedTopic(Message):
    topic: str = string("0+")
    partitions: list[int] = array(INT32, "0+")


@message
class _Assignment(Message):
    topics: list[_AssignedTopic] = array(_AssignedTopic, "0+")


@cache
def _codec(of: type[Message]) -> Codec:
    return compile_codec(of, 0, flexible=False, is_request=True)


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics in a member's metadata; None for what is no subscription. What one subscription may hold is
    bounded as a request is."""
    if len(metadata) < _VERSION_BYTES or metadata[0] & 0x80:  # a version is not negative
        return None
    try:
        subscription: _Subscription = _codec(_Subscription).decode(metadata, _VERSION_BYTES)[0]
    except ProtocolError:
        return None
    return subscription.topics


def assigned_partitions(assignment: bytes) -> list[tuple[str, int]]:
    """Topic and number of each partition in a member's assignment; none in what is no consumer's."""
    if len(assignment) < _VERSION_BYTES:  # nothing is assigned yet
        return []
    try:
        decoded: _Assignment = _codec(_Assignment).decode(assignment, _VERSION_BYTES)[0]
    except ProtocolError:
        return []
    return sorted((topic.topic, number) for topic in decoded.topics for number in topic.partitions)
