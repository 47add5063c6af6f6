"""Long computations in bounded steps, so that their caller does other work in between.

A computation is a generator that yields after each step and returns its result. Its caller decides what gets a turn in
between: the Raft lane takes one step each time it is stepped (`quorum.raft`), the event loop runs its ready callbacks
(`quorum.turns`), and a start runs the computation through (`finished`). A large metadata image is encoded and decoded
so: neither brokers' heartbeats nor Raft's wait for 200,000 partitions.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

ROWS_PER_STEP: Final = 2000
"""Rows of an image that one step encodes or decodes: a few milliseconds."""

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]


def finished(steps: Steps[T]) -> T:
    """The result, computed in one go."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
