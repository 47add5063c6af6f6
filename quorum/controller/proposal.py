"""Proposals of the active controller to Raft, and the fence through which every node applies them.

A proposal is one atomic list of metadata records, with the controller epoch (the Raft term that it was decided in) and
a sequence number within that epoch. The controller decides ahead of commits, on a speculative image. If one proposal
is lost, those decided after it must not take effect. So apply accepts only the next sequence of the entry's own term.
The fence, part of the replicated state, advances only then. `apply_proposal` never raises, whatever the bytes, and
decides alike on every node. The Raft lane applies, `quorum.controller.state` encodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from quorum.errors import MalformedError, MalformedProposalError, RecordDoesNotFitError
from quorum.metadata import wire
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import MetadataImage
from quorum.metadata.record_codec import encode_records, read_records
from quorum.metadata.records import Record
from quorum.steps import ROWS_PER_STEP, Steps, finished

PROPOSAL_VERSION = 0
FIRST_SEQUENCE = 0
MAX_PROPOSAL_BYTES = 1024 * 1024
"""A larger Raft entry is rejected at apply; the controller packs its proposals below this."""

_FRAME_BYTES = 1024
"""Room for the frame around the encoded records, in the proposal and in the Raft entry."""
MAX_PROPOSAL_RECORDS_BYTES = MAX_PROPOSAL_BYTES - _FRAME_BYTES


@dataclass(frozen=True, slots=True)
class Proposal:
    """Records to be applied all together or not at all. `records` are encoded (`encode_records`)."""

    controller_epoch: int
    sequence: int
    records: bytes

    @staticmethod
    def of(controller_epoch: int, sequence: int, records: list[Record]) -> Proposal:
        return Proposal(controller_epoch, sequence, encode_records(records))

    def encode(self) -> bytes:
        """The bytes of one Raft entry."""
        return wire.pack((PROPOSAL_VERSION, self.controller_epoch, self.sequence, self.records))

    @staticmethod
    def decode(data: bytes | bytearray | memoryview) -> Proposal:
        """The frame of a proposal; its records stay encoded. Raises MalformedProposalError."""
        try:
            value = wire.unpack(data, max_array_length=4)
            version, epoch, sequence, records = wire.array(value, 4, "a proposal")
            if type(version) is not int or version != PROPOSAL_VERSION:
                raise MalformedError(f"its version is {wire.describe(version)}, known is {PROPOSAL_VERSION}")
            return Proposal(wire.offset64(epoch), wire.offset64(sequence), wire.binary(records))
        except MalformedError as error:
            raise MalformedProposalError(f"the proposal cannot be read: {error}") from error


class ProposalFence(NamedTuple):
    """The replicated guard: the term of the last accepted proposal and the sequence it expects next.

    Part of the state machine: it is stored with every snapshot and starts as `ProposalFence()`.
    """

    epoch: int = 0
    next_sequence: int = FIRST_SEQUENCE

    def expected_sequence(self, entry_term: int) -> int:
        """The only sequence that an entry of `entry_term` may carry; a new term starts afresh."""
        return self.next_sequence if entry_term == self.epoch else FIRST_SEQUENCE


class AppliedProposal(NamedTuple):
    """The outcome of one Raft entry. If it was rejected, `image` has only moved on to the entry's offset."""

    image: MetadataImage
    fence: ProposalFence
    accepted: bool
    sequence: int | None
    """The proposal's sequence; None when its frame could not be read."""
    records: tuple[Record, ...]
    """The records applied; empty when rejected."""
    encoded_records: bytes
    """The same records as proposed bytes, to be shipped to brokers. Empty when rejected."""
    rejection: str | None
    """Why it was rejected, a sentence; None when accepted."""


def apply_proposal(
    image: MetadataImage,
    fence: ProposalFence,
    data: bytes | bytearray | memoryview,
    offset: int,
    entry_term: int,
) -> AppliedProposal:
    """Applies the proposal in the Raft entry at `offset` of `entry_term`; all its records or none.

    Never raises on bad input. The result is a function of the arguments alone.
    """
    return finished(apply_proposal_steps(image, fence, data, offset, entry_term))


def apply_proposal_steps(
    image: MetadataImage,
    fence: ProposalFence,
    data: bytes | bytearray | memoryview,
    offset: int,
    entry_term: int,
) -> Steps[AppliedProposal]:
    """As `apply_proposal`, in steps of `ROWS_PER_STEP` records, with no visible effect before the last."""

    def rejected(reason: str, sequence: int | None = None) -> AppliedProposal:
        return AppliedProposal(image.at(offset, entry_term), fence, False, sequence, (), b"", reason)

    if len(data) > MAX_PROPOSAL_BYTES:
        return rejected(f"a proposal of {len(data)} bytes is larger than {MAX_PROPOSAL_BYTES}")
    try:
        proposal = Proposal.decode(data)
    except MalformedProposalError as error:
        return rejected(str(error))
    sequence = proposal.sequence
    if proposal.controller_epoch != entry_term:
        return rejected(
            f"decided in controller epoch {proposal.controller_epoch}, written in term {entry_term}", sequence
        )
    expected = fence.expected_sequence(entry_term)
    if sequence != expected:
        return rejected(f"sequence {sequence} of epoch {entry_term} came instead of {expected}", sequence)
    delta = MetadataDelta(image)
    try:
        records = []
        for record in read_records(proposal.records):
            delta.apply(record, offset, entry_term)
            records.append(record)
            if len(records) % ROWS_PER_STEP == 0:
                yield
    except (MalformedError, RecordDoesNotFitError) as error:
        return rejected(f"a record does not apply: {error}", sequence)
    return AppliedProposal(
        image=delta.finish(offset, entry_term),
        fence=ProposalFence(entry_term, sequence + 1),
        accepted=True,
        sequence=sequence,
        records=tuple(records),
        encoded_records=proposal.records,
        rejection=None,
    )
