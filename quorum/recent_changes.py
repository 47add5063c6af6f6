"""The newest entries of the committed metadata log, as a node took them in, and when: for people who watch.

Entries are kept as bytes, `ENTRIES_MAX` and `BYTES_MAX` of them, and decoded when somebody asks. The loader of a
broker, or a controller's server, fills it. On the event loop alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from quorum.rpc.messages import MetadataEntry

ENTRIES_MAX: Final = 1_000
BYTES_MAX: Final = 1024 * 1024


class RecentChange(NamedTuple):
    """One entry; `at_ms` since 1970, when it came."""

    entry: MetadataEntry
    at_ms: int


class RecentChanges:
    """Of one node."""

    def __init__(self, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._kept: deque[RecentChange] = deque()
        self._size_bytes = 0
        self._changed: set[asyncio.Event] = set()

    def take(self, entries: Iterable[MetadataEntry], at_ms: int) -> None:
        """Those that change nothing are left out; one that is too large takes the place of all before it."""
        for entry in entries:
            if entry.records:
                self._kept.append(RecentChange(entry, at_ms))
                self._size_bytes += len(entry.records)
        while len(self._kept) > self._entries_max or (
            self._size_bytes > self._bytes_max and len(self._kept) > 1
        ):
            self._size_bytes -= len(self._kept.popleft().entry.records)
        for event in self._changed:
            event.set()

    @property
    def oldest_offset(self) -> int | None:
        return self._kept[0].entry.offset if self._kept else None

    def after(self, offset: int, limit: int) -> Sequence[RecentChange]:
        """The newest `limit` that came after an offset, oldest first."""
        found: deque[RecentChange] = deque()
        for change in reversed(self._kept):
            if change.entry.offset <= offset or len(found) == limit:
                break
            found.appendleft(change)
        return list(found)

    def watch(self, event: asyncio.Event) -> None:
        """Has `event` set whenever something comes, until `unwatch`."""
        self._changed.add(event)

    def unwatch(self, event: asyncio.Event) -> None:
        self._changed.discard(event)
