"""Offsets committed in transactions that are still open: kept apart until their transaction ends (KIP-447).

Pure. `kraft.coordinator.groups.offsets` fills it from records of transactional producers, and asks it which offsets
are not stable yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kraft.coordinator.groups.offset_records import Committed, Place


class PendingOffsets:
    """By producer; each holds at most one offset for a place."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[Place, Committed | None]] = {}
        """None stands for an offset that a later commit outside of the transaction replaced."""
        self.by_group: dict[str, dict[Place, set[int]]] = {}
        """By group and place: whose transactions hold an offset. Empty nearly always."""

    def put(self, producer_id: int, place: Place, committed: Committed) -> None:
        self._by_producer.setdefault(producer_id, {})[place] = committed
        self.by_group.setdefault(place.group_id, {}).setdefault(place, set()).add(producer_id)

    def places(self, group_id: str) -> frozenset[Place]:
        """Those of the group whose offsets are not stable."""
        return frozenset(self.by_group.get(group_id, ()))

    def of_topics(self, names: Collection[str]) -> Iterator[Place]:
        """Those of the topics, of all groups."""
        return (place for group in self.by_group.values() for place in group if place.topic in names)

    def supersede(self, place: Place) -> None:
        """A commit outside of any transaction came later than those that are pending: it stands when they end."""
        for producer_id in self.by_group.get(place.group_id, {}).get(place, ()):
            self._by_producer[producer_id][place] = None

    def discard(self, place: Place) -> bool:
        """The place's offsets are deleted, those of open transactions too. Returns whether there were any."""
        producers = self._forget(place)
        for producer_id in producers:
            self._drop(producer_id, place)
        return bool(producers)

    def end(self, producer_id: int) -> dict[Place, Committed]:
        """The producer's transaction ended: the offsets that stand if it was committed."""
        pending = self._by_producer.pop(producer_id, {})
        for place in pending:
            group = self.by_group[place.group_id]
            group[place].discard(producer_id)
            if not group[place]:
                self._forget(place)
        return {place: committed for place, committed in pending.items() if committed is not None}

    def _drop(self, producer_id: int, place: Place) -> None:
        pending = self._by_producer[producer_id]
        del pending[place]
        if not pending:
            del self._by_producer[producer_id]

    def _forget(self, place: Place) -> set[int]:
        group = self.by_group.get(place.group_id, {})
        producers = group.pop(place, set())
        if not group:
            self.by_group.pop(place.group_id, None)
        return producers
