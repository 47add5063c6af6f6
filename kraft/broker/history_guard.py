"""Whether the quorum's metadata are a continuation of what this broker followed before it stopped.

Guarantees: a broker acts on no image of a quorum that has lost its metadata, or is another one under the same
cluster id: it would take its own logs for those of deleted topics. The first publisher of the metadata loader;
`BrokerServer` has it write, now and then and at the end, how far the broker has followed, and whom.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from partitions.disk import Disk, write_atomically
from partitions.log.errors import DataDirectoryError, LogStorageError
from partitions.ports import Executor, Halt
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage

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
    """The position that a broker has followed the metadata to, in memory and in its first data directory."""

    def __init__(self, disk: Disk, directory: str, executor: Executor, halt: Halt) -> None:
        self._disk = disk
        self._path = f"{directory.rstrip('/')}/{FILE_NAME}"
        self._executor = executor
        self._halt = halt
        self._before: MetadataPosition | None = None
        self._now: MetadataPosition | None = None
        self._written: MetadataPosition | None = None

    def load(self) -> None:
        """Reads what an earlier process has left. Blocks; the directory is locked. Raises DataDirectoryError."""
        if not self._disk.exists(self._path):
            return
        try:
            self._before = MetadataPosition.decode(self._disk.read_bytes(self._path))
        except (ValueError, KeyError, TypeError) as error:
            raise DataDirectoryError(
                f"{self._path} is damaged: {error}. It tells the cluster's metadata from those of another quorum:"
                " restore it from a copy, or remove it if you are sure that the quorum has lost nothing."
            ) from error
        self._written = self._before

    def on_metadata(self, _changes: MetadataChanges, image: MetadataImage) -> None:
        """Halts the broker, before anybody acts on them, if the first metadata are of another history."""
        position = MetadataPosition.of(image)
        if self._now is None and self._before is not None:
            contradiction = self._before.contradiction(position)
            if contradiction is not None:
                reason = (
                    f"the quorum's metadata {contradiction}: the quorum has lost its data, or is another one."
                    " Nothing was deleted here. Restore the quorum's metadata from a copy; only if they are the"
                    f" right ones nonetheless, remove {self._path} and start this broker again."
                )
                self._halt(reason)
                raise HistoryError(reason)
        self._now = position

    async def checkpoint(self) -> None:
        """Makes the position durable if it has moved. Raises LogStorageError; the next call tries again."""
        position = self._now
        if position is None or position == self._written:
            return
        try:
            await self._executor.run(write_atomically, self._disk, self._path, position.encode())
        except OSError as error:
            raise LogStorageError(f"writing {self._path} failed: {error}") from error
        self._written = position


class HistoryError(Exception):
    """The metadata contradict what this broker has followed."""
