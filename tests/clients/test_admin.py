"""Topics through the admin clients of confluent-kafka, kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)

from kraft.protocol.errors import ErrorCode
from tests.support.node_processes import NodeProcesses, until
from tests.support.real_clients import QUIET

WAIT_S = 60


class Refused(Exception):
    """An admin client reported an error of the broker's."""

    def __init__(self, code: int) -> None:
        self.error = ErrorCode(code)
        super().__init__(self.error.name)


class ConfluentAdmin:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})

    def close(self) -> None:
        """Nothing to close: the client ends with the object."""

    def create(self, topic: str, partitions: int, replication_factor: int, configs: dict[str, str]) -> None:
        new = NewTopic(topic, partitions, replication_factor, config=configs)
        self._outcome(self._admin.create_topics([new])[topic])

    def delete(self, topic: str) -> None:
        self._outcome(self._admin.delete_topics([topic])[topic])

    def grow(self, topic: str, partitions: int) -> None:
        self._outcome(self._admin.create_partitions([NewPartitions(topic, partitions)])[topic])

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=WAIT_S).topics)

    def replicas(self, topic: str) -> dict[int, list[int]]:
        topics = self._admin.list_topics(topic, timeout=WAIT_S).topics
        return {number: list(partition.replicas) for number, partition in topics[topic].partitions.items()}

    def overrides(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        entries = self._outcome(self._admin.describe_configs([resource])[resource])
        dynamic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in entries.items() if entry.source == dynamic}

    def _outcome(self, future: Any) -> Any:
        try:
            return future.result(WAIT_S)
        except KafkaException as error:
            raise Refused(error.args[0].code()) from error


class KafkaPythonAdmin:
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        from kafka.admin import KafkaAdminClient

        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))

    def close(self) -> None:
        self._admin.close()

    def create(self, topic: str, partitions: int, replication_factor: int, configs: dict[str, str]) -> None:
        options = {"num_partitions": partitions, "replication_factor": replication_factor, "configs": configs}
        self._call(lambda: self._admin.create_topics({topic: options}))

    def delete(self, topic: str) -> None:
        self._call(lambda: self._admin.delete_topics([topic]))

    def grow(self, topic: str, partitions: int) -> None:
        self._call(lambda: self._admin.create_partitions({topic: partitions}))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def replicas(self, topic: str) -> dict[int, list[int]]:
        (described,) = self._admin.describe_topics([topic])
        return {p["partition_index"]: p["replica_nodes"] for p in described["partitions"]}

    def overrides(self, topic: str) -> dict[str, str]:
        from kafka.admin import ConfigResource, ConfigResourceType

        described = self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        entries = described["topic"][topic]
        return {n: e["value"] for n, e in entries.items() if e["config_source"] == "DYNAMIC_TOPIC_CONFIG"}

    def _call(self, work: Callable[[], Any]) -> Any:
        from kafka.errors import BrokerResponseError

        try:
            return work()
        except BrokerResponseError as error:
            raise Refused(error.errno) from error


class AioKafkaAdmin:
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        from aiokafka.admin import AIOKafkaAdminClient

        self._runner = asyncio.Runner()
        self._admin = self._runner.run(self._started(AIOKafkaAdminClient, bootstrap))

    async def _started(self, make: Any, bootstrap: str) -> Any:
        admin = make(bootstrap_servers=bootstrap)
        await admin.start()
        return admin

    def close(self) -> None:
        self._runner.run(self._admin.close())
        self._runner.close()

    def create(self, topic: str, partitions: int, replication_factor: int, configs: dict[str, str]) -> None:
        from aiokafka.admin import NewTopic

        new = NewTopic(topic, partitions, replication_factor, topic_configs=configs)
        self._check(self._runner.run(self._admin.create_topics([new])).topic_errors[0][1])

    def delete(self, topic: str) -> None:
        self._check(self._runner.run(self._admin.delete_topics([topic])).topic_error_codes[0][1])

    def grow(self, topic: str, partitions: int) -> None:
        from aiokafka.admin import NewPartitions
        from aiokafka.errors import BrokerResponseError

        try:
            self._runner.run(self._admin.create_partitions({topic: NewPartitions(partitions)}))
        except BrokerResponseError as error:  # here, and only here, this client raises
            raise Refused(error.errno) from error

    def topics(self) -> set[str]:
        return set(self._runner.run(self._admin.list_topics()))

    def replicas(self, topic: str) -> dict[int, list[int]]:
        (described,) = self._runner.run(self._admin.describe_topics([topic]))
        return {p["partition"]: p["replicas"] for p in described["partitions"]}

    def overrides(self, topic: str) -> dict[str, str]:
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        (answer,) = self._runner.run(
            self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        )
        error, _, _, _, entries = answer.resources[0]
        self._check(error)
        # name, value, read only, source (1 = the topic's own), ...
        return {entry[0]: entry[1] for entry in entries if entry[3] == 1}

    def _check(self, code: int) -> None:
        if code:
            raise Refused(code)


