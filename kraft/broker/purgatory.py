"""Where produce requests wait for the high watermark and fetch requests for data.

A waiting operation costs a timer and an entry at each partition it waits for; nothing is polled, so
thousands of them cost nothing while nothing happens. A high watermark that moves touches only the
operations it completes; an append touches only the fetches that wait for that partition. Owned by
the replica manager, on the event loop. (Kafka's DelayedProduce, DelayedDeleteRecords and
DelayedFetch.)

`wait` of both registers at once and returns a future. Between a handler's look at the partition and
the first step of a task of its own, other requests run; whoever registered only then would miss what
they bring.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias, TypeVar

from kraft.broker.fetch_sessions import FetchSessions
from partitions.fetch_session import FetchSession, SessionPartition
from partitions.topic_partition import TopicPartition

WAITING_MAX = 100_000
"""Operations that may wait at once, of each kind; beyond it new ones are answered at once."""

T = TypeVar("T")
OnDone = Callable[[asyncio.Future[Any]], object]

Outcome = str | None
"""None when the records are committed, else Kafka's error name."""


def _settle(future: asyncio.Future[T], value: T, on_done: OnDone | None) -> None:
    """Gives a future its value, and runs its clean-up now: as a callback it would cost a turn of the loop."""
    if on_done is not None:
        future.remove_done_callback(on_done)
    future.set_result(value)
    if on_done is not None:
        on_done(future)


class ProduceWait:
    """One produce request with acks=-1: what each of its partitions came to."""

    __slots__ = ("done", "on_done", "outcomes", "pending", "timer")

    def __init__(
        self, done: asyncio.Future[dict[TopicPartition, Outcome]], pending: Iterable[TopicPartition]
    ) -> None:
        self.done = done
        self.outcomes: dict[TopicPartition, Outcome] = {}
        self.pending = dict.fromkeys(pending)
        self.timer: asyncio.TimerHandle | None = None
        self.on_done: OnDone | None = None

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
            _settle(self.done, self.outcomes, self.on_done)

    def expire(self) -> None:
        """The request's timeout: what is still undecided may commit later, the client cannot know."""
        for partition in list(self.pending):
            self.settle(partition, "REQUEST_TIMED_OUT")


class _ProduceQueue:
    """What waits for one partition, the lowest offset first; ended elsewhere, it is let go of in time."""

    __slots__ = ("_ended", "_heap", "_partition", "_serial")

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._heap: list[tuple[int, int, ProduceWait]] = []
        self._serial = 0
        self._ended = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offset: int, operation: ProduceWait) -> None:
        """A retried batch waits for an offset below that of younger ones, so order is not arrival."""
        self._serial += 1
        heappush(self._heap, (offset, self._serial, operation))

    def settle_up_to(self, high_watermark: int, outcome: Outcome) -> None:
        while self._heap and self._heap[0][0] <= high_watermark:
            operation = heappop(self._heap)[2]
            if self._partition not in operation.pending:
                self._ended -= 1
            operation.settle(self._partition, outcome)

    def settle_all(self, outcome: Outcome) -> None:
        for _, _, operation in sorted(self._heap):
            operation.settle(self._partition, outcome)

    def forget_ended(self) -> None:
        """One more has ended by time or with its client; half of them gone, the rest moves together."""
        self._ended += 1
        if 2 * self._ended >= len(self._heap):
            self._heap = [entry for entry in self._heap if self._partition in entry[2].pending]
            heapify(self._heap)
            self._ended = 0


class ProducePurgatory:
    """Produce requests that wait until their records are below the high watermark."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[TopicPartition, _ProduceQueue] = {}
        self.count = 0

    def wait(
        self, required: Mapping[TopicPartition, int], timeout_s: float
    ) -> asyncio.Future[dict[TopicPartition, Outcome]]:
        """Waits until each partition's high watermark reaches the given offset (last offset + 1).

        Cancelling the future, as when the client is gone, ends the wait.
        """
        assert required, "there is something to wait for"
        operation = ProduceWait(self._loop.create_future(), required)
        if self.count >= WAITING_MAX:
            operation.expire()
            return operation.done
        self.count += 1
        operation.on_done = lambda _: self._on_done(operation)
        operation.done.add_done_callback(operation.on_done)
        operation.timer = self._loop.call_later(timeout_s, self._expire, operation)
        for partition, offset in required.items():
            queue = self._waiting.get(partition)
            if queue is None:
                queue = self._waiting[partition] = _ProduceQueue(partition)
            queue.add(offset, operation)
        return operation.done

    def on_high_watermark(
        self, partition: TopicPartition, high_watermark: int, outcome: Outcome = None
    ) -> None:
        """Settles what waited for an offset up to the new high watermark, and looks at nothing else."""
        queue = self._waiting.get(partition)
        if queue is not None:
            queue.settle_up_to(high_watermark, outcome)
            if not queue:
                del self._waiting[partition]

    def fail(self, partition: TopicPartition, code: str) -> None:
        """Leadership is gone, or the partition: everything that waits for it fails with `code`."""
        queue = self._waiting.pop(partition, None)
        if queue is not None:
            queue.settle_all(code)

    def entries_of(self, partition: TopicPartition) -> int:
        """How much is held for one partition."""
        return len(self._waiting.get(partition, ()))

    def _expire(self, operation: ProduceWait) -> None:
        undecided = list(operation.pending)
        operation.expire()
        self._forget(undecided)

    def _on_done(self, operation: ProduceWait) -> None:
        self.count -= 1
        operation.finish()
        # Both lead back to the operation: without them it goes at once, and not with the garbage collector.
        operation.timer = operation.on_done = None
        undecided = list(operation.pending)
        operation.pending.clear()
        self._forget(undecided)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            queue = self._waiting.get(partition)
            if queue is not None:
                queue.forget_ended()
                if not queue:
                    del self._waiting[partition]


class DeleteRecordsPurgatory(ProducePurgatory):
    """DeleteRecords requests that wait until every live replica's log starts at the offset asked for."""

    def on_low_watermark(self, partition: TopicPartition, low_watermark: int) -> None:
        """Settles what waited for an offset up to the new low watermark."""
        self.on_high_watermark(partition, low_watermark)


