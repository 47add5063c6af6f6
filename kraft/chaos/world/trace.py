"""What happened, as one hash: every callback run, every byte delivered, every fault, in order.

Two runs of one seed are equal if, and only if, their digests are equal; comparing digests of two
processes is how determinism is tested. The optional timeline writes the same events as text, for a
person or for `diff`. The scheduler and the network write here; nothing else needs to.

The hash is fed with a row of numbers per event, which is cheap to gather, and with the bytes that some
of them announce. Functions are numbered in the order in which they first run, tasks by their serial.

Words that enter the trace must not depend on memory addresses or on string hashing: names, numbers
and types are fine, the `repr` of an arbitrary object is not.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable
from types import MethodType
from typing import IO, Protocol

_FLUSH_NUMBERS = 30_000
_FLUSH_BYTES = 256 * 1024
_DIGEST_BYTES = 16
_DIGEST_PERSON = b"kraft-chaos"
_TIMELINE_DATA_BYTES = 48

# What a row begins with. A step begins with its instant, which is never negative.
_DATA, _NOTE, _TASK, _LABEL = -1.0, -2.0, -3.0, -4.0


class TracedLane(Protocol):
    """What the trace must know of a lane."""

    name: str
    serial: int


class Trace:
    """A running BLAKE2b over the events of one simulated run, and optionally their text."""

    __slots__ = ("_data", "_data_bytes", "_data_hash", "_labels", "_names", "_numbers", "_numbers_hash",
                 "_timeline", "enabled")  # fmt: skip

    def __init__(self, *, enabled: bool = True, timeline: IO[str] | None = None) -> None:
        """`timeline` is an open text file that the caller closes; `enabled=False` makes runs faster."""
        self.enabled = enabled
        self._numbers: list[float] = []
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._numbers_hash = hashlib.blake2b(digest_size=_DIGEST_BYTES, person=_DIGEST_PERSON)
        self._data_hash = hashlib.blake2b(digest_size=_DIGEST_BYTES, person=_DIGEST_PERSON)
        self._names: dict[str, float] = {}
        self._labels: dict[object, float] = {}
        self._timeline = timeline

    def step(self, now_s: float, lane: TracedLane, callback: Callable[..., object]) -> None:
        """One callback of one lane is about to run."""
        if type(callback) is MethodType:
            label = self._labels.get(callback.__func__)
            if label is None:
                label = self._labels[callback.__func__] = self._number_of(callback_label(callback))
        else:
            # A task is its own label: `task` has told what it runs.
            label = getattr(getattr(callback, "__self__", None), "serial", None)
            if label is None:
                label = self._number_of(callback_label(callback))
        numbers = self._numbers
        numbers += (now_s, lane.serial, label)
        if len(numbers) > _FLUSH_NUMBERS:
            self._flush()
        if self._timeline is not None:
            self._timeline.write(f"{now_s:.9f} run {lane.name} {callback_label(callback)}\n")

    def task(self, serial: int, label: str) -> None:
        """A task was created; its steps are known by its serial, from 1 on. `label`: what it runs."""
        if self.enabled:
            self._numbers += (_TASK, serial, self._number_of(label))

    def delivered(self, now_s: float, connection: int, direction: str, data: bytes) -> None:
        """The kernel of the receiver got `data` on a connection."""
        self._numbers += (_DATA, now_s, connection, len(data))
        self._data.append(data)
        self._data_bytes += len(data)
        if self._data_bytes > _FLUSH_BYTES:
            self._flush()
        if self._timeline is not None:
            shown = data[:_TIMELINE_DATA_BYTES]
            self._timeline.write(f"{now_s:.9f} data #{connection} {direction} {len(data)} B {shown!r}\n")

    def note(self, now_s: float, *words: object) -> None:
        """Anything else worth telling apart: faults, connections, workload results."""
        if not self.enabled:
            return
        text = " ".join(map(str, words))
        self._text(_NOTE, now_s, text)
        if self._timeline is not None:
            self._timeline.write(f"{now_s:.9f} {text}\n")

    def digest(self) -> str:
        """The hash of everything so far, in hexadecimal; the trace may go on afterwards."""
        self._flush()
        both = self._numbers_hash.digest() + self._data_hash.digest()
        return hashlib.blake2b(both, digest_size=_DIGEST_BYTES, person=_DIGEST_PERSON).hexdigest()

    def _number_of(self, label: str) -> float:
        """A label's number, below 0; a new one is written down."""
        number = self._names.get(label)
        if number is None:
            number = self._names[label] = -1.0 - len(self._names)
            self._text(_LABEL, number, label)
        return number

    def _text(self, kind: float, number: float, text: str) -> None:
        encoded = text.encode()
        self._numbers += (kind, number, len(encoded))
        self._data.append(encoded)
        self._data_bytes += len(encoded)

    def _flush(self) -> None:
        self._numbers_hash.update(array("d", self._numbers))
        self._data_hash.update(b"".join(self._data))
        self._numbers.clear()
        self._data.clear()
        self._data_bytes = 0
        if self._timeline is not None:
            self._timeline.flush()


def callback_label(callback: Callable[..., object]) -> str:
    """A name for the trace that is the same in every process: a task's name, or the function's."""
    owner = getattr(callback, "__self__", None)
    label = getattr(owner, "trace_label", None)
    if label is not None:
        return str(label)
    function = getattr(callback, "func", callback)
    return getattr(function, "__qualname__", None) or type(function).__name__
