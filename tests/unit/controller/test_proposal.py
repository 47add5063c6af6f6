"""The fence: only the next proposal of the entry's own term takes effect, and nothing ever raises."""

from __future__ import annotations

import msgpack
import pytest

from quorum.controller.proposal import (
    MAX_PROPOSAL_BYTES,
    AppliedProposal,
    Proposal,
    ProposalFence,
    apply_proposal,
)
from quorum.errors import MalformedProposalError
from quorum.metadata import record_codec as codec
from quorum.metadata import records as r
from quorum.metadata.image import EMPTY

A = b"a" * 16
CREATE = [r.Topic("orders", A), r.Partition(A, 0, (1,), (1,), 1)]
START = EMPTY.at(4, 3)


def apply(data: bytes, *, fence: ProposalFence = ProposalFence(), term: int = 3) -> AppliedProposal:  # noqa: B008
    return apply_proposal(START, fence, data, 5, term)


def proposal(epoch: int, sequence: int, records: list[r.Record]) -> bytes:
    return Proposal.of(epoch, sequence, records).encode()


def test_the_first_proposal_of_a_term_is_number_zero() -> None:
    data = proposal(3, 0, [*CREATE])
    applied = apply(data)
    assert applied.accepted
    assert applied.fence == ProposalFence(3, 1)
    assert applied.records == tuple(CREATE)
    assert codec.decode_records(applied.encoded_records) == CREATE
    assert (applied.image.offset, applied.image.epoch) == (5, 3)
    assert "orders" in applied.image.topic_ids
    assert (applied.sequence, applied.rejection) == (0, None)


def test_sequences_go_on_within_a_term_and_start_afresh_in_the_next() -> None:
    fence = ProposalFence(3, 7)
    assert apply(proposal(3, 7, [r.NoOp()]), fence=fence).fence == ProposalFence(3, 8)
    assert apply(proposal(4, 0, [r.NoOp()]), fence=fence, term=4).fence == ProposalFence(4, 1)
    assert not apply(proposal(4, 7, [r.NoOp()]), fence=fence, term=4).accepted


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (proposal(3, 8, [*CREATE]), "sequence 8 of epoch 3 came instead of 7"),
        (proposal(3, 6, [*CREATE]), "sequence 6 of epoch 3 came instead of 7"),
        (proposal(2, 7, [*CREATE]), "decided in controller epoch 2, written in term 3"),
        (proposal(4, 7, [*CREATE]), "decided in controller epoch 4, written in term 3"),
        (proposal(3, 7, [*CREATE, r.RemoveTopic(b"x" * 16)]), "there is no topic with id"),
        (Proposal(3, 7, b"\xc1").encode(), "the metadata records cannot be read"),
        (Proposal(3, 7, msgpack.packb([[77, 0]])).encode(), "of kind 77 version 0"),
        (b"", "the proposal cannot be read"),
        (msgpack.packb([0, 3, 7]), "an array of 4"),
        (msgpack.packb([1, 3, 7, b""]), "its version is int 1"),
        (msgpack.packb([0, 3, "7", b""]), "an integer"),
        (bytes(MAX_PROPOSAL_BYTES + 1), "is larger than"),
    ],
)
def test_anything_else_is_rejected_whole(data: bytes, sentence: str) -> None:
    fence = ProposalFence(3, 7)
    applied = apply(data, fence=fence)
    assert not applied.accepted
    assert applied.rejection is not None
    assert sentence in applied.rejection
    assert applied.image == START.at(5, 3)
    assert applied.fence == fence
    assert (applied.records, applied.encoded_records) == ((), b"")


def test_after_a_dropped_proposal_nothing_of_the_term_is_accepted_but_that_one() -> None:
    image, fence = START, ProposalFence()
    for offset, (sequence, accepted) in enumerate(
        [(0, True), (2, False), (3, False), (1, True), (2, True)], 5
    ):
        applied = apply_proposal(image, fence, proposal(3, sequence, [r.NoOp()]), offset, 3)
        assert applied.accepted is accepted
        image, fence = applied.image, applied.fence
    assert fence == ProposalFence(3, 3)


def test_decode_names_what_is_wrong() -> None:
    with pytest.raises(MalformedProposalError, match="cannot be read"):
        Proposal.decode(b"\x94")
