"""How a member of a group gets from what it has to what it is to have: revocation before assignment (KIP-848).

Kafka's CurrentAssignmentBuilder. A member gives up first what it is not to have, at its epoch, and reaches the target's
epoch only then; it gets a partition only when its former owner has given it up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from kraft.coordinator.groups.assignors import NO_PARTITIONS, NOTHING, Assignment

Owned: TypeAlias = Mapping[bytes, frozenset[int]]
"""What a member says that it has."""


class MemberState(IntEnum):
    """By their numbers in records."""

    STABLE = 0
    """It has what its target was at its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It is to give up some, and stays at its epoch until it has."""
    UNRELEASED_PARTITIONS = 2
    """It is at the target's epoch, and others have not given up yet what it is to get."""
    UNKNOWN = 127
    """What a later version wrote."""


class CurrentAssignment(NamedTuple):
    """Where a member is on its way."""

    epoch: int = 0
    previous_epoch: int = 0
    """What it may say once more, if an answer was lost."""
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NOTHING
    pending_revocation: Assignment = NOTHING

    def is_at(self, target_epoch: int) -> bool:
        """Whether nothing is left to be done."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch


class UnknownState(Exception):
    """The member must give up all, and join again."""


def reconcile(
    current: CurrentAssignment,
    target_epoch: int,
    target: Assignment,
    owned: Owned | None,
    is_free: Callable[[bytes, int], bool],
) -> CurrentAssignment:
    """The member's next step, or `current` where it has to wait.

    `owned` is what its heartbeat says that it has, if it says; `is_free` tells whether no other member has a partition.
    Raises UnknownState.
    """
    if current.is_at(target_epoch):
        return current
    if current.state is MemberState.UNKNOWN and (owned is None or any(owned.values())):
        raise UnknownState
    if current.state is MemberState.UNREVOKED_PARTITIONS and not _has_revoked(
        current.pending_revocation, owned
    ):
        return current
    kept: dict[bytes, frozenset[int]] = {}
    surplus: dict[bytes, frozenset[int]] = {}
    for topic_id, partitions in current.assigned.items():
        wanted = target.get(topic_id, NO_PARTITIONS)
        if stays := (partitions if partitions <= wanted else partitions & wanted):
            kept[topic_id] = stays
        if goes := partitions - wanted:
            surplus[topic_id] = goes
    if surplus and not _has_revoked(surplus, owned):
        return _at_epoch(current, current.epoch, MemberState.UNREVOKED_PARTITIONS, kept, surplus)
    waits = False
    for topic_id, wanted in target.items():
        missing = wanted - kept.get(topic_id, NO_PARTITIONS)
        if missing:
            free = frozenset(partition for partition in missing if is_free(topic_id, partition))
            waits = waits or len(free) < len(missing)
            if free:
                kept[topic_id] = kept.get(topic_id, NO_PARTITIONS) | free
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _at_epoch(current, target_epoch, state, kept, NOTHING)


def _at_epoch(
    current: CurrentAssignment, epoch: int, state: MemberState, assigned: Assignment, pending: Assignment
) -> CurrentAssignment:
    previous_epoch = current.epoch if epoch != current.epoch else current.previous_epoch
    return CurrentAssignment(epoch, previous_epoch, state, assigned, pending)


def _has_revoked(partitions: Assignment, owned: Owned | None) -> bool:
    """Whether the member says what it has, and none of the partitions is among it."""
    if owned is None:
        return False
    return all(
        revoked.isdisjoint(owned.get(topic_id, NO_PARTITIONS)) for topic_id, revoked in partitions.items()
    )
