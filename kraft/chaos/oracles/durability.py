"""The judge of voters' promises that must be on the platter: votes, and committed entries on a majority.

A vote that a power loss can take back may be given twice, and an entry that a majority can forget may be lost. Both
are judged when they are made, not only when a power loss happens to show them: votes as vote-once, entries as
metadata-agreement (Raft, section 5.2 and figure 2, "persistent state"). It reads the simulated disks as the worst
power loss would leave them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from struct import Struct

from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.inodes import Inode
from kraft.chaos.world.storage import Storage

_QUORUM_STATE = "quorum-state"
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_EPOCH_AT = 12


class Durability:
    """Looks at voters' disks, which `storage_of` finds by node id."""

    def __init__(
        self, verdicts: Verdicts, storage_of: Callable[[int], Storage], voters: Sequence[int]
    ) -> None:
        self._verdicts = verdicts
        self._storage_of = storage_of
        self._voters = voters
        self._damaged: dict[int, None] = {}

    def damaged(self, node: int) -> None:
        """Notes that an injected fault destroyed durable data: this voter's promises are no longer judged."""
        self._damaged[node] = None

    def vote(self, voter: int, term: int, candidate: int, directory: str) -> None:
        """Judges a voter that is about to give its vote, or votes for itself by standing."""
        if voter in self._damaged:
            return
        inode = self._durable_inodes(voter, directory).get(_QUORUM_STATE)
        content = b"" if inode is None else bytes(_durable(inode))
        try:
            fields = json.loads(content.partition(b"\n")[0])
            remembered = (int(fields["leaderEpoch"]), int(fields["votedId"]))
        except (ValueError, KeyError, TypeError):
            remembered = (-1, -1)
        if remembered[0] < term or (remembered[0] == term and remembered[1] != candidate):
            self._verdicts.violated(
                "vote-once",
                f"voter {voter} votes for {candidate} in term {term}; after a power loss it would know of a vote"
                f" for {remembered[1]} in term {remembered[0]}",
            )

    def committed(self, offset: int, epoch: int, directory: str) -> None:
        """Judges a committed entry: more than half of the voters would have it after a power loss.

        A voter with a damaged disk may have had it and counts as if it did; the others must make up the rest of the
        majority.
        """
        holders = [
            voter
            for voter in self._voters
            if voter in self._damaged or self._holds(voter, offset, epoch, directory)
        ]
        if 2 * len(holders) <= len(self._voters):
            sound = [voter for voter in holders if voter not in self._damaged]
            damaged = f", and perhaps at {list(self._damaged)}, which were damaged" if self._damaged else ""
            self._verdicts.violated(
                "metadata-agreement",
                f"the entry of epoch {epoch} at offset {offset} is committed, and durable only at {sound} of"
                f" the voters {list(self._voters)}{damaged}",
            )

    def _holds(self, voter: int, offset: int, epoch: int, directory: str) -> bool:
        """Whether a voter's journal has the entry, or a snapshot covers it."""
        key, stamp = _OFFSET.pack(offset), _EPOCH.pack(epoch)
        files = self._durable_inodes(voter, directory)
        for name in sorted(files, reverse=True):
            if name.endswith(".log"):
                content = _durable(files[name])
                position = content.rfind(key)  # a new entry is near the end
                while position >= 0:
                    if content[position + _EPOCH_AT : position + _EPOCH_AT + 4] == stamp:
                        return True
                    position = content.rfind(key, 0, position + len(key) - 1)
            elif name.endswith(".checkpoint") and int(name.partition("-")[0]) > offset:
                return True
        return False

    def _durable_inodes(self, voter: int, directory: str) -> dict[str, Inode]:
        """The files that the worst power loss leaves to a voter."""
        try:
            folder = self._storage_of(voter).folder(directory)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {name: node for name, node in folder.durable.items() if isinstance(node, Inode)}


def _durable(inode: Inode) -> bytearray:
    """The bytes that the worst power loss leaves in a file; not to be changed."""
    return inode.durable_content() if inode.pending else inode.data