ADMINS = (ConfluentAdmin, KafkaPythonAdmin, AioKafkaAdmin)
Admin = ConfluentAdmin | KafkaPythonAdmin | AioKafkaAdmin


@pytest.fixture(params=ADMINS, ids=lambda kind: kind.name)
def admin(request: pytest.FixtureRequest, cluster: NodeProcesses) -> Iterator[Admin]:
    made = request.param(cluster.bootstrap)
    yield made
    made.close()


def refusal(work: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(Refused) as caught:
        work()
    return caught.value.error


def whole(replicas: dict[int, list[int]], partitions: int) -> dict[int, list[int]] | None:
    """The replicas, once the broker that was asked knows of so many partitions: each call may ask another one."""
    return replicas if sorted(replicas) == list(range(partitions)) else None


def test_the_life_of_a_topic(admin: Admin, cluster: NodeProcesses) -> None:
    topic = cluster.new_name("admin")
    configs = {"retention.ms": "5000000", "min.insync.replicas": "2"}
    admin.create(topic, 2, 3, configs)
    until(lambda: topic in admin.topics(), "the topic is listed")
    replicas = until(lambda: whole(admin.replicas(topic), 2), "it is described")
    assert all(sorted(nodes) == [1, 2, 3] for nodes in replicas.values())
    until(lambda: admin.overrides(topic) == configs, "its configs are what was asked for")
    admin.grow(topic, 5)
    grown = until(lambda: whole(admin.replicas(topic), 5), "the topic has grown")
    assert grown[0] == replicas[0], "what was there stays where it was"
    admin.delete(topic)
    until(lambda: topic not in admin.topics(), "the topic is gone")
    assert refusal(lambda: admin.delete(topic)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_name_can_be_used_again(admin: Admin, cluster: NodeProcesses) -> None:
    """The new topic of that name has none of the records of the old one."""
    from tests.support.real_clients import CLIENTS

    topic = cluster.new_name("again")
    for round_ in range(3):
        admin.create(topic, 1, 3, {})
        CLIENTS[0].produce(cluster.bootstrap, topic, {0: [b"round %d" % round_]})
        assert CLIENTS[0].consume(cluster.bootstrap, topic, {0: 1}) == {0: [b"round %d" % round_]}
        admin.delete(topic)


def test_what_cannot_be_is_refused_by_name(admin: Admin, cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("refusals", partitions=2)
    fresh = cluster.new_name("fresh")
    assert refusal(lambda: admin.create(topic, 1, 1, {})) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert refusal(lambda: admin.create(fresh, 1, 4, {})) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert refusal(lambda: admin.create(fresh, 0, 1, {})) == ErrorCode.INVALID_PARTITIONS
    assert refusal(lambda: admin.create(fresh, 1, 1, {"no.such.key": "1"})) == ErrorCode.INVALID_CONFIG
    assert refusal(lambda: admin.create(fresh, 1, 1, {"retention.ms": "soon"})) == ErrorCode.INVALID_CONFIG
    for name in ("a/b", "..", "x" * 250, "späti"):
        assert refusal(lambda name=name: admin.create(name, 1, 1, {})) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refusal(lambda: admin.grow(topic, 2)) == ErrorCode.INVALID_PARTITIONS
    assert refusal(lambda: admin.grow(fresh, 2)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fresh not in admin.topics()


def test_the_cluster_describes_itself(cluster: NodeProcesses) -> None:
    described = cluster.admin.describe_cluster().result(WAIT_S)
    assert {(node.id, node.host, node.port) for node in described.nodes} == {
        (node_id, *cluster.address(node_id)) for node_id in cluster.node_ids
    }
    assert described.controller.id in cluster.node_ids
    assert described.cluster_id == cluster.local.spec().cluster_id


def test_the_configs_of_a_broker(cluster: NodeProcesses) -> None:
    """Every key, where its value is from, and no secret."""
    resource = ConfigResource(ConfigResource.Type.BROKER, "2")
    entries = cluster.admin.describe_configs([resource])[resource].result(WAIT_S)
    assert entries["node.id"].value == "2"
    assert entries["node.id"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert entries["log.segment.bytes"].value == "1073741824"
    assert entries["log.segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    secret = entries["controller.listener.secret"]
    assert secret.is_sensitive
    assert secret.value is None


def test_validating_creates_nothing(cluster: NodeProcesses) -> None:
    topic = cluster.new_name("validated")
    cluster.admin.create_topics([NewTopic(topic, 1, 3)], validate_only=True)[topic].result(WAIT_S)
    assert topic not in cluster.admin.list_topics(timeout=WAIT_S).topics
    with pytest.raises(KafkaException):
        cluster.admin.create_topics([NewTopic(topic, 1, 9)], validate_only=True)[topic].result(WAIT_S)
