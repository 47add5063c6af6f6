"""Quotas on a real cluster: real clients are slowed down to them and told so, and others notice nothing.

What is asserted of time is only how long something must have taken at least: a busy machine makes it longer.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.cli.app import run
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.api_versions import ApiVersionsRequest
from kraft.protocol.schemas.client_quotas import DescribeClientQuotasRequest
from kraft.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kraft.user_error import EXIT_DONE, EXIT_FAILED, EXIT_USAGE
from tests.support.java_programs import DOWNLOAD_S, RUN_S, SOURCES, run_java
from tests.support.node_processes import NodeProcesses, until
from tests.support.raw_client import RawConnection

VALUE = b"x" * 10_000
RATE = 40_000
"""Bytes a second; ten seconds' worth pass at once."""
MESSAGES = 60
AT_LEAST_S = (MESSAGES * len(VALUE) - 10 * RATE - 2 * len(VALUE)) / RATE
GREEDY = ("--client", "greedy")
OWED = 40
"""Partitions that a client makes beyond its quota of one a second: so many seconds it is refused."""
CONNECTIONS, BURST = 100, 11
"""Where one a second is allowed, so many pass at once: ten seconds' worth, and that of the second at hand."""


class Quotas:
    """`kraft quotas` on a cluster; each change is awaited at every broker."""

    def __init__(self, cluster: NodeProcesses, capsys: pytest.CaptureFixture[str]) -> None:
        self._cluster = cluster
        self._capsys = capsys

    def __call__(self, command: str, *arguments: str, exit_code: int = EXIT_DONE) -> Any:
        self._capsys.readouterr()
        code = run(["quotas", command, *arguments, "--bootstrap-server", self._cluster.bootstrap, "--json"])
        out, err = self._capsys.readouterr()
        assert code == exit_code, err
        if command in ("add", "remove") and code == EXIT_DONE:
            self._await_everywhere()
        return json.loads(out) if code == EXIT_DONE else err

    def _await_everywhere(self) -> None:
        def seen() -> list[str]:
            told = []
            for node_id in self._cluster.node_ids:
                # Turned away for as long as the broker knows of a limit on connections that is gone.
                with (
                    contextlib.suppress(OSError),
                    RawConnection(self._cluster.address(node_id)) as connection,
                ):
                    told.append(repr(connection.call(DescribeClientQuotasRequest(), 1).entries))
            return told

        def agree() -> bool:
            told = seen()
            return len(told) == len(self._cluster.node_ids) and len(set(told)) == 1

        until(agree, "all brokers know the same quotas")


@pytest.fixture
def quotas(cluster: NodeProcesses, capsys: pytest.CaptureFixture[str]) -> Iterator[Quotas]:
    made = Quotas(cluster, capsys)
    yield made
    for entry in made("list")["quotas"]:
        options = []
        for kind, name in entry["entity"].items():
            option = {"user": "--user", "client-id": "--client", "ip": "--ip"}[kind]
            options += [f"{option}-defaults"] if name is None else [option, name]
        made("remove", *options)


def produce(cluster: NodeProcesses, topic: str, client_id: str, count: int) -> tuple[float, list[float]]:
    """Sends so many messages, a request each; the seconds it took, and the throttle times that were told."""
    told: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": client_id,
            "batch.num.messages": 1,
            "compression.type": "none",
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    began_s = time.monotonic()
    for _ in range(count):
        producer.produce(topic, VALUE, partition=0)
    assert producer.flush(60) == 0
    return time.monotonic() - began_s, told


def consume(cluster: NodeProcesses, topic: str, client_id: str, count: int) -> tuple[float, list[float]]:
    """Reads so many messages from the beginning."""
    told: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": client_id,
            "group.id": topic,
            "enable.auto.commit": False,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    began_s = time.monotonic()
    got = 0
    while got < count:
        got += len([message for message in consumer.consume(100, 1.0) if message.error() is None])
        assert time.monotonic() - began_s < 60
    took_s = time.monotonic() - began_s
    consumer.close()
    return took_s, told


def test_producers_and_consumers_are_slowed_down_and_others_are_not(
    cluster: NodeProcesses, quotas: Quotas
) -> None:
    topic = cluster.create_topic("quotas")
    quotas("add", f"producer_byte_rate={RATE}", f"consumer_byte_rate={RATE}", *GREEDY)
    took_s, told = produce(cluster, topic, "greedy", MESSAGES)
    assert took_s >= AT_LEAST_S
    assert max(told) > 0
    assert produce(cluster, topic, "modest", MESSAGES)[1] == []
    took_s, told = consume(cluster, topic, "greedy", MESSAGES)
    assert took_s >= AT_LEAST_S
    assert max(told) > 0
    assert consume(cluster, topic, "modest", 2 * MESSAGES)[1] == []


