"""Requests that wait until partitions have passed offsets: the heap by offset under Produce and DeleteRecords.

A watermark that moves touches the requests that it decides, and no others. A request that waits for several
partitions is one wait, and is answered with the last of them. A broker has one purgatory for high watermarks
(acks=all; see `Appends.when_committed`) and one for low watermarks; `PartitionEvents` owns both, and tells them what
moved. (Kafka's DelayedProduce and DelayedDeleteRecords.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from kraft.broker.purgatory.wait import Purgatory, Wait
from partitions.topic_partition import TopicPartition

WAITING_MAX = 100_000

Outcome: TypeAlias = str | None
"""None when the partition has passed the offset, else Kafka's error name."""
Outcomes: TypeAlias = dict[TopicPartition, Outcome]


class OffsetWait(Wait[Outcomes]):
    """One request: what its partitions came to, and those that are undecided."""

    __slots__ = ("outcomes", "pending")
    _purgatory: OffsetPurgatory

    def __init__(
        self, purgatory: OffsetPurgatory, required: Mapping[TopicPartition, int], outcomes: Outcomes
    ) -> None:
        super().__init__(purgatory)
        self.outcomes = outcomes
        self.pending = dict.fromkeys(required)

    def decide(self, partition: TopicPartition, outcome: Outcome) -> None:
        """One partition is decided; the request is answered with the last of them."""
        if partition in self.pending:
            del self.pending[partition]
            self.outcomes[partition] = outcome
            if not self.pending:
                self.settle(self.outcomes)

    def expire(self) -> None:
        """What is still undecided may yet come about: the client cannot know."""
        self.outcomes.update(dict.fromkeys(self.pending, "REQUEST_TIMED_OUT"))
        self.settle(self.outcomes)

    def leave(self) -> None:
        undecided, self.pending = self.pending, {}
        for partition in undecided:
            self._purgatory.forget_ended(partition)


class _Queue:
    """What waits for one partition, the lowest offset first; what has ended elsewhere is let go of in time."""

    __slots__ = ("_ended", "_heap", "_partition", "_serial")

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._heap: list[tuple[int, int, OffsetWait]] = []
        self._serial = 0
        self._ended = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offset: int, wait: OffsetWait) -> None:
        """A retried batch waits for an offset below that of younger ones, so order is not arrival."""
        self._serial += 1
        heappush(self._heap, (offset, self._serial, wait))

    def decide_up_to(self, watermark: int, outcome: Outcome) -> None:
        while self._heap and self._heap[0][0] <= watermark:
            wait = heappop(self._heap)[2]
            if self._partition not in wait.pending:
                self._ended -= 1
            wait.decide(self._partition, outcome)

    def decide_all(self, outcome: Outcome) -> None:
        for _, _, wait in sorted(self._heap):
            wait.decide(self._partition, outcome)

    def forget_ended(self) -> None:
        """One more has ended by time or with its client; half of them gone, the rest moves together."""
        self._ended += 1
        if 2 * self._ended >= len(self._heap):
            self._heap = [entry for entry in self._heap if self._partition in entry[2].pending]
            heapify(self._heap)
            self._ended = 0


class OffsetPurgatory(Purgatory):
    """Requests that wait for a watermark, of whichever kind it is told."""

    def __init__(self, loop: asyncio.AbstractEventLoop, waiting_max: int = WAITING_MAX) -> None:
        super().__init__(loop, waiting_max)
        self._queues: dict[TopicPartition, _Queue] = {}

    def wait(
        self,
        required: Mapping[TopicPartition, int],
        timeout_s: float,
        decided: Outcomes | None = None,
    ) -> asyncio.Future[Outcomes]:
        """Waits until each partition's watermark has reached its offset; `decided` goes into the answer too."""
        assert required, "there is something to wait for"
        wait = OffsetWait(self, required, decided or {})
        if self.is_full:
            wait.expire()
            return wait.done
        wait.begin(timeout_s)
        for partition, offset in required.items():
            queue = self._queues.get(partition)
            if queue is None:
                queue = self._queues[partition] = _Queue(partition)
            queue.add(offset, wait)
        return wait.done

    def on_watermark(self, partition: TopicPartition, watermark: int, outcome: Outcome = None) -> None:
        """Decides what waited for an offset up to the new watermark, and looks at nothing else."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.decide_up_to(watermark, outcome)
            if not queue:
                del self._queues[partition]

    def fail(self, partition: TopicPartition, code: str) -> None:
        """Leadership is gone, or the partition: everything that waits for it fails with `code`."""
        queue = self._queues.pop(partition, None)
        if queue is not None:
            queue.decide_all(code)

    def entries_of(self, partition: TopicPartition) -> int:
        """How much is held for one partition."""
        return len(self._queues.get(partition, ()))

    def forget_ended(self, partition: TopicPartition) -> None:
        """A wait for this partition has ended by time or with its client."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.forget_ended()
            if not queue:
                del self._queues[partition]
