"""When to look at which partition for followers that fell behind.

Guarantees: a partition with a lagging follower is handed out once its deadline has passed; partitions
where nothing lags are not in here and cost nothing. All led partitions of a node share one schedule:
each arms itself when a follower starts to lag, and the node's ISR task takes what is due. A deadline
that moved on meanwhile is not corrected: the partition is looked at too early and arms itself again, so
that a busy partition costs one look per replica.lag.time.max.ms.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

_REBUILD_MINIMUM = 64


class LagSchedule(Generic[Key]):
    """Keys ordered by deadline (monotonic ms), each at most once."""

    __slots__ = ("_armed", "_heap", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Key]] = []
        self._armed: dict[Key, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._armed)

    def __contains__(self, key: Key) -> bool:
        return key in self._armed

    def __iter__(self) -> Iterator[Key]:
        """The armed keys; nothing may be armed or disarmed meanwhile."""
        return iter(self._armed)

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest time at which something may be due."""
        return self._heap[0][0] if self._heap else None

    def arm(self, key: Key, deadline_ms: int) -> None:
        """Has the key handed out at `deadline_ms`; an armed key keeps its deadline."""
        if key in self._armed:
            return
        self._serial += 1
        self._armed[key] = self._serial
        heappush(self._heap, (deadline_ms, self._serial, key))

    def disarm(self, key: Key) -> None:
        """Forgets the key, if it is there."""
        if self._armed.pop(key, None) is None:
            return
        if len(self._heap) > _REBUILD_MINIMUM and len(self._heap) > 2 * len(self._armed):
            self._heap = [entry for entry in self._heap if self._armed.get(entry[2]) == entry[1]]
            heapify(self._heap)

    def pop_due(self, now_ms: int) -> list[Key]:
        """The keys whose deadline has passed, earliest first; they are no longer armed."""
        due: list[Key] = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, serial, key = heappop(self._heap)
            if self._armed.get(key) == serial:
                del self._armed[key]
                due.append(key)
        return due
