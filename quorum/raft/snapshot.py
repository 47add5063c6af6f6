"""Snapshots of the replicated state on disk: complete, checksummed, or not there (KIP-630).

A file `<end offset>-<epoch>.checkpoint` holds the state after every entry below the end offset, the
last two of those entries (the log is joined to the snapshot by both) and the voters. It is written
whole, fsynced and renamed; the CRC covers all of it. Used by `transfer.py` while the node runs and
by the driver when it starts.

Layout: magic "KRS1", header length (u32), msgpack header, state, CRC-32C of everything before (u32).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

import msgpack
from crc32c import crc32c

from partitions.disk import Disk, write_atomically
from quorum.raft.messages import Entry, is_entry

SUFFIX = ".checkpoint"
_MAGIC = b"KRS1"
_PREFIX = struct.Struct(">4sI")
_CRC = struct.Struct(">I")
_FORMAT = 1
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotError(ValueError):
    """The bytes are no whole, sound snapshot."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after `last`; `prev` is the entry before it."""

    prev: Entry
    last: Entry
    voters: tuple[int, ...]
    state: bytes

    @property
    def name(self) -> str:
        """Kafka's file name: the first offset that is not covered, and the epoch of the one before."""
        return f"{self.last[1] + 1:020d}-{self.last[2]:010d}{SUFFIX}"


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes of the file; equal snapshots give equal bytes."""
    header: bytes = msgpack.packb(
        {
            "format": _FORMAT,
            "prev": snapshot.prev,
            "last": snapshot.last,
            "voters": list(snapshot.voters),
            "state_bytes": len(snapshot.state),
        },
        use_bin_type=True,
    )
    body = b"".join((_PREFIX.pack(_MAGIC, len(header)), header, snapshot.state))
    return body + _CRC.pack(crc32c(body))


def decode_snapshot(data: bytes) -> Snapshot:
    """Raises SnapshotError unless the bytes are exactly one sound snapshot."""
    body_end = len(data) - _CRC.size
    if body_end < _PREFIX.size:
        raise SnapshotError(f"{len(data)} bytes are no snapshot")
    magic, header_bytes = _PREFIX.unpack_from(data)
    if magic != _MAGIC or _CRC.unpack_from(data, body_end)[0] != crc32c(memoryview(data)[:body_end]):
        raise SnapshotError("its checksum is wrong")
    header_end = _PREFIX.size + header_bytes
    try:
        header = msgpack.unpackb(data[_PREFIX.size : header_end], raw=False, use_list=False)
        prev, last, voters = header["prev"], header["last"], header["voters"]
        sound = header["format"] == _FORMAT and header["state_bytes"] == body_end - header_end
    except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
        raise SnapshotError(f"its header cannot be read: {error}") from error
    if not (sound and is_entry(prev) and is_entry(last) and last[1] == prev[1] + 1 and last[2] >= prev[2]):
        raise SnapshotError("its header contradicts itself")
    return Snapshot(prev, last, tuple(voters), data[header_end:body_end])


class SnapshotStore:
    """The newest snapshot of a journal's folder; older ones go once they are not needed."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.newest: Snapshot | None = None

    def open(self) -> None:
        """Reads the newest snapshot, and removes what a crash left of others. Raises SnapshotError
        naming the file: an older one is no substitute, the log behind it is gone."""
        names = self._disk.list_dir(self._directory)
        for name in names:
            if name.endswith(SUFFIX + ".tmp"):
                self._disk.remove(f"{self._directory}/{name}")
        names = [name for name in names if _NAME.fullmatch(name)]
        if not names:
            return
        path = f"{self._directory}/{names[-1]}"
        try:
            self.newest = decode_snapshot(self._disk.read_bytes(path))
        except SnapshotError as error:
            raise SnapshotError(
                f"The metadata snapshot {path} is damaged: {error}. Restore it, or format the node anew"
                " as a new voter and let it catch up from the others."
            ) from error
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
