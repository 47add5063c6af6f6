"""Bits rot in the logs of real brokers, and a data directory is gone: readers get right records only, the
replica says that it is offline, and comes back into the ISR when it has been copied from its leader."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition

from kraft.storage import format_node
from tests.support.node_processes import WAIT_S, NodeProcesses, until
from tests.support.real_clients import Confluent, How
from tests.support.streams import read_all

RECORDS = 400
CLIENT = Confluent()


def values_of(word: str) -> list[bytes]:
    return [f"{word} {number} ".encode() * 20 for number in range(RECORDS)]


def segment_of(cluster: NodeProcesses, node_id: int, topic: str) -> Path:
    folder = cluster.local.node_dir(node_id) / "data" / f"{topic}-0"
    return min(folder.glob("*.log"))


def rot(path: Path) -> None:
    """Changes one byte in the middle of a file, where a record's value is."""
    content = bytearray(path.read_bytes())
    at = content.index(b" 200 ")
    content[at + 1] ^= 0x04
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content[at : at + 5])


def written(cluster: NodeProcesses, word: str, **configs: str) -> tuple[str, list[bytes]]:
    topic = cluster.create_topic(word, min_insync_replicas="2", **configs)
    values = values_of(word)
    CLIENT.produce(cluster.bootstrap, topic, {0: values}, How(codec="none", idempotent=True))
    until(lambda: len(cluster.partitions(topic)[0].isrs) == 3, "all replicas are in sync")
    return topic, values


def restart(cluster: NodeProcesses, *node_ids: int) -> None:
    """As an operator does it, one after the other: what the new process finds, it did not write."""
    for node_id in node_ids:
        assert cluster.local.stop_node(node_id)
        cluster.local.start_node(node_id)
        cluster.restore()


def make_leader(cluster: NodeProcesses, topic: str, node_id: int) -> None:
    """Has the preferred leader elected; `node_id` is that."""

    def elect() -> bool:
        cluster.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(WAIT_S)
        return cluster.leader(topic) == node_id

    until(elect, f"node {node_id} leads")


def assert_reads(cluster: NodeProcesses, topic: str, values: list[bytes]) -> None:
    assert [value for _, value in read_all(cluster.bootstrap, topic, 1)[0]] == values


def assert_repaired(cluster: NodeProcesses, node_id: int, topic: str) -> None:
    until(lambda: is_given_up(cluster, node_id, topic), "the replica is given up")
    cluster.restore()

    def is_copied() -> bool:
        files = {segment_of(cluster, other, topic).read_bytes() for other in cluster.node_ids}
        return len(files) == 1 and cluster.page(node_id)["offline_replicas"] == []

    until(is_copied, "all replicas are equal")


def is_given_up(cluster: NodeProcesses, node_id: int, topic: str) -> bool:
    lines = cluster.log_text(node_id).splitlines()
    return any("a damaged replica is made anew" in line and f"{topic}-0" in line for line in lines)


def test_a_leaders_log_rots_while_the_node_is_down(fragile_cluster: NodeProcesses) -> None:
    cluster = fragile_cluster
    topic, values = written(cluster, "rotten-down")
    preferred = cluster.partitions(topic)[0].replicas[0]
    assert cluster.local.stop_node(preferred)
    rot(segment_of(cluster, preferred, topic))
    cluster.local.start_node(preferred)
    cluster.restore()
    make_leader(cluster, topic, preferred)
    assert_reads(cluster, topic, values)
    assert_repaired(cluster, preferred, topic)
    assert_reads(cluster, topic, values)


def test_logs_rot_while_the_nodes_run(fragile_cluster: NodeProcesses) -> None:
    cluster = fragile_cluster
    topic, values = written(cluster, "rotten-up")
    restart(cluster, *cluster.node_ids)
    preferred, follower, _ = cluster.partitions(topic)[0].replicas
    make_leader(cluster, topic, preferred)
    rot(segment_of(cluster, preferred, topic))
    rot(segment_of(cluster, follower, topic))
    # Whoever leads finds its damage at the first read, until the last one, which is sound, leads.
    assert_reads(cluster, topic, values)
    assert_repaired(cluster, preferred, topic)
    make_leader(cluster, topic, preferred)
    assert_reads(cluster, topic, values)


