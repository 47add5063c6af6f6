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


class TooManyChecks(AppendError):
    """The executor does not keep up; a client tries again."""

    def __init__(self) -> None:
        super().__init__("REQUEST_TIMED_OUT", f"{WAITING_MAX} batches wait for the check of their records")


class _Waiting(NamedTuple):
    job: Job
    then: Callable[[Checked], Any]
    done: asyncio.Future[Any]


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

    def is_busy(self, partition: TopicPartition) -> bool:
        """Whether something of this partition waits: what comes next has to wait behind it."""
        return partition in self._lanes

    def submit(
        self,
        partition: TopicPartition,
        job: Job,
        then: Callable[[Checked], T],
    ) -> asyncio.Future[T]:
        """Has `job` run by the executor, then `then` called on the loop with what it returned or raised.

        The future holds what `then` returns. Raises TooManyChecks.
        """
        if self.count >= WAITING_MAX:
            raise TooManyChecks
        self.count += 1
        done: asyncio.Future[T] = self._loop.create_future()
        waiting = _Waiting(job, then, done)
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
                lane.popleft()
                self.count -= 1
        finally:
            del self._lanes[partition]
            self.count -= len(lane)
            for waiting in lane:
                waiting.done.cancel()

    async def _check(self, waiting: _Waiting) -> None:
        checked: Checked
        try:
            async with self._one_open:
                checked = await self._executor.run(waiting.job)
        except AppendError as error:
            checked = error
        # Also for a client that is gone: it may have sent more behind this, which was appended.
        answer = waiting.then(checked)
        if not waiting.done.done():
            waiting.done.set_result(answer)

    async def close(self) -> None:
        """Ends all lanes; what was not appended by now is not."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
