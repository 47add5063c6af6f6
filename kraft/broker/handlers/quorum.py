"""DescribeQuorum (55): answered by the active controller from its Raft lane (KIP-836, KIP-853)."""

from __future__ import annotations

from kraft.broker.handlers.forwarding import Refusal, forward, too_many
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.listeners import split_host_port
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.quorum import (
    CLUSTER_METADATA_TOPIC,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from quorum.rpc import messages

TIMEOUT_S = 10.0


async def handle_describe_quorum(
    services: BrokerServices, request: Request[DescribeQuorumRequest]
) -> DescribeQuorumResponse:
    """Answers DescribeQuorum for the one partition that the quorum has."""
    body = request.body
    asked = [(topic.topic_name, p.partition_index) for topic in body.topics for p in topic.partitions]
    if problem := too_many(len(asked), "partitions"):
        return _refuse(problem)
    if asked != [(CLUSTER_METADATA_TOPIC, 0)]:
        return _unknown(body)
    forwarded = await forward(services, messages.DescribeQuorumRequest(), TIMEOUT_S)
    if isinstance(forwarded, Refusal):
        return _refuse(forwarded)
    answer = forwarded.response
    partition = PartitionData(
        leader_id=answer.leader_id,
        leader_epoch=answer.leader_epoch,
        high_watermark=answer.high_watermark,
        current_voters=[_replica(voter) for voter in answer.voters],
        observers=[_replica(observer) for observer in answer.observers],
    )
    return DescribeQuorumResponse(
        topics=[TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        nodes=_nodes(services),
    )


def _refuse(refusal: Refusal) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=refusal.code, error_message=refusal.message)


def _unknown(body: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Every partition but the one is unknown, and so is that one beside others, as in Kafka."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    message = f"the quorum has one partition: ask for {CLUSTER_METADATA_TOPIC}-0 and nothing else"
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition_index, error_code=code, error_message=message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _replica(replica: messages.QuorumReplica) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.replica_id,
        replica_directory_id=replica.directory_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )


def _nodes(services: BrokerServices) -> list[Node]:
    """The voters' addresses, as controller.quorum.voters has them."""
    config = services.config
    name = next(iter(config.get("controller.listener.names") or ()), "CONTROLLER")
    nodes = []
    for voter_id in sorted(config.voters):
        host, port = split_host_port(config.voters[voter_id])
        nodes.append(Node(node_id=voter_id, listeners=[Listener(name=name, host=host, port=port)]))
    return nodes
