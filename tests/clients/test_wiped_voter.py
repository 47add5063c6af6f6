"""Voters that lose their disks, one after the other, are brought up to date and vote again; one that is given an
older copy of its folder ends, until it is wiped. Nothing that was acknowledged is lost (KIP-853)."""

from __future__ import annotations

import shutil
from functools import partial

from kraft.storage import format_node
from tests.support.node_processes import NodeProcesses, metadata, until
from tests.support.streams import IDEMPOTENT, audit, read_all, streaming

PARTITIONS = 3
SOME = 100


def wipe(cluster: NodeProcesses, node_id: int) -> None:
    """A new, formatted disk; the configuration stays."""
    folder = cluster.local.node_dir(node_id)
    shutil.rmtree(folder / "data")
    (folder / "data").mkdir()
    format_node(cluster.local.spec().cluster_id, folder / "server.properties", ignore_formatted=False)


def votes(cluster: NodeProcesses, node_id: int) -> bool:
    """Whether the voter says that its vote counts, in a quorum whose voters are recorded."""
    document = cluster.local.http_json(node_id, "/api/cluster")
    quorum = {} if document is None else document["quorum"]
    return bool(quorum.get("votes") and quorum.get("voters_recorded") and not quorum["voters_on_new_disks"])


def test_every_voter_loses_its_disk_once(fragile_cluster: NodeProcesses) -> None:
    cluster = fragile_cluster
    topic = cluster.create_topic("wiped", PARTITIONS, min_insync_replicas="2")
    with streaming(IDEMPOTENT["confluent-kafka"](cluster.bootstrap, topic, PARTITIONS)) as stream:
        for node_id in cluster.node_ids:
            stream.wait_for(SOME)
            assert cluster.local.kill(node_id)
            wipe(cluster, node_id)
            cluster.local.start_node(node_id)
            until(lambda: all(votes(cluster, voter) for voter in cluster.node_ids), "all voters count again")
            cluster.restore()
            stream.wait_for(SOME)
    audit(stream, read_all(cluster.bootstrap, topic, PARTITIONS))


def test_a_voter_with_an_older_copy_of_its_folder_ends_until_it_is_wiped(
    fragile_cluster: NodeProcesses,
) -> None:
    cluster = fragile_cluster
    voter = next(n for n in cluster.node_ids if n != cluster.controller())
    journal = cluster.local.node_dir(voter) / "data" / "__cluster_metadata-0"
    backup = cluster.local.node_dir(voter) / "backup"
    assert cluster.local.kill(voter)
    shutil.copytree(journal, backup)
    cluster.local.start_node(voter)
    topic = cluster.create_topic("after-the-backup")
    until(
        lambda: offset(cluster, voter) >= max(map(partial(offset, cluster), cluster.node_ids)), "it has all"
    )
    assert cluster.local.kill(voter)
    shutil.rmtree(journal)
    backup.rename(journal)

    for attempt in ("when the leader hears of it", "at every start after that"):
        process = cluster.local.spawn(voter)
        until(lambda process=process: process.poll() is not None, f"the voter ends {attempt}")
        assert process.returncode
        assert "has forgotten what it had acknowledged" in cluster.local.log_tail(voter)

    wipe(cluster, voter)
    cluster.local.start_node(voter)
    until(lambda: all(votes(cluster, node_id) for node_id in cluster.node_ids), "all voters count again")
    until(lambda: topic in metadata(cluster.admin).topics, "the topic is there")


def offset(cluster: NodeProcesses, node_id: int) -> int:
    """How far a node's metadata is."""
    document = cluster.local.http_json(node_id, "/api/cluster")
    return -1 if document is None else int(document["metadata_offset"])
