"""A computation in steps (`quorum.steps`) run on the event loop, between the loop's own work.

For callers that encode or decode a large metadata image on the loop: between two steps the loop serves heartbeats and
requests that are ready.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from quorum.steps import Steps

T = TypeVar("T")


async def taking_turns(steps: Steps[T]) -> T:
    """The result; between two steps the event loop runs its ready callbacks. Cancelling ends the computation."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
