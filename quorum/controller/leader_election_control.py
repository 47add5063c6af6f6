"""Elections that operators ask for: preferred and unclean ones (KIP-460).

Guarantees: a preferred election moves a leadership only to the first replica, and only if that is in sync and alive.
An unclean election gives a leader to a partition that has none: any living replica, if none with all committed records
is alive. "All partitions" costs O(partitions that could need it). `requests` calls it for ElectLeaders,
`leader_rebalance` for its own.
"""

from __future__ import annotations

from quorum.controller.decision import ClusterView, Decision, Unit, decided
from quorum.controller.election import Election
from quorum.controller.partition_change_builder import PartitionChangeBuilder
from quorum.controller.replication_control import elect_unclean
from quorum.errors import ControllerError
from quorum.metadata.image import PartitionId, PartitionImage
from quorum.metadata.records import PartitionChange
from quorum.rpc.messages import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResult,
)


def elect_leaders(view: ClusterView, request: ElectLeadersRequest) -> Decision:
    """Elects, partition by partition. Raises ControllerError INVALID_REQUEST for an unknown election type."""
    if request.election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION):
        raise ControllerError(
            "INVALID_REQUEST",
            f"Unknown election type {request.election_type}; 0 elects preferred leaders, 1 is unclean.",
        )
    unclean = request.election_type == UNCLEAN_ELECTION
    wanted = _all_in_need(view, unclean) if request.partitions is None else request.partitions
    units: list[Unit] = []
    results = []
    elected: set[PartitionId] = set()
    for name, number in wanted:
        try:
            key, partition = _find(view, name, number)
            if key in elected:
                raise ControllerError("ELECTION_NOT_NEEDED", "The request names the partition twice.")
            units.append(Unit(_elect(view, key, partition, unclean)))
        except ControllerError as error:
            results.append(ElectLeadersResult(name, number, error.code, error.message))
            continue
        elected.add(key)
        results.append(ElectLeadersResult(name, number))
    return decided(ElectLeadersResponse(tuple(results)), *units)


def _all_in_need(view: ClusterView, unclean: bool) -> list[tuple[str, int]]:
    """Topic name and number of the partitions that such an election could concern, ascending."""
    keys = list(view.index.leaderless())
    if not unclean:
        keys += [
            key for broker in view.index.imbalanced_brokers() for key in view.index.imbalanced_on(broker)
        ]
    return sorted((view.image.topics[topic_id].name, number) for topic_id, number in keys)


def _find(view: ClusterView, name: str, number: int) -> tuple[PartitionId, PartitionImage]:
    topic = view.image.topic(name)
    if topic is None:
        raise ControllerError("UNKNOWN_TOPIC_OR_PARTITION", f"There is no topic '{name}'.")
    partition = view.image.partition(topic.topic_id, number)
    if partition is None:
        raise ControllerError("UNKNOWN_TOPIC_OR_PARTITION", f"Topic '{name}' has no partition {number}.")
    return (topic.topic_id, number), partition


def _elect(view: ClusterView, key: PartitionId, partition: PartitionImage, unclean: bool) -> PartitionChange:
    if unclean:
        if partition.has_leader:
            raise ControllerError("ELECTION_NOT_NEEDED", f"Broker {partition.leader} leads the partition.")
        record = elect_unclean(view, key)
        if record is None or record.leader is None:
            raise ControllerError(
                "ELIGIBLE_LEADERS_NOT_AVAILABLE",
                _why_nobody_can_lead(view, partition),
            )
        return record
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise ControllerError("ELECTION_NOT_NEEDED", f"The preferred leader {preferred} leads already.")
    record = preferred_change(view, key, partition)
    if record is None:
        if not view.is_active(preferred):
            state = "fenced, shutting down or not registered"
        elif preferred in partition.offline_replicas:
            state = "alive, but it cannot serve the log of this partition: its replica is offline"
        else:
            state = "not in sync yet"
        raise ControllerError(
            "PREFERRED_LEADER_NOT_AVAILABLE", f"The preferred leader, broker {preferred}, is {state}."
        )
    return record


def _why_nobody_can_lead(view: ClusterView, partition: PartitionImage) -> str:
    offline = [broker_id for broker_id in partition.offline_replicas if view.is_active(broker_id)]
    if not offline:
        return f"None of the replicas {list(partition.replicas)} is alive; start one of these brokers."
    away = [broker_id for broker_id in partition.replicas if not view.is_active(broker_id)]
    start = f" Start one of the brokers {away}, or repair" if away else " Repair"
    return (
        f"The replicas {offline} are offline: their brokers are alive and cannot serve their logs, which are "
        f"damaged or in a failed directory.{start} one of the offline logs and restart its broker."
    )


def preferred_change(
    view: ClusterView, key: PartitionId, partition: PartitionImage
) -> PartitionChange | None:
    """Gives the leadership to the first replica; None if it is not in sync, not alive, or leads already."""
    preferred = partition.replicas[0]
    if partition.leader == preferred or preferred not in partition.isr or not view.is_active(preferred):
        return None
    builder = PartitionChangeBuilder.of(view, key)
    builder.election = Election.PREFERRED
    return builder.build()
