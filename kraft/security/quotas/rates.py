"""Buckets of tokens that fill with time: how much may pass, and how long who took too much waits; many of them.

Guarantees: who waits for as long as `throttle_time_ms` says takes no more, over any time, than the limit of that time,
one burst and one last request. After a silence as much may pass at once as Kafka's measured rates let pass, and what
exceeds it is waited for as long as there. Kafka's windows then forget what is still owed, so that large requests get
nearly the double; a bucket does not. A bucket is four numbers; `Sensors` hold a bounded number of them. Times are
monotonic milliseconds, limits are for each second. KIP-13, KIP-219, KIP-599.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

SENSORS_MAX: Final = 10_000
"""Clients of one kind of quota that are kept apart."""


class Windows(NamedTuple):
    """How many, and how long each is: what bounds a burst (`quota.window.num`, `quota.window.size.seconds`)."""

    number: int = 11
    size_ms: int = 1000

    @property
    def of_rate_ms(self) -> int:
        """How long a limit's worth passes at once where Kafka measures a rate: the window under way is left out."""
        return max(self.number - 1, 1) * self.size_ms

    @property
    def of_bucket_ms(self) -> int:
        """The same where Kafka has a token bucket."""
        return self.number * self.size_ms


class TokenBucket:
    """What may still be taken: it fills by the limit, up to `burst_ms` of it."""

    __slots__ = ("_at_ms", "_burst_ms", "_limit", "_tokens")

    def __init__(self, burst_ms: int) -> None:
        self._burst_ms = burst_ms
        self._limit = 0.0
        """By which tokens were taken last."""
        self._tokens = float("inf")
        """As of `_at_ms`; a new bucket is full, whatever the limit."""
        self._at_ms = 0.0

    def take(self, tokens: float, limit: float, now_ms: float) -> None:
        """Takes so many, though they may be more than there are."""
        self._tokens = self.left(limit, now_ms) - tokens
        self._at_ms, self._limit = now_ms, limit

    def throttle_time_ms(self, limit: float, now_ms: float, tokens: float = 0) -> int:
        """How long until so many are there, and nothing is owed; 0 if it is so."""
        missing = tokens - self.left(limit, now_ms)
        return max(1, round(missing / limit * 1000)) if missing > 0 else 0

    def is_idle(self, now_ms: float) -> bool:
        """Whether it is full: as one that is new."""
        return self.left(self._limit, now_ms) >= self._full(self._limit)

    def left(self, limit: float, now_ms: float) -> float:
        """What is there; below zero, what is owed."""
        return min(self._full(limit), self._tokens + limit * (now_ms - self._at_ms) / 1000)

    def _full(self, limit: float) -> float:
        return limit * self._burst_ms / 1000


Key = TypeVar("Key", bound=Hashable)


class Sensors(Generic[Key]):
    """A bucket for each client, at most so many: those that are full go, and clients beyond the bound share one."""

    def __init__(self, burst_ms: int, at_most: int = SENSORS_MAX) -> None:
        self._burst_ms = burst_ms
        self._at_most = at_most
        self._kept: dict[Key, TokenBucket] = {}
        """The one that was asked for last is the last."""
        self.of_the_rest = TokenBucket(burst_ms)
        """Of all clients for whom there is no room."""

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, key: Key, now_ms: float) -> TokenBucket:
        """The client's own, or that of all for whom there is no room. O(1), amortised."""
        kept = self._kept.pop(key, None)
        if kept is None:
            self._drop_idle(now_ms)
            if len(self._kept) >= self._at_most:
                return self.of_the_rest
            kept = TokenBucket(self._burst_ms)
        self._kept[key] = kept
        return kept

    def _drop_idle(self, now_ms: float) -> None:
        while self._kept:
            key, kept = next(iter(self._kept.items()))
            if not kept.is_idle(now_ms):
                return
            del self._kept[key]
