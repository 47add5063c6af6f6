"""What happened, as one hash: every callback run, every byte delivered, every change of a disk, every
fault, in order.

Two runs of one seed are equal if, and only if, their digests are equal; comparing digests of two
processes is how determinism is tested. The optional timeline writes the same events as text, for a
person or for `diff`; what happens to a disk stands below the step that did it. The scheduler, the
network and the disks write here; nothing else needs to.

What is hashed is a row of numbers per event, which is cheap to gather: functions and jobs have the
number of their first appearance, tasks their serials, and bytes are represented by their CRC-32C. No
function's name is hashed: code that is renamed or moved, and does the same, keeps its digests.

Words of notes must not depend on memory addresses or on string hashing: names, numbers and types are
fine, the `repr` of an arbitrary object is not.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import IO, Protocol

from crc32c import crc32c

_FLUSH_NUMBERS = 2_000
"""Few enough to stay in the processor's cache until they are hashed."""
_DIGEST_CHARACTERS = 32
_TIMELINE_DATA_BYTES = 48

# What a row begins with. A step begins with its instant, which is never negative, and goes on with the
# serial of a task, or with the number of a function, which is negative, and the serial of the lane.
_DATA, _NOTE, _TASK, _JOB, _DISK = -1, -2, -3, -4, -5


class TracedLane(Protocol):
    """What the trace must know of a lane."""

    name: str
    serial: int


class Trace:
    """A running SHA-256 over the events of one simulated run, and optionally their text."""

    __slots__ = ("_functions", "_hash", "_numbers", "_timeline", "enabled")

    def __init__(self, *, enabled: bool = True, timeline: IO[str] | None = None) -> None:
        """`timeline` is an open text file that the caller closes; `enabled=False` makes runs faster."""
        self.enabled = enabled
        self._hash = hashlib.sha256()
        self._numbers: list[float] = []
        self._functions: dict[object, int] = {}
        self._timeline = timeline

    def step(self, now_s: float, lane: TracedLane, callback: Callable[..., object]) -> None:
        """One callback of one lane is about to run."""
        numbers = self._numbers
        if type(callback) is MethodType:
            numbers += (now_s, self._number_of(callback.__func__), lane.serial)
        elif type(callback) is FunctionType:
            numbers += (now_s, self._number_of(callback.__code__), lane.serial)
        else:
            # A task is its own label: `task` has told what it runs.
            serial = getattr(getattr(callback, "__self__", None), "serial", None)
            if serial is not None:
                numbers += (now_s, serial)
            else:
                numbers += (now_s, self._number_of(_identity(callback)), lane.serial)
        if len(numbers) > _FLUSH_NUMBERS:
            self._flush()
        if self._timeline is not None:
            self._timeline.write(f"{now_s:.9f} run {lane.name} {callback_label(callback)}\n")

    def task(self, serial: int, coroutine: object) -> None:
        """A task was created that runs the coroutine; its steps are known by its serial, from 1 on."""
        if self.enabled:
            code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "gi_code", None)
            self._numbers += (_TASK, serial, self._number_of(code or label_of_coroutine(coroutine)))

    def job(self, now_s: float, lane: TracedLane, job: Callable[..., object]) -> None:
        """An executor begins to run the function `job`."""
        if not self.enabled:
            return
        self._numbers += (_JOB, now_s, lane.serial, self._number_of(_identity(job)))
        if self._timeline is not None:
            self._timeline.write(f"{now_s:.9f} job {lane.name} {callback_label(job)}\n")

    def delivered(self, now_s: float, connection: int, direction: str, data: bytes) -> None:
        """The kernel of the receiver got `data` on a connection."""
        self._numbers += (_DATA, now_s, connection, len(data), crc32c(data))
        if self._timeline is not None:
            shown = data[:_TIMELINE_DATA_BYTES]
            self._timeline.write(f"{now_s:.9f} data #{connection} {direction} {len(data)} B {shown!r}\n")

    def written(self, inode: int, position: int, data: bytes) -> None:
        """A file of some disk was changed, as `Storage.on_changed` tells it."""
        self._numbers += (_DISK, inode, position, len(data), crc32c(data))
        if self._timeline is not None:
            shown = data[:_TIMELINE_DATA_BYTES]
            self._timeline.write(
                f"    disk #{inode} at {position} {len(data)} B {shown!r} {crc32c(data):08x}\n"
            )

    def note(self, now_s: float, *words: object) -> None:
        """Anything else worth telling apart: faults, connections, workload results."""
        if not self.enabled:
            return
        text = " ".join(map(str, words))
        encoded = text.encode()
        self._numbers += (_NOTE, now_s, len(encoded), crc32c(encoded))
        if self._timeline is not None:
            self._timeline.write(f"{now_s:.9f} {text}\n")

    def digest(self) -> str:
        """The hash of everything so far, in hexadecimal; the trace may go on afterwards."""
        self._flush()
        return self._hash.hexdigest()[:_DIGEST_CHARACTERS]

    def _number_of(self, function: object) -> int:
        """A function's number, below 0: -1 for the first that appeared, -2 for the second."""
        return self._functions.setdefault(function, -1 - len(self._functions))

    def _flush(self) -> None:
        packed = array("d", self._numbers)
        if sys.byteorder == "big":
            packed.byteswap()
        self._hash.update(packed)
        self._numbers.clear()
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


def label_of_coroutine(coroutine: object) -> str:
    """The name of the function that a coroutine runs."""
    return getattr(coroutine, "__qualname__", None) or type(coroutine).__name__


def _identity(callback: Callable[..., object]) -> object:
    """What a renamed or moved function keeps: itself. Closures are made anew by each call and share their code; what is
    no Python function is known by its name."""
    function = getattr(callback, "func", callback)
    if type(function) is MethodType:
        return function.__func__
    return getattr(function, "__code__", None) or callback_label(callback)
