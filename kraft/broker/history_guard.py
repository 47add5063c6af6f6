"""Whether the quorum's metadata are a continuation of what this broker followed before it stopped.

Guarantees: a broker acts on no image of a quorum that has lost its metadata, or is another one under the same
cluster id: it would take its own logs for those of deleted topics. The first publisher of the metadata loader;
`BrokerServer` has it write, now and then and at the end, how far the broker has followed, and whom.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from crc32c import crc32c

from partitions.disk import Disk, write_atomically
from partitions.log.errors import DataDirectoryError, LogStorageError
from partitions.log.storage import is_disk_full
from partitions.ports import Executor, Halt
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage

log = structlog.get_logger(__name__)

FILE_NAME: Final = "metadata-position-checkpoint"
_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class MetadataPosition:
    """What identifies a point in a quorum's history: offset and epoch of its last record, the directory ids
    of its voters (hexadecimal; none before the quorum has recorded them)."""

    offset: int
    epoch: int
    voters: frozenset[str]

    @classmethod
    def of(cls, image: MetadataImage) -> MetadataPosition:
        directories = frozenset(directory_id.hex() for directory_id in image.voters.values())
        return cls(image.offset, image.epoch, directories)

    def encode(self) -> bytes:
        """The content of the file: one line of JSON, and its CRC-32C."""
        fields = {
            "version": _VERSION,
            "offset": self.offset,
            "epoch": self.epoch,
            "voters": sorted(self.voters),
        }
        body = json.dumps(fields).encode()
        return b"%s\n%08x\n" % (body, crc32c(body))

    @classmethod
    def decode(cls, content: bytes) -> MetadataPosition:
        """Raises ValueError if the content is not exactly that of a file that was written whole."""
        body, _, checksum = content.partition(b"\n")
        if checksum != b"%08x\n" % crc32c(body):
            raise ValueError(f"the checksum of its {len(content)} bytes is wrong")
        fields = json.loads(body)
        if fields["version"] != _VERSION:
            raise ValueError("it is of another version")
        return cls(fields["offset"], fields["epoch"], frozenset(fields["voters"]))

    def contradiction(self, later: MetadataPosition) -> str | None:
        """Why `later` cannot follow this position in one history; None if it can.

        A committed record stays, so neither offset nor epoch falls; and voters are given new disks one by
        one, each recorded by the others, so they are not strangers all at once.
        """
        if later.offset < self.offset:
            return f"end at offset {later.offset}, and this broker had followed them to offset {self.offset}"
        if later.epoch < self.epoch:
            return f"are of epoch {later.epoch}, and this broker had followed them in epoch {self.epoch}"
        if self.voters and not self.voters & later.voters:
            return "come from voters none of which has the directory that it had when this broker last ran"
        return None


class HistoryGuard:
    """The position that a broker has followed the metadata to, in memory and in each of its data directories."""

    def __init__(
        self,
        disk: Disk,
        directories: Callable[[], Sequence[str]],
        executor: Executor,
        halt: Halt,
        on_failure: Callable[[str, str], None],
    ) -> None:
        """`directories` are those that can be used, at the moment when it is called; `on_failure` is told of
        one, with the reason, in which a write failed for want of anything but room."""
        self._disk = disk
        self._directories = directories
        self._executor = executor
        self._halt = halt
        self._on_failure = on_failure
        self._before: MetadataPosition | None = None
        self._now: MetadataPosition | None = None
        self._written: MetadataPosition | None = None

    def load(self) -> None:
        """Reads what an earlier process has left. Blocks; the directory is locked. Raises DataDirectoryError."""
        positions, damage = [], None
        for path in self._paths():
            if self._disk.exists(path):
                try:
                    positions.append(MetadataPosition.decode(self._disk.read_bytes(path)))
                except (ValueError, KeyError, TypeError) as error:
                    damage = DataDirectoryError(
                        f"{path} is damaged: {error}. It tells the cluster's metadata from those of another"
                        " quorum: restore it from a copy, or remove it if you are sure that the quorum has lost"
                        " nothing."
                    )
        if damage is not None and not positions:
            raise damage
        # A directory that was away has an older one.
        self._before = max(positions, key=lambda position: position.offset, default=None)

    def _paths(self) -> list[str]:
        return [_path_in(directory) for directory in self._directories()]

    def on_metadata(self, _changes: MetadataChanges, image: MetadataImage) -> None:
        """Halts the broker, before anybody acts on them, if the first metadata are of another history."""
        position = MetadataPosition.of(image)
        if self._now is None and self._before is not None:
            contradiction = self._before.contradiction(position)
            if contradiction is not None:
                reason = (
                    f"the quorum's metadata {contradiction}: the quorum has lost its data, or is another one."
                    " Nothing was deleted here. Restore the quorum's metadata from a copy; only if they are the"
                    f" right ones nonetheless, remove {', '.join(self._paths())} and start this broker again."
                )
                self._halt(reason)
                raise HistoryError(reason)
        self._now = position

    async def checkpoint(self) -> None:
        """Makes the position durable if it has moved. Raises LogStorageError; the next call tries again where
        the disk was full. What else fails there is not tried twice: the directory is given up."""
        position = self._now
        if position is None or position == self._written:
            return
        for directory in self._directories():
            path = _path_in(directory)
            try:
                await self._executor.run(write_atomically, self._disk, path, position.encode())
            except OSError as error:
                reason = f"writing {path} failed: {error}"
                if not is_disk_full(error):
                    self._on_failure(directory, reason)
                raise LogStorageError(reason) from error
        self._written = position

    async def close(self) -> None:
        """The last checkpoint; one that the disk refuses leaves an older position, which serves as well."""
        try:
            await self.checkpoint()
        except LogStorageError as error:
            log.error("the metadata position was not written", reason=str(error))


class HistoryError(Exception):
    """The metadata contradict what this broker has followed."""


def _path_in(directory: str) -> str:
    return f"{directory.rstrip('/')}/{FILE_NAME}"
