"""The board on which members of groups tell where they stand: whether each group is whole.

A group is whole when all its members that there should be are in one generation (KIP-848: at one member epoch), each
confirmed by a heartbeat, and every partition of the topic that stays is owned once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kraft.chaos.workload.client import PartitionName


class Standing(NamedTuple):
    """A member in a generation, after a heartbeat that began at `confirmed_s`."""

    generation: int
    owned: frozenset[PartitionName]
    confirmed_s: float


class GroupBoard:
    """All groups of a run. Members are named as the scenario's workloads are."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, Standing | None]] = {}
        self._partitions: dict[str, frozenset[PartitionName]] = {}
        self._whole_s: dict[str, float] = {}
        """When each group was last seen whole: the oldest of its members' confirmations."""

    def enlist(self, group: str, member: str, partitions: Collection[PartitionName]) -> None:
        """A member that there should be. `partitions`: of the topics that stay, which the group has to own."""
        self._members.setdefault(group, {})[member] = None
        self._partitions[group] = self._partitions.get(group, frozenset()) | frozenset(partitions)

    def stands(self, group: str, member: str, standing: Standing | None) -> None:
        """A member was confirmed in a generation, or (None) is not in any that it knows of."""
        members = self._members[group]
        members[member] = standing
        whole = [one for one in members.values() if one is not None]
        if len(whole) < len(members) or len({one.generation for one in whole}) > 1:
            return
        wanted = self._partitions[group]
        owned = [name for one in whole for name in one.owned if name in wanted]
        if len(owned) == len(set(owned)) == len(wanted):
            self._whole_s[group] = min(one.confirmed_s for one in whole)

    def gone(self, group: str, member: str) -> None:
        """A member will not come back: the group is whole without it."""
        self._members[group].pop(member, None)

    def not_whole_since(self, since_s: float) -> dict[str, str]:
        """By group: where its members stand, of those that were not whole at any time after `since_s`."""
        return {
            group: ", ".join(f"{name} {_shown(standing)}" for name, standing in members.items())
            for group, members in self._members.items()
            if self._whole_s.get(group, -1.0) <= since_s
        }


def _shown(standing: Standing | None) -> str:
    if standing is None:
        return "is in no generation"
    owned: Sequence[str] = sorted(f"{topic}-{number}" for topic, number in standing.owned)
    where = f"in generation {standing.generation} (confirmed {standing.confirmed_s:.3f})"
    return f"{where} owns {' '.join(owned) or 'nothing'}"
