"""Runs a computation that comes in steps (`quorum.steps`) on the event loop, which goes on with its own work.

Brokers and controllers encode and decode large metadata images with it: heartbeats and requests that are ready are
served between two steps.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from quorum.steps import Steps

T = TypeVar("T")


async def taking_turns(steps: Steps[T]) -> T:
    """The result; between two steps the event loop runs what is ready. Cancelling it ends the computation."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
