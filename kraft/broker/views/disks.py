"""How fast a broker's disks fill: the room that is left, by the minute, for an hour. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

POINTS: Final = 61
DAY_MS: Final = 86_400_000


class DiskHistory:
    """Of a broker's data directories."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[int, int]]] = {}

    def sample(self, path: str, at_ms: int, usable_bytes: int) -> None:
        """`at_ms` since 1970."""
        self._samples.setdefault(path, deque(maxlen=POINTS)).append((at_ms, usable_bytes))

    def days_left(self, path: str, now_ms: int) -> float | None:
        """Until nothing is left, at the rate of the last hour; None: it does not fill, or there is one sample yet."""
        samples = self._samples.get(path)
        if samples is None or len(samples) < 2:
            return None
        (first_ms, before), (last_ms, now) = samples[0], samples[-1]
        if before <= now or last_ms <= first_ms:
            return None
        return max(0.0, now * (last_ms - first_ms) / (before - now) - (now_ms - last_ms)) / DAY_MS
