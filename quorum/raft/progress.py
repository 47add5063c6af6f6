"""The index through which each peer's log is known to equal this leader's, by the directory that said so.

Guarantees: a peer that comes back with another disk begins at nothing. A directory's acknowledgement is the voter's
only while that directory counts. Otherwise a leader would credit the new disk with the acknowledgements of a lost
one. The transport owns this; pure.
"""

from __future__ import annotations

from quorum.raft.voters import VoterBook


class Progress:
    """Match indexes of one term in which this node leads."""

    def __init__(self, book: VoterBook) -> None:
        self._book = book
        self._term = 0
        self._matches: dict[int, tuple[bytes, int]] = {}

    def acknowledged(self, term: int, peer_id: int, directory_id: bytes, index: int) -> None:
        """A peer of this directory holds the leader's log through an index."""
        if term != self._term:
            self._term, self._matches = term, {}
        self._matches[peer_id] = (directory_id, max(index, self.match(term, peer_id, directory_id)))

    def match(self, term: int, peer_id: int, directory_id: bytes) -> int:
        """The index through which that directory holds the log of this term's leader, counted or not."""
        known, index = self._matches.get(peer_id, (directory_id, 0))
        return index if term == self._term and known == directory_id else 0

    def counted(self, term: int, peer_id: int) -> int:
        """The match index of the voter; 0 unless its directory counts."""
        directory_id, index = self._matches.get(peer_id, (b"", 0))
        return index if term == self._term and index and self._book.counts(peer_id, directory_id) else 0
