"""Why a replica refuses a request, as typed errors.

Guarantees: each carries `code`, the name of Kafka's error, and a sentence that names the partition.
Raised by `partition.py` before anything was changed; mapped to the wire by the request handlers. What
the log itself refuses is in `partitions.log.errors`.
"""

from __future__ import annotations


class PartitionError(Exception):
    """Base of the errors of a replica; `code` is the name of Kafka's error."""

    code = "UNKNOWN_SERVER_ERROR"


class NotLeaderOrFollower(PartitionError):
    """This broker does not have the role for the request; the sender must refresh its metadata."""

    code = "NOT_LEADER_OR_FOLLOWER"


class FencedLeaderEpoch(PartitionError):
    """The sender's leader epoch is older than this replica's: the sender missed an election (KIP-320)."""

    code = "FENCED_LEADER_EPOCH"


class UnknownLeaderEpoch(PartitionError):
    """The sender's leader epoch is newer than this replica's: this broker has yet to hear of it (KIP-320)."""

    code = "UNKNOWN_LEADER_EPOCH"


class NotEnoughReplicas(PartitionError):
    """An acks=-1 append while the ISR is smaller than min.insync.replicas; nothing was appended."""

    code = "NOT_ENOUGH_REPLICAS"


class PolicyViolation(PartitionError):
    """DeleteRecords on a topic whose old records are compacted and never deleted."""

    code = "POLICY_VIOLATION"


class OffsetNotAvailable(PartitionError):
    """A new leader does not know yet how far records are committed (KIP-207); the client retries."""

    code = "OFFSET_NOT_AVAILABLE"


class ReplicaOffline(PartitionError):
    """The replica's log cannot be used any more (a failed disk)."""

    code = "KAFKA_STORAGE_ERROR"
