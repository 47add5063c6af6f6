"""The replicated state of a simulated voter: a real state machine, and a hash that forgets nothing.

The hash runs over everything applied, in order, and is part of the snapshot: two voters with one hash have
applied the same, also across snapshots, whatever the real state has forgotten. What a step applied is kept
for the judges until the step's effects leave. Given to the driver by `voter`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from quorum.raft.metadata_state_machine import MetadataStateMachine
from quorum.raft.state_machine import Applied, StateMachine

_HEADER = struct.Struct(">Q16s")
FIRST_OFFSET = 1
"""The entry that every log begins with; it is never applied."""


class Application(NamedTuple):
    """One entry that was applied. `image` is that of the real state machine behind it."""

    offset: int
    epoch: int
    data: bytes | None
    """None for a leader's barrier."""
    applied: Applied | None
    image: Any


class WatchedMachine:
    """A `StateMachine` around another one."""

    def __init__(self, inner: StateMachine) -> None:
        self._inner = inner
        self.offset, self.chain = FIRST_OFFSET, bytes(16)
        self.gap: str = ""
        """What was applied out of order; the run ends with it."""
        self.snapshots_taken = 0
        self._applications: list[Application] = []

    @property
    def image(self) -> tuple[int, bytes, Any]:
        return self.offset, self.chain, self._inner.image

    def apply(self, data: bytes, offset: int, epoch: int) -> Applied:
        applied = self._inner.apply(data, offset, epoch)
        self._note(Application(offset, epoch, data, applied, self._inner.image))
        return applied

    def voter_directories(self, data: bytes) -> Mapping[int, bytes]:
        return self._inner.voter_directories(data)

    def advance(self, offset: int, epoch: int) -> None:
        self._inner.advance(offset, epoch)
        self._note(Application(offset, epoch, None, None, self._inner.image))

    def snapshot(self) -> bytes:
        self.snapshots_taken += 1
        return _HEADER.pack(self.offset, self.chain) + self._inner.snapshot()

    def restore(self, data: bytes) -> None:
        self.offset, self.chain = _HEADER.unpack_from(data)
        self._inner.restore(data[_HEADER.size :])

    def take_applications(self) -> list[Application]:
        """What was applied since the last call."""
        taken, self._applications = self._applications, []
        return taken

    def _note(self, one: Application) -> None:
        if one.offset != self.offset + 1 and not self.gap:
            self.gap = f"offset {one.offset} was applied after {self.offset}"
        self.offset = one.offset
        text = struct.pack(">QQ?", one.offset, one.epoch, one.data is None) + (one.data or b"")
        self.chain = hashlib.blake2b(self.chain + text, digest_size=16).digest()
        self._applications.append(one)


class BareBytes:
    """A state machine without rules: it accepts everything, and its state is some padding."""

    PADDING = bytes(700)

    image = None

    def apply(self, data: bytes, offset: int, epoch: int) -> Applied:
        return Applied(True, (data,))

    def voter_directories(self, data: bytes) -> Mapping[int, bytes]:
        return {}

    def advance(self, offset: int, epoch: int) -> None:
        """Nothing is kept."""

    def snapshot(self) -> bytes:
        return self.PADDING

    def restore(self, data: bytes) -> None:
        """Nothing is kept."""


INNER: dict[str, Callable[[], StateMachine]] = {"topics": MetadataStateMachine, "bytes": BareBytes}
"""The real state machine behind each workload."""
