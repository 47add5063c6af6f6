"""What is counted in a run of the quorum: faults that struck, and what Raft and the controllers went through.

Declared in one place, so that a counter that stays at zero over many seeds is seen: what never happened was
not tested. Counted by the modules of this package through `Quorum.happened`.
"""

from __future__ import annotations

from typing import Final

KILLED: Final = "fault: process killed"
POWER_LOSS: Final = "fault: power loss"
CUT_SHORT: Final = "fault: died in the middle of a step"
TORN_WRITE: Final = "fault: torn write"
RECOVERY_CUT_SHORT: Final = "fault: died while starting"
FSYNC_ERROR: Final = "fault: failed fsync"
SLOW_FSYNC: Final = "fault: slow fsync"
PAUSED: Final = "fault: process paused"
LINK_CUT: Final = "fault: connection reset"
HALF_OPEN: Final = "fault: reset noticed late by one side"
ISOLATED: Final = "fault: voter cut off from all others"
CLOGGED: Final = "fault: one direction of a link clogged"
DROPPED: Final = "fault: message dropped"
DUPLICATED: Final = "fault: message duplicated"
OVERTAKEN: Final = "fault: message overtaken by later ones"
STALE: Final = "fault: message of an older session delivered"
HAND_OVER: Final = "fault: leader asked to hand over"
WIPED: Final = "fault: disk wiped"
ROT: Final = "fault: bit rot found at start"
WRONG_FOLDER: Final = "fault: started on a folder that is not its own"
INSULTED: Final = "fault: peer says what is not on the list"

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
FORGOTTEN: Final = "raft: voter told that it has forgotten"
STALE_DROPPED: Final = "raft: stale or doubled message refused"
LARGE_ENTRY: Final = "raft: large entry applied in steps"
RESTARTED: Final = "raft: voter restarted"

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
        *(SLOW_FSYNC, LINK_CUT, HALF_OPEN, CLOGGED, DROPPED, DUPLICATED, OVERTAKEN, STALE, INSULTED),
        *(CANDIDACY, SPLIT_TERM, PRE_VOTE_REFUSED, SNAPSHOT, SENT_AGAIN, STALE_DROPPED, LARGE_ENTRY),
        *(ACKNOWLEDGED, UNKNOWN_OUTCOME, NOT_COMMITTED, REFUSED, TOPIC_CREATED, TOPIC_DELETED, ALREADY_DONE),
        VOTER_RECORDED,
    )
)
"""Counters of what happens all the time: told in bunches, and not among the last events before a violation."""
