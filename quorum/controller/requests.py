"""The table of what the active controller decides: each request, and who decides it.

A request that is not here is not the controller's to decide. Used by `state`, which applies and proposes
what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quorum.controller import (
    acl_control,
    broker_removal,
    client_quota_control,
    configuration_control,
    feature_control,
    leader_election_control,
    producer_id_control,
    reassignment_control,
    replica_states,
    replication_control,
    scram_control,
    topic_control,
)
from quorum.controller.cluster_control import ClusterControl
from quorum.controller.decision import ClusterView, Decision
from quorum.controller.mutation_budget import MutationBudget, MutationQuotas
from quorum.controller.placement import Randomness
from quorum.rpc import messages
from quorum.rpc.messages import METHODS, ControllerRequest


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a request is decided with. `now_ms` is monotonic."""

    view: ClusterView
    cluster: ClusterControl
    rng: Randomness
    now_ms: int
    mutation_quotas: MutationQuotas | None = None

    def budget(self, mutator: messages.Mutator | None) -> MutationBudget:
        """What a request may have changed, by the quotas of this moment."""
        return MutationBudget(self.mutation_quotas, self.view.image.client_quotas, mutator, self.now_ms)


def decide(request: ControllerRequest[Any], given: Circumstances) -> Decision:
    """The decision on a request; nothing has changed yet. Raises ControllerError when it is refused."""
    return _DECIDE[type(request)](request, given)


_DECIDE: Mapping[type[Any], Callable[[Any, Circumstances], Decision]] = {
    messages.RegisterBrokerRequest: lambda request, on: on.cluster.register(on.view, request, on.now_ms),
    messages.HeartbeatRequest: lambda request, on: on.cluster.heartbeat(on.view, request, on.now_ms),
    messages.UnregisterBrokerRequest: lambda request, on: broker_removal.unregister(
        on.view, on.cluster.sessions, request
    ),
    messages.AlterPartitionRequest: lambda request, on: replication_control.alter_partition(on.view, request),
    messages.ReplicaStatesRequest: lambda request, on: replica_states.report_replicas(on.view, request),
    messages.CreateTopicsRequest: lambda request, on: topic_control.create_topics(
        on.view, request, on.rng, on.budget(request.mutator)
    ),
    messages.DeleteTopicsRequest: lambda request, on: topic_control.delete_topics(
        on.view, request, on.budget(request.mutator)
    ),
    messages.CreatePartitionsRequest: lambda request, on: topic_control.create_partitions(
        on.view, request, on.rng, on.budget(request.mutator)
    ),
    messages.ElectLeadersRequest: lambda request, on: leader_election_control.elect_leaders(on.view, request),
    messages.AlterPartitionReassignmentsRequest: lambda request, on: reassignment_control.alter_reassignments(
        on.view, request
    ),
    messages.ListPartitionReassignmentsRequest: lambda request, on: reassignment_control.list_reassignments(
        on.view, request
    ),
    messages.AlterConfigsRequest: lambda request, on: configuration_control.alter_configs(on.view, request),
    messages.AlterClientQuotasRequest: lambda request, on: client_quota_control.alter_client_quotas(
        on.view, request
    ),
    messages.UpdateFeaturesRequest: lambda request, on: feature_control.update_features(on.view, request),
    messages.AlterUserScramCredentialsRequest: lambda request, on: scram_control.alter_credentials(
        on.view, request
    ),
    messages.CreateAclsRequest: lambda request, on: acl_control.create_acls(on.view, request),
    messages.DeleteAclsRequest: lambda request, on: acl_control.delete_acls(on.view, request),
    messages.AllocateProducerIdsRequest: lambda request, on: producer_id_control.allocate_producer_ids(
        on.view, request
    ),
}
assert _DECIDE.keys() == {
    rpc.request for rpc in METHODS.values() if issubclass(rpc.request, ControllerRequest)
}, "every request that is the controller's to decide needs a decision, and no other has one"
