"""Checks of records beside the event loop, in the order of arrival for each partition.

Guarantees: what a partition's producers send is appended in the order it came, also where one batch is
checked by the executor and the next needs no check; one batch is open at a time, so that batches which
unfold cost memory once. Used by the produce handler for topics whose records have to be looked at
(`partitions.log.record_checks`); owned by the replica manager, on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from kraft.broker.vital_task import start_vital_task
from partitions.disk import Buffer
from partitions.log.errors import AppendError
from partitions.log.validation import CheckedBatches
from partitions.ports import Executor, Halt
from partitions.topic_partition import TopicPartition

T = TypeVar("T")
Checked = CheckedBatches | Buffer | AppendError
Job = Callable[[], CheckedBatches | Buffer]
"""Returns what is to be appended, which is the records themselves where there is nothing to check."""
WAITING_MAX = 10_000
"""Checks that may wait at once; more are refused."""
WAITING_MAX_BYTES = 256 * 1024 * 1024
"""Bytes of records that may wait at once: two requests of the size that socket.request.max.bytes allows by
default, which stay in memory until their records are checked. A batch that finds nothing waiting is always taken."""


class TooManyChecks(AppendError):
    """The executor does not keep up; a client tries again."""

    def __init__(self, count: int, size_bytes: int) -> None:
        super().__init__(
            "REQUEST_TIMED_OUT", f"{count} batches of {size_bytes} bytes wait for the check of their records"
        )


class CheckAgain(Exception):
    """Raised by what follows a check whose rules are no longer those that hold: `job` goes by these."""

    def __init__(self, job: Job) -> None:
        super().__init__("the rules changed while records were checked")
        self.job = job


class _Waiting(NamedTuple):
    job: Job
    then: Callable[[Checked], Any]
    done: asyncio.Future[Any]
    size_bytes: int


class RecordCheckLanes:
    """One lane for each partition that has something to check."""

    def __init__(self, executor: Executor, loop: asyncio.AbstractEventLoop, halt: Halt) -> None:
        self._executor = executor
        self._loop = loop
        self._halt = halt
        self._lanes: dict[TopicPartition, deque[_Waiting]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._one_open = asyncio.Semaphore(1)
        self.count = 0
        self.size_bytes = 0
        """Of the records that wait."""

    def is_busy(self, partition: TopicPartition) -> bool:
        """Whether something of this partition waits: what comes next has to wait behind it."""
        return partition in self._lanes

    def submit(
        self,
        partition: TopicPartition,
        job: Job,
        then: Callable[[Checked], T],
        size_bytes: int,
    ) -> asyncio.Future[T]:
        """Has `job` run by the executor, then `then` called on the loop with what it returned or raised.

        `then` may raise CheckAgain, which has another job run in the same place of the lane. `size_bytes` is
        that of the records, which stay in memory until then. The future holds what `then` returns. Raises
        TooManyChecks.
        """
        has_room = not self.count or self.size_bytes + size_bytes <= WAITING_MAX_BYTES
        if self.count >= WAITING_MAX or not has_room:
            raise TooManyChecks(self.count, self.size_bytes)
        self.count += 1
        self.size_bytes += size_bytes
        done: asyncio.Future[T] = self._loop.create_future()
        waiting = _Waiting(job, then, done, size_bytes)
        lane = self._lanes.get(partition)
        if lane is not None:
            lane.append(waiting)
            return done
        self._lanes[partition] = lane = deque((waiting,))
        task = start_vital_task(self._run(partition, lane), "record-checks", self._halt)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return done

    async def _run(self, partition: TopicPartition, lane: deque[_Waiting]) -> None:
        try:
            while lane:
                await self._check(lane[0])
                self._ended(lane.popleft())
        finally:
            del self._lanes[partition]
            for waiting in lane:
                self._ended(waiting)
                waiting.done.cancel()

    def _ended(self, waiting: _Waiting) -> None:
        self.count -= 1
        self.size_bytes -= waiting.size_bytes

    async def _check(self, waiting: _Waiting) -> None:
        job = waiting.job
        while True:
            checked: Checked
            try:
                async with self._one_open:
                    checked = await self._executor.run(job)
            except AppendError as error:
                checked = error
            try:
                # Also for a client that is gone: it may have sent more behind this, which was appended.
                answer = waiting.then(checked)
                break
            except CheckAgain as again:
                job = again.job
        if not waiting.done.done():
            waiting.done.set_result(answer)

    async def close(self) -> None:
        """Ends all lanes; what was not appended by now is not."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
