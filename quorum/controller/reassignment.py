"""The arithmetic of partition reassignment: a partition's replicas before, during and after it (KIP-455).

Guarantees: during a reassignment `replicas` holds the target, then the replicas to be removed. Finished, it is exactly
the target; cancelled, exactly the brokers of before. A reassignment that supersedes another keeps the origin of the
first, and the replicas that only the first was adding leave at once: cancelling leads back to where it all began. Pure
functions of values, used by `reassignment_control` (requests) and `partition_change_builder` (completion).
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
    """The replicas before the reassignment, to which cancelling returns: those that are not being added."""
    return without(partition.replicas, partition.adding_replicas)


def under_way(partition: PartitionImage) -> Reassignment:
    """The partition's reassignment; without one, its present replicas are the target."""
    return Reassignment(partition.replicas, partition.adding_replicas, partition.removing_replicas)


def towards(partition: PartitionImage, target: Ids) -> Reassignment:
    """The reassignment of a partition to `target`, perhaps superseding another one."""
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
