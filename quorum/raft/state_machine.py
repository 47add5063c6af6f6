"""The port between Raft and the replicated state: the few calls that the Raft layer makes.

Raft knows nothing of metadata. It hands committed bytes to a `StateMachine` in log order, once each, and asks it for
snapshots. Implementations are deterministic and never raise on bad input: input that one voter refuses every voter
refuses. `metadata_state_machine.py` has the real one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from quorum.steps import Steps


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome of one committed proposal.

    `records` changed the image, `encoded_records` are the same as bytes to ship. Both are empty if the proposal
    was not accepted, and `rejection` says why. `sequence` is its number within the epoch.
    """

    accepted: bool
    records: Sequence[Any] = ()
    encoded_records: bytes = b""
    sequence: int | None = None
    rejection: str | None = None


class StateMachine(Protocol):
    """Deterministic state behind the log. An exception in any method halts the node."""

    @property
    def image(self) -> Any:
        """The state so far, immutable, since other lanes share it."""

    def apply(self, data: bytes, offset: int, epoch: int) -> Applied:
        """Applies one committed proposal. One that is malformed or fenced is not accepted: only the offset moves."""

    def apply_steps(self, data: bytes, offset: int, epoch: int) -> Steps[Applied]:
        """As `apply`, in bounded steps, for a proposal too large for one. The state changes with the last step.
        Nothing else is applied before it, though a snapshot's state may end the steps."""

    def voter_directories(self, data: bytes) -> Mapping[int, bytes]:
        """The voters' directories (16 bytes each) that a proposal records, accepted or not; nearly always empty.
        Called for every entry that comes into the log, so it is quick. Never called where voters are known by
        number alone."""

    def advance(self, offset: int, epoch: int) -> None:
        """Takes a leader's barrier, committed at this offset: offsets stay dense, nothing else changes."""

    def snapshot_steps(self) -> Steps[bytes]:
        """Encodes the whole state as of the call, canonical: equal states give equal bytes. The state may move on
        between the steps."""

    def decode_steps(self, data: bytes) -> Steps[Any]:
        """Decodes a snapshot's state, for `adopt`. Raises ValueError if the bytes are no snapshot."""

    def adopt(self, state: Any) -> None:
        """Replaces the state by a result of `decode_steps`."""
