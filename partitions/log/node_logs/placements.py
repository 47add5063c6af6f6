"""Which partition lives in which data directory: what a broker remembers of a directory that is gone.

Guarantees: a partition whose directory cannot be used at start is known to be in it, and is not made anew
elsewhere; a folder that an old directory brings back is told from the one that took its place. Every data
directory holds the same list, `partition-directories`, as lines that are appended: a checksum, a number
that grows, `+` or `-`, the partition, its topic id and the directory's id. A line is durable in the log's own
directory before the log is used, and in every other that has room; a torn last line says nothing. A full
directory is behind then: it is written whole when it has room, and does not end cleanly before that. With one
directory there is no such file. The log manager owns the list; logs are made and deleted through it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple

import structlog
from crc32c import crc32c

from partitions.disk import Disk, write_atomically
from partitions.log.errors import DirectoryFailed, NoSpaceLeft
from partitions.log.node_logs.data_directory import DataDirectory
from partitions.log.partition_files import PartitionFileError, parse_topic_id, topic_id_text
from partitions.ports import Executor
from partitions.topic_partition import TopicPartition

logger = structlog.get_logger(__name__)

FILE_NAME: Final = "partition-directories"
_NO_TOPIC_ID: Final = "-"
_SLACK_LINES: Final = 1000
"""The file is written anew when it has more than this beyond twice the lines that it needs."""
_NUMBERS_OF_A_START: Final = 1 << 32
"""Each start numbers its lines from the next multiple on: a list that goes on without a directory is newer
than what that one held, even if it was behind by some lines."""


class Placement(NamedTuple):
    """Where a partition of one incarnation of a topic lives."""

    topic_id: bytes | None
    directory_id: str


class Line(NamedTuple):
    """One change of the list; a placement of None takes the partition out of it."""

    number: int
    partition: TopicPartition
    placement: Placement | None

    def encode(self) -> bytes:
        key = f"{self.number} {self.partition.topic} {self.partition.partition}"
        if self.placement is None:
            text = f"- {key}"
        else:
            topic_id, directory_id = self.placement
            text = f"+ {key} {_NO_TOPIC_ID if topic_id is None else topic_id_text(topic_id)} {directory_id}"
        body = text.encode("ascii")
        return b"%08x %s\n" % (crc32c(body), body)


def decode_line(content: bytes) -> Line | None:
    """The change that a line (without its end) holds; None if it was not written whole."""
    checksum, _, body = content.partition(b" ")
    if checksum != b"%08x" % crc32c(body):
        return None
    fields = body.decode("ascii", errors="replace").split(" ")
    try:
        if fields[0] == "-" and len(fields) == 4:
            return Line(int(fields[1]), TopicPartition(fields[2], int(fields[3])), None)
        if fields[0] == "+" and len(fields) == 6:
            topic_id = None if fields[4] == _NO_TOPIC_ID else parse_topic_id(fields[4])
            key = TopicPartition(fields[2], int(fields[3]))
            return Line(int(fields[1]), key, Placement(topic_id, fields[5]))
    except (ValueError, PartitionFileError):
        return None
    return None


def decode_placements(content: bytes) -> tuple[dict[TopicPartition, Placement], int]:
    """The list that a file holds, up to the first line that is not whole; and the number of its last line."""
    placements: dict[TopicPartition, Placement] = {}
    last = -1
    for text in content.split(b"\n")[:-1]:
        line = decode_line(text)
        if line is None:
            break
        last = line.number
        if line.placement is None:
            placements.pop(line.partition, None)
        else:
            placements[line.partition] = line.placement
    return placements, last


def append_durably(disk: Disk, path: str, data: bytes) -> None:
    """A job: appends to a file that exists, and waits for the disk. Raises OSError."""
    with closing(disk.open(path)) as file:
        file.append([data])
        file.sync()


class PartitionPlacements:
    """The list, in memory and in the data directories."""

    def __init__(self, disk: Disk, executor: Executor, directories: Sequence[DataDirectory]) -> None:
        self._disk = disk
        self._executor = executor
        self._directories = directories
        self._placements: dict[TopicPartition, Placement] = {}
        self._next_number = 0
        self._lines = 0
        self._behind: dict[DataDirectory, None] = {}
        """Where the file may lack changes, or end in a torn line."""
        self._lock = asyncio.Lock()

    def load(self) -> Mapping[TopicPartition, Placement]:
        """Reads the newest of the lists in the directories that can be used. Blocks. Raises OSError.

        A directory that was away has an older one.
        """
        for directory in self._usable():
            path = f"{directory.path}/{FILE_NAME}"
            if self._disk.exists(path):
                placements, last = decode_placements(self._disk.read_bytes(path))
                if last >= self._next_number:
                    self._placements, self._next_number = placements, last + 1
        return self._placements

    def get(self, partition: TopicPartition) -> Placement | None:
        """Where the partition lives, if there is more than one directory."""
        return self._placements.get(partition)

    def restate(self, placements: Mapping[TopicPartition, Placement]) -> None:
        """Writes the list as it was found to be at start, whole, to every directory; removes it where there
        is but one. Blocks. A directory in which that fails is given up; a full one is behind."""
        self._placements = dict(placements)
        self._next_number = (self._next_number // _NUMBERS_OF_A_START + 1) * _NUMBERS_OF_A_START
        self._next_number += len(placements)
        self._lines = len(placements)
        content = self._encode_all()
        is_shared = len(self._directories) > 1
        for directory in self._usable():
            path = f"{directory.path}/{FILE_NAME}"
            try:
                if is_shared:
                    write_atomically(self._disk, path, content)
                elif self._disk.exists(path):
                    self._disk.remove(path)
                    self._disk.sync_dir(directory.path)
            except OSError as error:
                self._failed(directory, path, error, was_behind=False)

    async def record(
        self,
        placed: Mapping[TopicPartition, Placement],
        removed: Iterable[TopicPartition] = (),
        *,
        home: DataDirectory | None = None,
    ) -> None:
        """Makes changes durable in every directory that can be used and has room. Raises NoSpaceLeft.

        That is if `home` is full, to which the changes matter most; without one, if all are. The next call
        writes what this one could not. A directory that fails otherwise is given up, and the others go on.
        """
        if len(self._directories) == 1:
            return
        async with self._lock:
            changes: dict[TopicPartition, Placement | None] = {
                key: None for key in removed if key in self._placements
            }
            changes.update(
                (key, place) for key, place in placed.items() if self._placements.get(key) != place
            )
            lines = [self._line(key, placement) for key, placement in changes.items()]
            for key, placement in changes.items():
                if placement is None:
                    del self._placements[key]
                else:
                    self._placements[key] = placement
            self._lines += len(lines)
            if self._lines > 2 * len(self._placements) + _SLACK_LINES:
                self._lines = len(self._placements)
                self._behind.update(dict.fromkeys(self._usable()))
            if changes or self._behind:
                await self._write(b"".join(lines))
            if home in self._behind or (changes and not home and self._is_behind_everywhere()):
                raise NoSpaceLeft("no space left for the list of partitions")

    async def catch_up(self) -> Collection[DataDirectory]:
        """Writes the list where it is behind; returns the directories that have no room for it."""
        if self._behind:
            await self.record({})
        return self._behind.keys()

    def _is_behind_everywhere(self) -> bool:
        return all(directory in self._behind for directory in self._usable())

    async def _write(self, lines: bytes) -> None:
        """Appends the lines where the file is whole up to them, and writes it anew elsewhere."""
        behind = set(self._behind)
        whole = self._encode_all() if behind else b""
        usable = self._usable()
        self._behind.update(dict.fromkeys(usable))  # until it is known better
        for directory in usable:
            path = f"{directory.path}/{FILE_NAME}"
            try:
                if directory in behind:
                    await self._executor.run(write_atomically, self._disk, path, whole)
                elif lines:
                    await self._executor.run(append_durably, self._disk, path, lines)
                del self._behind[directory]
            except OSError as error:
                self._failed(directory, path, error, was_behind=directory in behind)

    def _failed(self, directory: DataDirectory, path: str, error: OSError, *, was_behind: bool) -> None:
        """A full directory is behind; one that fails otherwise is given up: others have the list as well."""
        try:
            directory.storage.replace_failed(path, error)
        except NoSpaceLeft:
            self._behind[directory] = None
            if not was_behind:
                logger.warning("a list of partitions is behind: no space left", path=path)
        except DirectoryFailed:
            self._behind.pop(directory, None)

    def _usable(self) -> list[DataDirectory]:
        return [directory for directory in self._directories if directory.storage.failure is None]

    def _line(self, key: TopicPartition, placement: Placement | None) -> bytes:
        self._next_number += 1
        return Line(self._next_number - 1, key, placement).encode()

    def _encode_all(self) -> bytes:
        """The whole list; its last line has the number of the last change."""
        first = self._next_number - len(self._placements)
        return b"".join(
            Line(number, key, placement).encode()
            for number, (key, placement) in enumerate(sorted(self._placements.items()), start=first)
        )