@pytest.mark.parametrize("number", [0, -1], ids=["closed segment", "active segment"])
def test_a_leaders_file_becomes_shorter_while_the_node_runs(
    fragile_cluster: NodeProcesses, number: int
) -> None:
    cluster = fragile_cluster
    topic, values = written(cluster, "shorter", segment_bytes="100000")
    more = values_of("more")
    CLIENT.produce(cluster.bootstrap, topic, {0: more}, How(codec="none", idempotent=True))
    leader = cluster.leader(topic)
    paths = sorted(segment_of(cluster, leader, topic).parent.glob("*.log"))
    assert len(paths) > 1
    os.truncate(paths[number], paths[number].stat().st_size // 2)
    assert_reads(cluster, topic, values + more)
    assert_repaired(cluster, leader, topic)
    assert_reads(cluster, topic, values + more)


def test_a_leaders_folder_is_gone(fragile_cluster: NodeProcesses) -> None:
    """Another replica leads as soon as the leader needs a new file; the lost one is copied after a restart."""
    cluster = fragile_cluster
    topic, values = written(cluster, "gone", segment_bytes="100000")
    leader = cluster.leader(topic)
    shutil.rmtree(segment_of(cluster, leader, topic).parent)
    more = values_of("more")
    CLIENT.produce(cluster.bootstrap, topic, {0: more}, How(codec="none", idempotent=True))
    until(lambda: cluster.leader(topic) != leader, "another replica leads")
    lines = [line for line in cluster.log_text(leader).splitlines() if "a replica is offline" in line]
    assert len([line for line in lines if f"{topic}-0" in line]) == 1
    assert_reads(cluster, topic, values + more)
    restart(cluster, leader)
    until(lambda: len(cluster.partitions(topic)[0].isrs) == 3, "all replicas are in sync")
    make_leader(cluster, topic, cluster.partitions(topic)[0].replicas[0])
    assert_reads(cluster, topic, values + more)


@pytest.fixture
def two_directories(fragile_cluster: NodeProcesses) -> Iterator[tuple[NodeProcesses, str, int, Path]]:
    """The cluster, a topic of six partitions, a node that has some of them in a second data directory, and that."""
    cluster, node_id = fragile_cluster, 3
    topic = cluster.create_topic("spread", partitions=3, min_insync_replicas="2")
    folder = cluster.local.node_dir(node_id)
    properties = folder / "server.properties"
    before, more = properties.read_text(), folder / "more"
    more.mkdir()
    assert cluster.local.stop_node(node_id)
    properties.write_text(before + f"log.dirs={folder / 'data'},{more}\n")
    format_node(cluster.local.spec().cluster_id, properties, ignore_formatted=True)
    cluster.local.start_node(node_id)
    cluster.restore()
    cluster.add_partitions(topic, 6)  # the new ones come to lie where fewer are
    yield cluster, topic, node_id, more
    cluster.local.stop_node(node_id)
    for partition in more.glob("*-[0-9]*"):  # they are copied again
        shutil.rmtree(partition)
    properties.write_text(before)
    cluster.local.start_node(node_id)


def test_a_data_directory_is_gone_at_start(two_directories: tuple[NodeProcesses, str, int, Path]) -> None:
    cluster, topic, node_id, more = two_directories
    lines = {partition: values_of(f"spread-{partition}") for partition in range(6)}
    CLIENT.produce(cluster.bootstrap, topic, lines, How(codec="none", idempotent=True))
    there = {int(path.name.rpartition("-")[2]) for path in more.glob(f"{topic}-*")}
    assert 0 < len(there) < 6
    assert cluster.local.stop_node(node_id)
    away = more.rename(more.with_name("away"))
    more.write_text("no directory")
    cluster.local.start_node(node_id)

    def in_sync() -> set[int]:
        return {n for n, state in cluster.partitions(topic).items() if node_id in state.isrs}

    until(lambda: in_sync() == set(range(6)) - there, "the others are in sync again")
    document = cluster.page(node_id)
    assert [entry["path"] for entry in document["offline_log_dirs"]] == [str(more)]
    assert {(entry["topic"], entry["partition"]) for entry in document["offline_replicas"]} >= {
        (topic, partition) for partition in there
    }
    log = read_all(cluster.bootstrap, topic, 6)
    assert {partition: [value for _, value in records] for partition, records in log.items()} == lines
    assert cluster.local.stop_node(node_id)
    more.unlink()
    away.rename(more)
    cluster.local.start_node(node_id)
    until(lambda: in_sync() == set(range(6)), "all are in sync again")
    assert {int(path.name.rpartition("-")[2]) for path in more.glob(f"{topic}-*")} == there
