"""Producers while nodes die, freeze, leave in good order and come back: nothing lost, nothing doubled."""

from __future__ import annotations

import pytest

from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.producers import InitProducerIdRequest
from tests.support.node_processes import NodeProcesses, metadata, until
from tests.support.raw_client import RawConnection, batch
from tests.support.streams import IDEMPOTENT, ConfluentStream, audit, read_all, streaming

PARTITIONS = 3
BEFORE, DURING, AFTER = 150, 150, 150
"""Acknowledged records before a fault, while it lasts, and when it is mended."""


def replicated_topic(cluster: NodeProcesses) -> str:
    return cluster.create_topic("stream", PARTITIONS, min_insync_replicas="2")


@pytest.mark.parametrize("client", IDEMPOTENT)
def test_a_killed_leader(client: str, fragile_cluster: NodeProcesses) -> None:
    cluster, topic = fragile_cluster, replicated_topic(fragile_cluster)
    with streaming(IDEMPOTENT[client](cluster.bootstrap, topic, PARTITIONS)) as stream:
        stream.wait_for(BEFORE)
        victim = cluster.busiest_leader(topic)
        assert cluster.local.kill(victim)
        stream.wait_for(DURING)
        cluster.local.start_node(victim)
        stream.wait_for(AFTER)
    audit(stream, read_all(cluster.bootstrap, topic, PARTITIONS))


def test_leaders_killed_one_after_the_other(fragile_cluster: NodeProcesses) -> None:
    """Every node dies once and leads again; the logs have to agree through all the elections."""
    cluster, topic = fragile_cluster, replicated_topic(fragile_cluster)
    with streaming(IDEMPOTENT["confluent-kafka"](cluster.bootstrap, topic, PARTITIONS)) as stream:
        for _ in range(3):
            stream.wait_for(BEFORE)
            victim = cluster.busiest_leader(topic)
            cluster.local.kill(victim)
            stream.wait_for(DURING)
            cluster.local.start_node(victim)
            cluster.restore()
    audit(stream, read_all(cluster.bootstrap, topic, PARTITIONS))


def test_a_killed_follower(fragile_cluster: NodeProcesses) -> None:
    """Two of three are enough; who comes back copies what it missed, and is in sync again."""
    cluster = fragile_cluster
    topic = cluster.create_topic("follower", min_insync_replicas="2")
    with streaming(IDEMPOTENT["confluent-kafka"](cluster.bootstrap, topic, 1)) as stream:
        stream.wait_for(BEFORE)
        leader = cluster.leader(topic)
        victim = next(node for node in cluster.node_ids if node != leader)
        assert cluster.local.kill(victim)
        stream.wait_for(DURING)
        until(lambda: victim not in cluster.partitions(topic)[0].isrs, "the dead follower leaves the ISR")
        stream.wait_for(DURING)
        cluster.restore()
        assert cluster.leader(topic) == leader
        stream.wait_for(AFTER)
    audit(stream, read_all(cluster.bootstrap, topic, 1))


def test_leader_and_follower_killed_together(fragile_cluster: NodeProcesses) -> None:
    """Below min.insync.replicas, and without a quorum, nothing is acknowledged; all that was stays."""
    cluster = fragile_cluster
    topic = cluster.create_topic("both", min_insync_replicas="2")
    with streaming(IDEMPOTENT["confluent-kafka"](cluster.bootstrap, topic, 1)) as stream:
        stream.wait_for(BEFORE)
        leader = cluster.leader(topic)
        follower = next(node for node in cluster.node_ids if node != leader)
        for victim in (leader, follower):
            assert cluster.local.kill(victim)
        cluster.restore()
        stream.wait_for(AFTER)
    audit(stream, read_all(cluster.bootstrap, topic, 1))


def test_a_paused_leader(fragile_cluster: NodeProcesses) -> None:
    """A frozen process keeps its connections: it is replaced, and changes nothing when it wakes."""
    cluster, topic = fragile_cluster, replicated_topic(fragile_cluster)
    settings = {"enable.idempotence": True, "request.timeout.ms": 3000, "socket.timeout.ms": 4000}
    with streaming(ConfluentStream(cluster.bootstrap, topic, PARTITIONS, settings)) as stream:
        stream.wait_for(BEFORE)
        victim = cluster.busiest_leader(topic)
        assert cluster.local.pause(victim)
        stream.wait_for(DURING)
        assert cluster.local.resume(victim)
        stream.wait_for(AFTER)
        cluster.restore()
    audit(stream, read_all(cluster.bootstrap, topic, PARTITIONS))


