"""What a broker does with single records for real clients: refuses, recompresses, gives up for good."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from partitions.records.compression import Codec
from tests.support.node_processes import NOT_SERVED_YET, NodeProcesses, until
from tests.support.real_clients import CLIENTS, QUIET, Client, How, confluent_consumer

WAIT_S = 60
VALUES = [b"value %d" % number for number in range(20)]
YEAR_3000_MS = 32_503_680_000_000


def name_of(client: Client) -> str:
    return client.name


def earliest(cluster: NodeProcesses, topic: str) -> int:
    wanted = TopicPartition(topic, 0)

    def told() -> list[int] | None:
        """librdkafka asks whom it took for the leader, once."""
        answer = cluster.admin.list_offsets({wanted: OffsetSpec.earliest()})[wanted]
        error = answer.exception(WAIT_S)
        if error is None:
            return [int(answer.result().offset)]
        if error.args[0].code() not in (*NOT_SERVED_YET, KafkaError._TRANSPORT):
            raise error
        return None

    (offset,) = until(told, f"the leader of {topic} tells where it starts")
    return int(offset)


def send(cluster: NodeProcesses, topic: str, settings: Mapping[str, Any] | None = None, **record: Any) -> Any:
    """Sends one record; returns the error or None."""
    outcomes: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET, **(settings or {})})
    producer.produce(topic, partition=0, on_delivery=lambda error, _: outcomes.append(error), **record)
    producer.flush(90)
    (outcome,) = outcomes
    return outcome


# -- refused


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_compacted_topic_wants_keys(codec: str, cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("compacted", cleanup_policy="compact")
    settings = {"compression.type": codec}
    error = send(cluster, topic, settings, value=b"v" * 500)
    assert error is not None
    assert error.code() == KafkaError.INVALID_RECORD
    assert send(cluster, topic, settings, key=b"k", value=b"v" * 500) is None
    assert send(cluster, topic, settings, key=b"k", value=None) is None
    assert [batch.record_count for batch in cluster.stored_batches(topic, 0)] == [1, 1]


def test_times_far_ahead_are_refused(cluster: NodeProcesses) -> None:
    topic = cluster.create_topic("times")
    error = send(cluster, topic, value=b"v", timestamp=YEAR_3000_MS)
    assert error is not None
    assert error.code() == KafkaError.INVALID_TIMESTAMP
    assert send(cluster, topic, value=b"v", timestamp=1000) is None
    recent = cluster.create_topic("recent", message_timestamp_before_max_ms="60000")
    error = send(cluster, recent, value=b"v", timestamp=1000)
    assert error is not None
    assert error.code() == KafkaError.INVALID_TIMESTAMP
    assert send(cluster, recent, value=b"v") is None


# -- recompressed


@pytest.mark.parametrize("wanted", ["zstd", "uncompressed"])
@pytest.mark.parametrize("client", CLIENTS, ids=name_of)
def test_the_topics_codec_goes_before_the_producers(
    client: Client, wanted: str, cluster: NodeProcesses
) -> None:
    topic = cluster.create_topic("codec", compression_type=wanted, min_insync_replicas="2")
    lines = {0: [b"a repeated text " * 100] * 50}
    client.produce(cluster.bootstrap, topic, lines, How(codec="gzip"))
    codecs = {batch.codec for batch in cluster.stored_batches(topic, 0)}
    assert codecs == {Codec.ZSTD if wanted == "zstd" else Codec.NONE}
    assert client.consume(cluster.bootstrap, topic, {0: 50}) == lines


# -- given up


def filled(cluster: NodeProcesses, word: str, **config: str) -> str:
    topic = cluster.create_topic(word, min_insync_replicas="3", **config)
    CLIENTS[0].produce(cluster.bootstrap, topic, {0: VALUES})
    return topic


def test_deleted_records_are_gone_for_every_client(cluster: NodeProcesses) -> None:
    topic = filled(cluster, "deleted")
    (answer,) = cluster.admin.delete_records([TopicPartition(topic, 0, 7)]).values()
    assert answer.result(WAIT_S).low_watermark == 7
    assert earliest(cluster, topic) == 7
    for client in CLIENTS:
        assert client.consume(cluster.bootstrap, topic, {0: 13}, {0: 7}) == {0: VALUES[7:]}
    consumer = confluent_consumer(cluster.bootstrap, **{"auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 3)])

    def heard() -> int | None:
        message = consumer.poll(1)
        return None if message is None or message.error() is None else message.error().code()

    assert until(heard, "the consumer hears of it") == KafkaError._AUTO_OFFSET_RESET
    consumer.close()
    (answer,) = cluster.admin.delete_records([TopicPartition(topic, 0, -1)]).values()
    assert answer.result(WAIT_S).low_watermark == len(VALUES)


def test_every_replica_has_given_up_what_was_answered(fragile_cluster: NodeProcesses) -> None:
    """Whoever leads next starts where the answer said."""
    cluster = fragile_cluster
    topic = filled(cluster, "moved")
    (answer,) = cluster.admin.delete_records([TopicPartition(topic, 0, 9)]).values()
    assert answer.result(WAIT_S).low_watermark == 9
    first = cluster.leader(topic)
    cluster.local.stop_node(first)
    until(lambda: cluster.leader(topic) != first, "another broker leads")
    assert earliest(cluster, topic) == 9


def test_kafka_python_deletes_too(cluster: NodeProcesses) -> None:
    from kafka import TopicPartition as KafkaPythonPartition
    from kafka.admin import KafkaAdminClient

    topic = filled(cluster, "kafka-python")
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        answer = admin.delete_records({KafkaPythonPartition(topic, 0): 5})
    finally:
        admin.close()
    assert "5" in str(answer)
    assert earliest(cluster, topic) == 5


def test_what_cannot_be_deleted(cluster: NodeProcesses) -> None:
    topic = filled(cluster, "kept")
    compacted = cluster.create_topic("kept-compacted", cleanup_policy="compact")
    for partition, code in (
        (TopicPartition(topic, 0, 21), KafkaError.OFFSET_OUT_OF_RANGE),
        (TopicPartition(compacted, 0, 0), KafkaError.POLICY_VIOLATION),
    ):
        (answer,) = cluster.admin.delete_records([partition]).values()
        with pytest.raises(KafkaException) as error:
            answer.result(WAIT_S)
        assert error.value.args[0].code() == code
    assert earliest(cluster, topic) == 0


def test_the_command_takes_the_file_of_kafkas_tool(cluster: NodeProcesses, tmp_path: Path) -> None:
    topic, other = filled(cluster, "command"), filled(cluster, "command")
    path = tmp_path / "offsets.json"

    def run(*offsets: tuple[str, int, int]) -> tuple[int, Any]:
        entries = [{"topic": name, "partition": number, "offset": offset} for name, number, offset in offsets]
        path.write_text(json.dumps({"partitions": entries, "version": 1}))
        command = [sys.executable, "-m", "kraft.cli.entry", "topics", "delete-records"]
        options = ["--offset-json-file", str(path), "--bootstrap-server", cluster.bootstrap, "--json"]
        ended = subprocess.run([*command, *options], capture_output=True, timeout=120, check=False)
        return ended.returncode, json.loads(ended.stdout)["partitions"]

    assert run((topic, 0, 4), (other, 0, -1)) == (
        0,
        [
            {"topic": topic, "partition": 0, "low_watermark": 4},
            {"topic": other, "partition": 0, "low_watermark": 20},
        ],
    )
    code, (row, missing) = run((topic, 0, 99), ("nowhere", 0, 1))
    assert (code, {row["error"], missing["error"]}) == (
        1,
        {"OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PARTITION"},
    )
