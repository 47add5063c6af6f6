"""A state machine that cannot forget: its image is a hash over everything applied, in order."""

from __future__ import annotations

import hashlib
import struct

from quorum.raft.state_machine import Applied


class Violation(AssertionError):
    """A promise of Raft was broken; `oracle` is the name of the promise."""

    def __init__(self, text: str, oracle: str = "metadata-agreement") -> None:
        super().__init__(text)
        self.oracle = oracle


class ChainMachine:
    """A state machine whose image is a hash over everything applied, in order."""

    def __init__(self, padding_bytes: int = 0) -> None:
        self.offset, self.chain, self.padding = 1, b"", bytes(padding_bytes)

    @property
    def image(self) -> tuple[int, bytes]:
        return self.offset, self.chain

    def apply(self, data: bytes, offset: int, epoch: int) -> Applied:
        self._link(data, offset, epoch)
        return Applied(True, (data,))

    def advance(self, offset: int, epoch: int) -> None:
        self._link(b"", offset, epoch)

    def _link(self, data: bytes, offset: int, epoch: int) -> None:
        if offset != self.offset + 1:
            raise Violation(f"offset {offset} applied after {self.offset}")
        self.offset = offset
        self.chain = hashlib.blake2b(
            self.chain + struct.pack(">QQ", offset, epoch) + data, digest_size=16
        ).digest()

    def snapshot(self) -> bytes:
        return struct.pack(">Q", self.offset) + self.chain.ljust(16, b"\0") + self.padding

    def restore(self, data: bytes) -> None:
        self.offset, self.chain = struct.unpack_from(">Q", data)[0], data[8:24]
