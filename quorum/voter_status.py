"""A voter's standing in the quorum, and the reasons for not being ready, as sentences.

Guarantees: every obstacle to a whole quorum that this voter can know of is a sentence in `unready_reasons` and in the
log. `controller_server.py` keeps it, on its event loop (KIP-853).
"""

from __future__ import annotations

from typing import Any

import structlog

from quorum.raft.events import VoterStanding

log = structlog.get_logger(__name__)

NO_LEADER = "the quorum has no leader"
"""How long a leader may be missing before that is a reason: between two leaders it is some tenths of a second."""


class VoterStatus:
    """The voters' directories and standing, as one voter's Raft lane reported them."""

    def __init__(self) -> None:
        self._standing = VoterStanding()

    def take(self, standing: VoterStanding) -> None:
        """Takes an effect of the Raft lane."""
        before, self._standing = self._standing, standing
        if standing.is_lost and not before.is_lost:
            log.error(_lost(standing))
        elif standing.replaced != before.replaced:
            log.warning("voters on new disks", voters=list(standing.replaced), counts=standing.counts)

    def unready_reasons(self, leader_id: int | None) -> list[str]:
        """Why this controller is not a whole member of a whole quorum; empty when it is."""
        standing = self._standing
        reasons = []
        if standing.is_lost:
            reasons.append(_lost(standing))
        elif leader_id is None:
            reasons.append(NO_LEADER)
        if not standing.counts:
            reasons.append(
                "this voter's disk is new: it is being brought up to date, and its votes do not count yet"
            )
        elif not standing.is_founded:
            reasons.append(self._forming(leader_id))
        if standing.is_far_behind:
            reasons.append("this controller is far behind the leader of the quorum")
        return reasons

    def _forming(self, leader_id: int | None) -> str:
        unseen = self._standing.unseen
        if leader_id is not None:
            return "this voter has not heard yet who the quorum's voters are"
        if unseen:
            return (
                f"waiting for {_voters(unseen)} to be seen for the first time: a new quorum needs all of them"
            )
        return (
            "this voter knows nothing of the quorum yet: either it is new and the voters are about to elect their"
            " first leader, or too many of them came back with empty disks"
        )

    def describe(self) -> dict[str, Any]:
        """For the controller's status page."""
        standing = self._standing
        return {
            "votes": standing.counts,
            "voters_recorded": standing.is_founded,
            "voters_unseen": list(standing.unseen),
            "voters_on_new_disks": list(standing.replaced),
            "far_behind": standing.is_far_behind,
        }


def _voters(voters: tuple[int, ...]) -> str:
    names = ", ".join(map(str, voters))
    return f"voter {names}" if len(voters) == 1 else f"voters {names}"


def _lost(standing: VoterStanding) -> str:
    return (
        f"the quorum is lost: {_voters(standing.replaced)} came back without what a majority needs. Stop them and"
        " start them with their old disks or with copies of them; new disks cannot replace a majority"
    )
