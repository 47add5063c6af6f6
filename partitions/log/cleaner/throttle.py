"""Keeps the cleaner's reading and writing below a rate.

Guarantees: over any longer stretch no more bytes than the rate allows; time that passed unused is not
saved up, beyond a second of it.
"""

from __future__ import annotations

from typing import Final

_SAVED_S: Final = 1.0


class Throttle:
    """Says how long to pause after some bytes. Times are monotonic seconds."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._paid_until_s = float("-inf")

    def pause_s(self, size_bytes: int, now_s: float) -> float:
        """Takes note of these bytes; returns for how many seconds nothing more should be read or written."""
        start_s = max(self._paid_until_s, now_s - _SAVED_S)
        self._paid_until_s = start_s + size_bytes / self._bytes_per_s
        return max(0.0, self._paid_until_s - now_s)