def test_quotas_by_command(cluster: NodeProcesses, quotas: Quotas) -> None:
    both = ("--user", "alice", "--client-defaults")
    added = quotas("add", "producer_byte_rate=1024", "request_percentage=12.5", *both)
    assert added == {
        "entity": {"user": "alice", "client-id": None},
        "quotas": {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
    }
    quotas("add", "connection_creation_rate=1000", "--ip-defaults")
    quotas("add", "controller_mutation_rate=50", "--user-defaults")
    assert quotas("describe", *both)["quotas"] == added["quotas"]
    assert {str(entry["entity"]) for entry in quotas("list")["quotas"]} == {
        "{'client-id': None, 'user': 'alice'}", "{'ip': None}", "{'user': None}"
    }  # fmt: skip
    assert [entry["entity"] for entry in quotas("list", "--user-defaults")["quotas"]] == [{"user": None}]
    assert quotas("remove", "producer_byte_rate", *both)["removed"] == ["producer_byte_rate"]
    assert quotas("describe", *both)["quotas"] == {"request_percentage": 12.5}
    assert "has no quota" in quotas("describe", "--user", "bob", exit_code=EXIT_FAILED)
    refused = quotas("add", "producer_byte_rate=0.5", "--user", "bob", exit_code=EXIT_FAILED)
    assert "fractional" in refused
    assert "not a valid IP" in quotas(
        "add", "connection_creation_rate=1", "--ip", "nowhere", exit_code=EXIT_FAILED
    )
    quotas("add", "producer_byte_rate=1", exit_code=EXIT_USAGE)
    quotas("add", "producer_byte_rate=fast", "--user", "bob", exit_code=EXIT_USAGE)
    quotas("list", "--user", "bob", "--user-defaults", exit_code=EXIT_USAGE)


def test_changes_of_topics(cluster: NodeProcesses, quotas: Quotas) -> None:
    """confluent-kafka's client does not know of the quota, and is made to wait; one that does is refused."""
    quotas("add", "controller_mutation_rate=1", "--client", "builder")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "client.id": "builder"})
    names = [cluster.new_name("built") for _ in range(3)]
    began_s = time.monotonic()
    admin.create_topics([NewTopic(names[0], 13, 1)])[names[0]].result(90)  # eleven at once: two are owed
    admin.create_topics([NewTopic(names[1], OWED, 1)])[names[1]].result(90)  # and with these much longer
    with RawConnection(cluster.address(1)) as connection:
        connection.client_id = "builder"
        wanted = [CreatableTopic(name=names[2], num_partitions=1, replication_factor=1)]
        answer = connection.call(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 7)
    assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "quota" in answer.topics[0].error_message
    assert answer.throttle_time_ms > 0
    assert time.monotonic() - began_s < 60
    other = AdminClient({"bootstrap.servers": cluster.bootstrap, "client.id": "somebody else"})
    other.create_topics([NewTopic(names[2], 30, 1)])[names[2]].result(90)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        other.create_topics([NewTopic(names[2], 30, 1)])[names[2]].result(90)


def test_an_address_that_connects_too_often(cluster: NodeProcesses, quotas: Quotas) -> None:
    """Of the node's own address: the others' connections stand. What is turned away is closed, unread."""
    quotas("add", "connection_creation_rate=1", "--ip", "127.0.0.1")
    address = cluster.address(2)
    with contextlib.ExitStack() as made:
        began_s = time.monotonic()
        connections = [made.enter_context(RawConnection(address)) for _ in range(CONNECTIONS)]
        took_s = time.monotonic() - began_s
        let_in = sum(is_let_in(connection) for connection in connections)
    assert let_in <= BURST + took_s + 1
    assert let_in < CONNECTIONS


def is_let_in(connection: RawConnection) -> bool:
    try:
        connection.call(ApiVersionsRequest(), 0)
    except ConnectionError:
        return False
    return True


@pytest.mark.timeout(DOWNLOAD_S + RUN_S)
def test_quotas_by_javas_admin(java_classpath: str, cluster: NodeProcesses) -> None:
    """What kafka-configs is made of."""
    printed = run_java(java_classpath, SOURCES / "QuotaCalls.java", cluster.bootstrap)
    assert printed.splitlines() == [
        "set={producer_byte_rate=2048.0} of 1",
        "removed=0",
        "refused=InvalidRequestException",
    ]
