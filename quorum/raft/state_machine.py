"""What the quorum replicates, behind the few calls that the Raft layer makes.

Raft knows nothing of metadata: it hands committed bytes to a `StateMachine` in log order, once
each, and asks it for snapshots. Implementations are deterministic and never raise on bad input:
what one voter refuses every voter refuses. `metadata_state_machine.py` has the real one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from quorum.steps import Steps


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one committed proposal.

    `records` are what it changed the image by, `encoded_records` the same as bytes to ship; both are
    empty when it was not accepted, and `rejection` says why. `sequence` is its number within the epoch.
    """

    accepted: bool
    records: Sequence[Any] = ()
    encoded_records: bytes = b""
    sequence: int | None = None
    rejection: str | None = None


class StateMachine(Protocol):
    """Deterministic state behind the log. An exception from any method halts the node."""

    @property
    def image(self) -> Any:
        """The state so far, immutable: it is shared with other lanes."""

    def apply(self, data: bytes, offset: int, epoch: int) -> Applied:
        """One committed proposal. Malformed or fenced: not accepted, state unchanged but for the offset."""

    def apply_steps(self, data: bytes, offset: int, epoch: int) -> Steps[Applied]:
        """The same in bounded steps, for a proposal too large for one. The state changes with the last;
        nothing else is applied before it, though the steps may be given up for a snapshot's state."""

    def voter_directories(self, data: bytes) -> Mapping[int, bytes]:
        """The voters' directories (16 bytes each) that a proposal records, whether it will be accepted
        or not; empty for nearly all. Called for every entry that comes into the log, so it is quick.
        Never called where voters are known by number alone."""

    def advance(self, offset: int, epoch: int) -> None:
        """A leader's barrier was committed at this offset: offsets stay dense, nothing else changes."""

    def snapshot_steps(self) -> Steps[bytes]:
        """The whole state as it is at the call, canonical: equal states give equal bytes. The state may
        move on between the steps."""

    def decode_steps(self, data: bytes) -> Steps[Any]:
        """The state that a snapshot holds, for `adopt`. Raises ValueError if the bytes are none."""

    def adopt(self, state: Any) -> None:
        """Replaces the state by one that `decode_steps` gave."""
