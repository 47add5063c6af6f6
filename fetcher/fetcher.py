"""Copies partitions from one leader broker: one task, one long poll when nothing happens.

The catch-up lane (`fetch_states.py` says who goes by which) asks at once for a partition that is added while the long
poll is pending, for one whose back-off ends, and for one that is behind; none of them holds up a partition in sync.
A log that awaits a flush is not asked for; a lane waits a while for the flushes of what it appended, so that its next
request asks for those, too. Each lane has a connection of its own, since a connection answers in order. A leader that
cannot be reached is tried with growing back-off. All that is under way ends with `run`. `FetcherManager` owns one per
leader, or `num.replica.fetchers` of them, and their tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fetcher.fetch_session import SESSION_ERRORS
from fetcher.fetch_state import FetchPhase, FetchState, FollowedPartition
from fetcher.fetch_states import CATCH_UP_LANE, SESSION_LANE, FetchStates
from fetcher.leader_endpoint import (
    FetchRequest,
    FetchResponse,
    LeaderEndpoint,
    LeaderUnavailable,
    OffsetsQuery,
    PartitionKey,
)
from fetcher.replication import Replication, ReplicationListener
from fetcher.settings import FetcherSettings, backoff_ms
from fetcher.throttle import UNTHROTTLED, ReplicationThrottle

LANES = (SESSION_LANE, CATCH_UP_LANE)
FLUSH_WAIT_S = 0.05
"""How long a lane waits for the flushes of what it appended, before it asks for the others alone."""
APPLY_BYTES = 256 * 1024
"""Records that are appended before other events have their turn; one partition's are appended at once."""


