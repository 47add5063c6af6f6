"""The arithmetic of partition reassignment: what a partition's replicas are before, during and after (KIP-455).

Guarantees: while a reassignment is under way, `replicas` holds the target, then what is to be removed;
finished, it is exactly the target, cancelled, exactly the brokers that were there before. A reassignment
that supersedes another one keeps the origin of the first: brokers that only the first one was adding
leave at once. Pure functions of values, used by `reassignment_control` (requests) and by
`partition_change_builder` (completion).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from quorum.metadata.image import PartitionImage

Ids = tuple[int, ...]


class Reassignment(NamedTuple):
    """Replicas of a partition on its way to a target."""

    replicas: Ids
    adding: Ids
    removing: Ids

    @property
    def target(self) -> Ids:
        """The replicas when it is complete."""
        return without(self.replicas, self.removing)


def origin(partition: PartitionImage) -> Ids:
    """The replicas without those that are only being added: what a cancelled reassignment goes back to."""
    return without(partition.replicas, partition.adding_replicas)


def under_way(partition: PartitionImage) -> Reassignment:
    """The reassignment that the partition is in; of one that is in none, the target is what it has."""
    return Reassignment(partition.replicas, partition.adding_replicas, partition.removing_replicas)


def towards(partition: PartitionImage, target: Ids) -> Reassignment:
    """The reassignment of a partition, which may be under way to somewhere else, to `target`."""
    before = origin(partition)
    removing = tuple(sorted(set(before).difference(target)))
    return Reassignment(
        replicas=(*target, *removing),
        adding=tuple(sorted(set(target).difference(before))),
        removing=removing,
    )


def is_complete(reassignment: Reassignment, isr: Collection[int]) -> bool:
    """Whether with this ISR the whole target is in sync, so that replicas and ISR become the target."""
    target = reassignment.target
    return bool(target) and set(target).issubset(isr)


def without(broker_ids: Ids, leaving: Collection[int]) -> Ids:
    """The ids that are not leaving, in order."""
    return tuple(broker_id for broker_id in broker_ids if broker_id not in leaving) if leaving else broker_ids
