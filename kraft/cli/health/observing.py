"""Asks a cluster for all that its health is judged by: one look, bounded in time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final, cast

from kraft.cli.health.problems import ClusterSeen
from kraft.cli.quorum.sources import describe_through_broker
from kraft.cli.quorum.view import QuorumView
from kraft.cli.reassign.moves import ongoing
from kraft.cli.shared.admin_client import DISK_LOOK_TIMEOUT_S, AdminClient, BrokerAwayError
from kraft.cluster_problems import DirectorySeen, PartitionSeen
from kraft.network.client import ConnectionLostError
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kraft.protocol.schemas.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kraft.user_error import UserError
from partitions.topic_partition import TopicPartition

CONFIGS_VERSION: Final = 4
LOG_DIRS_VERSION: Final = 5
TOPICS_PER_REQUEST: Final = 500
MIN_ISR: Final = "min.insync.replicas"


async def observe(admin: AdminClient) -> ClusterSeen:
    """Raises UserError, ConnectionLostError if the broker that is connected does not tell."""
    quorum = await _quorum(admin)
    registered = sorted(await admin.registered_brokers())
    metadata = await admin.metadata(None)
    live = [broker.node_id for broker in metadata.brokers]
    names = [topic.name for topic in metadata.topics if topic.name is not None and not topic.error_code]
    min_isrs = await _min_isrs(admin, names)
    adding: dict[TopicPartition, int] = {}
    if quorum is not None:  # the controller tells of moves
        adding = {one.key: len(one.state.adding_replicas) for one in await ongoing(admin, None)}
    partitions = [
        PartitionSeen(
            topic.name or "",
            one.partition_index,
            one.leader_id,
            one.isr_nodes,
            one.replica_nodes,
            adding.get(TopicPartition(topic.name or "", one.partition_index), 0),
            min_isrs.get(topic.name or "", 1),
        )
        for topic in sorted(metadata.topics, key=lambda topic: topic.name or "")
        for one in sorted(topic.partitions, key=lambda one: one.partition_index)
    ]
    directories = await asyncio.gather(*(_directories(admin, broker) for broker in live))
    silent = [broker for broker, found in zip(live, directories, strict=True) if found is None]
    return ClusterSeen(
        metadata.cluster_id or "",
        registered,
        live,
        silent,
        quorum,
        partitions,
        [one for found in directories for one in found or ()],
    )


async def _quorum(admin: AdminClient) -> QuorumView | None:
    """None if the broker reaches no active controller."""
    try:
        return await describe_through_broker(admin)
    except UserError:
        return None


async def _min_isrs(admin: AdminClient, names: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    left = iter(names)
    while asked := list(islice(left, TOPICS_PER_REQUEST)):
        resources = [
            DescribeConfigsResource(
                resource_type=ConfigResourceType.TOPIC, resource_name=name, configuration_keys=[MIN_ISR]
            )
            for name in asked
        ]
        request = DescribeConfigsRequest(resources=resources)
        answer = cast("DescribeConfigsResponse", await admin.request(request, version=CONFIGS_VERSION))
        for result in answer.results:
            for config in result.configs:
                if config.name == MIN_ISR and config.value is not None:
                    found[result.resource_name] = int(config.value)
    return found


async def _directories(admin: AdminClient, broker: int) -> list[DirectorySeen] | None:
    """None if it does not answer."""
    try:
        answer = cast(
            "DescribeLogDirsResponse",
            await admin.request_of(
                broker,
                DescribeLogDirsRequest(topics=[]),
                version=LOG_DIRS_VERSION,
                timeout_s=DISK_LOOK_TIMEOUT_S,
            ),
        )
    except (BrokerAwayError, ConnectionLostError):
        return None
    return [
        DirectorySeen(
            broker,
            result.log_dir,
            ErrorCode(result.error_code).name if result.error_code else None,
            result.total_bytes,
            result.usable_bytes,
        )
        for result in answer.results
    ]
