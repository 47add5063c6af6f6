"""What is left in a log's folder when damage was found in it: a start must not take the log for a sound one.

Guarantees: damage that was found once, below what a recovery reads, is found again by whoever opens the log,
crash or not; where the bytes are sound again, because somebody has restored the file, the note goes. The log
manager writes it when it gives a log up, `StoredLog.open` looks for it. A copy that is made anew has none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from partitions.disk import Disk, write_atomically
from partitions.log.errors import LogCorruptError
from partitions.log.scan import Damage, walk_checked
from partitions.log.segment import LOG_SUFFIX
from partitions.log.storage import LogStorage
from partitions.records.batch import HEADER_BYTES, CorruptBatchError, parse_header

DAMAGE_NOTE: Final = "damage-note"
_UNLIMITED: Final = 2**63 - 1


class LogExtent(NamedTuple):
    """What was known of the offsets in a log when it was given up: its files may say something else."""

    base_offsets: Sequence[int]
    end_offset: int

    def limit_of(self, base_offset: int) -> int:
        """The offset that no batch of the segment reaches which begins there."""
        return min((base for base in self.base_offsets if base > base_offset), default=self.end_offset)


def write_damage_note(disk: Disk, folder: str, error: LogCorruptError, extent: LogExtent) -> None:
    """Notes damage of a data file in this folder, durably; other files are looked at whenever they are needed.

    Raises OSError.
    """
    parent, _, name = error.path.rpartition("/")
    if parent == folder and name.endswith(LOG_SUFFIX):
        note = {"version": 0, "file": name, "position": error.position, "reason": error.reason}
        limit = extent.limit_of(_base_offset(name))
        if _reaches(disk, error, limit):
            note["limit_offset"] = limit
        write_atomically(disk, f"{folder}/{DAMAGE_NOTE}", json.dumps(note).encode())


def check_damage_note(storage: LogStorage, folder: str) -> None:
    """Raises LogCorruptError if the damage that was noted is still there, OSError; else removes the note."""
    path = f"{folder}/{DAMAGE_NOTE}"
    content = storage.read_optional(path)
    if content is None:
        return
    try:
        note = json.loads(content)
        name, position, reason = str(note["file"]), int(note["position"]), str(note["reason"])
        place = _Noted(position, _base_offset(name), int(note.get("limit_offset", _UNLIMITED)))
    except (ValueError, KeyError, TypeError) as error:
        raise LogCorruptError(path, 0, "it notes damage, and cannot be read") from error
    damaged = f"{folder}/{name}"
    if storage.disk.exists(damaged) and _is_damaged(storage, damaged, place):
        raise LogCorruptError(damaged, position, reason)
    storage.remove(path)
    storage.sync_dir(folder)


def _reaches(disk: Disk, error: LogCorruptError, limit_offset: int) -> bool:
    """Whether the batch at the place says that it does. Else the limit is no part of the damage, and may itself
    come from what is damaged: whoever has restored the file must not be measured by it."""
    file = disk.open(error.path)
    try:
        header = file.read(max(error.position, 0), HEADER_BYTES)
        return len(header) == HEADER_BYTES and parse_header(header, 0).last_offset >= limit_offset
    except CorruptBatchError:
        return False
    finally:
        file.close()


class _Noted(NamedTuple):
    position: int
    base_offset: int
    limit_offset: int


def _base_offset(name: str) -> int:
    return int(name.removesuffix(LOG_SUFFIX))


def _is_damaged(storage: LogStorage, path: str, noted: _Noted) -> bool:
    """Whether anything up to the place is unsound, out of order, or not of this segment."""
    file = storage.disk.open(path)
    try:
        next_offset, latest_epoch = noted.base_offset, -1
        for step in walk_checked(file, file.size()):
            if isinstance(step, Damage):
                return step.position <= noted.position
            position, header = step
            if header.base_offset < next_offset or 0 <= header.partition_leader_epoch < latest_epoch:
                return True
            if position > noted.position:
                return False
            if header.last_offset >= noted.limit_offset:
                return True
            next_offset, latest_epoch = header.next_offset, header.partition_leader_epoch
        return False
    finally:
        file.close()
