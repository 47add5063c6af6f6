"""A read-only view of a voter's files, for tools, while the node runs or not.

Guarantees: nothing is written, cut, locked or removed. Every byte handed on has passed its checksum; an unsound one
is a DamageError that names file and byte. Reading takes no lock, so a running node may append, cut or drop files
meanwhile: bytes that changed while they were read are read again, and a folder that changed too much is a
FolderChangedError. A voter does not write down its commit index, so a later leader may still undo the last entries
of a journal.

`MetadataFolder` is a voter's folder `__cluster_metadata-0`: its newest snapshot (KIP-630) and the journal behind it.
`read_snapshot` and `read_segment` take single files. `kraft metadata` calls them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from partitions.log.inspection.files import ReadableDisk
from partitions.log.segment import LOG_SUFFIX
from partitions.records.batch import CorruptBatchError, iter_batches, verify_crc
from quorum.raft.config import JOURNAL_PARTITION, JOURNAL_TOPIC
from quorum.raft.journal_check import find_entries
from quorum.raft.journal_log import NOTHING_SYNCED, JournalDamagedError, decode_written
from quorum.raft.messages import PROPOSAL
from quorum.raft.quorum_state import FILE_NAME as QUORUM_STATE
from quorum.raft.quorum_state import journal_end_in
from quorum.raft.snapshot import SUFFIX as SNAPSHOT_SUFFIX
from quorum.raft.snapshot import Snapshot, SnapshotError, decode_snapshot

FOLDER_NAME = f"{JOURNAL_TOPIC}-{JOURNAL_PARTITION}"
READ_ATTEMPTS = 5
"""How often bytes that fail their check are read again, as long as they differ from the last time."""
_OFFSET_DIGITS = 20


class DamageError(ValueError):
    """Stored bytes that differ from those written: in `path`, at byte `position`."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class FolderChangedError(Exception):
    """The node dropped or replaced files while they were read; reading again will do."""


class NoMetadataError(Exception):
    """The folder holds no metadata log; the message names the files looked for."""


class StoredEntry(NamedTuple):
    """One entry of a journal. `data` is the proposal; None for a leader's barrier. `synced` is the offset
    through which the journal was durable when it was written, 0 if it does not say. `timestamp_ms`: when this voter
    wrote it."""

    offset: int
    epoch: int
    data: bytes | None
    synced: int = NOTHING_SYNCED
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """One snapshot file."""

    path: str
    snapshot: Snapshot

    @property
    def offset(self) -> int:
        """The offset of the last entry that it covers."""
        return self.snapshot.last[1]

    @property
    def epoch(self) -> int:
        """The term of that entry."""
        return self.snapshot.last[2]


def is_snapshot(path: str) -> bool:
    """Whether a file is a snapshot by its name."""
    return path.endswith(SNAPSHOT_SUFFIX)


def is_segment(path: str) -> bool:
    """Whether a file is a segment of a journal by its name."""
    return _base_offset(path) is not None


def read_snapshot(disk: ReadableDisk, path: str) -> StoredSnapshot:
    """A snapshot file. Raises DamageError, OSError."""
    try:
        return StoredSnapshot(path, decode_snapshot(disk.read_bytes(path)))
    except SnapshotError as error:
        raise DamageError(path, error.position, str(error)) from error


def read_segment(
    disk: ReadableDisk, path: str, *, follows: tuple[int, int] | None = None
) -> list[StoredEntry]:
    """All entries of a journal's segment, which follows the offset and epoch in `follows`, if given.
    Raises SegmentDamageError, OSError."""
    before = None
    for _ in range(READ_ATTEMPTS):
        data = disk.read_bytes(path)
        try:
            return _parse(path, data, follows)
        except SegmentDamageError as error:
            if data == before:
                raise
            before, damage = data, error
    raise damage


class SegmentDamageError(DamageError):
    """A segment that is sound up to `position`; `entries` are the ones before it."""

    def __init__(self, path: str, position: int, reason: str, entries: list[StoredEntry]) -> None:
        super().__init__(path, position, reason)
        self.entries = entries


def _parse(path: str, data: bytes, follows: tuple[int, int] | None) -> list[StoredEntry]:
    entries: list[StoredEntry] = []
    position = 0
    try:
        for position, header in iter_batches(data):
            verify_crc(data, position, header)
            (command, offset, epoch), synced = decode_written(data, position, header)
            if follows is not None and (offset != follows[0] + 1 or epoch < follows[1]):
                raise JournalDamagedError(
                    f"offset {offset} of epoch {epoch} follows offset {follows[0]} of epoch {follows[1]}"
                )
            follows = offset, epoch
            is_proposal = command.startswith(PROPOSAL)
            proposal = command[len(PROPOSAL) :] if is_proposal else None
            entries.append(StoredEntry(offset, epoch, proposal, synced, header.max_timestamp))
    except CorruptBatchError as error:
        raise SegmentDamageError(path, max(error.position, position), _reason(error), entries) from error
    except JournalDamagedError as error:
        raise SegmentDamageError(path, position, str(error), entries) from error
    return entries


def _reason(error: CorruptBatchError) -> str:
    """The sentence without the place in the buffer, which is said beside it."""
    return str(error).removesuffix(f" (byte {error.position})")


def _base_offset(path: str) -> int | None:
    name = path.rpartition("/")[2]
    digits = name.removesuffix(LOG_SUFFIX)
    is_named = name.endswith(LOG_SUFFIX) and len(digits) == _OFFSET_DIGITS and digits.isdecimal()
    return int(digits) if is_named else None


