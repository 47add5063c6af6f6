"""Asks for the state of the quorum: a broker, by Kafka's DescribeQuorum, or the controllers themselves."""

from __future__ import annotations

from typing import cast

from kraft.cli.quorum.controllers import (
    NAME_A_CONFIG,
    ControllerCalls,
    Controllers,
    controllers_of_config,
    run_with_controllers,
)
from kraft.cli.quorum.view import QuorumNode, QuorumView
from kraft.cli.shared.admin_client import AdminClient, raise_for, run_admin
from kraft.cli.shared.bootstrap import config_of_this_folder
from kraft.protocol.schemas.quorum import (
    CLUSTER_METADATA_TOPIC,
    DescribePartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeTopic,
    ReplicaState,
)
from kraft.user_error import EXIT_UNDECIDED, UserError
from quorum.rpc import messages

DESCRIBE_QUORUM_VERSION = 2
_FAILED = "the quorum was not described"


async def describe_through_broker(admin: AdminClient) -> QuorumView:
    """What the broker's DescribeQuorum answers. Raises UserError."""
    metadata = await admin.metadata([])
    partition = DescribePartition(partition_index=0)
    request = DescribeQuorumRequest(
        topics=[DescribeTopic(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])]
    )
    answer = cast("DescribeQuorumResponse", await admin.request(request, version=DESCRIBE_QUORUM_VERSION))
    raise_for(answer.error_code, answer.error_message, _FAILED)
    data = answer.topics[0].partitions[0]
    raise_for(data.error_code, data.error_message, _FAILED)
    return QuorumView(
        metadata.cluster_id,
        data.leader_id,
        data.leader_epoch,
        data.high_watermark,
        [_replica(state) for state in data.current_voters],
        [_replica(state) for state in data.observers],
        {
            node.node_id: [
                f"{listener.name}://{listener.host}:{listener.port}" for listener in node.listeners
            ]
            for node in answer.nodes
        },
    )


def controllers_of_cluster(bootstrap_server: str) -> Controllers:
    """The controllers that a broker names, for a cluster without a secret of its own. Of the cluster in `./.kraft`,
    those of its configuration, which has the secret."""

    async def work(admin: AdminClient) -> Controllers:
        view = await describe_through_broker(admin)
        config = config_of_this_folder(view.cluster_id) if view.cluster_id is not None else None
        if config is not None:
            return controllers_of_config(config)
        voters = {node_id: endpoints[0].rpartition("//")[2] for node_id, endpoints in view.endpoints.items()}
        if not voters or view.cluster_id is None:
            raise UserError(f"the broker does not say where the controllers are: {NAME_A_CONFIG}")
        return Controllers(
            voters,
            view.cluster_id.encode(),
            view.cluster_id,
            f"the cluster has a secret of its own: {NAME_A_CONFIG}",
        )

    return run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED)


def describe_through_controllers(controllers: Controllers) -> QuorumView:
    """What the active controller answers. Raises UserError."""

    async def work(calls: ControllerCalls) -> QuorumView:
        answer = await calls.call(messages.DescribeQuorumRequest())
        return QuorumView(
            controllers.cluster_id,
            answer.leader_id,
            answer.leader_epoch,
            answer.high_watermark,
            [_controller_replica(replica) for replica in answer.voters],
            [_controller_replica(replica) for replica in answer.observers],
            {
                node_id: [f"{controllers.listener_name}://{address}"]
                for node_id, address in controllers.voters.items()
                if node_id >= 0
            },
        )

    return run_with_controllers(controllers, work, unanswered=EXIT_UNDECIDED)


def _replica(state: ReplicaState) -> QuorumNode:
    return QuorumNode(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )


def _controller_replica(replica: messages.QuorumReplica) -> QuorumNode:
    return QuorumNode(
        replica.replica_id,
        replica.directory_id,
        replica.log_end_offset,
        replica.last_fetch_ms,
        replica.last_caught_up_ms,
    )
