"""Long computations in bounded steps, so that their caller can do other work in between.

A computation is a generator that yields after each step and returns its result. Its caller decides who else gets a
turn: the Raft lane takes one step each time it is stepped (`quorum.raft`), the event loop runs what is ready
(`quorum.turns`), a start runs it through (`finished`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

ROWS_PER_STEP: Final = 2000
"""Of an image that is encoded or decoded: a few milliseconds."""

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
