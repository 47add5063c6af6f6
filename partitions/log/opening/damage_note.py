"""What is left in a log's folder when damage was found in it: a start must not take the log for a sound one.

Guarantees: damage that was found once, below what a recovery reads, is found again when the log is opened, crash or
not; where the bytes are sound again, because an operator has restored the file, the note goes. The log manager writes
it when it gives a log up, `StoredLog.open` looks for it. A copy that is made anew has none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

import structlog

from leader_epoch.checkpoint import CHECKPOINT_FILE_NAME, EpochCheckpointError, decode_checkpoint
from leader_epoch.epoch_cache import EpochCache
from partitions.disk import Disk, write_atomically
from partitions.log.errors import (
    BatchDisplaced,
    EpochDamaged,
    EpochsDisagree,
    LogCorruptError,
    SegmentEndsElsewhere,
)
from partitions.log.scan import Damage, Readable, walk_checked
from partitions.log.segment import LOG_SUFFIX
from partitions.log.storage import LogStorage
from partitions.ports import Executor
from partitions.records.batch import HEADER_BYTES, CorruptBatchError, parse_header

logger = structlog.get_logger(__name__)

DAMAGE_NOTE: Final = "damage-note"


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
        limit = extent.limit_of(_base_offset(name))
        note = DamageNote(
            name,
            error.position,
            error.reason,
            limit if _reaches(disk, error, limit) else None,
            error.latest_epoch if isinstance(error, EpochDamaged) else None,
            isinstance(error, EpochsDisagree),
            error.last_offset if isinstance(error, BatchDisplaced) else None,
            isinstance(error, SegmentEndsElsewhere),
        )
        told = {
            key: value for key, value in note._asdict().items() if value is not None and value is not False
        }
        write_atomically(disk, f"{folder}/{DAMAGE_NOTE}", json.dumps({"version": 0, **told}).encode())


class DamageNote(NamedTuple):
    """What the file says."""

    file: str
    """Name of the segment's data file."""
    position: int
    reason: str
    limit_offset: int | None
    """No batch of the file may reach this; None where that was no part of the damage."""
    latest_epoch: int | None = None
    """No batch up to the place is of a later leader epoch; None where that was no part of the damage."""

    epochs_disagree: bool = False
    """Whether the batch at the place is of another leader epoch than the checkpoint file says."""

    last_offset: int | None = None
    """Where the batch at the place ends by both indexes; None where that was no part of the damage."""

    ends_elsewhere: bool = False
    """Whether the file ends at another offset than the next segment begins at."""

    def is_true_of(
        self, file: Readable, size_bytes: int, epochs: EpochCache, next_base: int | None = None
    ) -> bool:
        """Whether anything up to the place is unsound, out of order, or not of this segment; `epochs` are those
        of the checkpoint file, none if it cannot be read, and `next_base` is where the next segment begins now,
        None without one. Raises OSError."""
        next_offset, latest_epoch = _base_offset(self.file), -1
        for step in walk_checked(file, size_bytes):
            if isinstance(step, Damage):
                return step.position <= self.position
            position, header = step
            if header.base_offset < next_offset or 0 <= header.partition_leader_epoch < latest_epoch:
                return True
            if position > self.position and not self.ends_elsewhere:
                return False
            if self.limit_offset is not None and header.last_offset >= self.limit_offset:
                return True
            if self.latest_epoch is not None and header.partition_leader_epoch > self.latest_epoch:
                return True
            if self.last_offset is not None and position == self.position:
                return header.last_offset != self.last_offset
            if self.epochs_disagree and position == self.position:
                known = epochs.epoch_for_offset(header.base_offset)
                # Without the file a start takes the epochs from the batches; beside an empty one it judges anew.
                return len(epochs) > 0 and 0 <= header.partition_leader_epoch != known
            next_offset, latest_epoch = header.next_offset, header.partition_leader_epoch
        return self.ends_elsewhere and next_base is not None and next_offset != next_base

    def next_base_among(self, names: Sequence[str]) -> int | None:
        """Where the segment behind the damaged one begins, by the names in the folder; None if there is none."""
        bases = (_base_offset(name) for name in names if name.endswith(LOG_SUFFIX) and name[:20].isdecimal())
        return min((base for base in bases if base > _base_offset(self.file)), default=None)


