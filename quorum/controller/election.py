"""Leader election and ISR changes of one partition: from its state to the record that changes it.

Guarantees: a leader is always an acceptable member of the ISR; the ISR never becomes empty (its last
member stays even when it has left, and the partition is then without a leader); an unclean leader is
elected only when asked for, and the record then says so (ISR of one, leader recovery state RECOVERING,
KIP-704). The leader is not changed without need. Used by every part of the controller that moves
leaders; the model is Kafka's PartitionChangeBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from quorum.metadata.delta import PartitionKey
from quorum.metadata.image import PartitionImage
from quorum.metadata.records import NO_LEADER, RECOVERING, PartitionChange

Acceptable = Callable[[int], bool]
"""Whether a broker may lead: registered, unfenced and not shutting down once the change is made."""


def elect(partition: PartitionImage, isr: Collection[int], acceptable: Acceptable) -> int:
    """The clean leader for an ISR: the present one if it may stay, else the first replica that may; or -1."""
    if partition.leader in isr and acceptable(partition.leader):
        return partition.leader
    for replica in partition.replicas:
        if replica in isr and acceptable(replica):
            return replica
    return NO_LEADER


def isr_without(partition: PartitionImage, leaving: Collection[int]) -> tuple[int, ...]:
    """The ISR after brokers left it; if nobody would be in it, one stays: the leader, else the first replica."""
    remaining = tuple(broker_id for broker_id in partition.isr if broker_id not in leaving)
    if remaining:
        return remaining
    if partition.leader in partition.isr:
        return (partition.leader,)
    return (next(replica for replica in partition.replicas if replica in partition.isr),)


def change(
    key: PartitionKey,
    partition: PartitionImage,
    *,
    isr: tuple[int, ...],
    acceptable: Acceptable,
    unclean_allowed: Callable[[], bool],
    leader_recovery_state: int | None = None,
) -> PartitionChange | None:
    """The record that gives the partition the ISR `isr` and the right leader; None if nothing changes.

    `isr` is not empty. `unclean_allowed` is asked only when no ISR member can lead.
    """
    assert isr, "an ISR is never empty"
    recovery = leader_recovery_state
    leader = elect(partition, isr, acceptable)
    if leader == NO_LEADER and unclean_allowed():
        for replica in partition.replicas:
            if acceptable(replica):
                leader, isr, recovery = replica, (replica,), RECOVERING
                break
    if recovery == partition.leader_recovery_state:
        recovery = None
    new_isr = None if isr == partition.isr else isr
    new_leader = None if leader == partition.leader else leader
    if new_isr is None and new_leader is None and recovery is None:
        return None
    return PartitionChange(
        topic_id=key[0], partition=key[1], isr=new_isr, leader=new_leader, leader_recovery_state=recovery
    )
