"""Offline replicas: the effects of brokers' reports about logs that they cannot serve.

Guarantees: a replica that its living broker cannot serve leads nothing, is in no ISR and cannot enter one. No election
chooses it until its broker reports it online again or registers anew. A replica whose directory failed stays eligible
for leadership like any other that leaves below min.insync.replicas (KIP-966). A damaged one leaves ISR and ELR, since
its records cannot be trusted, unless no other replica is left in either: then the partition waits, without a leader,
for a repair or an operator's unclean election, and the last copy is never forgotten by itself. A report that a replica
is back begins a leader epoch, since its log may be another one. New leaders are in the same records as the marks.

Brokers report replicas one by one, so that damage to one log takes nothing else offline. Reports are idempotent and
fenced by the broker's epoch. A registration clears all marks, and the broker reports anew before it is unfenced, so
that no mark outlives the incarnation that set it. `requests` calls it; Kafka's nearest relative is the offline
directories of KIP-112 and KIP-858.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from quorum.controller.decision import ClusterView, Decision, Unit, decided
from quorum.controller.partition_change_builder import PartitionChangeBuilder
from quorum.controller.replication_control import changes
from quorum.errors import ControllerError
from quorum.metadata.image import PartitionId
from quorum.rpc.messages import (
    DAMAGED,
    DIRECTORY,
    MAX_REPLICA_STATES,
    NO_ERROR,
    ReplicaStateResult,
    ReplicaStatesRequest,
    ReplicaStatesResponse,
)


class _Reported(NamedTuple):
    key: PartitionId
    kind: str | None
    """Why it is offline; None when it is online."""


def report_replicas(view: ClusterView, request: ReplicaStatesRequest) -> Decision:
    """Marks replicas offline or takes the marks away; refusals are per replica.

    Raises ControllerError STALE_BROKER_EPOCH when the request comes from another registration, or
    INVALID_REQUEST when it names too many replicas. O(replicas named).
    """
    view.registered(request.broker_id, request.broker_epoch)
    reported = [
        *(_Reported((topic_id, number), kind) for topic_id, number, kind in request.offline),
        *(_Reported(key, None) for key in request.online),
    ]
    if len(reported) > MAX_REPLICA_STATES:
        raise ControllerError(
            "INVALID_REQUEST",
            f"The request names {len(reported)} replicas; at most {MAX_REPLICA_STATES} can be reported at once.",
        )
    accepted: dict[PartitionId, str | None] = {}
    results = []
    for key, kind in reported:
        if kind not in _MARK or key in accepted:
            error = "INVALID_REQUEST"
        else:
            error = _refusal(view, request.broker_id, key)
        if error == NO_ERROR:
            accepted[key] = kind
        results.append(ReplicaStateResult(*key, error))
    units: list[Unit] = []
    for kind, mark in _MARK.items():
        keys = sorted(key for key, reported_kind in accepted.items() if reported_kind == kind)
        units += changes(view, keys, prepare=partial(mark, request.broker_id))
    return decided(ReplicaStatesResponse(tuple(results)), *units)


def _refusal(view: ClusterView, broker_id: int, key: PartitionId) -> str:
    """Kafka's error name for a replica that is not the broker's to report, or "NONE"."""
    partition = view.image.partition(*key)
    if partition is None:
        return "UNKNOWN_TOPIC_OR_PARTITION" if key[0] in view.image.topics else "UNKNOWN_TOPIC_ID"
    return NO_ERROR if broker_id in partition.replicas else "NOT_LEADER_OR_FOLLOWER"


def _directory_failed(broker_id: int, builder: PartitionChangeBuilder) -> None:
    builder.offline(broker_id)


def _damaged(broker_id: int, builder: PartitionChangeBuilder) -> None:
    builder.offline(broker_id).damaged_replicas = (broker_id,)


def _online(broker_id: int, builder: PartitionChangeBuilder) -> None:
    builder.renewed(broker_id)


_MARK: Mapping[str | None, Callable[[int, PartitionChangeBuilder], None]] = {
    DIRECTORY: _directory_failed,
    DAMAGED: _damaged,
    None: _online,
}
"""The effect of each kind of report on the partition; the log has them in this order."""
