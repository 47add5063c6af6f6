"""Topics that hold every oddity which a reader may meet, written by a real client, and what librdkafka reads of them.

Lines of odd files under every codec and an empty partition; records of 1 MB; null and empty keys and values; repeated,
empty and null headers, also of odd UTF-8; timestamps of the log; transactions, aborted ones too, whose markers end the
log; a compacted log with holes.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.support.log_files import log_files, spread
from tests.support.node_processes import until
from tests.support.real_clients import CODECS, QUIET, confluent_consumer
from tests.support.threaded_cluster import ThreadedCluster

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.io.buffer.size": "4096",
    "log.cleaner.dedupe.buffer.size": "1048576",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
}
"""Of a node that is alone, and cleans at once."""
PATTERN = "odd-.*"
MAX_BYTES = 1_000_000
CALL_S = 30.0
_CREATE_TIME = 1

Headers = tuple[tuple[str, bytes | None], ...]

ODD_HEADERS: tuple[Headers, ...] = (
    (("trace", b"\x01"), ("trace", b"\x02"), ("trace", b"\x01")),
    (("null", None), ("empty", b""), ("bytes", b"\xff\x00\xc3(")),
    (("ключ", b"1"), ("🜁\u2028", b"2"), ("e\u0301", b"3"), ("\x7f\x01", b"4")),
)


class Row(NamedTuple):
    """A record as `format("kraft")` has it; `timestamp` in ms."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    timestamp_type: int
    headers: Headers | None


def make_odd_topics(cluster: ThreadedCluster) -> None:
    """All topics that PATTERN matches."""
    _lines(cluster)
    _large(cluster)
    _fields(cluster)
    _transactions(cluster)
    _holes(cluster)


def _lines(cluster: ThreadedCluster) -> None:
    topic = cluster.create_topic("odd-lines", len(CODECS) + 1, 1)
    for partition, lines in spread(log_files(), len(CODECS)).items():
        with _Sending(cluster, **{"compression.type": CODECS[partition]}) as producer:
            for line in lines:
                producer.produce(topic, line, partition=partition)


def _large(cluster: ThreadedCluster) -> None:
    topic = cluster.create_topic("odd-large", 1, 1)
    rng = random.Random(1)
    for codec in CODECS:
        with _Sending(cluster, **{"compression.type": codec, "message.max.bytes": 2 * MAX_BYTES}) as producer:
            half = MAX_BYTES // 2
            producer.produce(topic, rng.randbytes(half) + bytes(half), rng.randbytes(9), partition=0)


def _fields(cluster: ThreadedCluster) -> None:
    """One topic has the time of its log, the other those of its records, which go forth and back."""
    of_log = cluster.create_topic("odd-log-time", 1, 1, message_timestamp_type="LogAppendTime")
    of_records = cluster.create_topic("odd-times", 1, 1)
    with _Sending(cluster) as producer:
        for topic in (of_log, of_records):
            for number, headers in enumerate((*ODD_HEADERS, None)):
                for value in (b"value", b"", None):
                    key = (None, b"", b"\xed\xa0\x80")[number % 3]
                    extra: dict[str, Any] = {} if headers is None else {"headers": list(headers)}
                    producer.produce(
                        topic, value, key, 0, timestamp=1 + 1_000_000_000_000 * (number % 2), **extra
                    )


def _transactions(cluster: ThreadedCluster) -> None:
    topic = cluster.create_topic("odd-transactions", 1, 1)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": topic, "linger.ms": 0, **QUIET}
    )
    producer.init_transactions(CALL_S)
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(CALL_S) == 0
        end(CALL_S)


def _holes(cluster: ThreadedCluster) -> None:
    """Seven keys of many and a hundred of one; cleaned once, and from then on left alone."""
    topic = cluster.create_topic(
        "odd-holes", 1, 1, cleanup_policy="compact", segment_bytes="4000", min_cleanable_dirty_ratio="0.01"
    )
    with _Sending(cluster, **{"batch.num.messages": 20}) as producer:
        for number in range(1000):
            producer.produce(topic, b"%d" % number, b"k%d" % (number % 7 if number < 900 else number), 0)
    until(lambda: len(read(cluster, [topic])) < 300, "the log is cleaned")
    policy = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])
    cluster.admin.incremental_alter_configs([resource])[resource].result(CALL_S)


class _Sending:
    """A producer, all of whose records are acknowledged at the end."""

    def __init__(self, cluster: ThreadedCluster, **settings: Any) -> None:
        self._failures: list[str] = []
        fixed = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, **QUIET}
        self._producer = Producer({**fixed, **settings, "on_delivery": self._on_delivery})

    def _on_delivery(self, error: object, _message: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    def __enter__(self) -> Producer:
        return self._producer

    def __exit__(self, *_: object) -> None:
        left = self._producer.flush(CALL_S)
        assert not left, f"{left} records are left"
        assert not self._failures, self._failures[:3]


def read(cluster: ThreadedCluster, topics: list[str], isolation_level: str = "read_uncommitted") -> list[Row]:
    """All records of the topics, ordered."""
    settings = {"enable.partition.eof": True, "isolation.level": isolation_level}
    consumer = confluent_consumer(cluster.bootstrap, **settings)
    rows = []
    try:
        places = [TopicPartition(name, index, 0) for name in topics for index in cluster.partitions(name)]
        consumer.assign(places)
        ended: set[tuple[str, int]] = set()
        while len(ended) < len(places):
            message = consumer.poll(CALL_S)
            assert message is not None, "a partition has no end"
            if message.error() is not None:
                ended.add((message.topic(), message.partition()))
                continue
            kind, time_ms = message.timestamp()
            headers = message.headers()
            rows.append(
                Row(
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    time_ms,
                    kind - _CREATE_TIME,
                    None if headers is None else tuple(headers),
                )
            )
    finally:
        consumer.close()
    return sorted(rows, key=lambda row: row[:3])
