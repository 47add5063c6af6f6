"""Rates measured over windows, and buckets of tokens: Kafka's `Rate` and `TokenBucket`, and a bounded set of them.

Guarantees: a rate is what was recorded in the last windows over the time that they cover, and never over less than
all windows but one: so much may pass at once after a silence. Who waits for as long as `throttle_time_ms` says is
within the limit again. A rate takes memory by its number of windows, `Sensors` hold a bounded number of them. Times are
monotonic milliseconds, limits are for each second. KIP-13, KIP-219, KIP-599.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

SENSORS_MAX: Final = 10_000
"""Clients of one kind of quota whose rates are kept apart."""


class Windows(NamedTuple):
    """Over what a rate is measured (`quota.window.num`, `quota.window.size.seconds`)."""

    count: int = 11
    size_ms: int = 1000

    @property
    def least_ms(self) -> int:
        """The shortest time that a rate is measured over."""
        return max(self.count - 1, 1) * self.size_ms


class Rate:
    """What passes, a second."""

    __slots__ = ("_recorded", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._recorded: deque[list[float]] = deque()
        """[start in ms, sum], oldest first."""

    def record(self, value: float, now_ms: float) -> None:
        """So much passes now."""
        self._forget_old(now_ms)
        recorded = self._recorded
        if not recorded or now_ms - recorded[-1][0] >= self._windows.size_ms:
            recorded.append([now_ms, 0.0])
        recorded[-1][1] += value

    def measure(self, now_ms: float) -> float:
        """The rate as of now, a second."""
        self._forget_old(now_ms)
        return 1000 * sum(value for _, value in self._recorded) / self._covered_ms(now_ms)

    def throttle_time_ms(self, limit: float, now_ms: float) -> int:
        """How long nothing may pass until the rate is within `limit`; 0 if it is."""
        rate = self.measure(now_ms)
        if rate <= limit:
            return 0
        return max(1, round((rate - limit) / limit * self._covered_ms(now_ms)))

    def is_idle(self, now_ms: float) -> bool:
        """Whether it is as one that is new."""
        self._forget_old(now_ms)
        return not self._recorded

    def _covered_ms(self, now_ms: float) -> float:
        count, size_ms = self._windows
        if not self._recorded:
            return self._windows.least_ms
        elapsed_ms = now_ms - self._recorded[0][0]
        missing = count - 1 - int(elapsed_ms // size_ms)
        return max(elapsed_ms + max(missing, 0) * size_ms, self._windows.least_ms)

    def _forget_old(self, now_ms: float) -> None:
        count, size_ms = self._windows
        while self._recorded and now_ms - self._recorded[0][0] >= count * size_ms:
            self._recorded.popleft()


class TokenBucket:
    """What may still be taken: it fills by `limit` a second, up to what all windows together let pass."""

    __slots__ = ("_at_ms", "_limit", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._limit = 0.0
        """By which tokens were taken last."""
        self._tokens = float("inf")
        """As of `_at_ms`; a new bucket is full, whatever the limit."""
        self._at_ms = 0.0

    def take(self, tokens: float, limit: float, now_ms: float) -> None:
        """Takes so many, though they may be more than there are."""
        self._tokens = self._left(limit, now_ms) - tokens
        self._at_ms, self._limit = now_ms, limit

    def throttle_time_ms(self, limit: float, now_ms: float) -> int:
        """How long until nothing is owed; 0 if nothing is."""
        left = self._left(limit, now_ms)
        return max(1, round(-left / limit * 1000)) if left < 0 else 0

    def is_idle(self, now_ms: float) -> bool:
        """Whether it is full."""
        return self._left(self._limit, now_ms) >= self._full(self._limit)

    def _left(self, limit: float, now_ms: float) -> float:
        return min(self._full(limit), self._tokens + limit * (now_ms - self._at_ms) / 1000)

    def _full(self, limit: float) -> float:
        return limit * self._windows.count * self._windows.size_ms / 1000


class Sensor(Protocol):
    """What `Sensors` keep."""

    def is_idle(self, now_ms: float) -> bool:
        """Whether it is as one that is new, so that it need not be kept."""


Key = TypeVar("Key", bound=Hashable)
Kept = TypeVar("Kept", bound=Sensor)


class Sensors(Generic[Key, Kept]):
    """One for each client, at most so many: those that are idle go, and clients beyond the bound share one."""

    def __init__(self, make: Callable[[], Kept], at_most: int = SENSORS_MAX) -> None:
        self._make = make
        self._at_most = at_most
        self._kept: dict[Key, Kept] = {}
        """The one that was asked for last is the last."""
        self._of_the_rest = make()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, key: Key, now_ms: float) -> Kept:
        """The client's own, or that of all for whom there is no room. O(1), amortised."""
        kept = self._kept.pop(key, None)
        if kept is None:
            self._drop_idle(now_ms)
            if len(self._kept) >= self._at_most:
                return self._of_the_rest
            kept = self._make()
        self._kept[key] = kept
        return kept

    def _drop_idle(self, now_ms: float) -> None:
        while self._kept:
            key, kept = next(iter(self._kept.items()))
            if not kept.is_idle(now_ms):
                return
            del self._kept[key]
