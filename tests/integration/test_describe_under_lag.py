"""`kraft topics describe` while followers lag: the log end of each replica, what is committed, and the filters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kraft.cli.app import run
from tests.support.node_processes import until
from tests.support.real_clients import QUIET
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

Describe = Callable[..., Any]
FILTERS = ("--under-replicated", "--under-min-isr", "--at-min-isr", "--unavailable")


@pytest.fixture(scope="module")
def running() -> Iterator[ThreadedCluster]:
    """What a throttle has let through counts until the test is over."""
    with threaded_cluster(properties={"replication.quota.window.size.seconds": "3600"}) as cluster:
        yield cluster


@pytest.fixture
def describe(running: ThreadedCluster, capsys: pytest.CaptureFixture[str]) -> Describe:
    """The document of a topic."""

    def described(topic: str, *options: str) -> Any:
        capsys.readouterr()
        arguments = ["topics", "describe", topic, "--json", *options]
        assert run([*arguments, "--bootstrap-server", running.bootstrap]) == 0
        return json.loads(capsys.readouterr().out)

    return described


def produce(running: ThreadedCluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, "acks": "all", "linger.ms": 0, **QUIET})
    for _ in range(count):
        producer.produce(topic, b"x" * 900_000)
        assert producer.flush(90) == 0


def throttle(running: ThreadedCluster, topic: str, broker: int) -> None:
    """The broker may copy one answer of the topic."""
    for kind, name, key, value in (
        (ResourceType.TOPIC, topic, "follower.replication.throttled.replicas", f"0:{broker}"),
        (ResourceType.BROKER, str(broker), "follower.replication.throttled.rate", "0"),
    ):
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        running.admin.incremental_alter_configs([resource])[resource].result(60)


def test_a_follower_that_lags(
    running: ThreadedCluster, describe: Describe, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = running.create_topic("lags", min_insync_replicas="2")
    leader = running.leader(topic)
    follower = next(node_id for node_id in running.cluster.ports if node_id != leader)
    other = next(node_id for node_id in running.cluster.ports if node_id not in (leader, follower))
    produce(running, topic, 1)
    until(lambda: describe(topic)["partitions"][0]["leo"].get(str(follower)) == 1, "all have it")
    throttle(running, topic, follower)
    running.kill(follower)
    until(
        lambda: sorted(running.partitions(topic)[0].isrs) == sorted((leader, other)), "it is out of the ISR"
    )
    produce(running, topic, 5)
    away = describe(topic)["partitions"][0]
    assert (away["hw"], away["leo"]) == (6, {str(leader): 6, str(other): 6})
    assert away["offline"] == [follower]
    running.start(follower)
    until(lambda: describe(topic)["partitions"][0]["leo"].get(str(follower), 0) > 1, "it has got one answer")
    document = describe(topic)
    assert document["name"] == topic
    assert document["configs"]["min.insync.replicas"] == "2"
    (lagging,) = document["partitions"]
    behind = lagging["leo"].pop(str(follower))
    assert 1 < behind < 6
    assert lagging == {
        "partition": 0,
        "leader": running.leader(topic),
        "leader_epoch": lagging["leader_epoch"],
        "replicas": running.partitions(topic)[0].replicas,
        "isr": lagging["isr"],
        "elr": [],
        "offline": [],
        "hw": 6,
        "leo": {str(leader): 6, str(other): 6},
    }
    assert sorted(lagging["isr"]) == sorted((leader, other))
    found = {option: len(describe(topic, option)["partitions"]) for option in FILTERS}
    assert found == dict(zip(FILTERS, (1, 0, 1, 0), strict=True))
    capsys.readouterr()
    assert run(["topics", "describe", topic, "--bootstrap-server", running.bootstrap]) == 0
    assert f"{follower}:{behind}" in capsys.readouterr().out


def test_replicas_that_are_still_to_come_are_not_missing(
    running: ThreadedCluster, describe: Describe
) -> None:
    topic = running.create_topic("comes", replication_factor=1)
    leader = running.leader(topic)
    follower = next(node_id for node_id in running.cluster.ports if node_id != leader)
    produce(running, topic, 3)
    throttle(running, topic, follower)
    moved = ["reassign", "start", topic, "--to", f"{leader},{follower}"]
    assert run([*moved, "--bootstrap-server", running.bootstrap]) == 0
    until(lambda: running.partitions(topic)[0].replicas == [leader, follower], "it is being copied")
    assert running.partitions(topic)[0].isrs == [leader]
    assert describe(topic, "--under-replicated")["partitions"] == []
    assert len(describe(topic, "--at-min-isr")["partitions"]) == 1
    assert run(["reassign", "cancel", topic, "--bootstrap-server", running.bootstrap]) == 0
