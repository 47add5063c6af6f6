"""The file `quorum-state`: a voter's term and vote, which it must never forget (Raft, section 5.2).

Guarantees: after `save` returns, term and vote survive a power loss; a file that is damaged, or of
another cluster, node or directory refuses to load: it is never taken for an empty one, since that
would let this node vote twice in one term. Called by the journal, which saves before anything that
depends on it leaves the node.

Besides, the file knows how far the journal reached at least (`journal_end`), so that a journal that
was cut, wiped or damaged inside is told from a torn tail.
"""

from __future__ import annotations

import json
from typing import Any

from crc32c import crc32c

from partitions.disk import Disk, write_atomically
from partitions.log.meta_properties import MetaProperties

FILE_NAME = "quorum-state"
_VERSION = 1
_NO_VOTE = -1


class QuorumStateError(ValueError):
    """The file cannot be trusted; the message is a sentence for the operator."""


class QuorumState:
    """Term, vote and journal bound: in memory at once, on disk with `save`."""

    def __init__(self, disk: Disk, directory: str, owner: MetaProperties) -> None:
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._owner = owner
        self.term = 0
        self.voted_for: int | None = None
        self.journal_end = 0
        self.dirty = False

    @classmethod
    def load(cls, disk: Disk, directory: str, owner: MetaProperties) -> QuorumState | None:
        """What the folder's file says, or None if there is none. Raises QuorumStateError, OSError."""
        state = cls(disk, directory, owner)
        if not disk.exists(state._path):
            return None
        state._parse(disk.read_bytes(state._path))
        return state

    def set(self, term: int, voted_for: int | None) -> None:
        """Adopts a term, and a vote in it; durable only after `save`."""
        assert term >= self.term, "terms only grow"
        if (term, voted_for) != (self.term, self.voted_for):
            self.term, self.voted_for, self.dirty = term, voted_for, True

    def save(self) -> None:
        """Makes the state durable: temporary file, fsync, rename, fsync of the folder."""
        body = json.dumps(
            {
                "clusterId": self._owner.cluster_id,
                "nodeId": self._owner.node_id,
                "directoryId": self._owner.directory_id,
                "leaderEpoch": self.term,
                "votedId": _NO_VOTE if self.voted_for is None else self.voted_for,
                "journalEnd": self.journal_end,
                "data_version": _VERSION,
            }
        ).encode()
        write_atomically(self._disk, self._path, b"%s\n%08x\n" % (body, crc32c(body)))
        self.dirty = False

    def _parse(self, data: bytes) -> None:
        body, _, checksum = data.partition(b"\n")
        try:
            fields: dict[str, Any] = json.loads(body)
            if int(checksum, 16) != crc32c(body) or fields["data_version"] != _VERSION:
                raise ValueError("wrong checksum or version")
            term, voted, end = fields["leaderEpoch"], fields["votedId"], fields["journalEnd"]
            owner = MetaProperties(fields["clusterId"], fields["nodeId"], fields["directoryId"])
        except (ValueError, KeyError, TypeError) as error:
            raise QuorumStateError(
                f"{self._path} is damaged ({error}). It holds this voter's vote, without which it could vote"
                " twice: restore the file from before, or format the node anew as a new voter."
            ) from error
        if owner != self._owner:
            raise QuorumStateError(
                f"{self._path} belongs to {_name(owner)}, but this directory is that of {_name(self._owner)}:"
                " give each node its own directory, and format one anew only when it is empty."
            )
        self.term, self.journal_end = term, end
        self.voted_for = None if voted == _NO_VOTE else voted


def _name(owner: MetaProperties) -> str:
    return f"node {owner.node_id} of cluster {owner.cluster_id} (directory {owner.directory_id})"