class Fetcher:
    """The follower's side towards one leader broker."""

    def __init__(
        self,
        leader_id: int,
        endpoint: LeaderEndpoint,
        settings: FetcherSettings,
        jitter: Callable[[], float],
        listener: ReplicationListener,
        throttle: ReplicationThrottle = UNTHROTTLED,
    ) -> None:
        """`jitter` gives numbers in [0, 1), for back-offs."""
        self.leader_id = leader_id
        self.leader_failures = 0
        """How often in a row the leader could not be reached."""
        self._endpoint = endpoint
        self._settings = settings
        self._jitter = jitter
        self._states = FetchStates(settings, jitter, throttle)
        self._replication = Replication(self._states, listener)
        self._wake = asyncio.Event()
        self._resumed = asyncio.Event()
        self._lanes: list[asyncio.Task[None] | None] = [None] * len(LANES)
        self._asking: asyncio.Task[None] | None = None
        self._unreachable_until_ms = 0

    # Subscriptions; synchronous, effective at once

    def add(self, followed: FollowedPartition) -> bool:
        """Starts to copy a partition; False if that epoch or a newer one is being copied."""
        assert followed.leader_id == self.leader_id, "the partition has another leader"
        is_new = self._states.add(followed)
        if is_new:
            self._wake.set()
        return is_new

    def remove(self, key: PartitionKey) -> bool:
        """Stops to copy a partition; what is under way for it will be ignored."""
        return self._states.remove(key)

    def touch(self, key: PartitionKey) -> None:
        """The partition's log changed by itself; the leader hears of it with the next request."""
        self._states.touch(key)

    def resume(self, key: PartitionKey) -> None:
        """The partition's log was flushed: it is asked for again, unless it awaits another flush."""
        self._states.touch(key)
        self._resumed.set()
        self._wake.set()

    def state(self, key: PartitionKey) -> FetchState | None:
        """Where the partition stands."""
        return self._states.get(key)

    @property
    def keys(self) -> tuple[PartitionKey, ...]:
        return self._states.keys

    def __len__(self) -> int:
        return len(self._states)

    # The task

    async def run(self) -> None:
        """Fetches until cancelled. Raises only what is a defect."""
        try:
            while True:
                self._wake.clear()
                self._reap()
                now_ms = self._now_ms()
                self._start_requests(now_ms)
                await self._sleep_until(self._next_event_ms(now_ms), now_ms)
        finally:
            await self._stop_requests()
            await self._endpoint.close()

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _reap(self) -> None:
        """Frees lanes whose request is over, and passes on a defect in one."""
        for lane, task in enumerate(self._lanes):
            if task is not None and task.done():
                self._lanes[lane] = None
                task.result()
        if self._asking is not None and self._asking.done():
            task, self._asking = self._asking, None
            task.result()

    def _start_requests(self, now_ms: int) -> None:
        if now_ms < self._unreachable_until_ms:
            return
        if self._asking is None:
            queries = self._states.offsets_queries(now_ms)
            if queries:
                self._asking = asyncio.create_task(self._ask_offsets(queries))
        for lane, task in enumerate(self._lanes):
            if task is None:
                request = self._next_request(lane, now_ms)
                if request is not None:
                    self._lanes[lane] = asyncio.create_task(self._fetch(lane, request))

    def _next_request(self, lane: int, now_ms: int) -> FetchRequest | None:
        """What a lane without a request asks for now, if anything."""
        if now_ms < self._unreachable_until_ms:
            return None
        if lane == CATCH_UP_LANE:
            states = self._states
            states.end_delays(now_ms)
            if not states.wants_catch_up or (states.has_hungry and not states.is_polling):
                return None  # what is hungry is for the session's next request
        return self._states.build_request(now_ms, lane)

    def _next_event_ms(self, now_ms: int) -> int | None:
        """When there is something to do that no request under way will wake us for."""
        if len(self._states) == 0:
            return None
        if now_ms < self._unreachable_until_ms:
            return self._unreachable_until_ms
        phases: list[FetchPhase] = []
        # Who waits for the end of a back-off does not wait for the long poll, if the other lane is free.
        if None in self._lanes:
            phases.append(FetchPhase.FETCHING)
        if self._asking is None:
            phases.append(FetchPhase.TRUNCATING)
        return self._states.next_due_ms(*phases)

    async def _sleep_until(self, deadline_ms: int | None, now_ms: int) -> None:
        if deadline_ms is None:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout(max(1, deadline_ms - now_ms) / 1000):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _fetch(self, lane: int, first: FetchRequest) -> None:
        """One request after the other, as long as the lane has something to ask for."""
        request: FetchRequest | None = first
        try:
            while request is not None:
                await self._fetch_once(request)
                if self._states.has_truncating:
                    return  # the leader's offsets are asked for first
                request = self._next_request(lane, self._now_ms())
                if None in self._lanes and (self._states.wants_catch_up or self._states.has_delayed):
                    self._wake.set()  # the free lane is for them, now or when their time comes
        finally:
            self._wake.set()

    async def _fetch_once(self, request: FetchRequest) -> None:
        try:
            response = await self._endpoint.fetch(request)
        except LeaderUnavailable:
            self._leader_failed()
            self._states.release(request)
        else:
            if response.error in SESSION_ERRORS and not request.is_full:
                self._states.release(request, response.error)
            elif response.error is not None:
                self._leader_failed()
                self._states.release(request)
            else:
                self.leader_failures = 0
                await self._apply(request, response)

    async def _apply(self, request: FetchRequest, response: FetchResponse) -> None:
        """Appends what came, with other events between: the writes of a large answer take long together."""
        held_bytes = 0
        for size_bytes in self._replication.steps(request, response, self._now_ms()):
            held_bytes += size_bytes
            if held_bytes >= APPLY_BYTES:
                held_bytes = 0
                await asyncio.sleep(0)
        if self._states.holds_any(response):
            await self._await_flushes(response)

    async def _await_flushes(self, response: FetchResponse) -> None:
        try:
            async with asyncio.timeout(FLUSH_WAIT_S):
                while self._states.holds_any(response):
                    self._resumed.clear()
                    await self._resumed.wait()
        except TimeoutError:
            return

    async def _ask_offsets(self, queries: tuple[OffsetsQuery, ...]) -> None:
        try:
            offsets = await self._endpoint.log_offsets(queries)
        except LeaderUnavailable:
            self._leader_failed()
        else:
            self._replication.apply_offsets(queries, offsets, self._now_ms())
        finally:
            self._wake.set()

    def _leader_failed(self) -> None:
        now_ms = self._now_ms()
        if now_ms < self._unreachable_until_ms:
            return  # the other lane met the same failure
        self.leader_failures += 1
        self._unreachable_until_ms = now_ms + backoff_ms(self._settings, self.leader_failures, self._jitter())

    async def _stop_requests(self) -> None:
        tasks = [task for task in (*self._lanes, self._asking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
