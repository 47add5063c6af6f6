"""What a broker says of its own replicas: whose logs it cannot serve, and whose it can serve again.

A replica is offline when its broker lives but its log cannot be served. Kafka reports whole directories
(KIP-112, KIP-858); here each replica is named, since damage to one log takes nothing else offline. Part
of the table in `quorum.rpc.messages`, by whose rules errors travel. Reports are idempotent and fenced by
the broker's epoch: a broker repeats one until it is answered, and reports anew after every registration,
before it asks to be unfenced, since a registration clears all its marks.
"""

from __future__ import annotations

from dataclasses import dataclass

from quorum.rpc.admin_messages import NO_ERROR

DIRECTORY = "directory"
"""The log's directory failed. What was in it may be whole: the replica stays eligible as any absent one."""
DAMAGED = "damaged"
"""The log is damaged inside the range that was durable. Its records cannot be trusted any more."""

MAX_REPLICA_STATES = 10_000
"""Replicas that one request may name; a broker with more sends several requests."""


@dataclass(frozen=True, slots=True)
class ReplicaStatesRequest:
    """`offline` are (topic id, partition, kind), kind DIRECTORY or DAMAGED; `online` (topic id, partition).

    A replica is reported online once its log can be served again: repaired, or made anew, empty, after
    the metadata showed it outside ISR and ELR.
    """

    broker_id: int
    broker_epoch: int
    offline: tuple[tuple[bytes, int, str], ...] = ()
    online: tuple[tuple[bytes, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaStateResult:
    """`error`: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (the broker has no
    replica of the partition), INVALID_REQUEST (unknown kind, or named twice). None is worth a retry.
    """

    topic_id: bytes
    partition: int
    error: str = NO_ERROR


@dataclass(frozen=True, slots=True)
class ReplicaStatesResponse:
    """One result for each replica of the request, in its order: first those offline, then those online."""

    partitions: tuple[ReplicaStateResult, ...]
