"""What happened, as one hash: every callback run, every byte delivered, every fault, in order.

Two runs of one seed are equal if, and only if, their digests are equal; comparing digests of two
processes is how determinism is tested. The optional timeline writes the same events as text, for a
person or for `diff`. The scheduler and the network write here; nothing else needs to.

Words that enter the trace must not depend on memory addresses or on string hashing: names, numbers
and types are fine, the `repr` of an arbitrary object is not.
"""

from __future__ import annotations

import hashlib
import struct
from typing import IO

_FLUSH_BYTES = 256 * 1024
_DIGEST_BYTES = 16
_DIGEST_PERSON = b"kraft-chaos"
_TIMELINE_DATA_BYTES = 48

_pack_step = struct.Struct("<BdI").pack
_pack_data = struct.Struct("<BdII").pack
_STEP, _DATA, _NOTE = 1, 2, 3


class Trace:
    """A running BLAKE2b over the events of one simulated run, and optionally their text."""

    __slots__ = ("_buffer", "_hash", "_timeline", "enabled")

    def __init__(self, *, enabled: bool = True, timeline: IO[str] | None = None) -> None:
        """`timeline` is an open text file that the caller closes; `enabled=False` makes runs faster."""
        self.enabled = enabled
        self._hash = hashlib.blake2b(digest_size=_DIGEST_BYTES, person=_DIGEST_PERSON)
        self._buffer = bytearray()
        self._timeline = timeline

    def step(self, now_s: float, lane_serial: int, lane_name: str, label: str) -> None:
        """One callback of one lane is about to run."""
        buffer = self._buffer
        buffer += _pack_step(_STEP, now_s, lane_serial)
        buffer += label.encode()
        if self._timeline is not None:
            self._timeline.write(f"{now_s:.9f} run {lane_name} {label}\n")
        if len(buffer) > _FLUSH_BYTES:
            self._flush()

    def delivered(self, now_s: float, connection: int, direction: str, data: bytes) -> None:
        """The kernel of the receiver got `data` on a connection."""
        buffer = self._buffer
        buffer += _pack_data(_DATA, now_s, connection, len(data))
        buffer += data
        if self._timeline is not None:
            shown = data[:_TIMELINE_DATA_BYTES]
            self._timeline.write(f"{now_s:.9f} data #{connection} {direction} {len(data)} B {shown!r}\n")
        if len(buffer) > _FLUSH_BYTES:
            self._flush()

    def note(self, now_s: float, *words: object) -> None:
        """Anything else worth telling apart: faults, connections, workload results."""
        if not self.enabled:
            return
        text = " ".join(map(str, words))
        encoded = text.encode()
        self._buffer += _pack_data(_NOTE, now_s, 0, len(encoded))
        self._buffer += encoded
        if self._timeline is not None:
            self._timeline.write(f"{now_s:.9f} {text}\n")
        if len(self._buffer) > _FLUSH_BYTES:
            self._flush()

    def digest(self) -> str:
        """The hash of everything so far, in hexadecimal; the trace may go on afterwards."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        self._hash.update(self._buffer)
        self._buffer.clear()
        if self._timeline is not None:
            self._timeline.flush()
