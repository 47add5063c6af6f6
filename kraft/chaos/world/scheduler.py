"""Virtual time: one heap of timers, one queue of ready callbacks, for all nodes of a simulated world.

Guarantees: events run one at a time, in the order of (instant, order of scheduling); time only moves
forward, to the next timer when nothing is ready, and by `step_cost_s` for each callback, so that code
that spins on `sleep(0)` cannot freeze it. A callback belongs to a lane: callbacks of a dead lane
vanish, those of a held (paused, stalled) lane wait and keep their order. Kernel events belong to
nobody and happen whatever the processes do; they never run a node's code.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import sys
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextvars import copy_context
from heapq import heapify, heappop, heappush
from typing import Any

from kraft.chaos.world.trace import Trace, callback_label

STEP_COST_S = 5e-6
_COMPACT_MIN_CANCELLED = 200


class SimulationFailed(Exception):
    """The run cannot be trusted: code under simulation did what it must not do. The message says what."""


class Lane:
    """One thread of control of one process: its event loop, its Raft lane, its executor's workers.

    Time passes for a lane only while it is alive and nothing holds it. Several holds may overlap (a
    pause of the process during a stall of the lane), so they are counted.
    """

    __slots__ = (
        "_holds",
        "alive",
        "deferred",
        "name",
        "on_error",
        "post",
        "runnable",
        "running_loop",
        "scheduler",
        "serial",
    )

    def __init__(
        self, scheduler: Scheduler, name: str, on_error: Callable[[BaseException, AnyHandle], None]
    ) -> None:
        self.scheduler = scheduler
        self.name = name
        self.serial = scheduler.next_serial()
        self.alive = True
        self.runnable = True
        self._holds = 0
        self.deferred: deque[AnyHandle] = deque()
        self.post: Callable[[AnyHandle], object] = scheduler.ready.append
        """Makes a handle ready to run; drops it when the lane has ended."""
        self.running_loop: asyncio.AbstractEventLoop | None = None
        self.on_error = on_error

    def hold(self) -> None:
        """From now on callbacks of this lane wait, until as many `release`s came."""
        self._holds += 1
        self.runnable = False

    def release(self) -> None:
        """Ends one hold; after the last, what waited is ready in its old order."""
        if not self.alive:
            return
        assert self._holds > 0, "release without hold"
        self._holds -= 1
        if self._holds == 0:
            self.runnable = True
            self.scheduler.ready.extend(self.deferred)
            self.deferred.clear()

    def stall(self, duration_s: float) -> None:
        """The lane is busy with a blocking call: nothing of it runs for `duration_s`."""
        if self.alive and duration_s > 0:
            self.hold()
            self.scheduler.call_kernel(duration_s, self.release)

    def end(self) -> list[AnyHandle]:
        """The lane's process is gone. Returns what waited, for the graveyard."""
        self.alive = self.runnable = False
        self.post = _drop
        waiting = list(self.deferred)
        self.deferred.clear()
        return waiting


def _drop(handle: AnyHandle) -> None:
    """Where callbacks of an ended lane go."""


class LaneHandle(asyncio.Handle):
    """A callback that belongs to a lane; without asyncio's debug bookkeeping."""

    __slots__ = ("lane",)

    # The attributes of asyncio.Handle that typeshed leaves out.
    _callback: Callable[..., object]
    _context: contextvars.Context

    def __init__(
        self,
        lane: Lane,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.lane = lane
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        """Without effect once it ran."""
        self._cancelled = True
        self._callback = _cancelled_callback
        self._args = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.lane.name} {callback_label(self._callback)}>"


