"""Probes on the serving of readers: fetch sessions (KIP-227) and throttles of replication (KIP-73).

They judge nothing: a wrong omission of a session shows in the ends that replicas and consumers reach. They count real
events, so that a campaign in which no session ever gave way is seen to prove nothing about that. They run once for a
fetch at most, and for throttles only where some are set.
"""

from __future__ import annotations

from typing import Any

from kraft.broker.replicas.replication_throttles import FOLLOWER, LEADER, _Direction
from kraft.chaos.oracles import events
from kraft.chaos.oracles.wrapping import Method, Probes, around
from kraft.chaos.verdict import Verdicts
from partitions.fetch_session_cache import FetchSessionCache, FetchSessionError

_THROTTLED = {LEADER: events.THROTTLED_BY_LEADER, FOLLOWER: events.THROTTLED_BY_FOLLOWER}


class FetchProbes(Probes):
    """Probes on the session caches and the throttles of all brokers."""

    def __init__(self, verdicts: Verdicts) -> None:
        self._coverage = verdicts.coverage

    @around(FetchSessionCache, "open")
    def _open(self, original: Method, cache: FetchSessionCache, *arguments: Any, **options: Any) -> Any:
        session = original(cache, *arguments, **options)
        self._coverage[events.SESSION_REFUSED if session is None else events.SESSION_OPENED] += 1
        return session

    @around(FetchSessionCache, "go_on")
    def _go_on(self, original: Method, cache: FetchSessionCache, *arguments: Any, **options: Any) -> Any:
        try:
            session = original(cache, *arguments, **options)
        except FetchSessionError:
            self._coverage[events.SESSION_ERROR] += 1
            raise
        self._coverage[events.INCREMENTAL_FETCH] += 1
        return session

    @around(FetchSessionCache, "_evict")
    def _evict(self, original: Method, cache: FetchSessionCache, loser: Any) -> None:
        self._coverage[events.SESSION_EVICTED] += 1
        original(cache, loser)

    @around(_Direction, "is_exceeded")
    def _is_exceeded(self, original: Method, direction: _Direction, *arguments: Any) -> bool:
        is_exceeded = bool(original(direction, *arguments))
        if is_exceeded:
            self._coverage[_THROTTLED[direction.name]] += 1
        return is_exceeded
