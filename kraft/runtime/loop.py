"""Runs a node's main coroutine: uvloop where it is installed, and signals turned into one event.

SIGTERM and SIGINT set the stop event, once, and the main coroutine shuts the node down in good order; a second signal
ends the process at once. `kraft server` calls it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")
Main = Callable[[asyncio.Event], Coroutine[Any, Any, T]]

logger = logging.getLogger(__name__)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's event loop, or asyncio's own where uvloop cannot be had (it has no Windows build)."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def raise_open_files_limit() -> None:
    """Lets the process open as many files as it may at most: segments and connections are files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_files_limit() -> int | None:
    """How many files the process may have open now; None if there is no bound."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def run(main: Main[T]) -> T:
    """Runs `main(stop)` to its end and returns its value; `stop` is set by the first SIGTERM or SIGINT."""
    raise_open_files_limit()

    async def supervised() -> T:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, on_signal, signal_number, stop)
        try:
            return await main(stop)
        finally:
            for signal_number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(signal_number)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(supervised())


def on_signal(signal_number: int, stop: asyncio.Event) -> None:
    """The first signal asks for a shutdown, a second one does not wait for it."""
    name = signal.Signals(signal_number).name
    if stop.is_set():
        logger.warning("%s again: ending at once; the next start recovers as after a crash", name)
        os._exit(128 + signal_number)
    logger.info("%s: shutting down", name)
    stop.set()
