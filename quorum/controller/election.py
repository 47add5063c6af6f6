"""Who leads a partition: the order in which its replicas are asked.

Guarantees (KIP-966): a member of the ISR leads if one may; else, when nobody is in the ISR, an eligible
leader replica; both have every committed record, so these elections are clean. Only when ISR and ELR
are both empty does the last known leader lead, and only if unclean election is asked for does any other
replica: records may be lost then, and the result says so. A leader that may stay is not changed, unless
the preferred one is asked for. Called by `PartitionChangeBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from quorum.metadata.image import PartitionImage
from quorum.metadata.records import NO_LEADER

Acceptable = Callable[[int], bool]
"""Whether a broker may lead: registered, unfenced, not shutting down, and its replica not offline, once the
change is made."""


class Election(Enum):
    """What an election is for."""

    ONLINE = "online"
    """To have a leader; the present one stays if it may."""
    PREFERRED = "preferred"
    """To have the first replica as the leader if it may lead, else as ONLINE."""
    UNCLEAN = "unclean"
    """As ONLINE, and at the price of lost records if nobody who has them all may lead."""


class Elected(NamedTuple):
    """The leader, -1 when nobody may lead. An unclean one may lack committed records."""

    leader: int
    unclean: bool = False


def elect(
    partition: PartitionImage,
    election: Election,
    acceptable: Acceptable,
    *,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    elr: tuple[int, ...],
) -> Elected:
    """The leader for a partition that is about to have these `replicas`, `isr` and `elr`."""
    candidates = isr or elr
    order: Iterable[int] = (partition.leader, *replicas)
    if election is Election.PREFERRED:
        order = (replicas[0], *order)
    for replica in order:
        if replica in candidates and acceptable(replica):
            return Elected(replica)
    if not isr and not elr and len(partition.last_known_elr) == 1:
        last_known_leader = partition.last_known_elr[0]
        if last_known_leader in replicas and acceptable(last_known_leader):
            return Elected(last_known_leader, unclean=True)
    if election is Election.UNCLEAN:
        for replica in replicas:
            if acceptable(replica):
                return Elected(replica, unclean=True)
    return Elected(NO_LEADER)
