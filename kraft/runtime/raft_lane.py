"""The Raft lane as a thread: it steps the driver when an event was posted or the driver's next step is due.

A blocking fsync stalls nothing but this lane. `kraft.node` assembles it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final

from quorum.raft.driver import RaftDriver
from quorum.raft.events import RaftEffect, RaftEvent, SendToPeer, TransferLeadership
from quorum.raft.lane import Deliver, Inbox, Send, lost_event

ASK_EVERY_S: Final = 1.0
STILL_MAX_S: Final = 10.0
"""A loop that has no turn for so long decides nothing: another voter, if it is caught up, has to lead."""


class ThreadRaftLane:
    """Implements `quorum.raft.lane.RaftLane`; made, started and stopped on `loop`'s thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._inbox = Inbox()
        self._wake = threading.Condition()
        self._deliver: Deliver | None = None
        self._send: Send | None = None
        self._thread: threading.Thread | None = None
        self._asked, self._answered, self._asked_s = 0, 0, time.monotonic()

    def start(
        self, driver_factory: Callable[[], RaftDriver], deliver: Deliver, send: Send | None = None
    ) -> None:
        driver = driver_factory()
        self._deliver, self._send = deliver, send
        self._thread = threading.Thread(target=self._run, args=(driver,), name="raft-lane", daemon=True)
        self._thread.start()

    def post(self, event: RaftEvent) -> None:
        """From any thread."""
        with self._wake:
            accepted = self._inbox.put(event)
            if self._inbox.is_due:
                self._wake.notify()
        if not accepted:
            self._loop.call_soon_threadsafe(self._hand_out, lost_event(event))

    def stop(self) -> None:
        with self._wake:
            self._deliver = None
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self, driver: RaftDriver) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(
                    lambda: self._inbox.is_due or self._deliver is None, driver.tick_interval_s
                )
                events, running = self._inbox.take(), self._deliver is not None
            if not running:
                break
            self._watch(events)
            effects = self._sent(driver.step(events))
            if effects:
                self._loop.call_soon_threadsafe(self._hand_out, effects)
        driver.close()

    def _watch(self, events: list[RaftEvent]) -> None:
        """Links and lane go on while the loop, where all is decided, stands still: nobody else would notice."""
        now_s = time.monotonic()
        if self._answered == self._asked and now_s - self._asked_s >= ASK_EVERY_S:
            self._asked, self._asked_s = self._asked + 1, now_s
            self._loop.call_soon_threadsafe(setattr, self, "_answered", self._asked)
        elif self._answered != self._asked and now_s - self._asked_s >= STILL_MAX_S:
            self._asked_s = now_s
            events.append(TransferLeadership())

    def _sent(self, effects: list[RaftEffect]) -> list[RaftEffect]:
        """Sends what is for peers; returns the rest."""
        if self._send is None:
            return effects
        rest: list[RaftEffect] = []
        for effect in effects:
            if isinstance(effect, SendToPeer):
                self._send(effect)
            else:
                rest.append(effect)
        return rest

    def _hand_out(self, effects: list[RaftEffect]) -> None:
        if self._deliver is not None and effects:
            self._deliver(effects)