class LaneTimer(asyncio.TimerHandle):
    """The same for a later instant. The scheduler forgets cancelled ones in bulk."""

    __slots__ = ("lane",)

    _callback: Callable[..., object]
    _context: contextvars.Context

    def __init__(
        self,
        when_s: float,
        lane: Lane,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.lane = lane
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._when = when_s
        self._scheduled = True

    def cancel(self) -> None:
        """Without effect once it ran."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = _cancelled_callback
            self._args = ()
            if self._scheduled:
                scheduler = self.lane.scheduler
                scheduler.cancelled_timers += 1
                if scheduler.cancelled_timers > _COMPACT_MIN_CANCELLED:
                    scheduler.forget_cancelled()

    __repr__ = LaneHandle.__repr__


def _cancelled_callback() -> None:
    """What a cancelled handle holds instead of its callback."""


AnyHandle = LaneHandle | LaneTimer


class KernelEvent:
    """Something that the machine, the network or the world does by itself at an instant."""

    __slots__ = ("_cancelled", "args", "callback")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback = callback
        self.args = args
        self._cancelled = False

    def cancel(self) -> None:
        """Without effect once it happened."""
        self._cancelled = True
        self.args = ()

    def cancelled(self) -> bool:
        return self._cancelled


class Scheduler:
    """The one source of progress and of time in a simulated world."""

    def __init__(self, trace: Trace, *, step_cost_s: float = STEP_COST_S) -> None:
        self.trace = trace
        self.now = 0.0
        self.steps = 0
        self.ready: deque[AnyHandle] = deque()
        self.current: Lane | None = None
        self.failure: str | None = None
        self.heap: list[tuple[float, int, Any, tuple[Any, ...] | None]] = []
        """What happens when: instant, order, and a timer or an event with None, or a function with its arguments."""
        self.order = 0
        """How much was ever scheduled; with each entry of the heap, one more."""
        self._serial = 0
        self.cancelled_timers = 0
        """In the heap still, as far as known."""
        self._step_cost_s = step_cost_s
        self._stopped = False
        self._generators: dict[int, Lane] = {}

    # -- scheduling

    def next_serial(self) -> int:
        """A number that no other object of this world has; used for hashes and names."""
        self._serial += 1
        return self._serial

    def schedule(self, when_s: float, event: KernelEvent | LaneTimer) -> None:
        """At virtual instant `when_s`, or at once if that is past, after everything due before."""
        self.order = order = self.order + 1
        heappush(self.heap, (when_s, order, event, None))

    def deliver(self, when_s: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Runs `callback` outside of any process at an instant; it cannot be taken back."""
        self.order = order = self.order + 1
        heappush(self.heap, (when_s, order, callback, args))

    def call_kernel(self, delay_s: float, callback: Callable[..., object], *args: Any) -> KernelEvent:
        """Runs `callback` outside of any process in `delay_s` virtual seconds."""
        event = KernelEvent(callback, args)
        self.order = order = self.order + 1
        heappush(self.heap, (self.now + delay_s, order, event, None))
        return event

    def timer_cancelled(self) -> None:
        """One more entry of the heap means nothing any more."""
        self.cancelled_timers += 1
        self.forget_cancelled()

    def forget_cancelled(self) -> None:
        """Drops cancelled timers when they are the larger part: most timeouts never fire."""
        cancelled = self.cancelled_timers
        if cancelled > _COMPACT_MIN_CANCELLED and cancelled * 2 > len(self.heap):
            live = [entry for entry in self.heap if entry[3] is not None or not entry[2]._cancelled]
            heapify(live)
            self.heap[:] = live
            self.cancelled_timers = 0

    # -- running

    def fail(self, reason: str) -> None:
        """Ends the run: `run` raises SimulationFailed with the first reason given."""
        if self.failure is None:
            self.failure = reason
        self._stopped = True

    def stop(self) -> None:
        """Makes `run` return after the current callback."""
        self._stopped = True

    def run(self, until_s: float) -> None:
        """Runs until virtual instant `until_s`, or `stop`. Raises SimulationFailed after `fail`."""
        self._stopped = self.failure is not None
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generator_started, finalizer=self._generator_dropped)
        try:
            self._run(until_s)
        finally:
            _set_running_loop(None)
            self.current = None
            sys.set_asyncgen_hooks(*hooks)
        if self.failure is not None:
            raise SimulationFailed(self.failure)

    def _run(self, until_s: float) -> None:
        """The loop. `now` and `steps` are local here too: nothing but this loop changes them, and judges read them."""
        ready, heap, step_cost_s = self.ready, self.heap, self._step_cost_s
        trace_step = self.trace.step if self.trace.enabled else None
        current: Lane | None = None
        now, steps = self.now, self.steps
        while not self._stopped:
            if heap and heap[0][0] <= now:
                self._release_due(now)
            if not ready:
                instant_s = heap[0][0] if heap else math.inf
                if instant_s > until_s:
                    self.now = max(now, until_s)
                    return
                if instant_s > now:
                    now = self.now = instant_s
                continue
            handle = ready.popleft()
            lane = handle.lane
            if handle._cancelled:
                continue
            if not lane.runnable:
                if lane.alive:
                    lane.deferred.append(handle)
                continue
            if lane is not current:
                current = self.current = lane
                _set_running_loop(lane.running_loop)
            self.steps = steps = steps + 1
            callback = handle._callback
            if trace_step is not None:
                trace_step(now, lane, callback)
            args = handle._args
            try:
                if not args:
                    handle._context.run(callback)
                elif len(args) == 1:  # a starred call builds a list and a tuple first
                    handle._context.run(callback, args[0])
                else:
                    handle._context.run(callback, *args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio's own loop does
                lane.on_error(error, handle)
            now += step_cost_s
            self.now = now

    def _release_due(self, now_s: float) -> None:
        heap, ready = self.heap, self.ready
        while heap and heap[0][0] <= now_s:
            _, _, event, args = heappop(heap)
            if args is not None:
                event(*args)
            elif event._cancelled:
                if self.cancelled_timers:
                    self.cancelled_timers -= 1
            elif type(event) is KernelEvent:
                event.callback(*event.args)
            else:
                event._scheduled = False
                ready.append(event)

    # -- async generators: closed by their own loop, and never when its process is gone

    def _generator_started(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self.current is not None:
            self._generators[id(generator)] = self.current

    def _generator_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        lane = self._generators.pop(id(generator), None)
        if lane is not None and lane.alive and lane.running_loop is not None:
            loop = lane.running_loop
            loop.call_soon(loop.create_task, generator.aclose(), context=contextvars.Context())
