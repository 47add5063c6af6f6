"""Offsets committed in transactions that are still open: kept apart until their transaction ends (KIP-447).

Pure. `kraft.coordinator.groups.offsets` fills it from records of transactional producers, and asks it which offsets
are not stable yet. Where several commit for one place, the record that was written last stands, whichever transaction
ends last: so it is in a log that was compacted, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from kraft.coordinator.groups.offset_records import Committed, Place


class Ended(NamedTuple):
    """What a producer's transaction held."""

    places: list[Place]
    committed: dict[Place, Committed]
    """What stands if it was committed: without what a later commit replaced."""


class _Pending(NamedTuple):
    committed: Committed
    order: int
    """Grows from record to record."""
    stands: bool
    """Whether it stands if its transaction is committed: no later record that counts replaced it."""


class PendingOffsets:
    """By producer; each holds at most one offset for a place."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[Place, _Pending]] = {}
        self._order = 0
        self.by_group: dict[str, dict[Place, set[int]]] = {}
        """By group and place: whose transactions hold an offset. Empty nearly always."""

    def put(self, producer_id: int, place: Place, committed: Committed) -> None:
        self._order += 1
        self._by_producer.setdefault(producer_id, {})[place] = _Pending(committed, self._order, True)
        self.by_group.setdefault(place.group_id, {}).setdefault(place, set()).add(producer_id)

    def places(self, group_id: str) -> frozenset[Place]:
        """Those of the group whose offsets are not stable."""
        return frozenset(self.by_group.get(group_id, ()))

    def at(self, place: Place) -> list[Committed]:
        """What open transactions hold for the place."""
        producers = self.by_group.get(place.group_id, {}).get(place, ())
        return [self._by_producer[producer_id][place].committed for producer_id in producers]

    def groups_of(self, producer_id: int) -> frozenset[str]:
        """The groups that the producer's open transaction has offsets of."""
        return frozenset(place.group_id for place in self._by_producer.get(producer_id, ()))

    def of_topics(self, names: Collection[str]) -> Iterator[Place]:
        """Those of the topics, of all groups."""
        return (place for group in self.by_group.values() for place in group if place.topic in names)

    def supersede(self, place: Place) -> None:
        """A commit outside of any transaction came later than those that are pending: it stands when they end."""
        self._supersede(place, self._order)

    def discard(self, place: Place) -> bool:
        """The place's offsets are deleted, those of open transactions too. Returns whether there were any."""
        producers = self._forget(place)
        for producer_id in producers:
            self._drop(producer_id, place)
        return bool(producers)

    def end(self, producer_id: int, is_commit: bool) -> Ended:
        """The producer's transaction ended. If it was committed, others' older offsets for its places do not stand."""
        pending = self._by_producer.pop(producer_id, {})
        for place, (_, order, _) in pending.items():
            group = self.by_group[place.group_id]
            group[place].discard(producer_id)
            if not group[place]:
                self._forget(place)
            elif is_commit:
                self._supersede(place, order)
        return Ended(list(pending), {place: one.committed for place, one in pending.items() if one.stands})

    def _supersede(self, place: Place, order: int) -> None:
        for producer_id in self.by_group.get(place.group_id, {}).get(place, ()):
            pending = self._by_producer[producer_id]
            if pending[place].order <= order:
                pending[place] = pending[place]._replace(stands=False)

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
