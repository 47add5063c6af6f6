"""The executor port under simulation: a job runs whole, at one later instant, and costs virtual time.

Between submission and run, and between run and completion, other events happen, crashes included: a
job of a killed process either never ran or ran without anybody hearing of it. A job runs on a lane of
its own, outside the event loop, so that code in it that reaches for the loop fails as it would in a
thread. Its fsyncs cover only writes made before it was submitted (the horizon of `SimulatedDisk`) and
its own, and the time that they take is added to the job's.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from kraft.chaos.world.disk import SimulatedDisk
from kraft.chaos.world.incarnation import Incarnation
from kraft.chaos.world.scheduler import AnyHandle, LaneTimer

T = TypeVar("T")

QUEUE_MAX_JOBS = 10_000


@dataclass(frozen=True)
class ExecutorTiming:
    """How long jobs wait and run, besides the time their disk operations take."""

    workers: int = 4
    start_delay_s: tuple[float, float] = (0.000_02, 0.000_2)
    run_s: tuple[float, float] = (0.000_02, 0.000_3)


@dataclass
class _Job(Generic[T]):
    call: Callable[[], T]
    done: asyncio.Future[T]
    write_horizon: int


class SimulatedExecutor:
    """Implements `partitions.ports.Executor`; also behind `loop.run_in_executor`."""

    def __init__(
        self,
        incarnation: Incarnation,
        loop: asyncio.AbstractEventLoop,
        disk: SimulatedDisk,
        rng: random.Random,
        timing: ExecutorTiming | None = None,
    ) -> None:
        self.timing = timing or ExecutorTiming()
        self._loop = loop
        self._disk = disk
        self._rng = rng
        self._scheduler = incarnation.scheduler
        self._lane = incarnation.add_lane("executor", self._job_failed)
        self._context = contextvars.Context()
        self._busy = 0
        self._queue: deque[_Job[Any]] = deque()

    async def run(self, job: Callable[..., T], *args: object) -> T:
        """The value of `job(*args)`, or its exception, some virtual time later.

        When the caller is cancelled, a job that has begun runs to its end and one that waits is dropped.
        """
        result: T = await self.submit(job, *args)
        return result

    def submit(self, job: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Queues a job. Raises RuntimeError when the queue is full: its user must bound itself."""
        if len(self._queue) >= QUEUE_MAX_JOBS:
            raise RuntimeError(f"more than {QUEUE_MAX_JOBS} executor jobs are waiting")
        done: asyncio.Future[T] = self._loop.create_future()
        self._queue.append(_Job(partial(job, *args), done, self._disk.write_sequence))
        self._start_next()
        return done

    def _start_next(self) -> None:
        if self._queue and self._busy < self.timing.workers:
            self._busy += 1
            job = self._queue.popleft()
            self._after(self._rng.uniform(*self.timing.start_delay_s), self._run_job, job)

    def _after(self, delay_s: float, callback: Callable[..., object], *args: object) -> None:
        when_s = self._scheduler.now + delay_s
        timer = LaneTimer(when_s, self._lane, callback, args, self._context)
        self._scheduler.schedule(when_s, timer)

    def _run_job(self, job: _Job[Any]) -> None:
        if job.done.cancelled():
            self._busy -= 1
            self._start_next()
            return
        self._scheduler.trace.job(self._scheduler.now, self._lane, job.call)
        result, error = None, None
        with self._disk.accounting(job.write_horizon) as account:
            try:
                result = job.call()
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as raised:  # noqa: BLE001 - it belongs to whoever awaits the job
                error = raised
        cost_s = self._rng.uniform(*self.timing.run_s) + account.seconds
        self._after(cost_s, self._complete, job, result, error)

    def _complete(self, job: _Job[Any], result: object, error: BaseException | None) -> None:
        self._busy -= 1
        self._loop.call_soon_threadsafe(_deliver, job.done, result, error)
        self._start_next()

    def _job_failed(self, error: BaseException, handle: AnyHandle) -> None:
        self._loop.call_exception_handler({"message": "the executor failed", "exception": error})


def _deliver(done: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    elif isinstance(error, StopIteration):
        done.set_exception(RuntimeError("a job raised StopIteration"))
    else:
        done.set_exception(error)
