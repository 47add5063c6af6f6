"""What a handler answers: the segments of one response frame, in the order in which they are sent.

A segment is a bytes-like object or a `FileSlice`; slices leave the page cache without passing
through Python objects where the connection's sender can do that. Built by the broker's handlers,
consumed by `kraft.network.connection`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

from kraft.network.request_times import RequestTimes
from partitions.disk import Buffer, FileSlice

Segment = Buffer | FileSlice
Outcome = TypeVar("Outcome")
Value = TypeVar("Value")

BUFFER_TYPES = frozenset((bytes, bytearray, memoryview))
"""The types of segments that are not file slices."""
JOIN_BYTES = 16 * 1024
"""Buffers up to this size are joined rather than sent as a vector: copying them is cheaper than an iovec."""


class Response:
    """One response frame: header and body `segments`, and their total `length` in bytes.

    The connection puts the 4-byte length prefix before it. Buffers must not be changed after the
    response was handed over: they are sent without a copy, possibly later. `times` is told when it has left, if
    it was made at `ready_s` of the loop's time.
    """

    __slots__ = ("length", "ready_s", "segments", "times")

    def __init__(
        self,
        segments: Sequence[Segment],
        length: int,
        times: RequestTimes | None = None,
        ready_s: float = 0.0,
    ) -> None:
        self.segments = segments
        self.length = length
        self.times = times
        self.ready_s = ready_s

    @classmethod
    def of(cls, *segments: Segment) -> Response:
        """A response of these segments; adds up their lengths (memory views must be of bytes)."""
        size = sum(
            len(segment) if isinstance(segment, bytes | bytearray | memoryview) else segment.length
            for segment in segments
        )
        return cls(segments, size)


class Deferred(Generic[Outcome, Value]):
    """A value that `finish` makes of a future's result, once that is there: an answer without a task.

    Whoever is handed one calls `finish` at most once. It can be awaited as well. Cancelling the future
    gives it up.
    """

    __slots__ = ("finish", "future")

    def __init__(self, future: asyncio.Future[Outcome], finish: Callable[[Outcome], Value]) -> None:
        self.future = future
        self.finish = finish

    def __await__(self) -> Generator[Any, None, Value]:
        return self.finish((yield from self.future.__await__()))


def as_it_is(value: Value) -> Value:
    """What `finish` does where the future's result is the value."""
    return value


Answer = Response | None | Deferred[Any, Response | None] | Awaitable[Response | None]
"""A response at once, None for a request that is not answered (acks=0), or either of them later."""


def join_small(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in fewer buffers: runs of small ones are joined, large ones stay as they are."""
    joined: list[Buffer] = []
    run: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) <= JOIN_BYTES:
            run.append(buffer)
            continue
        if run:
            joined.append(b"".join(run))
            run = []
        joined.append(buffer)
    if run:
        joined.append(b"".join(run))
    return joined
