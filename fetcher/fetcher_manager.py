"""Which partitions this broker copies, and from whom: one fetcher per leader broker, or a few.

At most one fetcher copies a partition, in the newest leader epoch that was asked for. The partition's name alone
decides which of a leader's fetchers that is (`num.replica.fetchers`). Fetchers without partitions end; `close` awaits
every task. The replica manager calls `add_partitions` and `remove_partitions` when metadata makes a replica a follower,
or no longer one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol
from zlib import crc32

from fetcher.fetch_state import FetchPhase, FetchState, FollowedPartition
from fetcher.fetcher import Fetcher
from fetcher.leader_endpoint import LeaderEndpoint, PartitionKey
from fetcher.replication import ReplicationListener
from fetcher.settings import FetcherSettings
from fetcher.throttle import UNTHROTTLED, ReplicationThrottle

EndpointFactory = Callable[[int], LeaderEndpoint]
"""Makes the endpoint for a leader broker id; it opens no connection before the first request."""


class FetcherListener(ReplicationListener, Protocol):
    """Told what people and the node have to know."""

    def on_fetcher_crashed(self, leader_id: int, error: BaseException) -> None:
        """A fetcher ended by a defect; its partitions are not copied any more."""


class FetcherId(NamedTuple):
    """One of the fetchers from a leader broker."""

    leader_id: int
    number: int


class _Running(NamedTuple):
    fetcher: Fetcher
    task: asyncio.Task[None]


def fetcher_number(key: PartitionKey, fetchers: int) -> int:
    """Which of a leader's fetchers copies the partition: one topic's partitions are dealt out in turn."""
    topic, partition = key
    return (crc32(topic.encode()) + partition) % fetchers


class FetcherManager:
    """All fetchers of a broker. Methods run on the event loop."""

    def __init__(
        self,
        endpoint_factory: EndpointFactory,
        settings: FetcherSettings,
        *,
        jitter: Callable[[], float],
        listener: FetcherListener,
        throttle: ReplicationThrottle = UNTHROTTLED,
    ) -> None:
        """`jitter` gives numbers in [0, 1): the `random` method of the node's `random.Random`."""
        self._endpoint_factory = endpoint_factory
        self._settings = settings
        self._jitter = jitter
        self._listener = listener
        self._throttle = throttle
        self._running: dict[FetcherId, _Running] = {}
        self._fetcher_of: dict[PartitionKey, FetcherId] = {}
        self._ending: dict[asyncio.Task[None], FetcherId] = {}
        self._sweep: asyncio.Handle | None = None
        self._closed = False

    def add_partitions(self, partitions: Iterable[FollowedPartition]) -> None:
        """Starts to copy partitions, or goes on from another leader or in a newer leader epoch.

        What is copied in the same or a newer leader epoch already stays as it is; a failed partition
        is tried again.
        """
        assert not self._closed, "the fetcher manager is closed"
        for followed in partitions:
            current = self.state(followed.key)
            if current is not None:
                have = current.followed
                if have.topic_id == followed.topic_id and have.leader_epoch > followed.leader_epoch:
                    continue
                if have.leader_id != followed.leader_id:
                    self._remove(followed.key)
            number = fetcher_number(followed.key, self._settings.fetchers_per_leader)
            fetcher_id = self._fetcher_of[followed.key] = FetcherId(followed.leader_id, number)
            self._fetcher_for(fetcher_id).add(followed)
        self._sweep_soon()

    def remove_partitions(self, keys: Iterable[PartitionKey]) -> None:
        """Stops to copy partitions; nothing is appended to their logs after this returns."""
        for key in keys:
            self._remove(key)
        self._sweep_soon()

    def touch(self, key: PartitionKey) -> None:
        """A partition's log changed by itself: where it starts, say. Its leader hears of it."""
        fetcher_id = self._fetcher_of.get(key)
        if fetcher_id is not None:
            self._running[fetcher_id].fetcher.touch(key)

    def resume(self, key: PartitionKey) -> None:
        """A partition's log was flushed (`FollowerLog.awaits_flush`): it is asked for again."""
        fetcher_id = self._fetcher_of.get(key)
        if fetcher_id is not None:
            self._running[fetcher_id].fetcher.resume(key)

    def state(self, key: PartitionKey) -> FetchState | None:
        """Where a partition stands; None if it is not copied."""
        fetcher_id = self._fetcher_of.get(key)
        return None if fetcher_id is None else self._running[fetcher_id].fetcher.state(key)

    @property
    def leaders(self) -> tuple[int, ...]:
        """The brokers that are fetched from, in the order in which they came."""
        return tuple(dict.fromkeys(fetcher_id.leader_id for fetcher_id in self._running))

    def failed_partitions(self) -> list[FetchState]:
        """The partitions that are not copied until a newer leader epoch, with the reason."""
        states = (self.state(key) for key in self._fetcher_of)
        return [state for state in states if state is not None and state.phase is FetchPhase.FAILED]

    async def close(self) -> None:
        """Ends all fetchers and waits for them."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for fetcher_id in tuple(self._running):
            self._end(fetcher_id)
        self._fetcher_of.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _remove(self, key: PartitionKey) -> None:
        fetcher_id = self._fetcher_of.pop(key, None)
        if fetcher_id is not None:
            self._running[fetcher_id].fetcher.remove(key)

    def _fetcher_for(self, fetcher_id: FetcherId) -> Fetcher:
        running = self._running.get(fetcher_id)
        if running is None:
            fetcher = Fetcher(
                fetcher_id.leader_id,
                self._endpoint_factory(fetcher_id.leader_id),
                self._settings,
                self._jitter,
                self._listener,
                self._throttle,
            )
            task = asyncio.create_task(
                fetcher.run(), name=f"fetcher-{fetcher_id.leader_id}-{fetcher_id.number}"
            )
            task.add_done_callback(lambda done: self._on_done(fetcher_id, done))
            running = self._running[fetcher_id] = _Running(fetcher, task)
        return running.fetcher

    def _sweep_soon(self) -> None:
        """Ends idle fetchers once the caller is done: it may give one new partitions at once."""
        if self._sweep is None and not self._closed:
            self._sweep = asyncio.get_running_loop().call_soon(self._end_idle)

    def _end_idle(self) -> None:
        self._sweep = None
        for fetcher_id, running in tuple(self._running.items()):
            if len(running.fetcher) == 0:
                self._end(fetcher_id)

    def _end(self, fetcher_id: FetcherId) -> None:
        task = self._running.pop(fetcher_id).task
        self._ending[task] = fetcher_id
        task.cancel()

    def _on_done(self, fetcher_id: FetcherId, task: asyncio.Task[None]) -> None:
        self._ending.pop(task, None)
        running = self._running.get(fetcher_id)
        if running is not None and running.task is task:
            del self._running[fetcher_id]
            for key in running.fetcher.keys:
                self._fetcher_of.pop(key, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._listener.on_fetcher_crashed(fetcher_id.leader_id, error)
