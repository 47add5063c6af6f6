"""Snapshots of the replicated state on disk: complete, checksummed, or not there (KIP-630).

A file `<end offset>-<epoch>.checkpoint` holds the state after every entry below the end offset, the last two of those
entries (which join the log to the snapshot) and the voters. It is written whole, fsynced and renamed. A CRC covers
all of it, and a CRC for each block locates damage. `transfer.py` uses it while the node runs, the driver when it
starts.

Layout: magic "KRS1", header length (u32), msgpack header, state, CRC-32C (u32) of each 64 KiB block of everything
before, CRC-32C of everything before (u32).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from dataclasses import dataclass

import msgpack
from crc32c import crc32c

from partitions.disk import Buffer, Disk, write_atomically
from quorum.raft.config import DIRECTORY_ID_BYTES
from quorum.raft.messages import Entry, is_entry

SUFFIX = ".checkpoint"
CURE_OF_ONLY_VOTER = (
    "Restore the folder from a copy: this is the quorum's only voter, nobody else has the cluster's metadata."
)
CURE_AMONG_OTHERS = (
    "Restore the folder from a copy, or remove it, format the node anew (`kraft storage format`) and let the"
    " other voters bring it up to date."
)
_MAGIC = b"KRS1"
_PREFIX = struct.Struct(">4sI")
_CRC = struct.Struct(">I")
_FORMAT = 2
_BLOCK_BYTES = 64 * 1024
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


def cure(voters: int) -> str:
    """The advice for an operator about a voter with damaged files, in a quorum of so many `voters`."""
    return CURE_OF_ONLY_VOTER if voters == 1 else CURE_AMONG_OTHERS


class SnapshotError(ValueError):
    """The bytes are no whole, sound snapshot: they go wrong at or after byte `position`."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after `last`; `prev` is the entry before it."""

    prev: Entry
    last: Entry
    voters: tuple[int, ...]
    state: bytes
    directories: tuple[tuple[int, bytes], ...] = ()
    """The directories in force with `last`, in order of voters; empty if none is in force."""

    @property
    def name(self) -> str:
        """Kafka's file name: the first offset not covered, and the epoch of the last one covered."""
        return f"{self.last[1] + 1:020d}-{self.last[2]:010d}{SUFFIX}"


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes of the file; equal snapshots give equal bytes."""
    header: bytes = msgpack.packb(
        {
            "format": _FORMAT,
            "prev": snapshot.prev,
            "last": snapshot.last,
            "voters": list(snapshot.voters),
            "directories": list(snapshot.directories),
            "state_bytes": len(snapshot.state),
        },
        use_bin_type=True,
    )
    body = b"".join((_PREFIX.pack(_MAGIC, len(header)), header, snapshot.state))
    covered = body + _block_checksums(body)
    return covered + _CRC.pack(crc32c(covered))


def _block_checksums(body: Buffer) -> bytes:
    view = memoryview(body)
    return b"".join(
        _CRC.pack(crc32c(view[start : start + _BLOCK_BYTES])) for start in range(0, len(view), _BLOCK_BYTES)
    )


def decode_snapshot(data: Buffer) -> Snapshot:
    """Raises SnapshotError, with the block that is damaged, unless the bytes are exactly one sound snapshot."""
    view = memoryview(data)
    covered_end = len(view) - _CRC.size
    if covered_end < _PREFIX.size + _CRC.size:
        raise SnapshotError(f"{len(view)} bytes are no snapshot", len(view))
    if _CRC.unpack_from(view, covered_end)[0] != crc32c(view[:covered_end]):
        raise _damage(view)
    magic, header_bytes = _PREFIX.unpack_from(view)
    header_end = _PREFIX.size + header_bytes
    try:
        header = msgpack.unpackb(view[_PREFIX.size : header_end], raw=False, use_list=False)
        prev, last, voters = header["prev"], header["last"], header["voters"]
        directories = header.get("directories", ())
        body_end = header_end + header["state_bytes"]
        sound = (magic, header["format"]) == (_MAGIC, _FORMAT) and _size_bytes(body_end) == len(view)
    except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
        raise SnapshotError(f"its header cannot be read: {error}") from error
    if not (sound and is_entry(prev) and is_entry(last) and last[1] == prev[1] + 1 and last[2] >= prev[2]):
        raise SnapshotError("its header contradicts itself, or is of another version")
    if not all(_is_directory_of(pair, voters) for pair in directories):
        raise SnapshotError("its header does not name the voters' directories")
    return Snapshot(prev, last, tuple(voters), bytes(view[header_end:body_end]), tuple(directories))


def _is_directory_of(pair: object, voters: Collection[int]) -> bool:
    """Whether this is (voter, 16 bytes)."""
    return (
        type(pair) is tuple
        and len(pair) == 2
        and pair[0] in voters
        and type(pair[1]) is bytes
        and len(pair[1]) == DIRECTORY_ID_BYTES
    )


def _size_bytes(body_bytes: int) -> int:
    """The size of a file with `body_bytes` before the checksums."""
    blocks = -(-body_bytes // _BLOCK_BYTES)
    return body_bytes + (blocks + 1) * _CRC.size


def _damage(view: memoryview) -> SnapshotError:
    """Locates the damage in bytes with a wrong checksum: the first block that does not match its own."""
    blocks = -(-(len(view) - _CRC.size) // (_BLOCK_BYTES + _CRC.size))
    body_end = len(view) - (blocks + 1) * _CRC.size
    for number in range(blocks):
        start, end = number * _BLOCK_BYTES, min((number + 1) * _BLOCK_BYTES, body_end)
        stored = _CRC.unpack_from(view, body_end + number * _CRC.size)[0]
        if start >= end or stored != crc32c(view[start:end]):
            return SnapshotError(
                f"the checksum of its {max(end - start, 0)} bytes from byte {start} on is wrong", start
            )
    return SnapshotError("its own checksum is wrong", len(view) - _CRC.size)


class SnapshotStore:
    """The newest snapshot of a journal's folder; older ones go once they are not needed."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.newest: Snapshot | None = None

    def open(self, advice: str = CURE_OF_ONLY_VOTER) -> None:
        """Reads the newest snapshot, makes it durable, and removes the remains of others that a crash left. Raises
        SnapshotError, which names the file and gives the advice. An older snapshot is no substitute, even if the
        log reaches back that far: the consequences of the newer one are unknown."""
        names = self._disk.list_dir(self._directory)
        for name in names:
            if name.endswith(SUFFIX + ".tmp"):
                self._disk.remove(f"{self._directory}/{name}")
        names = [name for name in names if _NAME.fullmatch(name)]
        if not names:
            return
        path = f"{self._directory}/{names[-1]}"
        data = self._disk.read_bytes(path)
        try:
            newest = decode_snapshot(data)
            if newest.name != names[-1]:
                raise SnapshotError(f"it is the snapshot {newest.name}")
        except SnapshotError as error:
            raise SnapshotError(
                f"The metadata snapshot {path} is damaged at byte {error.position}: {error}. {advice}",
                error.position,
            ) from error
        # Its name, or after a failed fsync its bytes, may be in the page cache only, where another fsync need not
        # find them. Older snapshots and the journal's beginning are removed in its favour, so it is written anew;
        # at every start, since nothing tells which stop left it so, and it has been read whole anyway.
        self.save(newest, data)
        self.remove_older()

    def save(self, snapshot: Snapshot, encoded: bytes | None = None) -> None:
        """Makes a snapshot durable: file and folder. Older files stay until `remove_older`."""
        data = encode_snapshot(snapshot) if encoded is None else encoded
        write_atomically(self._disk, f"{self._directory}/{snapshot.name}", data)
        self.newest = snapshot

    def remove_older(self) -> None:
        """Removes all snapshots but the newest; a crash on the way only leaves them for the next start."""
        assert self.newest is not None
        for name in self._disk.list_dir(self._directory):
            if _NAME.fullmatch(name) and name < self.newest.name:
                self._disk.remove(f"{self._directory}/{name}")
