"""Every node loses its disk once, the active controller too: each is brought up to date, votes again, and nothing
that was acknowledged is lost (KIP-853)."""

from __future__ import annotations

import shutil

from kraft.cli.storage import format_node
from tests.support.node_processes import NodeProcesses, until
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
