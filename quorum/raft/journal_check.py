"""The check of a journal's files before anything relies on them; it tells a torn tail from damage.

Guarantees: every byte of every segment is read and checked, and segments join. Every acknowledged entry is there as
it was written, or the start is refused with a JournalCorruptError that names file and byte. Accepted entries are
durable before the voter says a word. `storage.py` calls it; tools find entries in damaged bytes with it
(`inspection.py`).

Only bytes that were never synced may be torn. A power loss keeps any of their sectors, so a sound batch may even
follow a torn one. Two sources say how far the journal was synced. One is the end marker in `quorum-state`: it is
written when the journal is closed, at snapshots, with every vote, and once the journal has been idle for
`END_AFTER_IDLE_S` (`journal.py`), where there is room for it. The other is the entries: each says through which
index the journal was durable when it was written. So any readable entry vouches for those before it, wherever it
lies, and no commit needs a second fsync. A bad batch at or below that index is damage; above it, it is the torn tail.

One case stays ambiguous: the entries of the very last fsync, if nothing was written after them and the node crashed
within `END_AFTER_IDLE_S`, or had no room for the marker. If a bit rots in just these bytes before the next start,
they look like a write that the power loss tore, and this voter forgets them. Telling the two apart would take a
second fsync for each commit. An acknowledged entry is lost only if this strikes a majority.

Sound bytes above that index may be in the page cache only. After a failed fsync the kernel calls them clean, and
another fsync would do nothing and report success. So the segments that hold them are copied into new files, fsynced
and renamed over the old ones: a new file has no page that an earlier fsync has given up. As a rule this is one
segment, only after a crash, and none after a proper end or an idle moment. Overwriting the bytes in place would be
cheaper, but trusts a file (and sectors) that have just failed. The copy holds the sound part only, which cuts the
torn tail in the same step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from partitions.disk import Disk, File
from partitions.log.segment import LOG_SUFFIX, base_offsets, file_name
from partitions.records.batch import CorruptBatchError, parse_header, verify_crc
from partitions.records.header import HEADER_BYTES, MAGIC_POSITION, MAGIC_V2
from quorum.raft.journal_log import NOTHING_SYNCED, JournalDamagedError, WrittenEntry, decode_written
from quorum.raft.messages import Entry

_COPY_BYTES = 1024 * 1024
_NO_PRODUCER = b"\xff" * 8
_NO_PRODUCER_POSITION = 43
"""Position of the producer id in a batch: it is -1 in every entry, a mark by which entries are found."""


class JournalCorruptError(ValueError):
    """Stored bytes that no crash explains, in the file `path` from byte `position` on."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


@dataclass
class CheckedJournal:
    """The accepted journal. `first` and `end` are the indexes of its first and last entry, both 0 if there
    is none; `entries` are those from `keep_from` on."""

    first: int = 0
    end: int = 0
    entries: list[Entry] = field(default_factory=list)


class _Damage(NamedTuple):
    """The first unsound place: in the segment with this number, where offset `lost` should be."""

    segment: int
    position: int
    lost: int
    reason: str


def recover_journal(disk: Disk, directory: str, known_end: int, keep_from: int) -> CheckedJournal:
    """Checks all segments, cuts a torn tail, and makes the rest durable.

    `known_end` is the end marker: the index through which the journal is known to have been synced.
    Raises JournalCorruptError, OSError.
    """
    check = _Check(disk, directory, known_end, keep_from)
    damage = check.run()
    if damage is not None:
        check.refuse_unless_torn(damage)
        check.cut(damage)
    elif check.journal.end < known_end:
        path, position = check.end_of_files()
        raise JournalCorruptError(
            path,
            position,
            f"the journal ends after offset {check.journal.end}, though it was synced through {known_end}:"
            " acknowledged entries are gone",
        )
    check.copy_unproven(damage)
    return check.journal


def remove_journal(disk: Disk, directory: str) -> None:
    """Removes all segments: their removal had begun before a crash, and a snapshot replaces them."""
    for base in reversed(base_offsets(disk.list_dir(directory), LOG_SUFFIX)):
        disk.remove(f"{directory}/{file_name(base, LOG_SUFFIX)}")
    disk.sync_dir(directory)


