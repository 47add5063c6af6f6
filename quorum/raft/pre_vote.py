"""The pre-vote (Raft thesis, section 9.6): a voter asks the others before it stands for election.

A voter that was cut off therefore does not come back with a high term and depose a healthy leader. Guarantees: a
voter raises its term only after as many peers as an election needs said, in this round, that they have heard from no
live leader lately and that the candidate's log is good enough. Consent given in one term allows an election from that
term alone. A voter that the leader asks to take over skips the round. Pure: `transport.py` carries the questions,
`node.py` holds the election back until the pre-vote has `passed`.
"""

from __future__ import annotations

from collections.abc import Callable

NEVER = float("-inf")


class PreVote:
    """One voter's rounds, and its own view of whether the leader lives."""

    def __init__(self, quorum: Callable[[], int], leader_lease_s: float) -> None:
        """`quorum`: how many votes an election needs now."""
        self._quorum = quorum
        self._leader_lease_s = leader_lease_s
        self._leader_heard_s = NEVER
        self._granted: set[int] | None = None
        self._ordered = False
        self._term = 0
        """The term of the round and of the order."""
        self.round = 0
        self.not_ahead: frozenset[int] = frozenset()
        """The peers whose last answer since a leader was heard said: no leader, no better log. Includes peers whose
        consent does not count."""

    def heard_leader(self, now_s: float) -> None:
        """Notes that the leader of the current term spoke: no election is wanted."""
        self._leader_heard_s = now_s
        self._granted = None
        self.not_ahead = frozenset()

    def lost_leader(self) -> None:
        """Notes that the leader stepped down or its link broke: waiting for it is pointless."""
        self._leader_heard_s = NEVER

    def leader_is_live(self, now_s: float) -> bool:
        return now_s - self._leader_heard_s < self._leader_lease_s

    def passed(self, term: int) -> bool:
        """Whether an election may begin now, from `term`."""
        if term != self._term:
            return False
        return self._ordered or (self._granted is not None and len(self._granted) >= self._quorum())

    def begin(self, node_id: int, term: int) -> None:
        """Starts the next round, with this node's own consent."""
        self.round += 1
        self._granted = {node_id}
        self._ordered = False
        self._term = term

    def is_open(self, term: int) -> bool:
        """Whether a round from `term` waits for consent."""
        return self._granted is not None and term == self._term

    def give_way(self) -> None:
        """Ends this voter's own round in favour of a candidate that it has consented to."""
        self._granted = None

    def answered(self, round_number: int, peer_id: int, *, granted: bool, counts: bool) -> None:
        """Notes a peer's answer; `counts`: its directory is the recorded one. Answers of older rounds are
        ignored."""
        if round_number != self.round:
            return
        self.not_ahead = self.not_ahead | {peer_id} if granted else self.not_ahead - {peer_id}
        if granted and counts and self._granted is not None:
            self._granted.add(peer_id)

    def order_election(self, term: int) -> None:
        """The leader of `term` asked this voter to take over: no round is needed."""
        self._granted = None
        self._ordered = True
        self._term = term

    def cancel(self) -> None:
        """The round and the order are void: the term has changed, or the election was started."""
        self._granted = None
        self._ordered = False