@pytest.mark.parametrize("client", IDEMPOTENT)
def test_a_controlled_shutdown_fails_no_produce(client: str, fragile_cluster: NodeProcesses) -> None:
    """Leaderships move first; every node takes its turn."""
    cluster, topic = fragile_cluster, replicated_topic(fragile_cluster)
    with streaming(IDEMPOTENT[client](cluster.bootstrap, topic, PARTITIONS)) as stream:
        for node_id in cluster.node_ids:
            stream.wait_for(DURING // 3)
            assert cluster.local.stop_node(node_id)
            stream.wait_for(DURING // 3)
            cluster.restore()
    audit(stream, read_all(cluster.bootstrap, topic, PARTITIONS))


def test_stopping_the_whole_cluster_keeps_everything(fragile_cluster: NodeProcesses) -> None:
    """Topics, their configs, records and producer state; the producer itself just goes on."""
    cluster, topic = fragile_cluster, replicated_topic(fragile_cluster)
    before = metadata(cluster.admin)
    with streaming(IDEMPOTENT["confluent-kafka"](cluster.bootstrap, topic, PARTITIONS)) as stream:
        stream.wait_for(BEFORE)
        cluster.local.stop_all()
        assert all(cluster.local.pid(node_id) is None for node_id in cluster.node_ids)
        cluster.restore()
        stream.wait_for(AFTER)
    audit(stream, read_all(cluster.bootstrap, topic, PARTITIONS))

    def is_as_before() -> bool:
        """Whom we ask may have more to read before it knows all."""
        after = metadata(cluster.admin)
        assert after.cluster_id == before.cluster_id
        return {n: sorted(t.partitions) for n, t in after.topics.items()} == {
            n: sorted(t.partitions) for n, t in before.topics.items()
        }

    until(is_as_before, "all topics are there")


def test_killing_the_whole_cluster_keeps_everything(fragile_cluster: NodeProcesses) -> None:
    """The processes die, the operating system does not: what was written is there."""
    cluster, topic = fragile_cluster, replicated_topic(fragile_cluster)
    with streaming(IDEMPOTENT["confluent-kafka"](cluster.bootstrap, topic, PARTITIONS)) as stream:
        stream.wait_for(BEFORE)
        for node_id in cluster.node_ids:
            cluster.local.kill(node_id)
        cluster.restore()
        stream.wait_for(AFTER)
    audit(stream, read_all(cluster.bootstrap, topic, PARTITIONS))


def test_sequences_survive_a_change_of_leader(fragile_cluster: NodeProcesses) -> None:
    """The new leader knows the last batches from its log, and takes a repeated one for what it is."""
    cluster = fragile_cluster
    topic = cluster.create_topic("sequences", min_insync_replicas="2")
    first_leader = cluster.leader(topic)
    with RawConnection(cluster.address(first_leader)) as connection:
        producer_id = connection.call(InitProducerIdRequest(producer_id=-1, producer_epoch=-1), 4).producer_id

        def records(sequence: int) -> bytes:
            return batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

        offsets = [connection.produce(topic, records(sequence)).base_offset for sequence in range(3)]
    cluster.local.kill(first_leader)
    until(lambda: cluster.leader(topic) != first_leader, "another broker leads")
    with RawConnection(cluster.address(cluster.leader(topic))) as connection:
        # It is known as the leader before it has noted where its epoch starts; clients try again until then.
        until(
            lambda: connection.produce(topic, records(0)).error_code == ErrorCode.NONE,
            "the new leader serves",
        )
        for sequence, offset in enumerate(offsets):
            again = connection.produce(topic, records(sequence))
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, offset)
        assert connection.produce(topic, records(4)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert connection.produce(topic, records(3)).base_offset == offsets[-1] + 1


def test_too_few_replicas_refuse_acks_all_and_nothing_else(fragile_cluster: NodeProcesses) -> None:
    """With its only follower dead: acks=all is refused before anything is appended, acks=1 goes on."""
    cluster = fragile_cluster
    topic = cluster.create_topic("lonely", replication_factor=2, min_insync_replicas="2")
    leader = cluster.leader(topic)
    [follower] = set(cluster.partitions(topic)[0].replicas) - {leader}
    with RawConnection(cluster.address(leader)) as connection:
        first = connection.produce(topic, batch(b"both")).base_offset
        cluster.local.kill(follower)
        until(
            lambda: connection.in_sync(topic) == [leader],
            "the leader knows that the dead follower left the ISR",
        )
        refused = connection.produce(topic, batch(b"refused"))
        assert (refused.error_code, refused.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert connection.produce(topic, batch(b"alone"), acks=1).base_offset == first + 1
        cluster.restore()
        until(lambda: len(connection.in_sync(topic)) == 2, "the leader knows that the follower is back")
        assert connection.produce(topic, batch(b"both again")).base_offset == first + 2


def test_an_unclean_election_is_logged_with_what_it_cost(fragile_cluster: NodeProcesses) -> None:
    """By the controller, by the leader that lacks records, and by the replica that has to give them up."""
    cluster = fragile_cluster
    topic = cluster.create_topic("unclean", replication_factor=2, unclean_leader_election_enable="true")
    first, second = cluster.partitions(topic)[0].replicas
    with RawConnection(cluster.address(first)) as connection:
        assert connection.produce(topic, batch(b"both")).base_offset == 0
        cluster.local.kill(second)
        until(lambda: cluster.partitions(topic)[0].isrs == [first], "the dead follower leaves the ISR")
        for number in range(5):
            assert connection.produce(topic, batch(b"only the first")).base_offset == 1 + number
    cluster.local.kill(first)
    cluster.local.start_node(second)
    until(lambda: cluster.leader(topic) == second, "who lacks records leads")
    cluster.restore()
    assert read_all(cluster.bootstrap, topic, 1) == {0: [(0, b"both")]}

    def said(event: str, node_id: int) -> list[str]:
        lines = cluster.log_text(node_id).splitlines()
        return [line for line in lines if event in line and f"{topic}-0" in line]

    assert [line for node in cluster.node_ids for line in said("unclean leader election", node)]
    assert said("leads after an unclean election", second)
    [line] = said("truncated", first)
    for told in ("ERROR", f"leader={second}", "first=1", "last=5", "offsets=5", "lost_at_most=5"):
        assert told in line
