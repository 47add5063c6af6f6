"""Configs, elections, reassignments, features and the quorum through confluent-kafka's and kafka-python's
admin clients; what no client library can ask for goes over a raw connection.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)

from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.cluster import DescribeClusterRequest, UnregisterBrokerRequest
from kraft.protocol.schemas.elections import ElectLeadersRequest, TopicPartitions
from kraft.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from quorum.metadata.features import SUPPORTED_FEATURES
from tests.support.group_members import GROUP_SETTINGS
from tests.support.node_processes import NodeProcesses, until
from tests.support.raw_client import RawConnection
from tests.support.real_clients import CLIENTS, LIBRARIES
from tests.support.replica_files import data_directory

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its own resources
    from kafka import TopicPartition as PythonTopicPartition
    from kafka.admin import ConfigResource as PythonResource
    from kafka.admin import ConfigResourceType, KafkaAdminClient
    from kafka.errors import (
        BrokerResponseError,
        InvalidReplicationAssignmentError,
        NoReassignmentInProgressError,
    )

WAIT_S = 60
TOPIC, BROKER, GROUP = ConfigResource.Type.TOPIC, ConfigResource.Type.BROKER, ConfigResource.Type.GROUP
SET, DELETE, APPEND = AlterConfigOpType.SET, AlterConfigOpType.DELETE, AlterConfigOpType.APPEND
ELR = "eligible.leader.replicas.version"


@pytest.fixture
def python(cluster: NodeProcesses) -> Iterator[KafkaAdminClient]:
    """kafka-python's admin client."""
    made = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    yield made
    made.close()


def change(
    cluster: NodeProcesses, kind: Any, name: str, *entries: tuple[str, str | None, Any], dry: bool = False
) -> None:
    """Incremental changes through librdkafka. Raises KafkaException."""
    incremental = [
        ConfigEntry(key, value, incremental_operation=operation) for key, value, operation in entries
    ]
    resource = ConfigResource(kind, name, incremental_configs=incremental)
    futures = cluster.admin.incremental_alter_configs([resource], validate_only=dry)
    futures[resource].result(WAIT_S)


def entries(cluster: NodeProcesses, kind: Any, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    described: dict[str, Any] = cluster.admin.describe_configs([resource])[resource].result(WAIT_S)
    return described


def refusal(work: Callable[[], Any]) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaException) as caught:
        work()
    error = caught.value.args[0]
    return ErrorCode(error.code()), error.str()


# Configs


