"""The errors of the connector. Every message is a sentence for the person who runs the Spark job.

Spark shows only the text of an exception from a Python worker, so the text names the partition, the offsets and what to
do. All modules here raise them.
"""

from __future__ import annotations


class ConnectorError(Exception):
    """Base of all errors of the connector."""


class OptionError(ConnectorError, ValueError):
    """An option is missing, unknown, malformed, or contradicts another."""


class UnsupportedOperationError(ConnectorError):
    """The job asks for what the connector does not do."""


class UnsupportedBrokerError(ConnectorError):
    """A broker does not speak a version of the protocol that the connector needs."""


class RequestFailedError(ConnectorError):
    """A broker refused a request for a reason that trying again does not change."""


class AuthenticationError(RequestFailedError):
    """A broker does not take the job for who it says it is, or is itself not who it should be."""


class UnknownTopicError(RequestFailedError):
    """The brokers do not know the topic, or the partition."""


class ClusterUnavailableError(ConnectorError):
    """No broker, or no leader of a partition, answered in the time that is given to leader changes."""


class TopicChangedError(ConnectorError):
    """The topic was deleted, or deleted and created anew, after the read was planned."""


class DataLossError(ConnectorError):
    """Records that belong to the read are gone: deleted by retention, or truncated."""


class CorruptDataError(ConnectorError):
    """Bytes from a broker are not sound record batches, or hold what a column cannot carry."""


class CheckpointError(ConnectorError):
    """A stream's checkpoint holds an offset that is none of this format."""


class WriteFailedError(ConnectorError):
    """Records of a task could not be written; some may have been."""
