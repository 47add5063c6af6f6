"""Asking before standing for election (Raft thesis, section 9.6), so that a voter which was cut off
does not come back with a high term and depose a healthy leader.

Guarantees: a voter raises its term only after as many as an election needs said, in this round, that they
have not heard from a live leader lately and that the candidate's log is good enough; what was said in one term
allows an election from that term alone. Pure: `transport.py` carries the questions, `node.py` holds the election
back until it has `passed`. A leader that hands over bypasses it.
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
        """Of the round and of the order."""
        self.round = 0
        self.not_ahead: frozenset[int] = frozenset()
        """The peers that last answered, since a leader was heard of, that they have neither a leader nor a
        better log; whether their consent counts or not."""

    def heard_leader(self, now_s: float) -> None:
        """The leader of the current term spoke: no election is wanted."""
        self._leader_heard_s = now_s
        self._granted = None
        self.not_ahead = frozenset()

    def lost_leader(self) -> None:
        """The link to the leader broke, or it stepped down: waiting for it is pointless."""
        self._leader_heard_s = NEVER

    def leader_is_live(self, now_s: float) -> bool:
        return now_s - self._leader_heard_s < self._leader_lease_s

    def passed(self, term: int) -> bool:
        """Whether an election may begin now, from `term`."""
        if term != self._term:
            return False
        return self._ordered or (self._granted is not None and len(self._granted) >= self._quorum())

    def begin(self, node_id: int, term: int) -> None:
        """Starts a round, the next by `round`, with this node's own consent."""
        self.round += 1
        self._granted = {node_id}
        self._ordered = False
        self._term = term

    def is_open(self, term: int) -> bool:
        """Whether a round from `term` waits for consent."""
        return self._granted is not None and term == self._term

    def give_way(self) -> None:
        """Ends this voter's own round in favour of another one that it has consented to."""
        self._granted = None

    def answered(self, round_number: int, peer_id: int, *, granted: bool, counts: bool) -> None:
        """A peer consents, or does not; `counts`: it does so as the voter that is recorded. Answers of older
        rounds do not count."""
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
