"""How late the event loop runs a timer: what every request of the node waits for beside its own work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kraft.network.request_times import PhaseTimes

INTERVAL_S: Final = 0.5
LOOKS_PER_S: Final = 2


class LoopLag:
    """Looks while it is started; on the loop that it looks at."""

    def __init__(self, each_second: Callable[[], None] = lambda: None) -> None:
        """`each_second` is called with every other look."""
        self.times = PhaseTimes()
        self._each_second = each_second
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._arm(loop)

    def close(self) -> None:
        """Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        due_s = loop.time() + INTERVAL_S
        self._timer = loop.call_at(due_s, self._look, loop, due_s)

    def _look(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        # uvloop counts timers in whole milliseconds, and may be early by a part of one.
        self.times.add(max(0.0, loop.time() - due_s))
        self._looks += 1
        if self._looks % LOOKS_PER_S == 0:
            self._each_second()
        self._arm(loop)
