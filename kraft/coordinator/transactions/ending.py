"""What EndTxn is told in which state, as Kafka's tables: for versions that keep the epoch, and for version 2, in which
the end of a transaction raises it, so that a retry can be told from the next transaction's end (KIP-890)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from kraft.coordinator.transactions.transaction import State
from kraft.protocol.errors import ErrorCode


class Claim(Enum):
    """Who sends EndTxn, by its producer id and epoch."""

    CURRENT = auto()
    """It has what the producer has now, or goes on with."""
    RETRY = auto()
    """It has what it had when it ended the transaction that was last, which raised the epoch."""


class Ending(Enum):
    """What EndTxn comes to."""

    END = auto()
    """The transaction ends now."""
    WAIT = auto()
    """The markers of one that ended are being written."""
    DONE = auto()
    """It was asked before, and is complete."""
    INVALID_TXN_STATE = ErrorCode.INVALID_TXN_STATE


_KEEPS_EPOCH: Final[Mapping[tuple[State, bool], Ending]] = {
    (State.ONGOING, True): Ending.END,
    (State.ONGOING, False): Ending.END,
    (State.PREPARE_COMMIT, True): Ending.WAIT,
    (State.PREPARE_ABORT, False): Ending.WAIT,
    (State.COMPLETE_COMMIT, True): Ending.DONE,
    (State.COMPLETE_ABORT, False): Ending.DONE,
}
"""By state and whether it is a commit. All else is INVALID_TXN_STATE, here and below."""
_BUMPS_EPOCH: Final[Mapping[tuple[State, bool, Claim], Ending]] = {
    (State.EMPTY, False, Claim.CURRENT): Ending.END,
    (State.ONGOING, True, Claim.CURRENT): Ending.END,
    (State.ONGOING, False, Claim.CURRENT): Ending.END,
    (State.PREPARE_COMMIT, True, Claim.RETRY): Ending.WAIT,
    (State.PREPARE_ABORT, False, Claim.RETRY): Ending.WAIT,
    # the next transaction's: Kafka fences it, though its epoch is the one that it was given
    (State.PREPARE_COMMIT, True, Claim.CURRENT): Ending.WAIT,
    (State.PREPARE_COMMIT, False, Claim.CURRENT): Ending.WAIT,
    (State.PREPARE_ABORT, True, Claim.CURRENT): Ending.WAIT,
    (State.PREPARE_ABORT, False, Claim.CURRENT): Ending.WAIT,
    (State.COMPLETE_COMMIT, True, Claim.RETRY): Ending.DONE,
    (State.COMPLETE_ABORT, False, Claim.RETRY): Ending.DONE,
    # a producer that does not know whether anything of its transaction got here may abort
    (State.COMPLETE_COMMIT, False, Claim.CURRENT): Ending.END,
    (State.COMPLETE_ABORT, False, Claim.CURRENT): Ending.END,
}


def ending_that_keeps_epoch(state: State, is_commit: bool) -> Ending:
    """For EndTxn up to version 4, of the current producer."""
    return _KEEPS_EPOCH.get((state, is_commit), Ending.INVALID_TXN_STATE)


def ending_that_bumps_epoch(state: State, is_commit: bool, claim: Claim) -> Ending:
    """For EndTxn from version 5 on."""
    return _BUMPS_EPOCH.get((state, is_commit, claim), Ending.INVALID_TXN_STATE)
