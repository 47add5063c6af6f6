"""A state machine that cannot forget: its image is a hash over everything applied, in order."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import TypeVar

import msgpack

from quorum.raft.state_machine import Applied
from quorum.steps import Steps

T = TypeVar("T")

_DIRECTORIES = b"voters' directories"


def encode_directories(directories: Mapping[int, bytes]) -> bytes:
    """A proposal that records these directories."""
    packed: bytes = msgpack.packb(sorted(directories.items()))
    return _DIRECTORIES + packed


def decode_directories(data: bytes) -> dict[int, bytes]:
    """The directories that a proposal records."""
    return dict(msgpack.unpackb(data[len(_DIRECTORIES) :])) if data.startswith(_DIRECTORIES) else {}


class ChainMachine:
    """A state machine whose image is a hash over everything applied, in order."""

    def __init__(self, padding_bytes: int = 0) -> None:
        self.offset, self.chain, self.padding = 1, b"", bytes(padding_bytes)
        self.pauses = 0
        """Between the steps in which a snapshot is encoded and decoded."""

    @property
    def image(self) -> tuple[int, bytes]:
        return self.offset, self.chain

    def apply(self, data: bytes, offset: int, epoch: int) -> Applied:
        self._link(data, offset, epoch)
        return Applied(True, (data,))

    def apply_steps(self, data: bytes, offset: int, epoch: int) -> Steps[Applied]:
        for _ in range(self.pauses):
            yield
        return self.apply(data, offset, epoch)

    def voter_directories(self, data: bytes) -> dict[int, bytes]:
        return decode_directories(data)

    def advance(self, offset: int, epoch: int) -> None:
        self._link(b"", offset, epoch)

    def _link(self, data: bytes, offset: int, epoch: int) -> None:
        if offset != self.offset + 1:
            raise AssertionError(f"offset {offset} applied after {self.offset}")
        self.offset = offset
        self.chain = hashlib.blake2b(
            self.chain + struct.pack(">QQ", offset, epoch) + data, digest_size=16
        ).digest()

    def snapshot(self) -> bytes:
        return struct.pack(">Q", self.offset) + self.chain.ljust(16, b"\0") + self.padding

    def snapshot_steps(self) -> Steps[bytes]:
        return in_steps(self.snapshot(), self.pauses)

    def decode_steps(self, data: bytes) -> Steps[tuple[int, bytes]]:
        return in_steps((struct.unpack_from(">Q", data)[0], data[8:24]), self.pauses)

    def adopt(self, state: tuple[int, bytes]) -> None:
        self.offset, self.chain = state


def in_steps(value: T, pauses: int = 0) -> Steps[T]:
    """A computation of so many steps and one, with this result."""
    for _ in range(pauses):
        yield
    return value
