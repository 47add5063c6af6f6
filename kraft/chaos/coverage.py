"""The events that runs of whole clusters count, and what a campaign of them declares, needs and shows.

A campaign without findings proves nothing about events that never happened in it. So a campaign of the default swarm
declares all that the swarm can cause, and reports what stayed at zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kraft.chaos.faults.context import STARTED_AGAIN
from kraft.chaos.oracles.events import (
    BATCH_DAMAGED,
    COUNTERS,
    HIGH_WATERMARK_CUT,
    LAST_KNOWN_LEADER,
    NOBODY_IN_SYNC,
    PROPOSAL_REFUSED,
    REPLICA_OFFLINE,
    UNCLEAN_ELECTION,
)
from kraft.chaos.oracles.group_log import COUNTERS as WRITTEN_BY_COORDINATORS
from kraft.chaos.oracles.secured.permissions import EVENTS as OF_PERMISSIONS
from kraft.chaos.oracles.secured.sessions import EVENTS as OF_SESSIONS
from kraft.chaos.oracles.secured.taken import EVENTS as OF_QUOTAS
from kraft.chaos.oracles.stable_offsets import COUNTERS as IN_LOGS
from kraft.chaos.outcome import FAULT_PREFIX
from kraft.chaos.report import Asked
from kraft.chaos.workload.base import CLIENT_CRASH
from kraft.chaos.workload.final import BEYOND_REPAIR
from kraft.chaos.workload.groups.member import COUNTERS as OF_MEMBERS
from kraft.chaos.workload.groups.topic import GREW
from kraft.chaos.workload.guest import EVENTS as OF_GUESTS
from kraft.chaos.workload.offset_lister import NOT_AVAILABLE_YET
from kraft.chaos.workload.operator import EXPECTED
from kraft.chaos.workload.reader import BEHIND_THE_END, OUT_OF_RANGE_NEARER, SENT_NEARER
from kraft.chaos.workload.security_operator import EVENTS as OF_SECURITY
from kraft.chaos.workload.transactions.processor import EVENTS as OF_PROCESSORS
from kraft.chaos.workload.transactions.producer import EVENTS as OF_TRANSACTIONS

EVENTS: Final = tuple(
    sorted(
        {
            *COUNTERS,
            *IN_LOGS,
            *OF_PROCESSORS,
            *OF_TRANSACTIONS,
            *EXPECTED,
            *OF_MEMBERS,
            *OF_PERMISSIONS,
            *OF_SESSIONS,
            *OF_QUOTAS,
            *OF_GUESTS,
            *OF_SECURITY,
            *WRITTEN_BY_COORDINATORS,
            GREW,
            BEHIND_THE_END,
            BEYOND_REPAIR,
            CLIENT_CRASH,
            NOT_AVAILABLE_YET,
            OUT_OF_RANGE_NEARER,
            SENT_NEARER,
            STARTED_AGAIN,
            UNCLEAN_ELECTION,
        }
    )
)
"""Every counter besides those of faults that the default swarm aims at. It does not aim at a proposal that is
refused at apply, which needs a queue so full that the proposal before it was dropped."""


def fault_counters(faults: Iterable[str]) -> list[str]:
    """The names under which these faults are counted when they strike."""
    return [FAULT_PREFIX + name for name in faults]


GRAVE: Final = frozenset(
    (
        BATCH_DAMAGED,
        BEYOND_REPAIR,
        HIGH_WATERMARK_CUT,
        LAST_KNOWN_LEADER,
        NOBODY_IN_SYNC,
        PROPOSAL_REFUSED,
        REPLICA_OFFLINE,
        UNCLEAN_ELECTION,
        "findings excused",
        "values doubled by plain producers",
    )
)
"""Counters, of coverage and of the history, that a reader wants to see when they are not zero."""


def asked_of_clusters(faults: Sequence[str] | None, enabled: Sequence[str], case: str = "") -> Asked:
    """A campaign of `kraft chaos simulate`. `faults`: those of its option, None: the default swarm; `enabled`: those
    that may strike; `case`: the file of the scenario."""
    needed = tuple(fault_counters(enabled))
    return Asked(
        command="simulate",
        options=() if faults is None else ("--faults", ",".join(faults) or "none"),
        needed=needed,
        declared=needed if case or faults is not None else (*needed, *EVENTS),
        grave=GRAVE,
        case=case,
    )
