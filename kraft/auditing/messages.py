"""The messages in which producers tell how many records they have written, as JSON in an ordinary topic.

    {"tier": "produced", "host": "web-1", "producer": "9f…", "topic": "orders",
     "window_start_ms": 1700000040000, "window_ms": 60000, "count": 1234, "sequence": 7}

`count` records of `topic` with a timestamp in the window were acknowledged since the producer's message before for that
window: a late record gives the window another message, and a window's counts add up. `sequence` counts the messages of
one producer, a run of a program, from 0 on: a message that was written twice counts once, and one that is missing is
noticed. The record's key is the producer, so that the messages of one stay in order.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

DEFAULT_AUDIT_TOPIC = "kraft-audit"
DEFAULT_WINDOW_MS = 60_000
PRODUCED = "produced"
"""The tier of producers; messages of other tiers are left alone."""
_MAX_INT64 = 2**63 - 1
_TEXTS = ("tier", "host", "producer", "topic")
_NUMBERS = ("window_start_ms", "window_ms", "count", "sequence")


@dataclass(frozen=True)
class CountMessage:
    """See the module."""

    tier: str
    host: str
    producer: str
    topic: str
    window_start_ms: int
    window_ms: int
    count: int
    sequence: int

    def encode(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode()


def decode_count(value: bytes | None) -> CountMessage:
    """Raises ValueError for what is no such message; fields that are not known are passed over."""
    try:
        found = json.loads(value or b"")
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    for name in _TEXTS:
        if not isinstance(found.get(name), str):
            raise ValueError(f"it lacks a text {name}")
    for name in _NUMBERS:
        number = found.get(name)
        if not isinstance(number, int) or isinstance(number, bool) or not -_MAX_INT64 <= number <= _MAX_INT64:
            raise ValueError(f"it lacks a whole number {name}")
    message = CountMessage(*(found[field.name] for field in fields(CountMessage)))
    if message.window_ms < 1 or message.count < 1 or message.sequence < 0:
        raise ValueError("window_ms and count are from 1 on, sequence from 0 on")
    if message.window_start_ms % message.window_ms:
        raise ValueError("window_start_ms is no multiple of window_ms")
    return message
