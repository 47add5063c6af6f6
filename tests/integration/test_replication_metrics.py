"""The metrics of replication move when they should, and go back when all is well again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonTopicPartition
from prometheus_client.parser import text_string_to_metric_families

from partitions.topic_partition import TopicPartition as PartitionOnDisk
from tests.support.node_processes import until
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

BROKER, CONTROLLER = "kafka_server_replicamanager_", "kafka_controller_"
ELECTIONS = f"{CONTROLLER}controllerstats_leaderelections_total"
OFFLINE = f"{CONTROLLER}kafkacontroller_offlinepartitionscount"
Samples = Mapping[str, float]


@pytest.fixture(scope="module")
def running() -> Iterator[ThreadedCluster]:
    """Every test leaves it whole. What a throttle has let through counts until the test is over."""
    with threaded_cluster(properties={"replication.quota.window.size.seconds": "3600"}) as cluster:
        yield cluster


def scrape(running: ThreadedCluster, node_id: int) -> Samples:
    """Samples by name; those with a label, by name{value}."""
    status, _, body = running.get(node_id, "/metrics")
    assert status == 200
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def wait_for(running: ThreadedCluster, node_id: int, holds: Callable[[Samples], bool], what: str) -> None:
    until(lambda: holds(scrape(running, node_id)), what)


def controller(running: ThreadedCluster) -> int:
    """The active controller's node."""

    def ask() -> int | None:
        for node_id, node in running.cluster.nodes.items():
            if node.controller is not None and node.controller.is_active:
                return node_id
        return None

    return int(until(ask, "a controller is active"))


def elections(running: ThreadedCluster) -> dict[str, float]:
    """By kind, of the active controller."""
    samples = scrape(running, controller(running))
    kinds = ("clean", "preferred", "elr", "last_known_leader", "unclean")
    return {kind: samples[f"{ELECTIONS}{{{kind}}}"] for kind in kinds}


def produce(running: ThreadedCluster, topic: str, count: int, size_bytes: int, acks: str = "all") -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, "acks": acks, "linger.ms": 0})
    for _ in range(count):
        producer.produce(topic, b"x" * size_bytes)
        producer.flush(90)


def test_a_broker_that_is_away(own_cluster: ThreadedCluster) -> None:
    """Leaders miss a replica; where that is one too many, that shows as well; and all of it passes."""
    running = own_cluster  # without partitions of other tests, which would count
    strict = running.create_topic("strict", min_insync_replicas="3")
    relaxed = running.create_topic("relaxed", min_insync_replicas="2")
    active = controller(running)
    away = next(node_id for node_id in running.cluster.ports if node_id != active)
    before = elections(running)
    led_by_away = [name for name in (strict, relaxed) if running.leader(name) == away]
    running.kill(away)
    rest = [node_id for node_id in running.cluster.ports if node_id != away]

    def summed(name: str) -> float:
        return sum(scrape(running, node_id)[BROKER + name] for node_id in rest)

    until(lambda: summed("underreplicatedpartitions") == 2, "both partitions lack a replica")
    assert (summed("underminisrpartitioncount"), summed("atminisrpartitioncount")) == (1, 1)
    assert summed("leadercount") == 2
    assert elections(running)["clean"] == before["clean"] + len(led_by_away)
    expands = summed("isrexpands_total")
    running.start(away)
    for name in (strict, relaxed):
        running.wait_in_sync(name)
    until(lambda: summed("underreplicatedpartitions") == 0, "no partition lacks a replica")
    assert summed("underminisrpartitioncount") == 0
    assert summed("isrexpands_total") == expands + 2


def test_a_partition_without_a_leader(running: ThreadedCluster) -> None:
    """Its only replica stays eligible while it is away, and is elected as that."""
    active = controller(running)
    topic = running.create_topic("alone", partitions=3, replication_factor=1)
    number, away = next(
        (number, state.leader)
        for number, state in running.partitions(topic).items()
        if state.leader != active
    )
    before = elections(running)
    running.kill(away)
    wait_for(running, active, lambda now: now[OFFLINE] == 1, "a partition is offline")
    running.start(away)
    wait_for(running, active, lambda now: now[OFFLINE] == 0, "no partition is offline")
    assert running.leader(topic, number) == away
    after = elections(running)
    assert after["elr"] == before["elr"] + 1
    assert after["last_known_leader"] == before["last_known_leader"]
    running.admin.delete_topics([topic])[topic].result(60)


def test_leaderships_are_given_back(running: ThreadedCluster) -> None:
    topic = running.create_topic("given")
    preferred = running.leader(topic)
    running.kill(preferred)
    until(lambda: running.leader(topic) != preferred, "another broker leads")
    running.start(preferred)
    running.wait_in_sync(topic)
    imbalance = f"{CONTROLLER}kafkacontroller_preferredreplicaimbalancecount"
    assert scrape(running, controller(running))[imbalance] >= 1
    before = elections(running)
    running.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(60)
    until(lambda: running.leader(topic) == preferred, "the preferred replica leads")
    assert elections(running)["preferred"] == before["preferred"] + 1


