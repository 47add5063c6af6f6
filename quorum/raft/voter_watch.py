"""A voter's watch over the voters: the directories that the metadata should record, and what the quorum waits for.

Guarantees: an active leader asks to record the directories that elected it, if none are recorded, and that of a voter
on a new disk once it holds every committed entry. It never takes back a request of the same term. Pure; the driver
asks it at the end of each step (KIP-853).
"""

from __future__ import annotations

from quorum.raft.events import VoterDirectories, VoterStanding
from quorum.raft.node import RaftNode
from quorum.raft.pre_vote import PreVote
from quorum.raft.transport import QuorumTransport
from quorum.raft.voters import Directories, VoterBook

FAR_BEHIND_ENTRIES = 1_000
"""Entries committed and not applied here, from which on a voter is not ready."""


class VoterWatch:
    """Of one voter."""

    def __init__(
        self,
        directory_id: bytes | None,
        book: VoterBook,
        node: RaftNode,
        transport: QuorumTransport,
        pre_vote: PreVote,
    ) -> None:
        self._directory_id = directory_id
        self._book = book
        self._node = node
        self._transport = transport
        self._pre_vote = pre_vote
        self._wanted = VoterDirectories(-1, {})
        self._standing = VoterStanding()
        self._reckoned_from: object = None
        """The inputs of the last standing; none of them is ever changed in place."""

    def directories(self) -> VoterDirectories | None:
        """The directories to be recorded; None where this node does not lead or nothing is ever recorded."""
        node, book = self._node, self._book
        if self._directory_id is None or not node.barrier_applied():
            return None
        if self._wanted.epoch != node.term():
            self._wanted = VoterDirectories(node.term(), book.in_force or self._founders(self._directory_id))
        if book.in_force:
            caught_up = {
                peer.id: directory_id
                for peer, directory_id in self._transport.linked()
                if self._wanted.directories.get(peer.id) != directory_id
                and node.match_of(peer, directory_id) >= node.commit_index()
            }
            if caught_up:
                self._wanted = VoterDirectories(node.term(), {**self._wanted.directories, **caught_up})
        return self._wanted

    def _founders(self, mine: bytes) -> Directories:
        return {self._node.node_id(): mine, **self._transport.voted_for_me()}

    def may_record(self, named: Directories) -> bool:
        """Whether a proposal may record these: only directories that this leader has seen itself in its term."""
        wanted = self.directories() if named else None
        return not named or (
            wanted is not None
            and all(wanted.directories.get(voter) == directory_id for voter, directory_id in named.items())
        )

    def standing(self) -> VoterStanding:
        """Whether this voter counts, and what the quorum waits for."""
        book = self._book
        leads_nobody = self._node.leader_id() is None
        made_of = (
            self._transport.linked(),
            book.in_force,
            book.counts_me,
            self._pre_vote.not_ahead,
            leads_nobody,
            self._is_far_behind(),
        )
        if made_of != self._reckoned_from:
            self._reckoned_from = made_of
            self._standing = self._reckon()
        return self._standing

    def _reckon(self) -> VoterStanding:
        node, book, mine = self._node, self._book, self._directory_id
        if mine is None:
            return VoterStanding(is_far_behind=self._is_far_behind())
        linked = {peer.id: directory_id for peer, directory_id in self._transport.linked()}
        seen = {node.node_id(): mine, **linked}
        founded = bool(book.in_force)
        replaced = tuple(
            voter
            for voter in book.voters
            if founded and seen.get(voter) not in (None, book.in_force.get(voter))
        )
        # A voter that was away while others were replaced meets directories that are recorded in entries it lacks.
        # Those disks are lost only if their logs do not go beyond its own, and no node leads.
        lost = self._pre_vote.not_ahead.intersection(replaced)
        majority = len(book.voters) // 2 + 1
        return VoterStanding(
            is_founded=founded,
            counts=book.counts_me,
            unseen=() if founded else tuple(voter for voter in book.voters if voter not in seen),
            replaced=replaced,
            is_lost=node.leader_id() is None and len(book.voters) - len(lost) < majority,
            is_far_behind=self._is_far_behind(),
        )

    def _is_far_behind(self) -> bool:
        node = self._node
        behind = self._transport.leader_commit_index - node.last_applied()
        return not node.is_leader() and behind > FAR_BEHIND_ENTRIES
