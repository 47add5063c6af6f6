"""Counts leader elections by how safe they were, and tells operators of those that were not.

A committed change of a leader counts once, if this node was the active controller when it was made. An unclean one
never passes in silence: its record says RECOVERING (KIP-704). It elects the last known leader when nobody is in ISR or
ELR (KIP-966), or any replica where that is allowed or was asked for. The first leader of a new partition was not
elected; nor was one that stays in a new epoch. The controller server owns it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import structlog

from quorum.metadata.delta import PartitionKey, changed_partition
from quorum.metadata.image import MetadataImage, PartitionImage
from quorum.metadata.records import (
    NO_LEADER,
    RECOVERING,
    PartitionChange,
    Record,
    RegisterBroker,
)

log = structlog.get_logger(__name__)


class ElectionKind(Enum):
    """How a leader came to lead; the values are the labels of the metric."""

    CLEAN = "clean"
    """A member of the ISR, since the one before could not go on, or there was none."""
    PREFERRED = "preferred"
    """The first replica, from a leader that stays in the ISR."""
    ELIGIBLE = "elr"
    """An eligible leader replica, with nobody left in the ISR (KIP-966)."""
    LAST_KNOWN_LEADER = "last_known_leader"
    """Unclean: nobody was in ISR or ELR, and the one who led last came back."""
    UNCLEAN = "unclean"
    """Any other replica that may lack records."""


UNCLEAN_KINDS = (ElectionKind.LAST_KNOWN_LEADER, ElectionKind.UNCLEAN)


class LeaderElections:
    """`counts` are of those committed while this node was the active controller."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(ElectionKind, 0)

    @property
    def unclean(self) -> int:
        """Those that may have lost acknowledged records."""
        return sum(self.counts[kind] for kind in UNCLEAN_KINDS)

    def committed(self, before: MetadataImage, records: Iterable[Record]) -> None:
        """Records of one step of the log, in their order; `before` is the image before all of them."""
        since: dict[PartitionKey, tuple[PartitionImage, PartitionChange]] = {}
        records = tuple(records)
        registered = {record.broker_id for record in records if isinstance(record, RegisterBroker)}
        for record in records:
            if not isinstance(record, PartitionChange):  # the id of a topic that is removed comes never again
                continue
            key = (record.topic_id, record.partition)
            last = since.get(key)
            state = before.partition(*key) if last is None else changed_partition(*last)
            kind = _kind(record, state, registered)
            if kind is not None:
                self.counts[kind] += 1
            if kind in UNCLEAN_KINDS:
                _tell(before, record, state, kind)
            if state is not None:
                since[key] = (state, record)


def _kind(record: PartitionChange, state: PartitionImage | None, registered: set[int]) -> ElectionKind | None:
    """What election the record tells of, if any; `state` is the partition's before it.

    Who registers in the same step has left the ELR by it: the last one of them leaves the last known leader.
    """
    leader = record.leader
    if leader is None or leader == NO_LEADER:
        return None
    if record.leader_recovery_state == RECOVERING:
        is_known = (
            state is not None
            and state.last_known_elr == (leader,)
            and not state.isr
            and registered.issuperset(state.elr)
        )
        return ElectionKind.LAST_KNOWN_LEADER if is_known else ElectionKind.UNCLEAN
    if state is None:
        return ElectionKind.CLEAN
    if leader == state.leader:
        return None
    if leader not in state.isr and leader in state.elr:
        return ElectionKind.ELIGIBLE
    is_handed_over = state.has_leader and record.isr is None and record.replicas is None
    if is_handed_over and leader == state.replicas[0]:
        return ElectionKind.PREFERRED
    return ElectionKind.CLEAN


def _tell(
    before: MetadataImage, record: PartitionChange, state: PartitionImage | None, kind: ElectionKind | None
) -> None:
    topic = before.topics.get(record.topic_id)
    is_known = kind is ElectionKind.LAST_KNOWN_LEADER
    log.error(
        "unclean leader election",
        consequence="acknowledged records that this replica does not have are lost",
        partition=f"{topic.name if topic else record.topic_id.hex()}-{record.partition}",
        leader=record.leader,
        elected_as="the last known leader" if is_known else "a replica that was not in sync",
        isr=() if state is None else state.isr,
        elr=() if state is None else state.elr,
        replicas=() if state is None else state.replicas,
    )
