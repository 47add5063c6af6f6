"""The lag of a group as its coordinator shows it, of partitions that are led on either of two nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from kraft.broker.coordinators.group_lag import GroupLag
from tests.support.node_processes import until
from tests.support.real_clients import QUIET
from tests.support.threaded_cluster import ThreadedCluster, threaded_cluster

LAG = "kafka_consumergroup_"
PROPERTIES = {
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "2",
    "metrics.groups.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}
AGE_S = 1_000


@pytest.fixture(scope="module")
def running() -> Iterator[ThreadedCluster]:
    with threaded_cluster(2, PROPERTIES) as cluster:
        yield cluster


def scrape(running: ThreadedCluster, node_id: int, group: str) -> dict[str, dict[int, float]]:
    """The samples of one group: end of the name → partition → value."""
    status, _, body = running.get(node_id, "/metrics")
    assert status == 200
    found: dict[str, dict[int, float]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            if sample.labels.get("consumergroup") == group:
                name = sample.name.removeprefix(LAG)
                found.setdefault(name, {})[int(sample.labels.get("partition", -1))] = sample.value
    return found


def commit(running: ThreadedCluster, group: str, *offsets: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": group, **QUIET})
    consumer.commit(offsets=list(offsets), asynchronous=False)
    consumer.close()


def produce(running: ThreadedCluster, topic: str, partition: int, *ages_s: int) -> None:
    """A record of each age, each in a batch of its own."""
    producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": 0, **QUIET})
    for age_s in ages_s:
        producer.produce(topic, b"x", partition=partition, timestamp=int((time.time() - age_s) * 1000))
        producer.flush(90)


def coordinator(running: ThreadedCluster, group: str) -> int:
    def ask() -> int | None:
        return next(
            (
                node_id
                for node_id, node in running.cluster.nodes.items()
                if node.broker is not None and node.broker.groups.topic.leader_of(group) == node_id
            ),
            None,
        )

    return int(until(ask, f"{group} has a coordinator"))


def lag_of(running: ThreadedCluster, node_id: int) -> GroupLag:
    broker = running.cluster.nodes[node_id].broker
    assert broker is not None
    return broker.group_lag


def wait_for(
    running: ThreadedCluster, node_id: int, group: str, **values: Any
) -> dict[str, dict[int, float]]:
    """Scrapes until the samples of these names are as they are here."""

    def ask() -> dict[str, dict[int, float]] | None:
        found = scrape(running, node_id, group)
        return found if all(found.get(name, {}) == value for name, value in values.items()) else None

    return dict(until(ask, f"{group} is at {values}"))


def test_a_group_that_is_behind_here_and_there(running: ThreadedCluster) -> None:
    """One partition is led by the coordinator, one by the other node; each record has an age of its own."""
    topic = running.create_topic("read", partitions=2, replication_factor=1)
    assert sorted(running.leader(topic, number) for number in (0, 1)) == [1, 2]
    for number in (0, 1):
        produce(running, topic, number, 3 * AGE_S, 2 * AGE_S, AGE_S)
    commit(running, "g", TopicPartition(topic, 0, 1), TopicPartition(topic, 1, 2))
    here = coordinator(running, "g")
    found = wait_for(running, here, "g", lag={0: 2, 1: 1}, lag_sum={-1: 3}, current_offset={0: 1, 1: 2})
    assert 2 * AGE_S <= found["lag_seconds"][0] < 2.5 * AGE_S
    assert AGE_S <= found["lag_seconds"][1] < 1.5 * AGE_S
    assert scrape(running, 3 - here, "g") == {}, "only the coordinator tells"
    assert lag_of(running, 3 - here).of_group("g") is None
    rows = lag_of(running, here).of_group("g")
    assert rows is not None
    assert {(row.partition, row.offset, row.log_end, row.lag) for row in rows} == {(0, 1, 3, 2), (1, 2, 3, 1)}
    commit(running, "g", TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 3))
    wait_for(running, here, "g", lag={0: 0, 1: 0}, lag_seconds={})


def test_a_group_whose_next_records_were_deleted(running: ThreadedCluster) -> None:
    """Their lag counts; the oldest unread record is the first that is left, wherever it is led."""
    topic = running.create_topic("deleted", partitions=2, replication_factor=1)
    for number in (0, 1):
        produce(running, topic, number, 5 * AGE_S, 3 * AGE_S, AGE_S)
    running.admin.delete_records([TopicPartition(topic, number, 2) for number in (0, 1)])[
        TopicPartition(topic, 0, 2)
    ].result(60)
    commit(running, "late", TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0))
    here = coordinator(running, "late")
    found = wait_for(running, here, "late", lag={0: 3, 1: 3})
    assert all(AGE_S <= age_s < 1.5 * AGE_S for age_s in found["lag_seconds"].values())
    assert set(found["lag_seconds"]) == {0, 1}


def test_a_leader_that_is_gone_leaves_its_values_out(running: ThreadedCluster) -> None:
    topic = running.create_topic("gone", partitions=2, replication_factor=1)
    for number in (0, 1):
        produce(running, topic, number, AGE_S)
    commit(running, "left", TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0))
    here = coordinator(running, "left")
    wait_for(running, here, "left", lag={0: 1, 1: 1})
    mine = next(number for number in (0, 1) if running.leader(topic, number) == here)
    running.kill(3 - here)
    found = wait_for(running, here, "left", lag={mine: 1}, current_offset={0: 0, 1: 0})
    assert set(found["lag_seconds"]) == {mine}
    running.start(3 - here)
    wait_for(running, coordinator(running, "left"), "left", lag={0: 1, 1: 1})


BEAN = "kafka_server_group_coordinator_metrics_"


@pytest.mark.parametrize(
    ("protocol", "stable", "rebalances"),
    [
        (
            "classic",
            "kafka_coordinator_group_groupmetadatamanager_numgroupsstable",
            "group_completed_rebalance",
        ),
        ("consumer", f"{BEAN}consumer_group_count{{Stable}}", "consumer_group_rebalance"),
    ],
)
def test_states_rebalances_and_commits(
    running: ThreadedCluster, protocol: str, stable: str, rebalances: str
) -> None:
    topic, group = running.create_topic("joined", replication_factor=2), f"members-{protocol}"
    produce(running, topic, 0, AGE_S)
    commit(
        running, f"other-{protocol}", TopicPartition(topic, 0, 0)
    )  # makes the internal topic, if it is first
    here = coordinator(running, group)
    before = all_samples(running, here)
    consumer = Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    message = until(lambda: consumer.poll(1), "the member reads")
    consumer.commit(message, asynchronous=False)
    until(lambda: all_samples(running, here)[stable] == 1, "its group is stable")
    after = all_samples(running, here)
    for name in (f"{rebalances}_total", f"rebalance_time_ms_count{{{protocol}}}"):
        assert after[BEAN + name] > before[BEAN + name]
    assert after[f"{BEAN}offset_commit_total"] == before[f"{BEAN}offset_commit_total"] + 1
    assert after[f"{BEAN}group_count{{{protocol}}}"] >= 1
    consumer.close()
    until(lambda: all_samples(running, here)[stable] == 0, "its group is empty")


def all_samples(running: ThreadedCluster, node_id: int) -> dict[str, float]:
    """By name and values of labels."""
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(running.get(node_id, "/metrics")[2].decode())
        for sample in family.samples
    }
