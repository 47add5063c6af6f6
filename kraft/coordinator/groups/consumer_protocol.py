"""What consumers tell of themselves in the metadata of a classic group: the topics that they read.

Kafka's ConsumerProtocolSubscription is opaque to the protocol of groups. The coordinator looks into it for one thing,
whether anybody reads a topic, and only at the fields of version 0, which every later version begins with.
"""

from __future__ import annotations

from functools import cache

from kraft.protocol.compiler import compile_codec
from kraft.protocol.errors import ProtocolError
from kraft.protocol.primitives import Codec
from kraft.protocol.schema import STRING, Message, array, message

PROTOCOL_TYPE = "consumer"
_VERSION_BYTES = 2


@message
class _Subscription(Message):
    topics: list[str] = array(STRING, "0+")


@cache
def _codec() -> Codec:
    return compile_codec(_Subscription, 0, flexible=False, is_request=True)


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics in a member's metadata; None for what is no subscription. What one subscription may hold is
    bounded as a request is."""
    if len(metadata) < _VERSION_BYTES or metadata[0] & 0x80:  # a version is not negative
        return None
    try:
        subscription: _Subscription = _codec().decode(metadata, _VERSION_BYTES)[0]
    except ProtocolError:
        return None
    return subscription.topics
