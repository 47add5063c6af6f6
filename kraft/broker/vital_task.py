"""Tasks that a node cannot do without: one that ends by a defect halts the node.

A broker whose heartbeats, metadata, ISR changes or checkpoints have stopped looks alive and is not;
asyncio would mention the exception when the task is collected, if ever. Used by every owner of an
endless task in `kraft.broker`, which still cancels and awaits it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from partitions.ports import Halt


def start_vital_task(coroutine: Coroutine[Any, Any, None], name: str, halt: Halt) -> asyncio.Task[None]:
    """Starts a task on the running loop; any exception that ends it, but its cancellation, halts the node."""

    def on_done(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            halt(f"the task {name} ended by a defect: {error!r}")

    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    task.add_done_callback(on_done)
    return task


async def end_task(task: asyncio.Task[None] | None) -> None:
    """Cancels a task, if there is one, and waits until it has ended."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
