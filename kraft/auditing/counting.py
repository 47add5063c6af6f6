"""Counts of one producer by topic and window, and when they are to be sent.

The caller adds each record when it is acknowledged, by the timestamp that the record has in the log, asks for what is
`due` now and then, and for the `rest` at its end. A message that it could not send it may send again as it is. What it
has not sent when it dies stays uncounted: the audit then finds more records stored than produced.
"""

from __future__ import annotations

from collections import Counter

from kraft.auditing.messages import PRODUCED, CountMessage

MAX_WINDOWS = 1000
"""Held back at most; beyond that all are due."""


class WindowCounter:
    """Counts records; `producer` is unique to this run of this program."""

    def __init__(self, host: str, producer: str, window_ms: int) -> None:
        self._host = host
        self._producer = producer
        self._window_ms = window_ms
        self._counts: Counter[tuple[str, int]] = Counter()
        """By topic and start of the window."""
        self._sequence = 0
        self._next_due_ms = 0

    def add(self, topic: str, timestamp_ms: int, count: int = 1) -> None:
        """So many more records with this time were acknowledged."""
        self._counts[topic, timestamp_ms - timestamp_ms % self._window_ms] += count

    def due(self, now_ms: int) -> list[CountMessage]:
        """The counts of windows that are over; asked more often than once a window, it answers nothing in between."""
        if len(self._counts) > MAX_WINDOWS:
            return self.rest()
        if now_ms < self._next_due_ms:
            return []
        window_start_ms = now_ms - now_ms % self._window_ms
        self._next_due_ms = window_start_ms + self._window_ms
        return self._taken([key for key in self._counts if key[1] < window_start_ms])

    def rest(self) -> list[CountMessage]:
        """All counts that were not handed out yet."""
        return self._taken(list(self._counts))

    def _taken(self, keys: list[tuple[str, int]]) -> list[CountMessage]:
        messages = []
        for topic, start_ms in sorted(keys):
            messages.append(
                CountMessage(
                    PRODUCED,
                    self._host,
                    self._producer,
                    topic,
                    start_ms,
                    self._window_ms,
                    self._counts.pop((topic, start_ms)),
                    self._sequence,
                )
            )
            self._sequence += 1
        return messages
