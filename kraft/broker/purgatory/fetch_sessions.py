"""The fetch sessions of a broker, told of every change of a partition that they hold (KIP-227).

Guarantees: what changes a partition touches the sessions that hold it and nothing else, so that a session
costs nothing while its partitions stand still, however many they are; a request that waits is woken by the
very change that it waits for. `FetchPurgatory` owns it and passes on what it is told; the fetch handler asks
it for a request's session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from partitions.fetch_session import FetchSession, Reader, SessionPartition
from partitions.fetch_session_cache import FetchSessionCache
from partitions.topic_partition import TopicPartition


class Waiting(Protocol):
    """A fetch that waits in purgatory."""

    def on_append(self, key: TopicPartition, partition: SessionPartition) -> None:
        """Records were appended, and the reader is a follower. `partition` is its session's."""

    def on_progress(self, key: TopicPartition, partition: SessionPartition) -> None:
        """The partition may have more bytes for it, or an error."""

    def settle(self, value: None) -> None:
        """Ends the wait."""


class FetchSessions:
    """Sessions by id, their partitions by name, and the request of each that waits. On the event loop."""

    def __init__(self) -> None:
        self.cache = FetchSessionCache(self._forget, self.overtake)
        self._watching: dict[TopicPartition, dict[SessionPartition, None]] = {}
        self._waits: dict[FetchSession, Waiting] = {}

    def close(self, session_id: int, reader: Reader) -> None:
        """Ends a session at its reader's wish, if there is such a one."""
        session = self.cache.get(session_id)
        if session is not None and session.reader.is_same_as(reader):
            self.cache.close(session_id)

    def watch(self, partition: SessionPartition, key: TopicPartition) -> None:
        """From now on the session hears of what happens to `key`, which is this partition's name.

        One that has ended does not: the last request of such a session may still be looking.
        """
        if partition.topic_partition is None and not partition.session.has_ended:
            partition.topic_partition = key
            self._watching.setdefault(key, {})[partition] = None

    def _forget(self, partitions: Iterable[SessionPartition]) -> None:
        for partition in partitions:
            key = partition.topic_partition
            watching = None if key is None else self._watching.get(key)
            if key is not None and watching is not None:
                watching.pop(partition, None)
                if not watching:
                    del self._watching[key]

    def watched_by(self, key: TopicPartition) -> int:
        """How many sessions hold the partition."""
        return len(self._watching.get(key, ()))

    # -- the request that waits

    def begin_wait(self, session: FetchSession, waiting: Waiting) -> None:
        """A request of the session waits. It has at most one: `overtake` ends the one before."""
        self._waits[session] = waiting

    def end_wait(self, session: FetchSession, waiting: Waiting) -> None:
        if self._waits.get(session) is waiting:
            del self._waits[session]

    def overtake(self, session: FetchSession) -> None:
        """A younger request of the session is here, or the session has ended: the one that waits is answered."""
        waiting = self._waits.get(session)
        if waiting is not None:
            waiting.settle(None)

    # -- what happens to partitions

    def on_append(self, key: TopicPartition) -> None:
        """Records were appended: followers read to the log's end."""
        for partition in self._watchers(key):
            session = partition.session
            if session.reader.is_follower:
                session.mark(partition)
                waiting = self._waits.get(session)
                if waiting is not None:
                    waiting.on_append(key, partition)

    def on_high_watermark(self, key: TopicPartition) -> None:
        """It rose: consumers may read on; followers hear of it with their next answer."""
        for partition in self._watchers(key):
            session = partition.session
            session.mark(partition)
            if not session.reader.is_follower:
                self._wake(partition, key)

    def on_progress(self, key: TopicPartition) -> None:
        """Its leadership or its state changed."""
        for partition in self._watchers(key):
            partition.session.mark(partition)
            self._wake(partition, key)

    def on_log_start(self, key: TopicPartition) -> None:
        """Its log starts later: readers hear of it with their next answer."""
        for partition in self._watchers(key):
            partition.session.mark(partition)

    def _watchers(self, key: TopicPartition) -> Iterable[SessionPartition]:
        """Those that hold the partition now; who is woken may change what is held."""
        watching = self._watching.get(key)
        return tuple(watching) if watching else ()

    def _wake(self, partition: SessionPartition, key: TopicPartition) -> None:
        waiting = self._waits.get(partition.session)
        if waiting is not None:
            waiting.on_progress(key, partition)
