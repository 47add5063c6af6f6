"""The replicated state of the quorum: the metadata image, and the fence that guards it.

Guarantees: equal logs give equal images and equal snapshots, byte for byte. A proposal that is malformed, of another
controller epoch or out of sequence changes nothing but the offset. The fence is stored beside the image, not in it,
so that the images of brokers and controllers at one offset are equal. The Raft driver owns this; its images are
immutable and shared with the other lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgpack

from quorum.controller.proposal import (
    AppliedProposal,
    Proposal,
    ProposalFence,
    apply_proposal,
    apply_proposal_steps,
)
from quorum.errors import MalformedError
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.record_codec import decode_records, encode_record
from quorum.metadata.records import VoterIdentity
from quorum.raft.state_machine import Applied
from quorum.steps import Steps, finished

_FORMAT = 1
_VOTER_IDENTITY_BEGINS = encode_record(VoterIdentity(0, bytes(16)))[:3]
"""Array header, kind and version: every record of this kind and version begins with them."""


class MetadataState(NamedTuple):
    """The content of a snapshot."""

    fence: ProposalFence
    image: MetadataImage


class MetadataStateMachine:
    """A `StateMachine` over `MetadataImage`."""

    def __init__(self) -> None:
        self._image = EMPTY
        self._fence = ProposalFence()

    @property
    def image(self) -> MetadataImage:
        return self._image

    def apply(self, data: bytes, offset: int, epoch: int) -> Applied:
        """One committed proposal: all of its records, or none."""
        return self._take_over(apply_proposal(self._image, self._fence, data, offset, epoch))

    def apply_steps(self, data: bytes, offset: int, epoch: int) -> Steps[Applied]:
        """The same in bounded steps; image and fence move on with the last."""
        applied = yield from apply_proposal_steps(self._image, self._fence, data, offset, epoch)
        return self._take_over(applied)

    def _take_over(self, applied: AppliedProposal) -> Applied:
        self._image, self._fence = applied.image, applied.fence
        return Applied(
            applied.accepted, applied.records, applied.encoded_records, applied.sequence, applied.rejection
        )

    def voter_directories(self, data: bytes) -> Mapping[int, bytes]:
        """The directories in the proposal's `VoterIdentity` records; decoded only if their first bytes occur."""
        if _VOTER_IDENTITY_BEGINS not in data:
            return {}
        try:
            records = decode_records(Proposal.decode(data).records)
        except MalformedError:
            return {}
        return {
            record.node_id: record.directory_id for record in records if isinstance(record, VoterIdentity)
        }

    def advance(self, offset: int, epoch: int) -> None:
        """A leader's barrier: the image moves on to its offset."""
        self._image = self._image.at(offset, epoch)

    def snapshot_steps(self) -> Steps[bytes]:
        """Fence and image as they are now, canonical."""
        return _encode(self._fence, self._image)

    def decode_steps(self, data: bytes) -> Steps[MetadataState]:
        """Decodes a snapshot's content. Raises ValueError if the bytes are no snapshot of this kind."""
        return _decode(data)

    def adopt(self, state: MetadataState) -> None:
        """Replaces fence and image."""
        self._fence, self._image = state

    def restore(self, data: bytes) -> None:
        """Replaces fence and image by a snapshot's, in one go. Raises ValueError."""
        self.adopt(finished(self.decode_steps(data)))


def _encode(fence: ProposalFence, image: MetadataImage) -> Steps[bytes]:
    encoded = yield from image.encode_steps()
    packed: bytes = msgpack.packb((_FORMAT, *fence, encoded), use_bin_type=True)
    return packed


def _decode(data: bytes) -> Steps[MetadataState]:
    try:
        form, epoch, next_sequence, encoded = msgpack.unpackb(data, use_list=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ValueError(f"not a metadata snapshot: {error}") from error
    if form != _FORMAT or type(epoch) is not int or type(next_sequence) is not int:
        raise ValueError("a metadata snapshot of another format")
    image = yield from MetadataImage.decode_steps(encoded)
    return MetadataState(ProposalFence(epoch, next_sequence), image)