Measure: TypeAlias = Callable[[TopicPartition, SessionPartition | None], int | None]
"""How many bytes a partition has for a request, None to end its wait; with the session's, if it has one."""


class FetchWait:
    """One fetch request that has not found its minimum of bytes yet."""

    __slots__ = (
        "available",
        "done",
        "held_back",
        "is_follower",
        "measure",
        "min_bytes",
        "on_done",
        "timer",
        "total",
    )

    def __init__(
        self,
        done: asyncio.Future[None],
        available: dict[TopicPartition, int],
        min_bytes: int,
        measure: Measure,
        is_follower: bool,
        held_back: Container[TopicPartition],
    ) -> None:
        self.is_follower = is_follower
        self.held_back = held_back
        self.done = done
        self.available = available
        self.total = sum(available.values())
        self.min_bytes = min_bytes
        self.measure = measure
        self.timer: asyncio.TimerHandle | None = None
        self.on_done: OnDone | None = None

    def on_append(self, key: TopicPartition, partition: SessionPartition | None = None) -> None:
        """Records were appended: that is a byte at least for a follower, unless it is throttled."""
        if self.min_bytes <= 1 and key not in self.held_back:
            self.finish()
        else:
            self.on_progress(key, partition)

    def on_progress(self, key: TopicPartition, partition: SessionPartition | None = None) -> None:
        """Looks again at the one partition that moved; an error there ends the wait."""
        if self.done.done():
            return
        now = self.measure(key, partition)
        if now is None:
            self.finish()
            return
        self.total += now - self.available.get(key, 0)
        self.available[key] = now
        if self.total >= self.min_bytes:
            self.finish()

    def finish(self) -> None:
        if not self.done.done():
            _settle(self.done, None, self.on_done)


class FetchPurgatory:
    """Fetch requests that wait for data, a change of leadership, or their time.

    A request with a session waits for all partitions of the session, at the price of one entry: the
    session is told of changes anyhow.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.sessions = FetchSessions()
        self._waiting: dict[TopicPartition, dict[FetchWait, None]] = {}
        self.count = 0

    def wait(
        self,
        available: dict[TopicPartition, int],
        min_bytes: int,
        timeout_s: float,
        measure: Measure,
        *,
        is_follower: bool = False,
        held_back: Container[TopicPartition] = (),
        session: FetchSession | None = None,
    ) -> asyncio.Future[None]:
        """Done when the bytes available reach `min_bytes`, when `measure` finds an error, or after
        `timeout_s` seconds; cancelling it ends the wait too. `available` holds the bytes that each
        partition has now, `measure` gives those of one partition later, None on error. A follower reads
        to the log's end and a consumer to the high watermark: what moves only one of them concerns only
        those. Of what is `held_back` an append alone ends no wait.
        """
        operation = FetchWait(
            self._loop.create_future(), available, min_bytes, measure, is_follower, held_back
        )
        if self.count >= WAITING_MAX:
            operation.finish()
            return operation.done
        operation.timer = self._loop.call_later(timeout_s, operation.finish)
        self.count += 1
        if session is not None:
            self.sessions.begin_wait(session, operation)
        else:
            for partition in available:
                self._waiting.setdefault(partition, {})[operation] = None
        operation.on_done = lambda _: self._forget(operation, session)
        operation.done.add_done_callback(operation.on_done)
        return operation.done

    def _forget(self, operation: FetchWait, session: FetchSession | None) -> None:
        assert operation.timer is not None
        operation.timer.cancel()
        # Both lead back to the operation: without them it goes at once, and not with the garbage collector.
        operation.timer = operation.on_done = None
        self.count -= 1
        if session is not None:
            self.sessions.end_wait(session, operation)
            return
        for partition in operation.available:
            waiting = self._waiting.get(partition)
            if waiting is not None:
                waiting.pop(operation, None)
                if not waiting:
                    del self._waiting[partition]

    def on_progress(self, partition: TopicPartition) -> None:
        """The partition has more to give, or its leadership changed."""
        self.sessions.on_progress(partition)
        waiting = self._waiting.get(partition)
        if waiting:
            for operation in list(waiting):
                operation.on_progress(partition)

    def on_append(self, partition: TopicPartition) -> None:
        """Records were appended: that is a byte at least for every follower that waits for one."""
        self.sessions.on_append(partition)
        waiting = self._waiting.get(partition)
        if waiting:
            for operation in [waits for waits in waiting if waits.is_follower]:
                operation.on_append(partition)

    def on_high_watermark(self, partition: TopicPartition) -> None:
        """The high watermark rose: consumers may read on."""
        self.sessions.on_high_watermark(partition)
        waiting = self._waiting.get(partition)
        if waiting:
            for operation in [waits for waits in waiting if not waits.is_follower]:
                operation.on_progress(partition)

    def on_log_start(self, partition: TopicPartition) -> None:
        """The log starts later; nobody waits for that, but sessions have to tell."""
        self.sessions.on_log_start(partition)
