"""The typed errors of the controller quorum, for every room below `quorum`.

Three families tell where the fault lies: `MalformedError` (bytes or messages that cannot be decoded),
`RecordDoesNotFitError` (a well-formed metadata record that contradicts the image it is applied to) and
`ControllerError` (a request that the controller refuses, with Kafka's error name as `code` and a sentence for its
sender).
"""

from __future__ import annotations

from typing import Final

MESSAGE_CHARACTERS: Final = 1_000
"""The longest message of a refusal."""


class QuorumError(Exception):
    """Base of every error raised by the quorum's pure rooms."""


class MalformedError(QuorumError, ValueError):
    """Bytes or values that cannot be decoded; raised before anything has been changed."""


class MalformedRecordError(MalformedError):
    """A metadata record of an unknown kind or version, or with wrong fields."""


class MalformedImageError(MalformedError):
    """A snapshot of the metadata image that cannot be decoded."""


class MalformedProposalError(MalformedError):
    """A proposal whose frame (version, controller epoch, sequence) cannot be decoded."""


class MalformedMessageError(MalformedError):
    """A controller request or response with a missing, unknown or wrongly typed field."""

    code = "INVALID_REQUEST"


class RecordDoesNotFitError(QuorumError):
    """A record that contradicts the image; applying it is refused and the image stays as it was."""


class UnknownTopicError(RecordDoesNotFitError):
    """The record names a topic that the image does not have."""


class UnknownPartitionError(RecordDoesNotFitError):
    """The record names a partition that the image does not have, or skips a partition number."""


class TopicExistsError(RecordDoesNotFitError):
    """The record creates a topic whose name or id is taken."""


class UnknownBrokerError(RecordDoesNotFitError):
    """The record names a broker that is not registered."""


class StaleBrokerEpochError(RecordDoesNotFitError):
    """The record was decided for another registration of the broker."""


class InvalidPartitionStateError(RecordDoesNotFitError):
    """The record would break a partition's invariants (leader in ISR, ISR within replicas, not empty)."""


class AclExistsError(RecordDoesNotFitError):
    """The record adds an ACL that is there."""


class UnknownAclError(RecordDoesNotFitError):
    """The record removes an ACL that is not there."""


class InvalidProducerIdError(RecordDoesNotFitError):
    """The record would hand out producer ids twice."""


class ControllerError(QuorumError):
    """A request that the controller refuses.

    `code` is Kafka's error name (for instance "STALE_BROKER_EPOCH"), `message` a sentence for people. It is cut to
    `MESSAGE_CHARACTERS`, since it may quote as much of the request as there is.
    """

    def __init__(self, code: str, message: str) -> None:
        if len(message) > MESSAGE_CHARACTERS:
            message = message[: MESSAGE_CHARACTERS - 1] + "…"
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
