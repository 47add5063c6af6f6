"""Where produce requests wait for the high watermark and fetch requests for data.

A waiting operation costs a timer and an entry at each partition it waits for; nothing is polled, so
thousands of them cost nothing while nothing happens. A high watermark that moves touches only the
operations it completes; an append touches only the fetches that wait for that partition. Owned by
the replica manager, on the event loop. (Kafka's DelayedProduce and DelayedFetch.)

`wait` of both registers at once and returns a future. Between a handler's look at the partition and
the first step of a task of its own, other requests run; whoever registered only then would miss what
they bring.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from partitions.topic_partition import TopicPartition

WAITING_MAX = 100_000
"""Operations that may wait at once, of each kind; beyond it new ones are answered at once."""

Outcome = str | None
"""None when the records are committed, else Kafka's error name."""


class ProduceWait:
    """One produce request with acks=-1: what each of its partitions came to."""

    __slots__ = ("done", "outcomes", "pending", "timer")

    def __init__(
        self, done: asyncio.Future[dict[TopicPartition, Outcome]], pending: Iterable[TopicPartition]
    ) -> None:
        self.done = done
        self.outcomes: dict[TopicPartition, Outcome] = {}
        self.pending = dict.fromkeys(pending)
        self.timer: asyncio.TimerHandle | None = None

    def settle(self, partition: TopicPartition, outcome: Outcome) -> None:
        """One partition is decided; the request is answered with the last of them."""
        if partition in self.pending:
            del self.pending[partition]
            self.outcomes[partition] = outcome
            if not self.pending:
                self.finish()

    def finish(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.done.done():
            self.done.set_result(self.outcomes)

    def expire(self) -> None:
        """The request's timeout: what is still undecided may commit later, the client cannot know."""
        for partition in list(self.pending):
            self.settle(partition, "REQUEST_TIMED_OUT")


class ProducePurgatory:
    """Produce requests that wait until their records are below the high watermark."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[TopicPartition, deque[tuple[int, ProduceWait]]] = {}
        self.count = 0

    def wait(
        self, required: Mapping[TopicPartition, int], timeout_s: float
    ) -> asyncio.Future[dict[TopicPartition, Outcome]]:
        """Waits until each partition's high watermark reaches the given offset (last offset + 1)."""
        operation = ProduceWait(self._loop.create_future(), required)
        if self.count >= WAITING_MAX:
            operation.expire()
            return operation.done
        self.count += 1
        operation.done.add_done_callback(self._on_done)
        operation.timer = self._loop.call_later(timeout_s, self._expire, operation)
        for partition, offset in required.items():
            self._waiting.setdefault(partition, deque()).append((offset, operation))
        return operation.done

    def on_high_watermark(
        self, partition: TopicPartition, high_watermark: int, outcome: Outcome = None
    ) -> None:
        """Settles what waited for an offset up to the new high watermark.

        Appends of one partition come in offset order, so the queue is sorted: only its head is looked at.
        """
        queue = self._waiting.get(partition)
        if queue is None:
            return
        while queue and (queue[0][0] <= high_watermark or queue[0][1].done.done()):
            queue.popleft()[1].settle(partition, outcome)
        if not queue:
            del self._waiting[partition]

    def fail(self, partition: TopicPartition, code: str) -> None:
        """Leadership is gone, or the partition: everything that waits for it fails with `code`."""
        for _, operation in self._waiting.pop(partition, ()):
            operation.settle(partition, code)

    def _expire(self, operation: ProduceWait) -> None:
        """Answers an operation whose time is over, and lets go of what is decided at the queues' heads."""
        undecided = list(operation.pending)
        operation.expire()
        for partition in undecided:
            queue = self._waiting.get(partition)
            while queue and queue[0][1].done.done():
                queue.popleft()
            if queue is not None and not queue:
                del self._waiting[partition]

    def _on_done(self, future: asyncio.Future[dict[TopicPartition, Outcome]]) -> None:
        self.count -= 1


class FetchWait:
    """One fetch request that has not found its minimum of bytes yet."""

    __slots__ = ("available", "done", "keys", "measure", "min_bytes", "timer", "total")

    def __init__(
        self,
        done: asyncio.Future[None],
        available: dict[TopicPartition, int],
        min_bytes: int,
        measure: Callable[[TopicPartition], int | None],
    ) -> None:
        self.done = done
        self.available = available
        self.total = sum(available.values())
        self.min_bytes = min_bytes
        self.measure = measure
        self.timer: asyncio.TimerHandle | None = None

    def on_progress(self, partition: TopicPartition) -> None:
        """Looks again at the one partition that moved; an error there ends the wait."""
        if self.done.done():
            return
        now = self.measure(partition)
        if now is None:
            self.finish()
            return
        self.total += now - self.available[partition]
        self.available[partition] = now
        if self.total >= self.min_bytes:
            self.finish()

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class FetchPurgatory:
    """Fetch requests that wait for data, a change of leadership, or their time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[TopicPartition, dict[FetchWait, None]] = {}
        self.count = 0

    def wait(
        self,
        available: dict[TopicPartition, int],
        min_bytes: int,
        timeout_s: float,
        measure: Callable[[TopicPartition], int | None],
    ) -> asyncio.Future[None]:
        """Done when the bytes available reach `min_bytes`, when `measure` finds an error, or after
        `timeout_s` seconds; cancelling it ends the wait too. `available` holds the bytes that each
        partition has now, `measure` gives those of one partition later, None on error.
        """
        operation = FetchWait(self._loop.create_future(), available, min_bytes, measure)
        if self.count >= WAITING_MAX:
            operation.finish()
            return operation.done
        operation.timer = self._loop.call_later(timeout_s, operation.finish)
        self.count += 1
        for partition in available:
            self._waiting.setdefault(partition, {})[operation] = None
        operation.done.add_done_callback(lambda _: self._forget(operation))
        return operation.done

    def _forget(self, operation: FetchWait) -> None:
        assert operation.timer is not None
        operation.timer.cancel()
        self.count -= 1
        for partition in operation.available:
            waiting = self._waiting.get(partition)
            if waiting is not None:
                waiting.pop(operation, None)
                if not waiting:
                    del self._waiting[partition]

    def on_progress(self, partition: TopicPartition) -> None:
        """The partition has more to give, or its leadership changed."""
        waiting = self._waiting.get(partition)
        if waiting:
            for operation in list(waiting):
                operation.on_progress(partition)
