"""The simulated Raft lane: a driver stepped at virtual instants, apart from the event loop of its node.

Implements `quorum.raft.lane.RaftLane`. Events wait on their way in and effects on their way out, each
queue in its own time and in order; a step takes the virtual time of its fsyncs, which holds up this
lane and nothing else. A crash may fall between any two of: the post, the step, the end of its fsync, the
delivery. Clock and randomness of the driver come from whoever builds it (`driver_factory`).
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from dataclasses import dataclass

from kraft.chaos.world.disk import SimulatedDisk
from kraft.chaos.world.incarnation import Incarnation
from kraft.chaos.world.scheduler import AnyHandle, LaneTimer
from quorum.raft.driver import RaftDriver
from quorum.raft.events import RaftEffect, RaftEvent
from quorum.raft.lane import Deliver, Inbox, Send, lost_event


@dataclass(frozen=True)
class LaneTiming:
    """Delays of the lane's queues and the bare cost of a step, each drawn evenly between two bounds."""

    inbox_s: tuple[float, float] = (0.000_01, 0.000_2)
    outbox_s: tuple[float, float] = (0.000_01, 0.000_2)
    step_s: tuple[float, float] = (0.000_02, 0.000_1)


class SimulatedRaftLane:
    """Runs one driver for one process incarnation."""

    def __init__(
        self,
        incarnation: Incarnation,
        loop: asyncio.AbstractEventLoop,
        disk: SimulatedDisk,
        rng: random.Random,
        halt: Callable[[str], None],
        timing: LaneTiming | None = None,
    ) -> None:
        self.timing = timing or LaneTiming()
        self._incarnation = incarnation
        self._loop = loop
        self._disk = disk
        self._rng = rng
        self._halt = halt
        self._scheduler = incarnation.scheduler
        self._lane = incarnation.add_lane("raft", self._failed)
        self._driver: RaftDriver | None = None
        self._deliver: Deliver | None = None
        self._context = contextvars.Context()
        self._lane_context = contextvars.Context()
        self._inbox = Inbox()
        self._last_arrival_s = 0.0
        self._last_delivery_s = 0.0
        self._busy = False
        self._next_step: LaneTimer | None = None

    # -- the port

    def start(
        self, driver_factory: Callable[[], RaftDriver], deliver: Deliver, send: Send | None = None
    ) -> None:
        """Opens the driver and steps it from now on. What is for peers is delivered with the rest."""
        assert self._driver is None, "a lane is started once"
        self._driver = driver_factory()
        self._deliver = deliver
        self._context = contextvars.copy_context()
        self._schedule_step(0.0)

    def post(self, event: RaftEvent) -> None:
        """Sends an event on its way into the inbox; a full inbox loses it when it arrives."""
        if self._driver is not None:
            arrival_s = self._scheduler.now + self._rng.uniform(*self.timing.inbox_s)
            self._last_arrival_s = max(self._last_arrival_s, arrival_s)
            self._at(self._last_arrival_s, self._arrive, event)

    def stop(self) -> None:
        """Closes the driver; what is in the queues is void."""
        driver, self._driver = self._driver, None
        self._inbox.take()
        if self._next_step is not None:
            self._next_step.cancel()
            self._next_step = None
        if driver is not None:
            driver.close()

    # -- the lane

    def _arrive(self, event: RaftEvent) -> None:
        if self._driver is None:
            return
        if not self._inbox.put(event):
            self._hand_out(lost_event(event))
        elif self._inbox.is_due and not self._busy:
            self._schedule_step(0.0)

    def _schedule_step(self, delay_s: float) -> None:
        when_s = self._scheduler.now + delay_s
        if self._next_step is not None:
            if self._next_step.when() <= when_s:
                return
            self._next_step.cancel()
        self._next_step = self._at(when_s, self._step)

    def _step(self) -> None:
        self._next_step = None
        driver = self._driver
        if driver is None:
            return
        self._busy = True
        with self._disk.accounting() as account:
            effects = driver.step(self._inbox.take())
        cost_s = self._rng.uniform(*self.timing.step_s) + account.seconds
        self._at(self._scheduler.now + cost_s, self._stepped, effects)

    def _stepped(self, effects: list[RaftEffect]) -> None:
        self._busy = False
        if self._driver is None:
            return
        self._hand_out(effects)
        self._schedule_step(0.0 if self._inbox.is_due else self._driver.tick_interval_s)

    def _hand_out(self, effects: list[RaftEffect]) -> None:
        if effects:
            delivery_s = self._scheduler.now + self._rng.uniform(*self.timing.outbox_s)
            self._last_delivery_s = max(self._last_delivery_s, delivery_s)
            self._loop.call_at(self._last_delivery_s, self._delivered, effects, context=self._context)

    def _delivered(self, effects: list[RaftEffect]) -> None:
        if self._driver is not None and self._deliver is not None:
            self._deliver(effects)

    def _at(self, when_s: float, callback: Callable[..., object], *args: object) -> LaneTimer:
        timer = LaneTimer(when_s, self._lane, callback, args, self._lane_context)
        self._scheduler.schedule(when_s, timer)
        return timer

    def _failed(self, error: BaseException, handle: AnyHandle) -> None:
        if self._incarnation.alive:
            self._loop.call_exception_handler({"message": "the Raft lane failed", "exception": error})
            self._halt(f"the Raft lane failed: {type(error).__name__}: {error}")
