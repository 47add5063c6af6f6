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
from quorum.steps import Steps

_HEADER = struct.Struct(">Q16s")
FIRST_OFFSET = 1
"""The entry that every log begins with; it is never applied."""
MORE_STEPS = 7
"""Snapshots are encoded and decoded in up to so many steps, and large entries applied, with whatever happens in
between."""
STEP_S = 0.005
"""What one of them takes."""


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
        self.large_entries = 0
        self._applications: list[Application] = []
        self._more_steps_taken = 0
        self._sizes: list[int] = []
        self._pauses = 0

    @property
    def image(self) -> tuple[int, bytes, Any]:
        return self.offset, self.chain, self._inner.image

    def apply(self, data: bytes, offset: int, epoch: int) -> Applied:
        applied = self._inner.apply(data, offset, epoch)
        self._note(Application(offset, epoch, data, applied, self._inner.image))
        return applied

    def apply_steps(self, data: bytes, offset: int, epoch: int) -> Steps[Applied]:
        for _ in self._more_steps(offset):
            self._pauses += 1
            yield
        self.large_entries += 1
        applied = yield from self._inner.apply_steps(data, offset, epoch)
        self._note(Application(offset, epoch, data, applied, self._inner.image))
        return applied

    def voter_directories(self, data: bytes) -> Mapping[int, bytes]:
        return self._inner.voter_directories(data)

    def advance(self, offset: int, epoch: int) -> None:
        self._inner.advance(offset, epoch)
        self._note(Application(offset, epoch, None, None, self._inner.image))

    def snapshot_steps(self) -> Steps[bytes]:
        self.snapshots_taken += 1
        return self._behind(self.offset, self.chain, self._inner.snapshot_steps())

    def _behind(self, offset: int, chain: bytes, inner: Steps[bytes]) -> Steps[bytes]:
        yield from self._more_steps(offset)
        return _HEADER.pack(offset, chain) + (yield from inner)

    def decode_steps(self, data: bytes) -> Steps[Any]:
        offset, chain = _HEADER.unpack_from(data)
        yield from self._more_steps(offset)
        return offset, chain, (yield from self._inner.decode_steps(data[_HEADER.size :]))

    def _more_steps(self, offset: int) -> Steps[None]:
        """As if the state were large, and of another size each time."""
        for _ in range(offset % MORE_STEPS):
            self._more_steps_taken += 1
            yield

    def take_step_seconds(self) -> float:
        """What the steps since the last call have cost the lane."""
        taken, self._more_steps_taken = self._more_steps_taken, 0
        return taken * STEP_S

    def adopt(self, state: Any) -> None:
        self.offset, self.chain, inner = state
        self._inner.adopt(inner)

    def take_too_much(self, limit_bytes: int) -> str:
        """In what way the lane's step since the last call has applied more than it may; empty if it has not."""
        sizes, self._sizes = self._sizes, []
        pauses, self._pauses = self._pauses, 0
        if sum(sizes[:-1]) >= limit_bytes or (len(sizes) > 1 and max(sizes) > limit_bytes):
            return f"{len(sizes)} entries of {sum(sizes)} bytes were applied in one step"
        return f"{pauses} steps of a large entry were taken in one step" if pauses > 1 else ""

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
        self._sizes.append(1 + len(one.data or b""))


class BareBytes:
    """A state machine without rules: it accepts everything, and its state is some padding."""

    PADDING = bytes(700)

    image = None

    def apply(self, data: bytes, offset: int, epoch: int) -> Applied:
        return Applied(True, (data,))

    def apply_steps(self, data: bytes, offset: int, epoch: int) -> Steps[Applied]:
        yield from ()
        return self.apply(data, offset, epoch)

    def voter_directories(self, data: bytes) -> Mapping[int, bytes]:
        return {}

    def advance(self, offset: int, epoch: int) -> None:
        """Nothing is kept."""

    def snapshot_steps(self) -> Steps[bytes]:
        yield from ()
        return self.PADDING

    def decode_steps(self, data: bytes) -> Steps[None]:
        yield from ()

    def adopt(self, state: None) -> None:
        """Nothing is kept."""


INNER: dict[str, Callable[[], StateMachine]] = {"topics": MetadataStateMachine, "bytes": BareBytes}
"""The real state machine behind each workload."""
