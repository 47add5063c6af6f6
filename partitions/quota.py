"""How many bytes a second may pass, measured over sliding windows: pure, with the time passed in.

Guarantees: over the last `windows` windows the rate that is measured is never less than what was recorded in
them divided by the time that they cover, so that whoever stops while `is_exceeded` keeps the rate on average;
a record may exceed it once (what is already read is sent), and is waited for afterwards. Memory is bounded by
the number of windows. This is how Kafka's ReplicationQuotaManager measures (its SimpleRate); the brokers'
`ReplicationThrottles` own one for each direction. Times are monotonic milliseconds, sizes bytes.
"""

from __future__ import annotations

from collections import deque
from typing import Final

UNLIMITED: Final = 2**63 - 1


class RateQuota:
    """One direction of traffic and its limit."""

    __slots__ = ("_recorded", "_window_ms", "_windows", "bytes_per_s")

    def __init__(self, *, windows: int, window_ms: int, bytes_per_s: int = UNLIMITED) -> None:
        assert windows > 0, "a rate needs a window to be measured in"
        assert window_ms > 0, "a window has a length"
        self.bytes_per_s = bytes_per_s
        """The limit; it may be set at any time and counts from then on."""
        self._windows = windows
        self._window_ms = window_ms
        self._recorded: deque[list[int]] = deque()  # [start in ms, bytes], oldest first

    @property
    def is_limited(self) -> bool:
        return self.bytes_per_s != UNLIMITED

    def record(self, size_bytes: int, now_ms: int) -> None:
        """So many bytes pass now."""
        self._forget_old(now_ms)
        if not self._recorded or now_ms - self._recorded[-1][0] >= self._window_ms:
            self._recorded.append([now_ms, 0])
        self._recorded[-1][1] += size_bytes

    def rate(self, now_ms: int) -> float:
        """Bytes a second since the oldest window began, or over one window if that is longer.

        Less than a window would make the first bytes look like a very high rate.
        """
        self._forget_old(now_ms)
        if not self._recorded:
            return 0.0
        elapsed_ms = max(now_ms - self._recorded[0][0], self._window_ms)
        return 1000 * sum(size_bytes for _, size_bytes in self._recorded) / elapsed_ms

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether nothing more should pass for now."""
        return self.is_limited and self.rate(now_ms) > self.bytes_per_s

    def _forget_old(self, now_ms: int) -> None:
        """Windows that began longer ago than all of them together last."""
        while self._recorded and now_ms - self._recorded[0][0] >= self._windows * self._window_ms:
            self._recorded.popleft()
