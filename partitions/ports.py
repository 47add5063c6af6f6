"""The ports, besides the disk, that lower packages take from whoever assembles a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

NowMs = Callable[[], int]
"""Wall-clock time in milliseconds since the Unix epoch."""

Halt = Callable[[str], None]
"""Ends the node at once because going on could break a promise: the process in production, the
incarnation under simulation. It may return (in simulation); callers raise or return right after."""


class Executor(Protocol):
    """Runs blocking or CPU-heavy jobs beside the event loop.

    A job takes immutable input, returns values and shares nothing; other events run between its
    submission and its completion. An fsync job covers only writes made before it was submitted.
    """

    async def run(self, job: Callable[..., T], *args: object) -> T: ...
