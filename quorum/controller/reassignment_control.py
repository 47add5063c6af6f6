"""Partition reassignment for operators: begin, supersede, cancel, list (KIP-455, KIP-860).

Guarantees: a partition's brokers change in two records at most, each a whole state. The first adds the target's
replicas; the second, once all of them are in sync, leaves exactly the target. The two are one where nothing has to be
copied. A cancelled reassignment leaves exactly the brokers of before. No reassignment costs committed records, unless
the topic allows unclean election. `requests` calls it; the change builder makes the second record when the leader's
AlterPartition arrives.
"""

from __future__ import annotations

from quorum.controller.decision import ClusterView, Decision, Unit, decided
from quorum.controller.partition_change_builder import PartitionChangeBuilder
from quorum.controller.reassignment import Ids, Reassignment, origin, towards, under_way
from quorum.controller.replica_assignment import assignment_problem
from quorum.errors import ControllerError
from quorum.metadata.image import PartitionId, PartitionImage
from quorum.metadata.records import NO_LEADER, PartitionChange
from quorum.rpc.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingReassignment,
    PartitionReassignment,
    ReassignmentResult,
)


def alter_reassignments(view: ClusterView, request: AlterPartitionReassignmentsRequest) -> Decision:
    """Begins, supersedes or cancels reassignments; refusals are per partition."""
    units = []
    results = []
    seen: set[tuple[str, int]] = set()
    for topic in request.topics:
        for wanted in topic.partitions:
            try:
                if (topic.name, wanted.partition) in seen:
                    raise ControllerError("INVALID_REQUEST", "The request names the partition twice.")
                seen.add((topic.name, wanted.partition))
                key, partition = _find(view, topic.name, wanted.partition)
                allowed = request.allow_replication_factor_change
                record = _alter(view, key, partition, wanted, allow_factor_change=allowed)
            except ControllerError as error:
                results.append(ReassignmentResult(topic.name, wanted.partition, error.code, error.message))
                continue
            if record is not None:
                units.append(Unit(record))
            results.append(ReassignmentResult(topic.name, wanted.partition))
    return decided(AlterPartitionReassignmentsResponse(tuple(results)), *units)


def list_reassignments(view: ClusterView, request: ListPartitionReassignmentsRequest) -> Decision:
    """The reassignments under way, of all topics or of those named. O(partitions named, or under way)."""
    if request.topics is None:
        wanted = [(view.image.topics[topic_id].name, number) for topic_id, number in view.index.reassigning()]
    else:
        wanted = [(topic.name, number) for topic in request.topics for number in topic.partitions]
    ongoing = []
    for name, number in sorted(set(wanted)):
        topic_id = view.image.topic_ids.get(name)
        partition = None if topic_id is None else view.image.partition(topic_id, number)
        if partition is not None and partition.is_reassigning:
            ongoing.append(
                OngoingReassignment(
                    name, number, partition.replicas, partition.adding_replicas, partition.removing_replicas
                )
            )
    return decided(ListPartitionReassignmentsResponse(tuple(ongoing)))


def _find(view: ClusterView, name: str, number: int) -> tuple[PartitionId, PartitionImage]:
    topic = view.image.topic(name)
    if topic is None:
        raise ControllerError("UNKNOWN_TOPIC_OR_PARTITION", f"Unable to find a topic named {name}.")
    partition = view.image.partition(topic.topic_id, number)
    if partition is None:
        raise ControllerError("UNKNOWN_TOPIC_OR_PARTITION", f"Unable to find partition {name}:{number}.")
    return (topic.topic_id, number), partition


def _alter(
    view: ClusterView,
    key: PartitionId,
    partition: PartitionImage,
    wanted: PartitionReassignment,
    *,
    allow_factor_change: bool,
) -> PartitionChange | None:
    """The record that one item asks for; None if the partition is as wanted. Raises ControllerError."""
    if wanted.replicas is None:
        if not partition.is_reassigning:
            raise ControllerError("NO_REASSIGNMENT_IN_PROGRESS", "No partition reassignment is in progress.")
        reassignment = towards(partition, origin(partition))
        verb = "revert the partition assignment"
    else:
        _check_target(view, partition, wanted.replicas, allow_factor_change)
        reassignment = towards(partition, wanted.replicas)
        verb = "change the reassignment that is in progress"
    if not _has_candidate(view, key, partition, reassignment):
        raise ControllerError(
            "INVALID_REPLICA_ASSIGNMENT",
            f"Unable to {verb} of {view.image.topics[key[0]].name}:{key[1]} because it would require an unclean "
            f"leader election: none of the brokers {list(reassignment.replicas)} has all committed records.",
        )
    builder = PartitionChangeBuilder.of(view, key, partition)
    builder.target_replicas = reassignment.replicas
    builder.target_adding = reassignment.adding
    builder.target_removing = reassignment.removing
    builder.target_isr = tuple(member for member in partition.isr if member in reassignment.replicas)
    return builder.build()


def _check_target(
    view: ClusterView, partition: PartitionImage, target: Ids, allow_factor_change: bool
) -> None:
    """Raises ControllerError INVALID_REPLICA_ASSIGNMENT or INVALID_REPLICATION_FACTOR."""
    problem = assignment_problem(view, target)
    if problem is not None:
        raise ControllerError("INVALID_REPLICA_ASSIGNMENT", f"The manual partition assignment {problem}")
    factor = len(under_way(partition).target)
    if not allow_factor_change and len(target) != factor:
        raise ControllerError(
            "INVALID_REPLICATION_FACTOR",
            f"The replication factor is changed from {factor} to {len(target)}, which the request does not allow.",
        )


def _has_candidate(
    view: ClusterView, key: PartitionId, partition: PartitionImage, reassignment: Reassignment
) -> bool:
    """Whether the partition keeps a replica that may lead it.

    A cancelled or superseded reassignment removes replicas at once, perhaps those with all committed records.
    """
    stay = set(reassignment.replicas)
    if stay.issuperset(partition.replicas) or not stay.isdisjoint(partition.isr):
        return True
    if partition.leader == NO_LEADER and not stay.isdisjoint(partition.elr):
        return True  # it waits for one of them, and goes on waiting
    able = {
        broker_id for broker_id in stay.difference(partition.offline_replicas) if view.is_active(broker_id)
    }
    return not able.isdisjoint(partition.elr) or (view.unclean_allowed(key[0]) and bool(able))
