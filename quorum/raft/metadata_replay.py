"""A replay of stored entries as metadata: what each proposal says, its outcome, and the image at the end.

Guarantees: it decides as every voter does, through the same state machine. An entry with unreadable records, or one
that the fence refuses, is reported as such, never raised. Without a beginning (a snapshot, or the journal's first
entry) entries are only decoded: whether they were accepted is then unknown. `kraft metadata` runs it over entries
that `inspection.py` reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from quorum.controller.proposal import Proposal
from quorum.errors import MalformedError
from quorum.metadata.image import MetadataImage
from quorum.metadata.record_codec import decode_records
from quorum.metadata.records import Record
from quorum.raft.inspection import DamageError, StoredEntry, StoredSnapshot
from quorum.raft.journal import FIRST_ENTRY
from quorum.raft.metadata_state_machine import MetadataStateMachine


@dataclass(frozen=True, slots=True)
class ReplayedEntry:
    """An entry, decoded."""

    offset: int
    epoch: int
    sequence: int | None
    """The proposal's number within its controller's epoch; None for a barrier, and when unreadable."""
    records: tuple[Record, ...]
    """The proposed records, even if they were refused."""
    is_barrier: bool = False
    rejection: str | None = None
    """Why it changed nothing; None if it took effect, or if that is unknown."""


class MetadataReplay:
    """Plays entries in order. `image` is their result; None without a beginning."""

    def __init__(self) -> None:
        self._machine: MetadataStateMachine | None = None
        self._end: int | None = None

    @property
    def image(self) -> MetadataImage | None:
        return None if self._machine is None else self._machine.image

    def restore(self, stored: StoredSnapshot) -> MetadataImage:
        """Begins at a snapshot. Raises DamageError."""
        machine = MetadataStateMachine()
        try:
            machine.restore(stored.snapshot.state)
        except ValueError as error:
            raise DamageError(stored.path, 0, str(error)) from error
        self._machine, self._end = machine, stored.offset
        return machine.image

    def play(self, entry: StoredEntry) -> ReplayedEntry:
        """Plays the next entry. One that the beginning covers is decoded only; one that does not follow the last
        loses the beginning."""
        offset, epoch, data = entry.offset, entry.epoch, entry.data
        if offset == FIRST_ENTRY[1]:
            self._machine, self._end = MetadataStateMachine(), offset - 1
        is_covered = self._end is not None and offset <= self._end
        if not is_covered:
            if self._end is not None and offset != self._end + 1:
                self._machine = None
            self._end = offset
        machine = None if is_covered else self._machine
        if data is None:
            if machine is not None:
                machine.advance(offset, epoch)
            return ReplayedEntry(offset, epoch, None, (), is_barrier=True)
        decoded = _decode(entry, data)
        if machine is None:
            return decoded
        applied = machine.apply(data, offset, epoch)
        return ReplayedEntry(
            offset, epoch, decoded.sequence, decoded.records, rejection=applied.rejection or decoded.rejection
        )


def _decode(entry: StoredEntry, data: bytes) -> ReplayedEntry:
    """The entry as its bytes alone tell it."""
    sequence = None
    try:
        proposal = Proposal.decode(data)
        sequence = proposal.sequence
        records = tuple(decode_records(proposal.records))
    except MalformedError as error:
        return ReplayedEntry(entry.offset, entry.epoch, sequence, (), rejection=str(error))
    return ReplayedEntry(entry.offset, entry.epoch, sequence, records)
