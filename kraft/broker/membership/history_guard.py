"""Whether the quorum's metadata are a continuation of what this broker followed before it stopped.

Guarantees: a broker acts on no image of a quorum that has lost its metadata, or is another one under the same
cluster id: it would take its own logs for those of deleted topics. The first publisher of the metadata loader;
`BrokerServer` has it write, now and then and at the end, how far the broker has followed, and whom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from partitions.disk import Disk, write_atomically
from partitions.log.errors import LogStorageError
from partitions.log.node_logs.metadata_position import METADATA_POSITION, MetadataPosition
from partitions.log.storage import is_wanting
from partitions.ports import Executor, Halt
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage

log = structlog.get_logger(__name__)


def position_of(image: MetadataImage) -> MetadataPosition:
    """The point that an image stands at."""
    directories = frozenset(directory_id.hex() for directory_id in image.voters.values())
    return MetadataPosition(image.offset, image.epoch, directories)


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
        one, with the reason, in which a write failed for want of anything but room or descriptors."""
        self._disk = disk
        self._directories = directories
        self._executor = executor
        self._halt = halt
        self._on_failure = on_failure
        self._before: MetadataPosition | None = None
        self._now: MetadataPosition | None = None
        self._written: MetadataPosition | None = None

    def load(self) -> None:
        """Reads what an earlier process has left. Blocks; the directory is locked.

        A damaged file counts as absent: without any, whatever metadata come first are followed.
        """
        positions = []
        for path in self._paths():
            if self._disk.exists(path):
                try:
                    positions.append(MetadataPosition.decode(self._disk.read_bytes(path)))
                except ValueError as error:
                    log.error(
                        "a checkpoint file is damaged and counts as absent", file=path, reason=str(error)
                    )
        # A directory that was away has an older one.
        self._before = max(positions, key=lambda position: position.offset, default=None)

    def _paths(self) -> list[str]:
        return [_path_in(directory) for directory in self._directories()]

    def on_metadata(self, _changes: MetadataChanges, image: MetadataImage) -> None:
        """Halts the broker, before anybody acts on them, if the first metadata are of another history."""
        position = position_of(image)
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
        room or descriptors were wanting. What else fails there is not tried twice: the directory is given up.
        Neither keeps the other directories from the position."""
        position = self._now
        if position is None or position == self._written:
            return
        first: LogStorageError | None = None
        for directory in self._directories():
            path = _path_in(directory)
            try:
                await self._executor.run(write_atomically, self._disk, path, position.encode())
            except OSError as error:
                reason = f"writing {path} failed: {error}"
                if not is_wanting(error):
                    self._on_failure(directory, reason)
                first = first or LogStorageError(reason)
        if first is not None:
            raise first
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
    return f"{directory.rstrip('/')}/{METADATA_POSITION}"