class _Check:
    """One pass over the segments in order, and its consequences."""

    def __init__(self, disk: Disk, directory: str, known_end: int, keep_from: int) -> None:
        self.journal = CheckedJournal()
        self._disk = disk
        self._directory = directory
        self._keep_from = keep_from
        self._due = 0
        """The offset that comes next."""
        self._proven = known_end
        """Through this index the journal has been durable."""
        bases = base_offsets(disk.list_dir(directory), LOG_SUFFIX)
        self._bases = bases
        self._paths = [f"{directory}/{file_name(base, LOG_SUFFIX)}" for base in bases]

    def run(self) -> _Damage | None:
        """Reads everything up to the first damage."""
        term = position = 0
        for number, base in enumerate(self._bases):
            if not number:
                self._due = base
            if base != self._due:
                reason = f"it ends before offset {self._due}, but the next segment begins at offset {base}"
                return _Damage(number - 1, position, self._due, reason)
            file = self._disk.open(self._paths[number])
            position = 0
            try:
                for written, size_bytes in _entries(file):
                    _, index, entry_term = written.entry
                    if index != self._due or entry_term < term:
                        reason = (
                            f"offset {index} of epoch {entry_term} follows {self._due - 1} of epoch {term}"
                        )
                        return _Damage(number, position, self._due, reason)
                    term = entry_term
                    self._accept(written)
                    position += size_bytes
            except (CorruptBatchError, JournalDamagedError) as error:
                return _Damage(number, position, self._due, _sentence(error))
            finally:
                file.close()
        return None

    def _accept(self, written: WrittenEntry) -> None:
        index = written.entry[1]
        self.journal.first = self.journal.first or index
        self.journal.end = index
        self._due = index + 1
        self._proven = max(self._proven, written.synced)
        if index >= self._keep_from:
            self.journal.entries.append(written.entry)

    def refuse_unless_torn(self, damage: _Damage) -> None:
        """Raises JournalCorruptError if the damaged entry was durable once."""
        proven = max(self._proven, *self._survivors(damage), NOTHING_SYNCED)
        if damage.lost <= proven:
            raise JournalCorruptError(
                self._paths[damage.segment],
                damage.position,
                f"{damage.reason}; offset {damage.lost} is lost here, and the journal was synced through {proven}",
            )

    def _survivors(self, damage: _Damage) -> Iterator[int]:
        """The `synced` of each sound entry behind the damage."""
        for number in range(damage.segment, len(self._paths)):
            start = damage.position + 1 if number == damage.segment else 0
            for written in find_entries(self._disk.read_bytes(self._paths[number]), start):
                if written.entry[1] > damage.lost:
                    yield written.synced

    def end_of_files(self) -> tuple[str, int]:
        """The last segment and its length; the folder if there is none."""
        if not self._paths:
            return self._directory, 0
        return self._paths[-1], len(self._disk.read_bytes(self._paths[-1]))

    # -- changes on the disk

    def cut(self, damage: _Damage) -> None:
        """Removes the segments behind a torn tail, the last first, so that no crash leaves a hole."""
        keep = damage.segment + (damage.position > 0 or damage.segment == 0)
        while len(self._paths) > keep:
            self._disk.remove(self._paths.pop())
            self._bases.pop()
            self._disk.sync_dir(self._directory)

    def copy_unproven(self, damage: _Damage | None) -> None:
        """Copies the segments whose sound entries were perhaps never durable, and the sound part of the torn
        one."""
        copied = False
        for number, path in enumerate(self._paths):
            is_torn = damage is not None and damage.segment == number
            last = self._bases[number + 1] - 1 if number + 1 < len(self._bases) else self.journal.end
            if is_torn or last > self._proven:
                _copy(self._disk, path, damage.position if damage is not None and is_torn else None)
                copied = True
        if copied:
            self._disk.sync_dir(self._directory)


def _entries(file: File) -> Iterator[tuple[WrittenEntry, int]]:
    """Every entry of a segment, with its size in bytes. Raises CorruptBatchError, JournalDamagedError after the
    sound entries that adjoin each other."""
    position, end = 0, file.size()
    while position < end:
        header = parse_header(file.read(position, HEADER_BYTES))
        size_bytes = header.size_bytes
        if position + size_bytes > end:
            raise JournalDamagedError(f"the file ends inside the batch at offset {header.base_offset}")
        batch = file.read(position, size_bytes)
        verify_crc(batch, 0, header)
        yield decode_written(batch, 0, header), size_bytes
        position += size_bytes


def find_entries(data: bytes, start: int) -> Iterator[WrittenEntry]:
    """The sound entries in partly damaged bytes, wherever they begin."""
    mark = data.find(_NO_PRODUCER, start + _NO_PRODUCER_POSITION)
    while mark >= 0:
        position = mark - _NO_PRODUCER_POSITION
        step = 1
        if data[position + MAGIC_POSITION] == MAGIC_V2:
            try:
                header = parse_header(data, position)
                verify_crc(data, position, header)
                yield decode_written(data, position, header)
                step = header.size_bytes
            except (CorruptBatchError, JournalDamagedError):
                step = 1
        mark = data.find(_NO_PRODUCER, mark + step)


def _copy(disk: Disk, path: str, size_bytes: int | None) -> None:
    """Replaces a file by a durable copy of its first `size_bytes` (all if None); the folder is not synced."""
    temporary = path + ".tmp"
    if disk.exists(temporary):
        disk.remove(temporary)
    source, target = disk.open(path), disk.open(temporary, create=True)
    try:
        end = source.size() if size_bytes is None else size_bytes
        for position in range(0, end, _COPY_BYTES):
            target.append([source.read(position, min(_COPY_BYTES, end - position))])
        target.sync()
    finally:
        source.close()
        target.close()
    disk.rename(temporary, path)


def _sentence(error: CorruptBatchError | JournalDamagedError) -> str:
    """The error's sentence without its place in the buffer, which says nothing about the file."""
    if isinstance(error, CorruptBatchError):
        return str(error).removesuffix(f" (byte {error.position})")
    return str(error)
