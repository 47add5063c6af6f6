"""The follower's truncation rule (KIP-101, KIP-279): how much of its own log it gives up.

It keeps a prefix of the leader's log, as far as both epoch histories can tell, and cuts nothing that the leader has
confirmed. The fetcher calls it with the diverging epoch of a Fetch answer (v12 and later) or with the answer of an
OffsetForLeaderEpoch request.
"""

from __future__ import annotations

from typing import NamedTuple

from leader_epoch.epoch_cache import UNDEFINED_EPOCH, UNDEFINED_OFFSET, EpochCache


class Truncation(NamedTuple):
    """Cut the log to `offset`; when not `completed`, ask the leader again with the new last epoch."""

    offset: int
    completed: bool


def truncation_offset(
    cache: EpochCache,
    leader_epoch_answer: tuple[int, int],
    *,
    log_end_offset: int,
    high_watermark: int,
) -> Truncation:
    """Where the follower's log parts from the leader's.

    `leader_epoch_answer` is (epoch, end offset): the largest epoch <= the follower's that the
    leader knows, and where it ends there. The follower keeps min(its own end of that epoch, the
    leader's end, its log end). If it lacks the epoch itself, it falls back to the end of its next
    lower epoch and has to ask again: the leader may lack that one in turn. An undefined end leaves
    only the high watermark as common ground; an undefined epoch comes from a leader whose records
    carry none, and its end offset alone counts.
    """
    leader_epoch, leader_end = leader_epoch_answer
    if leader_end == UNDEFINED_OFFSET:
        return Truncation(min(high_watermark, log_end_offset), completed=True)
    if leader_epoch == UNDEFINED_EPOCH:
        return Truncation(min(leader_end, log_end_offset), completed=True)
    own_epoch, own_end = cache.end_offset_for(leader_epoch, log_end_offset)
    if own_epoch == UNDEFINED_EPOCH:
        return Truncation(min(leader_end, log_end_offset), completed=True)
    if own_epoch != leader_epoch:
        return Truncation(min(own_end, log_end_offset), completed=False)
    return Truncation(min(own_end, leader_end, log_end_offset), completed=True)
