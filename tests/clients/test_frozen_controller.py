"""An admin request that a broker forwards to a controller which stands still is answered by the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.configs import ConfigResourceType
from kraft.protocol.schemas.elections import ElectionType, ElectLeadersRequest, TopicPartitions
from kraft.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kraft.protocol.schemas.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.support.node_processes import NodeProcesses, until
from tests.support.raw_client import TIMEOUT_S, RawConnection

CLIENT_WAITS_MS = int(3 * TIMEOUT_S * 1000)
"""Longer than the connection: whoever waits for the frozen controller fails."""


def creation(topic: str) -> Message:
    new = CreatableTopic(name=f"{topic}-more", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[new], timeout_ms=CLIENT_WAITS_MS)


def deletion(topic: str) -> Message:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=CLIENT_WAITS_MS)


def growth(topic: str) -> Message:
    more = CreatePartitionsTopic(name=topic, count=3, assignments=None)
    return CreatePartitionsRequest(topics=[more], timeout_ms=CLIENT_WAITS_MS)


def configuration(topic: str) -> Message:
    config = AlterableConfig(name="retention.ms", config_operation=0, value="3600000")
    resource = AlterConfigsResource(ConfigResourceType.TOPIC, topic, [config])
    return IncrementalAlterConfigsRequest(resources=[resource])


def election(topic: str) -> Message:
    wanted = [TopicPartitions(topic=topic, partitions=[0])]
    return ElectLeadersRequest(ElectionType.PREFERRED, wanted, CLIENT_WAITS_MS)


@pytest.mark.parametrize(
    ("request_of", "version", "code_of"),
    [
        (creation, 7, lambda answer: answer.topics[0].error_code),
        (deletion, 6, lambda answer: answer.responses[0].error_code),
        (growth, 3, lambda answer: answer.results[0].error_code),
        (configuration, 1, lambda answer: answer.responses[0].error_code),
        (election, 2, lambda answer: answer.replica_election_results[0].partition_result[0].error_code),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_next_controller_answers(
    fragile_cluster: NodeProcesses,
    request_of: Callable[[str], Message],
    version: int,
    code_of: Callable[[Any], int],
) -> None:
    cluster = fragile_cluster
    frozen = cluster.controller()
    others = [node_id for node_id in cluster.node_ids if node_id != frozen]
    topic = cluster.create_topic("frozen")
    with RawConnection(cluster.address(others[0])) as connection:
        assert cluster.local.pause(frozen)
        code = code_of(connection.call(request_of(topic), version))
        until(lambda: cluster.controller() in others, "another controller is known")
    assert ErrorCode(code) in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