def test_a_topics_configs_are_changed_key_by_key(cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("configs", retention_ms="5000", segment_bytes="100000")
    change(cluster, TOPIC, topic, ("retention.ms", "6000", SET), ("min.insync.replicas", "2", SET))
    change(cluster, TOPIC, topic, ("segment.bytes", None, DELETE), ("cleanup.policy", "delete", APPEND))
    described = entries(cluster, TOPIC, topic)
    dynamic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    own = {name: entry.value for name, entry in described.items() if entry.source == dynamic}
    assert own == {"retention.ms": "6000", "min.insync.replicas": "2", "cleanup.policy": "delete"}
    assert described["segment.bytes"].value == "1073741824"
    assert not described["retention.ms"].is_read_only
    change(cluster, TOPIC, topic, ("retention.ms", "7000", SET), dry=True)
    assert entries(cluster, TOPIC, topic)["retention.ms"].value == "6000", "validating changes nothing"


@pytest.mark.parametrize(
    ("key", "value", "operation"),
    [("no.such.key", "1", SET), ("retention.ms", "soon", SET), ("retention.ms", "1", APPEND)],
)
def test_changes_of_a_topic_that_cannot_be(
    cluster: NodeProcesses, key: str, value: str, operation: Any
) -> None:
    topic = cluster.create_topic("configs")
    code, sentence = refusal(lambda: change(cluster, TOPIC, topic, (key, value, operation)))
    assert code == ErrorCode.INVALID_CONFIG
    assert key in sentence
    unknown = cluster.new_name("unknown")
    code, _ = refusal(lambda: change(cluster, TOPIC, unknown, ("retention.ms", "1", SET)))
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_older_request_replaces_all_configs(cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("configs", retention_ms="5000", segment_bytes="100000")
    resource = ConfigResource(TOPIC, topic, set_config={"retention.ms": "6000"})
    with pytest.warns(DeprecationWarning, match="incremental"):
        cluster.admin.alter_configs([resource])[resource].result(WAIT_S)
    described = entries(cluster, TOPIC, topic)
    assert described["retention.ms"].value == "6000"
    assert described["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value


def change_all_brokers(cluster: NodeProcesses, key: str, value: str | None) -> tuple[ErrorCode, str | None]:
    """What librdkafka refuses to ask for: a value for all brokers, or None to take it back."""
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    config = AlterableConfig(name=key, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=BROKER.value, resource_name="", configs=[config])
    with RawConnection(cluster.address(1)) as connection:
        (answer,) = connection.call(IncrementalAlterConfigsRequest([resource]), 1).responses
        return ErrorCode(answer.error_code), answer.error_message


def test_brokers_are_configured_while_they_run(cluster: NodeProcesses) -> None:
    """One broker's value goes before that of all, that before the default; topics take it over."""
    topic = cluster.create_topic("configs")
    key = "log.retention.ms"
    try:
        assert change_all_brokers(cluster, key, "900000000") == (ErrorCode.NONE, None)
        change(cluster, BROKER, "2", (key, "800000000", SET))
        mine = entries(cluster, BROKER, "2")[key]
        assert (mine.value, mine.source) == ("800000000", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
        until(lambda: entries(cluster, BROKER, "3")[key].value == "900000000", "broker 3 has it, too")
        other = entries(cluster, BROKER, "3")[key]
        assert other.source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value
        assert not other.is_read_only
        assert entries(cluster, TOPIC, topic)["retention.ms"].value in ("800000000", "900000000")
    finally:
        change(cluster, BROKER, "2", (key, None, DELETE))
        assert change_all_brokers(cluster, key, None) == (ErrorCode.NONE, None)
    until(
        lambda: entries(cluster, BROKER, "2")[key].source == ConfigSource.DEFAULT_CONFIG.value, "it is over"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("node.id", "7"),
        ("num.partitions", "3"),
        ("log.retention.ms", "soon"),
        ("no.such.key", "1"),
        ("min.insync.replicas", "2"),
    ],
)
def test_changes_of_a_broker_that_cannot_be(cluster: NodeProcesses, key: str, value: str) -> None:
    code, sentence = refusal(lambda: change(cluster, BROKER, "1", (key, value, SET)))
    assert code == ErrorCode.INVALID_REQUEST
    assert key in sentence
    if key != "min.insync.replicas":  # which can only be set for all
        code, reason = change_all_brokers(cluster, key, value)
        assert code == ErrorCode.INVALID_REQUEST
        assert key in (reason or "")


def test_a_group_has_configs_before_it_has_members(cluster: NodeProcesses, python: KafkaAdminClient) -> None:
    group, key = "configured.before", "consumer.session.timeout.ms"
    of_broker = GROUP_SETTINGS[f"group.{key}"]
    described = entries(cluster, GROUP, group)
    assert (described[key].value, described[key].source) == (
        of_broker,
        ConfigSource.STATIC_BROKER_CONFIG.value,
    )
    change(cluster, GROUP, group, (key, "50000", SET))
    until(lambda: entries(cluster, GROUP, group)[key].value == "50000", "it is set")
    resource = PythonResource(ConfigResourceType.GROUP, group)
    until(
        lambda: python.describe_configs([resource])["group"][group][key]["value"] == "50000",
        "any broker tells it",
    )
    code, sentence = refusal(lambda: change(cluster, GROUP, group, (key, "999", SET)))
    assert code == ErrorCode.INVALID_CONFIG
    assert "group.consumer.min.session.timeout.ms (1000)" in sentence
    python.alter_configs([PythonResource(ConfigResourceType.GROUP, group, configs={key: ("DELETE", None)})])
    until(lambda: entries(cluster, GROUP, group)[key].value == of_broker, "it is the broker's again")


def test_kafka_python_changes_configs(cluster: NodeProcesses, python: KafkaAdminClient) -> None:
    topic = cluster.create_topic("configs")
    wanted = PythonResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": ("SET", "6000")})
    python.alter_configs([wanted])

    def is_described() -> bool:
        """Each call may ask another broker."""
        told = python.describe_configs([PythonResource(ConfigResourceType.TOPIC, topic)])
        return bool(told["topic"][topic]["retention.ms"]["value"] == "6000")

    until(is_described, "it is described")


# Elections and reassignments


def move(python: KafkaAdminClient, topic: str, replicas: list[int] | None) -> Any:
    """Reassigns partition 0; the error it was refused with, or None."""
    partition = PythonTopicPartition(topic, 0)
    return python.alter_partition_reassignments({partition: replicas})[partition]


def moving(python: KafkaAdminClient, topic: str) -> Any:
    return python.list_partition_reassignments({topic: [0]})


def test_the_preferred_leader_is_elected(cluster: NodeProcesses, python: KafkaAdminClient) -> None:
    topic = cluster.create_topic("elections")
    first, second, third = cluster.partitions(topic)[0].replicas
    assert move(python, topic, [second, first, third]) is None
    until(lambda: cluster.partitions(topic)[0].replicas == [second, first, third], "another is preferred")
    partition = TopicPartition(topic, 0)
    results = cluster.admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(WAIT_S)
    assert results[partition] is None or results[partition].code() == ErrorCode.ELECTION_NOT_NEEDED
    until(lambda: cluster.leader(topic) == second, "the preferred replica leads")
    again = cluster.admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(WAIT_S)
    assert again[partition].code() == ErrorCode.ELECTION_NOT_NEEDED
    unclean = cluster.admin.elect_leaders(ElectionType.UNCLEAN, [partition]).result(WAIT_S)
    assert unclean[partition].code() == ErrorCode.ELECTION_NOT_NEEDED


def test_elections_for_all_and_for_none_that_is_there(cluster: NodeProcesses) -> None:
    with RawConnection(cluster.address(1)) as connection:
        for version in (0, 1, 2):
            everywhere = connection.call(ElectLeadersRequest(topic_partitions=None), version)
            assert everywhere.error_code == ErrorCode.NONE
            nowhere = ElectLeadersRequest(topic_partitions=[TopicPartitions("no-such-topic", [0])])
            (result,) = connection.call(nowhere, version).replica_election_results
            assert result.partition_result[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_moves_to_other_brokers(cluster: NodeProcesses, python: KafkaAdminClient) -> None:
    """Records and all; it is done when the list does not name it any more."""
    topic = cluster.create_topic("moves", replication_factor=1)
    (before,) = cluster.partitions(topic)[0].replicas
    CLIENTS[0].produce(cluster.bootstrap, topic, {0: [b"one", b"two"]})
    target = [node_id for node_id in cluster.node_ids if node_id != before]
    assert move(python, topic, target) is None
    until(lambda: not moving(python, topic), "the move is over")
    until(
        lambda: (
            (state := cluster.partitions(topic)[0]).replicas == target
            and sorted(state.isrs) == sorted(target)
        ),
        "the targets are in sync",
    )
    assert cluster.leader(topic) in target
    assert CLIENTS[0].consume(cluster.bootstrap, topic, {0: 2}) == {0: [b"one", b"two"]}


def test_moves_that_cannot_be(cluster: NodeProcesses, python: KafkaAdminClient) -> None:
    topic = cluster.create_topic("moves", replication_factor=1)
    assert move(python, topic, [99]) is InvalidReplicationAssignmentError
    assert move(python, topic, None) is NoReassignmentInProgressError
    assert moving(python, topic) == {}


# Features, brokers, quorum


def test_features_are_described_and_updated(cluster: NodeProcesses, python: KafkaAdminClient) -> None:
    described = python.describe_features()
    assert {name: feature["supported"] for name, feature in described.items()} == {
        name: (feature.lowest, feature.highest) for name, feature in SUPPORTED_FEATURES.items()
    }
    level = SUPPORTED_FEATURES["metadata.version"].default
    assert described["metadata.version"]["finalized"] == (level, level)
    assert described["metadata.version"]["finalized_epoch"] > 0
    assert described[ELR]["finalized"] == (1, 1)
    python.update_features({ELR: ("SAFE_DOWNGRADE", 0)}, validate_only=True)
    assert python.describe_features()[ELR]["finalized"] == (1, 1), "validating changes nothing"
    try:
        python.update_features({ELR: ("SAFE_DOWNGRADE", 0)})
        until(lambda: "finalized" not in python.describe_features()[ELR], "it is off")
    finally:
        python.update_features({ELR: 1})
    until(lambda: python.describe_features()[ELR].get("finalized") == (1, 1), "it is on again")
    for impossible in ({ELR: 9}, {"no.such.feature": 1}, {ELR: ("UPGRADE", 0)}):
        with pytest.raises(BrokerResponseError):
            python.update_features(impossible)


def test_the_quorum_describes_itself(cluster: NodeProcesses, python: KafkaAdminClient) -> None:
    def whole() -> Any:
        described = python.describe_metadata_quorum()
        partition = described["topics"][0]["partitions"][0]
        voters = partition["current_voters"]
        heard = all(voter["log_end_offset"] > 0 for voter in voters)
        return (described, partition) if heard and partition["leader_id"] in cluster.node_ids else None

    described, partition = until(whole, "every voter was heard of")
    assert partition["error"] is None
    assert [voter["replica_id"] for voter in partition["current_voters"]] == cluster.node_ids
    leader = next(v for v in partition["current_voters"] if v["replica_id"] == partition["leader_id"])
    assert 0 < partition["high_watermark"] <= leader["log_end_offset"]
    for voter in partition["current_voters"]:
        assert voter["last_caught_up_timestamp"] > 1_600_000_000_000
        assert voter is leader or voter["last_fetch_timestamp"] > 1_600_000_000_000
    assert partition["observers"] == [], "the brokers are voters themselves"
    assert len({voter["replica_directory_id"] for voter in partition["current_voters"]}) == 3
    assert sorted(node["node_id"] for node in described["nodes"]) == cluster.node_ids


def test_the_cluster_says_who_may_do_what(cluster: NodeProcesses, python: KafkaAdminClient) -> None:
    described = python.describe_cluster()
    assert described["cluster_id"] == cluster.local.spec().cluster_id
    assert {broker["broker_id"] for broker in described["brokers"]} == set(cluster.node_ids)
    result = cluster.admin.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    assert "ALTER" in {operation.name for operation in result.authorized_operations}


def test_data_directories_are_described(cluster: NodeProcesses, python: KafkaAdminClient) -> None:
    """What kafka-python is told is what is on the disks."""
    topic = cluster.create_topic(partitions=2)
    LIBRARIES[0].produce(cluster.bootstrap, topic, {1: [b"x" * 1000]})

    def whole() -> list[dict[str, Any]] | None:
        """Once the followers have what the leader has."""
        described: list[dict[str, Any]] = python.describe_log_dirs({topic: [0, 1]})
        sizes = [row["partition_size"] for one in described for row in partitions(one)]
        return described if sizes.count(0) == len(cluster.node_ids) else None

    def partitions(described: dict[str, Any]) -> list[dict[str, Any]]:
        (directory,) = described["log_dirs"]
        (found,) = directory["topics"]
        rows: list[dict[str, Any]] = found["partitions"]
        return rows

    described = until(whole, "every replica has the record")
    assert {one["broker"] for one in described} == set(cluster.node_ids)
    for one in described:
        folder = data_directory(cluster, one["broker"])
        (directory,) = one["log_dirs"]
        assert directory["log_dir"] == str(folder)
        assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
        for row in partitions(one):
            logs = folder.glob(f"{topic}-{row['partition_index']}/*.log")
            assert row["partition_size"] == sum(log.stat().st_size for log in logs)
            assert (row["offset_lag"], row["is_future_key"]) == (0, False)


def test_a_broker_that_is_gone_for_good_is_unregistered(fragile_cluster: NodeProcesses) -> None:
    cluster = fragile_cluster

    def brokers(connection: RawConnection) -> dict[int, bool]:
        described = connection.call(DescribeClusterRequest(include_fenced_brokers=True), 2)
        return {broker.broker_id: broker.is_fenced for broker in described.brokers}

    with RawConnection(cluster.address(1)) as connection:
        unknown = connection.call(UnregisterBrokerRequest(77), 0)
        assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        cluster.local.kill(3)
        until(lambda: brokers(connection)[3], "broker 3 is fenced")
        assert connection.call(UnregisterBrokerRequest(3), 0).error_code == ErrorCode.NONE
        assert brokers(connection) == {1: False, 2: False}
        cluster.local.start_all()
        until(lambda: brokers(connection) == {1: False, 2: False, 3: False}, "it has registered anew")
