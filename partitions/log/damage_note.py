"""What is left in a log's folder when damage was found in it: a start must not take the log for a sound one.

Guarantees: damage that was found once, below what a recovery reads, is found again by whoever opens the log,
crash or not; where the bytes are sound again, because somebody has restored the file, the note goes. The log
manager writes it when it gives a log up, `StoredLog.open` looks for it. A copy that is made anew has none.
"""

from __future__ import annotations

import json
from typing import Final

from partitions.disk import Disk, write_atomically
from partitions.log.errors import LogCorruptError
from partitions.log.scan import Damage, walk_checked
from partitions.log.segment import LOG_SUFFIX
from partitions.log.storage import LogStorage

DAMAGE_NOTE: Final = "damage-note"


def write_damage_note(disk: Disk, folder: str, error: LogCorruptError) -> None:
    """Notes damage of a data file in this folder, durably; other files are looked at whenever they are needed.

    Raises OSError.
    """
    parent, _, name = error.path.rpartition("/")
    if parent == folder and name.endswith(LOG_SUFFIX):
        note = {"version": 0, "file": name, "position": error.position, "reason": error.reason}
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
    except (ValueError, KeyError, TypeError) as error:
        raise LogCorruptError(path, 0, "it notes damage, and cannot be read") from error
    damaged = f"{folder}/{name}"
    if storage.disk.exists(damaged) and _is_damaged(storage, damaged, position):
        raise LogCorruptError(damaged, position, reason)
    storage.remove(path)
    storage.sync_dir(folder)


def _is_damaged(storage: LogStorage, path: str, noted: int) -> bool:
    """Whether anything up to the place is unsound, or out of order."""
    file = storage.disk.open(path)
    try:
        next_offset = latest_epoch = -1
        for step in walk_checked(file, file.size()):
            if isinstance(step, Damage):
                return step.position <= noted
            position, header = step
            if header.base_offset < next_offset or 0 <= header.partition_leader_epoch < latest_epoch:
                return True
            if position > noted:
                return False
            next_offset, latest_epoch = header.next_offset, header.partition_leader_epoch
        return False
    finally:
        file.close()