def set_configs(running: ThreadedCluster, kind: ResourceType, name: str, **configs: str | None) -> None:
    """Keys are written with _ for the dots; None puts a key back to its default."""
    entries = [
        ConfigEntry(
            key.replace("_", "."),
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in configs.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    running.admin.incremental_alter_configs([resource])[resource].result(60)


def log_end(running: ThreadedCluster, node_id: int, topic: str) -> int:
    """Where the log of the first partition ends on a node; -1 without one."""
    broker = running.cluster.nodes[node_id].broker
    assert broker is not None
    found = broker.logs.get(PartitionOnDisk(topic, 0))
    return -1 if found is None else found.log_end_offset


def test_an_unclean_election_and_what_it_costs(running: ThreadedCluster) -> None:
    """The follower has one record of four, for a throttle, when its leader is gone and it is told to lead."""
    topic = running.create_topic("unclean", replication_factor=2)
    leader = running.leader(topic)
    follower = next(node_id for node_id in running.partitions(topic)[0].replicas if node_id != leader)
    running.kill(follower)
    until(lambda: running.partitions(topic)[0].isrs == [leader], "it has left the ISR")
    produce(running, topic, 4, 900_000)
    set_configs(running, ResourceType.TOPIC, topic, leader_replication_throttled_replicas="*")
    set_configs(running, ResourceType.BROKER, str(leader), leader_replication_throttled_rate="0")
    running.start(follower)
    until(lambda: log_end(running, follower, topic) == 1, "it has one answer")
    running.kill(leader)
    until(lambda: running.partitions(topic)[0].leader == -1, "nobody leads")
    before = elections(running)
    running.admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(topic, 0)]).result(60)
    assert running.leader(topic) == follower
    after = elections(running)
    assert {kind for kind in after if after[kind] > before[kind]} == {"unclean"}
    unclean = f"{CONTROLLER}controllerstats_uncleanleaderelections_total"
    assert scrape(running, controller(running))[unclean] == after["unclean"] + after["last_known_leader"]
    running.start(leader)
    running.wait_in_sync(topic)
    now, fetchers = scrape(running, leader), "kafka_server_replicafetchermanager_"
    assert now[f"{fetchers}truncations_total"] == 1
    assert now[f"{fetchers}truncatedrecords_total"] == 3
    assert now[f"{fetchers}lostrecords_total"] == 3
    set_configs(running, ResourceType.TOPIC, topic, leader_replication_throttled_replicas=None)
    set_configs(running, ResourceType.BROKER, str(leader), leader_replication_throttled_rate=None)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_replica_lags_until_the_throttle_is_gone(running: ThreadedCluster, side: str) -> None:
    """A rate of nothing lets one answer through, and then the new replica is held back, whichever side limits."""
    topic = running.create_topic("throttled", replication_factor=1)
    leader = running.leader(topic)
    follower = next(node_id for node_id in running.cluster.ports if node_id != leader)
    produce(running, topic, 6, 900_000)
    limited = leader if side == "leader" else follower
    set_configs(
        running, ResourceType.TOPIC, topic, **{f"{side}_replication_throttled_replicas": f"0:{limited}"}
    )
    set_configs(running, ResourceType.BROKER, str(limited), **{f"{side}_replication_throttled_rate": "0"})
    client = KafkaAdminClient(bootstrap_servers=running.bootstrap)
    client.alter_partition_reassignments({PythonTopicPartition(topic, 0): [leader, follower]})
    client.close()
    lag, worst = f"{BROKER}followerlag{{{follower}}}", f"{BROKER}followermaxlagms{{{follower}}}"
    rate = f"kafka_server_{side}replication_byte_rate"
    wait_for(running, limited, lambda now: now[rate] > 0, "something passes")
    until(lambda: log_end(running, follower, topic) == 1, "the follower has one answer")
    wait_for(running, leader, lambda now: now[lag] >= 5, "it lacks the rest")
    now = scrape(running, leader)
    assert now[worst] == float("inf")
    assert log_end(running, follower, topic) == 1
    assert now[f"{BROKER}reassigningpartitions"] == 1
    assert now[f"{BROKER}underreplicatedpartitions"] == 0  # nothing is missing that was there before
    set_configs(running, ResourceType.BROKER, str(limited), **{f"{side}_replication_throttled_rate": None})
    running.wait_in_sync(topic)
    wait_for(running, leader, lambda now: now[lag] == 0, "the follower has everything")
    wait_for(running, leader, lambda now: now[f"{BROKER}reassigningpartitions"] == 0, "it has moved")
    set_configs(running, ResourceType.TOPIC, topic, **{f"{side}_replication_throttled_replicas": None})
