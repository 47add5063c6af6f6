"""The errors of a read. Every message is a sentence for the person who runs the Spark job.

Spark shows only the text of an exception from a Python worker, so the text names the partition, the offsets and what to
do. The source, the client, the decoder, the planner and the slice reader raise them.
"""

from __future__ import annotations


class KraftReadError(Exception):
    """Base of all errors of the connector."""


class OptionError(KraftReadError, ValueError):
    """An option is missing, unknown, malformed, or contradicts another."""


class UnsupportedOperationError(KraftReadError):
    """The job asks for what the connector does not do: a stream, or a write."""


class UnsupportedBrokerError(KraftReadError):
    """A broker does not speak a version of the protocol that the connector needs."""


class RequestFailedError(KraftReadError):
    """A broker refused a request for a reason that trying again does not change."""


class UnknownTopicError(RequestFailedError):
    """The brokers do not know the topic."""


class ClusterUnavailableError(KraftReadError):
    """No broker, or no leader of a partition, answered in the time that is given to leader changes."""


class TopicChangedError(KraftReadError):
    """The topic was deleted, or deleted and created anew, after the read was planned."""


class DataLossError(KraftReadError):
    """Records that belong to the read are gone: deleted by retention, or truncated."""


class CorruptDataError(KraftReadError):
    """Bytes from a broker are not sound record batches, or hold what a column cannot carry."""


class CheckpointError(KraftReadError):
    """A stream's checkpoint holds an offset that is none of this format."""
