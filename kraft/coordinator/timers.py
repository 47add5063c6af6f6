"""The timers of one shard: what is to be done when, by key.

Pure: the runtime asks for the next time and says what time it is. A timer that is set anew replaces the one of its
key. A thousand heartbeats that push their timers back cost a thousand entries of a dictionary, and no timer of the
loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NamedTuple, TypeVar

Action = TypeVar("Action", bound=Callable[..., None])

SLACK: Final = 64
"""Entries of the heap that nothing stands for any more, beside as many as there are timers."""


class _Timer(NamedTuple):
    at_ms: int
    entry: tuple[int, int]
    """The entry of the heap that stands for it: it may be due before the timer is."""
    action: Callable[..., None]


class Timers(Generic[Action]):
    """Timers by key. Times are monotonic."""

    def __init__(self) -> None:
        self._timers: dict[Hashable, _Timer] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._timers

    def set(self, key: Hashable, at_ms: int, action: Action) -> None:
        """Has `action` called at `at_ms`, instead of what was set for the key before."""
        known = self._timers.get(key)
        if known is not None and known.entry[0] <= at_ms:
            self._timers[key] = _Timer(
                at_ms, known.entry, action
            )  # its entry comes to the new time when it is due
            return
        self._push(key, at_ms, action)

    def cancel(self, key: Hashable) -> None:
        """Forgets the timer of the key, if there is one."""
        if self._timers.pop(key, None) is not None and len(self._heap) > 2 * len(self._timers) + SLACK:
            self._heap = [
                (*timer.entry, key) for key, timer in self._timers.items()
            ]  # fmt: skip
            heapify(self._heap)

    @property
    def next_ms(self) -> int | None:
        """When to call `pop_due` next, at the latest; None while nothing is set."""
        self._drop_ended()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> list[Action]:
        """The actions whose time has come, in the order of their times; each is forgotten."""
        due: list[tuple[int, int, Action]] = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, serial, key = heappop(self._heap)
            timer = self._timers.get(key)
            if timer is None or timer.entry != (at_ms, serial):
                continue
            if timer.at_ms > now_ms:
                self._push(key, timer.at_ms, timer.action)
                continue
            del self._timers[key]
            due.append((timer.at_ms, serial, timer.action))  # type: ignore[arg-type]  # `set` took an Action
        due.sort(key=lambda entry: entry[:2])
        return [action for _, _, action in due]

    def _push(self, key: Hashable, at_ms: int, action: Callable[..., None]) -> None:
        self._serial += 1
        entry = (at_ms, self._serial)
        self._timers[key] = _Timer(at_ms, entry, action)
        heappush(self._heap, (*entry, key))

    def _drop_ended(self) -> None:
        while self._heap:
            at_ms, serial, key = self._heap[0]
            timer = self._timers.get(key)
            if timer is not None and timer.entry == (at_ms, serial):
                return
            heappop(self._heap)
