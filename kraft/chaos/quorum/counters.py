"""What is counted in a run of the quorum: what Raft and the controllers went through, and what struck messages.

Declared in one place, so that a counter that stays at zero over many seeds is seen: what never happened was
not tested. Faults are counted by their names. Counted by the modules of this package through `Quorum.happened`.
"""

from __future__ import annotations

from typing import Final

DROPPED: Final = "messages: dropped"
DUPLICATED: Final = "messages: duplicated"
OVERTAKEN: Final = "messages: overtaken by later ones"
STALE: Final = "messages: of an older session delivered"

RECOVERY_CUT_SHORT: Final = "raft: died while starting"
CANDIDACY: Final = "raft: candidacy"
ELECTED: Final = "raft: leader elected"
SPLIT_TERM: Final = "raft: term without a leader"
PRE_VOTE_REFUSED: Final = "raft: pre-vote refused"
DEPOSED: Final = "raft: leader deposed"
CONFLICT: Final = "raft: conflicting tail cut"
TORN_TAIL: Final = "raft: torn tail cut at start"
SNAPSHOT: Final = "raft: snapshot taken"
INSTALLED: Final = "raft: snapshot installed"
KEPT_TAIL: Final = "raft: log goes on behind an installed snapshot"
SENT_AGAIN: Final = "raft: same snapshot sent again"
HALTED: Final = "raft: voter halted by a fault"
REFUSED_START: Final = "raft: voter refused to start"
FORGOTTEN: Final = "raft: voter told that it has forgotten"
STALE_DROPPED: Final = "raft: stale or doubled message refused"
LARGE_ENTRY: Final = "raft: large entry applied in steps"

ACTIVATED: Final = "controller: became active"
RENOUNCED: Final = "controller: renounced with requests waiting"
ACKNOWLEDGED: Final = "controller: proposal acknowledged"
UNKNOWN_OUTCOME: Final = "controller: outcome of a proposal unknown"
NOT_COMMITTED: Final = "controller: proposal turned away"
REFUSED: Final = "controller: proposal refused by the fence"
TOPIC_CREATED: Final = "metadata: topic created"
TOPIC_DELETED: Final = "metadata: topic deleted"
ALREADY_DONE: Final = "metadata: repeated request found its work done"
VOTER_RECORDED: Final = "metadata: directory of a voter recorded"
BROKER_FENCED: Final = "metadata: broker fenced"

COUNTERS: Final = tuple(
    value for name, value in globals().items() if name.isupper() and isinstance(value, str)
)
"""Every counter, in the order in which tables show them."""

OFTEN: Final = frozenset(
    (
        *(DROPPED, DUPLICATED, OVERTAKEN, STALE),
        *(CANDIDACY, SPLIT_TERM, PRE_VOTE_REFUSED, SNAPSHOT, SENT_AGAIN, STALE_DROPPED, LARGE_ENTRY),
        *(ACKNOWLEDGED, UNKNOWN_OUTCOME, NOT_COMMITTED, REFUSED, TOPIC_CREATED, TOPIC_DELETED, ALREADY_DONE),
        VOTER_RECORDED,
    )
)
"""Counters of what happens all the time: told in bunches, and not among the last events before a violation."""
