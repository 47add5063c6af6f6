"""The identity of the voters: a number, and the directory in which that voter keeps its promises (KIP-853).

Guarantees: a vote or an acknowledgement counts only if it comes from the directory that the log records for that
voter. A voter on a replaced disk has forgotten its vote and its log, and with them what it may have promised. It is a
learner under its old number until a majority of all voters, without it, has committed an entry that records its new
directory. Pure; each voter has one book, the driver owns it, `transport.py` and `node.py` ask it.

An entry binds by its place in the log, even if the metadata refuse it, as a change of membership does in Raft. A
voter's directory *in force* is the one in the last entry known to be committed; later entries are *pending*. A
directory counts if it is in force and every pending entry for that voter names it, too. In a log without any such
entry (a new cluster) every directory counts, but an election needs the votes of all voters instead of a majority. The
leader elected so first records the directories that voted for it. A majority suffices as soon as that founding entry
is in the log. Log, snapshot header and `quorum-state` hold the directories; the metadata image mirrors them.

Why no committed entry is lost. Let the leader of term T have committed e, let A be elected in U > T
without e, and let U be the first term in which this happens and e the first entry that A lacks; so A has
all entries that were committed before e. The two majorities share a voter v. If v acknowledged e and voted
for A with one and the same directory, it is Raft's own argument. If with two:

- Acknowledged with d, voted with a newer d'. A counts d', so A has applied the entry i that replaced d,
  committed by a leader of term W. If W > T, that leader had e (U is the first term to fail), so e is
  before i or its leader would have had i and not counted d. If W < T, the leader of T had i and did not
  count d; if W = T, e is before i for the same reason. A has i, and all before it. Contradiction.
- Acknowledged with d, voted with an older d'. The leader of T counted d, so it had applied the entry i
  that records d; i was committed before e, so A has i in its log, and does not count d'. Contradiction.

So a voter with a new disk may vote: the candidate counts the vote, or does not, by its own log. If the voter refused
until its own log names its disk, and another disk were lost after the others had recorded it, no candidate could be
elected any more. Nor do two nodes lead in one term U, A with the old directory's vote and B with the new one's: i is
in force at B, so it was committed before U. A's voters and i's majority share a voter other than V, the owner of the
two disks. It voted in U without i, and could not have stored i after.

The entry i is itself such an e. From the moment it is appended neither d' nor d counts, so its majority consists of
the others. That is also why i makes every entry before it durable again on a majority without the lost disk.

While nothing is recorded, a candidate without the founding entry needs the vote of every voter, and holders of the
entry refuse it. So a second founding happens only if no voter named in the first entry holds it any more, in which
case it was never committed. Only there does it matter how many disks are lost at once: a majority of empty voters
looks like a majority of new ones, but it founds nothing while a single voter with entries is among them.

Snapshots carry the directories in force with their last entry. `quorum-state` has them too: a restarted voter knows
the committed ones before it hears from a leader, so that the pending ones do not keep a majority from electing one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from quorum.raft.messages import PROPOSAL, Entry

Directories: TypeAlias = Mapping[int, bytes]
"""Directory ids by voter."""
ReadDirectories: TypeAlias = Callable[[bytes], Directories]
"""Reads the directories that a proposal records; nearly always none."""


class VoterBook:
    """The directories of one quorum's voters, according to this voter's log."""

    def __init__(
        self, node_id: int, voters: Iterable[int], directory_id: bytes | None, read: ReadDirectories
    ) -> None:
        """`directory_id` None: voters of this quorum are known by number alone, and never lose a disk."""
        self._node_id = node_id
        self.voters = tuple(sorted(voters))
        self._directory_id = directory_id
        self._read = read
        self.in_force: Directories = {}
        self.offset = 0
        """The offset of `in_force`: every entry through it is committed."""
        self._pending: list[tuple[int, Directories]] = []
        self._read_through = 0
        self._read_term = 0

    # -- the log

    def restore(self, offset: int, directories: Directories) -> None:
        """Adopts the committed directories of an offset, from a snapshot or noted before a restart."""
        if offset < self.offset or not directories:
            return
        self.offset, self.in_force = offset, dict(directories)
        self._pending = [(index, named) for index, named in self._pending if index > offset]

    def follow(self, log: Sequence[Entry]) -> None:
        """Reads the new entries in the log's window, and forgets those cut from its end."""
        if self._directory_id is None:
            return
        first, (_, end, end_term) = log[0][1], log[-1]
        if (end, end_term) == (self._read_through, self._read_term):
            return
        position = self._read_through - first
        if position >= len(log) or (position >= 0 and log[position][2] != self._read_term):
            self._read_through = self.offset
            self._pending = [(index, named) for index, named in self._pending if index <= self.offset]
        for command, index, _ in log[max(self._read_through + 1 - first, 0) :]:
            if index > self.offset and command[:1] == PROPOSAL:
                named = self._read(command[len(PROPOSAL) :])
                if named:
                    self._pending.append((index, named))
        self._read_through, self._read_term = end, end_term

    def commit_through(self, offset: int) -> bool:
        """Notes that every entry through this offset is committed; true if that put other directories in force."""
        before = self.in_force
        while self._pending and self._pending[0][0] <= offset:
            self.in_force = {**self.in_force, **self._pending.pop(0)[1]}
        self.offset = max(self.offset, offset)
        return self.in_force is not before

    # -- what counts

    @property
    def is_founded(self) -> bool:
        """Whether the log, committed or not, names the voters' directories; otherwise all must vote."""
        return self._directory_id is None or bool(self.in_force or self._pending)

    @property
    def quorum(self) -> int:
        """How many votes an election needs. A commit needs a majority, always."""
        return len(self.voters) // 2 + 1 if self.is_founded else len(self.voters)

    def counts(self, voter: int, directory_id: bytes) -> bool:
        """Whether a vote or an acknowledgement from this directory counts as the voter's."""
        if self._directory_id is None:
            return True
        if self.in_force.get(voter, directory_id) != directory_id:
            return False
        return not self._pending or all(
            directories.get(voter, directory_id) == directory_id for _, directories in self._pending
        )

    @property
    def counts_me(self) -> bool:
        """Whether this voter may stand: as a candidate it would count itself."""
        return self._directory_id is None or self.counts(self._node_id, self._directory_id)