def decode_damage_note(content: bytes) -> DamageNote:
    """Raises ValueError for bytes that are no note."""
    try:
        note = json.loads(content)
        found = DamageNote(
            str(note["file"]),
            int(note["position"]),
            str(note["reason"]),
            _number(note.get("limit_offset")),
            _number(note.get("latest_epoch")),
            bool(note.get("epochs_disagree", False)),
            _number(note.get("last_offset")),
            bool(note.get("ends_elsewhere", False)),
        )
        _base_offset(found.file)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("it notes damage, and cannot be read") from error
    return found


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def check_damage_note(storage: LogStorage, folder: str) -> None:
    """Raises LogCorruptError if the damage that was noted is still there, OSError; else removes the note."""
    path = f"{folder}/{DAMAGE_NOTE}"
    content = storage.read_optional(path)
    if content is None:
        return
    try:
        note = decode_damage_note(content)
    except ValueError as error:
        raise LogCorruptError(path, 0, str(error)) from error
    damaged = f"{folder}/{note.file}"
    if storage.disk.exists(damaged) and _is_damaged(storage, damaged, note):
        raise LogCorruptError(damaged, note.position, note.reason)
    storage.remove(path)
    storage.sync_dir(folder)


class DamageNotes:
    """Writes notes beside the event loop, which does not wait for their fsyncs."""

    def __init__(self, disk: Disk, executor: Executor) -> None:
        self._disk = disk
        self._executor = executor
        self._writing: set[asyncio.Task[None]] = set()

    def add(self, folder: str, error: LogCorruptError, extent: LogExtent) -> None:
        """Begins to note damage in this folder. Called on the event loop, once for each log."""
        writing = asyncio.get_running_loop().create_task(self._write(folder, error, extent))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def settled(self) -> None:
        """Waits for the notes that were begun."""
        while self._writing:
            await asyncio.wait(self._writing)

    async def _write(self, folder: str, error: LogCorruptError, extent: LogExtent) -> None:
        try:
            await self._executor.run(write_damage_note, self._disk, folder, error, extent)
        except OSError as failure:
            # The next start may take the log for sound, until the place is read again.
            logger.error("damage was not noted", folder=folder, reason=str(failure))


def _reaches(disk: Disk, error: LogCorruptError, limit_offset: int) -> bool:
    """Whether the batch at the place says that it does. Else the limit is no part of the damage, and may itself
    come from what is damaged: a file that was restored must not be measured by it."""
    with closing(disk.open(error.path)) as file:
        header = file.read(max(error.position, 0), HEADER_BYTES)
    try:
        return parse_header(header).last_offset >= limit_offset
    except CorruptBatchError:
        return False


def _base_offset(name: str) -> int:
    return int(name.removesuffix(LOG_SUFFIX))


def known_epochs(checkpoint: bytes | None) -> EpochCache:
    """The epochs in a checkpoint file; none if it is missing or cannot be read, so that a start takes others."""
    try:
        return EpochCache() if checkpoint is None else EpochCache(decode_checkpoint(checkpoint))
    except EpochCheckpointError:
        return EpochCache()


def _is_damaged(storage: LogStorage, path: str, note: DamageNote) -> bool:
    folder = path.rpartition("/")[0]
    epochs = known_epochs(storage.read_optional(f"{folder}/{CHECKPOINT_FILE_NAME}"))
    next_base = note.next_base_among(storage.disk.list_dir(folder))
    with closing(storage.disk.open(path)) as file:
        return note.is_true_of(file, file.size(), epochs, next_base)