class MetadataFolder:
    """A voter's snapshot and journal. The snapshot is read when it is made, the journal by `entries`."""

    def __init__(self, disk: ReadableDisk, directory: str) -> None:
        """`directory` is the folder itself, or the data directory around it.

        Raises NoMetadataError, DamageError, FolderChangedError, OSError.
        """
        self._disk = disk
        self.directory = self._find(directory)
        self._known_end = self._journal_end()
        self.snapshot = self._newest_snapshot()
        self.torn_tail: DamageError | None = None
        """The torn entry that `entries` met at the journal's end: one being written, or cut off by a crash. The
        voter never acknowledged it, and it is no damage."""

    def _find(self, directory: str) -> str:
        inner = f"{directory}/{FOLDER_NAME}"
        if self._disk.exists(inner):
            return inner
        if self._disk.exists(directory):
            names = self._disk.list_dir(directory)
            if any(is_snapshot(name) or is_segment(name) for name in names):
                return directory
        raise NoMetadataError(
            f"{directory} holds no metadata log: there is no {FOLDER_NAME} in it. Name the metadata.log.dir"
            " (or the first of the log.dirs) of a node with the controller role"
        )

    def _newest_snapshot(self) -> StoredSnapshot | None:
        for _ in range(READ_ATTEMPTS):
            names = [name for name in self._disk.list_dir(self.directory) if is_snapshot(name)]
            if not names:
                return None
            try:
                return read_snapshot(self._disk, f"{self.directory}/{max(names)}")
            except FileNotFoundError:
                continue  # the node has a newer one now
        raise FolderChangedError(f"the snapshots in {self.directory} change faster than they can be read")

    def _journal_end(self) -> int:
        """The journal's end as the voter noted it. 0 if it noted none or the note cannot be read: then no entry
        at the journal's end can be called missing."""
        try:
            return journal_end_in(self._disk.read_bytes(f"{self.directory}/{QUORUM_STATE}"))
        except (FileNotFoundError, ValueError, KeyError):
            return 0

    @property
    def first_offset(self) -> int | None:
        """The first offset of the journal on disk; None if there is none."""
        segments = self._segments()
        return segments[0] if segments else None

    def _segments(self) -> list[int]:
        bases = (_base_offset(name) for name in self._disk.list_dir(self.directory))
        return sorted(base for base in bases if base is not None)

    def _path(self, base_offset: int) -> str:
        return f"{self.directory}/{base_offset:0{_OFFSET_DIGITS}d}{LOG_SUFFIX}"

    def entries(self, from_offset: int) -> Iterator[StoredEntry]:
        """The journal's entries from an offset (or from where it begins, if that is later) to its end,
        in order. Raises, after those before it, DamageError; FolderChangedError, OSError.

        A journal that contradicts the snapshot ends before it: the node would drop the rest at its start.
        """
        bases = self._segments()
        covered = 0 if self.snapshot is None else self.snapshot.offset
        if not bases:
            raise DamageError(self.directory, 0, "there is no journal in it")
        if 0 < covered < bases[0] - 1:
            reason = f"it begins at offset {bases[0]}, and the newest snapshot ends at {covered}"
            raise DamageError(self._path(bases[0]), 0, reason)
        start = min(from_offset, max(covered, 1))
        bases = bases[max((number for number, base in enumerate(bases) if base <= start), default=0) :]
        due, epoch, proven = bases[0], 0, self._known_end
        for number, base in enumerate(bases):
            read, damage = self._read(base, due, epoch)
            for entry in read:
                if (
                    self.snapshot is not None
                    and entry.offset == covered
                    and entry.epoch != self.snapshot.epoch
                ):
                    return
                due, epoch, proven = entry.offset + 1, entry.epoch, max(proven, entry.synced)
                if entry.offset >= from_offset:
                    yield entry
            if damage is not None:
                self._refuse_unless_torn(damage, due, proven, bases[number:])
                return
        self._check_end(due, bases[-1])

    def _read(self, base: int, due: int, epoch: int) -> tuple[list[StoredEntry], DamageError | None]:
        """The sound entries of a segment, and the damage behind them."""
        path = self._path(base)
        if base != due:
            reason = f"it begins at offset {base}, and the segment before it ends at {due - 1}"
            return [], DamageError(path, 0, reason)
        try:
            return read_segment(self._disk, path, follows=(due - 1, epoch)), None
        except FileNotFoundError as error:
            raise FolderChangedError(
                f"the node has dropped {path} behind a newer snapshot while it was read"
            ) from error
        except SegmentDamageError as error:
            return error.entries, error

    def _refuse_unless_torn(self, damage: DamageError, due: int, proven: int, bases: list[int]) -> None:
        """Raises the damage if the entry due there was durable once: the voter's note or a sound entry, before
        the damage or behind it, says so."""
        for base in bases:
            path = self._path(base)
            start = damage.position + 1 if path == damage.path else 0
            behind = find_entries(self._disk.read_bytes(path), start)
            proven = max([proven, *(written.synced for written in behind if written.entry[1] > due)])
        if due <= proven:
            raise damage
        self.torn_tail = damage

    def _check_end(self, due: int, last_base: int) -> None:
        """Raises if the journal ends below the noted end: acknowledged entries are gone, unless the voter has
        cut them meanwhile."""
        covered = 0 if self.snapshot is None else self.snapshot.offset
        missing = min(self._known_end, self._journal_end())
        if max(due - 1, covered) < missing:
            path = self._path(last_base)
            raise DamageError(
                path,
                len(self._disk.read_bytes(path)),
                f"the journal ends at offset {due - 1}, though it was synced through {missing}",
            )
