"""The one timer for followers that lag: drops them from ISRs when their time has come (KIP-16's rule).

Guarantees: a leader is looked at when the first of its followers may have lagged for
`replica.lag.time.max.ms`, at most half of that too late, and nothing is done for partitions where nobody
lags. `ReplicaManager` runs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from partitions.lag_schedule import LagSchedule
from partitions.partition import Partition


class LagWatch:
    """Waits for the deadlines of a `LagSchedule`."""

    def __init__(
        self, schedule: LagSchedule[Partition], replica_lag_time_max_ms: int, monotonic_ms: Callable[[], int]
    ) -> None:
        self._schedule = schedule
        self._check_s = replica_lag_time_max_ms / 2000
        self._monotonic_ms = monotonic_ms

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            deadline_ms = self._schedule.next_deadline_ms
            wait_s = self._check_s
            if deadline_ms is not None:
                wait_s = min(wait_s, max(0.0, (deadline_ms - self._monotonic_ms()) / 1000))
            await asyncio.sleep(wait_s + 0.001)
            now_ms = self._monotonic_ms()
            for partition in self._schedule.pop_due(now_ms):
                partition.maybe_shrink(now_ms)
