"""The choice of a partition's leader: the order in which its replicas are considered.

Guarantees (KIP-966): a member of the ISR leads if one may. If the ISR is empty, an eligible leader replica leads. Both
have every committed record, so these elections are clean. If ISR and ELR are both empty, the last known leader leads;
any other replica leads only if unclean election is asked for. Records may be lost then, and the result says so. A
leader that may stay is not changed, unless the preferred one is asked for. `PartitionChangeBuilder` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from quorum.metadata.image import PartitionImage
from quorum.metadata.records import NO_LEADER

Acceptable = Callable[[int], bool]
"""Whether a broker may lead once the change is made: registered, unfenced, not shutting down, its replica not
offline."""


class Election(Enum):
    """The purpose of an election."""

    ONLINE = "online"
    """The partition needs a leader; the present one stays if it may."""
    PREFERRED = "preferred"
    """The first replica leads if it may, else as ONLINE."""
    UNCLEAN = "unclean"
    """As ONLINE, at the price of lost records if no replica with all of them may lead."""


class Elected(NamedTuple):
    """The leader, -1 if no replica may lead. An unclean leader may lack committed records."""

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
