"""The file `quorum-state`: a voter's term and vote, which it must never forget (Raft, section 5.2).

Guarantees: after `save` returns, term and vote survive a power loss. A file that is damaged, or of another cluster,
node or directory, refuses to load. It never passes for an empty one, since this node could then vote twice in one
term. The journal calls `save` before anything that depends on term or vote leaves the node.

The file also holds:
- `journal_end`, the end marker: the index through which the journal was synced when the file was written. By it
  damage is told from a torn tail (`journal_check.py`). It is 0 while the journal is begun anew behind a snapshot, and
  in a voter without a journal;
- that this voter has forgotten an acknowledgement of its own, after which it never loads again;
- the set of voters, which never changes, with those directories that a committed entry records (`voters.py`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from crc32c import crc32c

from partitions.disk import Disk, File, begin_replacement, finish_replacement
from partitions.log.node_logs.meta_properties import MetaProperties
from partitions.log.storage import is_disk_full, is_out_of_descriptors, is_passing
from quorum.raft.snapshot import CURE_OF_ONLY_VOTER

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
        self.voters: tuple[int, ...] = ()
        """The ids of all voters, as they were when this voter first started; none in an old file."""
        self.directories: dict[int, bytes] = {}
        """The committed directories of the voters, as of entry `directories_offset`."""
        self.directories_offset = 0
        self.void: str | None = None
        """Why the promises of this directory no longer count, a sentence for the operator; None: they do."""
        self.dirty = False

    @classmethod
    def load(
        cls, disk: Disk, directory: str, owner: MetaProperties, advice: str = CURE_OF_ONLY_VOTER
    ) -> QuorumState | None:
        """The state in the folder's file, or None without a file. Raises QuorumStateError (with the advice if the
        file is damaged), OSError."""
        state = cls(disk, directory, owner)
        if not disk.exists(state._path):
            return None
        state._parse(disk.read_bytes(state._path), advice)
        return state

    def set(self, term: int, voted_for: int | None) -> None:
        """Adopts a term, and a vote in it; durable only after `save`."""
        assert term >= self.term, "terms only grow"
        if (term, voted_for) != (self.term, self.voted_for):
            self.term, self.voted_for, self.dirty = term, voted_for, True

    def set_directories(self, offset: int, directories: Mapping[int, bytes]) -> None:
        """Notes the voters' directories that are in force with the entry at `offset`."""
        self.directories_offset, self.directories, self.dirty = offset, dict(directories), True

    def save(self) -> None:
        """Makes the state durable: temporary file, fsync, rename, fsync of the folder. Raises OSError, which
        names the file."""
        with _naming(self._path):
            self._finish(self._begin())

    def save_if_possible(self) -> bool:
        """As `save`, for a state that differs from the file in its end marker alone; False without room or a
        descriptor for a new file. The old file then stays whole, and another attempt begins with a new one. Raises
        OSError for any other failure: a failed fsync is never retried."""
        with _naming(self._path):
            try:
                file = self._begin()
            except OSError as error:
                if is_disk_full(error) or is_passing(error):
                    return False
                raise
            try:
                self._finish(file)
            except OSError as error:
                if is_out_of_descriptors(error):  # the folder could not be opened, and so not be fsynced
                    return False
                raise
        return True

    def keep(self) -> None:
        """Relies on the file as loaded: its content was durable before it got its name, and a file system that
        could not write the name takes no more writes. Raises OSError."""
        self._disk.sync_dir(self._path.rpartition("/")[0])

    def _finish(self, file: File) -> None:
        finish_replacement(self._disk, self._path, file)
        self.dirty = False

    def _begin(self) -> File:
        body = json.dumps(
            {
                "clusterId": self._owner.cluster_id,
                "nodeId": self._owner.node_id,
                "directoryId": self._owner.directory_id,
                "leaderEpoch": self.term,
                "votedId": _NO_VOTE if self.voted_for is None else self.voted_for,
                "journalEnd": self.journal_end,
                "currentVoters": [
                    {"voterId": voter, "directoryId": self.directories.get(voter, b"").hex()}
                    for voter in self.voters
                ],
                "votersOffset": self.directories_offset,
                **({} if self.void is None else {"void": self.void}),
                "data_version": _VERSION,
            }
        ).encode()
        return begin_replacement(self._disk, self._path, b"%s\n%08x\n" % (body, crc32c(body)))

    def _parse(self, data: bytes, advice: str) -> None:
        try:
            fields = _checked_fields(data)
            term, voted, end = fields["leaderEpoch"], fields["votedId"], fields["journalEnd"]
            owner = MetaProperties(fields["clusterId"], fields["nodeId"], fields["directoryId"])
            voters = {
                int(voter["voterId"]): bytes.fromhex(voter["directoryId"])
                for voter in fields.get("currentVoters", ())
            }
            offset = int(fields.get("votersOffset", 0))
        except (ValueError, KeyError, TypeError) as error:
            raise QuorumStateError(
                f"{self._path} is damaged: {error}. It holds this voter's vote, without which it could vote"
                f" twice. {advice}"
            ) from error
        if owner != self._owner:
            raise QuorumStateError(
                f"{self._path} belongs to {_name(owner)}, but by its meta.properties this directory is that of"
                f" {_name(self._owner)}: give each node its own directory, format one anew only when it is empty,"
                " and restore meta.properties if it is damaged."
            )
        if "void" in fields:
            raise QuorumStateError(str(fields["void"]))
        self.term, self.journal_end = term, end
        self.voted_for = None if voted == _NO_VOTE else voted
        self.voters, self.directories_offset = tuple(voters), offset
        self.directories = {voter: directory_id for voter, directory_id in voters.items() if directory_id}


def journal_end_in(data: bytes) -> int:
    """The end marker in the bytes of any voter's file: for tools that look into a copy. Raises ValueError if
    the bytes are damaged."""
    end = _checked_fields(data).get("journalEnd")
    if type(end) is not int:
        raise ValueError("it has no end marker")
    return end


def _checked_fields(data: bytes) -> dict[str, Any]:
    body, _, checksum = data.partition(b"\n")
    if checksum != b"%08x\n" % crc32c(body):
        raise ValueError(f"the checksum of its {len(data)} bytes is wrong")
    fields: dict[str, Any] = json.loads(body)
    if fields["data_version"] != _VERSION:
        raise ValueError("another version")
    return fields


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Has an OSError name the file: one about a descriptor names none, others name a temporary file."""
    try:
        yield
    except OSError as error:
        error.filename = path
        raise


def _name(owner: MetaProperties) -> str:
    return f"node {owner.node_id} of cluster {owner.cluster_id} (directory {owner.directory_id})"
