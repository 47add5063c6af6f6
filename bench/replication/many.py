"""Many partitions: one client creates them, waits for them, and writes to each."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.brokers import Cluster
from bench.errors import BenchError
from kraft.local_cluster.cluster import deadline

TOPIC_PARTITIONS = 1_000
"""Of one topic."""
METADATA_TIMEOUT_S = 30.0
METADATA_PAUSE_S = 0.1
POLL_S = 0.05
QUEUE_MESSAGES = 100_000

Topics = Mapping[str, int]
"""Numbers of partitions by topic."""


def create(brokers: Cluster, partitions: int, replicas: int, timeout_s: float) -> Topics:
    """Topics of up to a thousand partitions each, created by one request; returns when it is answered."""
    topics = {
        f"many-{first // TOPIC_PARTITIONS}": min(TOPIC_PARTITIONS, partitions - first)
        for first in range(0, partitions, TOPIC_PARTITIONS)
    }
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    wanted = [NewTopic(name, count, replicas) for name, count in topics.items()]
    answers = admin.create_topics(wanted, operation_timeout=timeout_s, request_timeout=timeout_s)
    for name, answer in answers.items():
        try:
            answer.result(timeout_s)
        except (KafkaException, TimeoutError) as error:
            raise BenchError(f"topic {name} was not created: {error}") from error
    return topics


def await_folders(brokers: Cluster, folders: int, timeout_s: float) -> None:
    """Waits until the nodes have so many partition folders together. Raises BenchError."""
    found = 0
    for _ in deadline(timeout_s):
        found = sum(_folders(brokers, node_id) for node_id in brokers.node_ids)
        if found >= folders:
            return
        time.sleep(METADATA_PAUSE_S)
    raise BenchError(f"{found} of {folders} partition folders were there after {timeout_s:g} s")


def _folders(brokers: Cluster, node_id: int) -> int:
    with os.scandir(brokers.local.node_dir(node_id) / "data") as entries:
        return sum(entry.name.startswith("many-") and "." not in entry.name for entry in entries)


def await_in_sync(brokers: Cluster, topics: Topics, timeout_s: float) -> None:
    """Waits until the metadata shows each partition led, and every replica in its ISR. Raises BenchError."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    lacking = sum(topics.values())
    for _ in deadline(timeout_s):
        try:
            known = admin.list_topics(timeout=METADATA_TIMEOUT_S).topics
        except KafkaException:  # no broker answers now; the number of missing ones stays
            continue
        lacking = sum(
            _lacking(known[name], count) if name in known else count for name, count in topics.items()
        )
        if not lacking:
            return
        time.sleep(METADATA_PAUSE_S)
    raise BenchError(f"{lacking} partitions were not led and in sync after {timeout_s:g} s")


def _lacking(topic: Any, partitions: int) -> int:
    states = topic.partitions.values()
    whole = [state for state in states if state.leader >= 0 and len(state.isrs) == len(state.replicas)]
    return partitions - len(whole)


class EveryPartition:
    """A client that writes one record with acks=all to each partition, with librdkafka's own patience."""

    def __init__(self, bootstrap: str, topics: Topics, timeout_s: float) -> None:
        self._topics = topics
        self._timeout_s = timeout_s
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                "message.timeout.ms": round(timeout_s * 1000),
                "log_level": 0,
            }
        )
        self._acknowledged: list[float] = []
        self._failures: list[str] = []

    def write(self) -> list[float]:
        """Sends them all at once; wall-clock times of the acknowledgements, ascending. Raises BenchError."""
        self._acknowledged, self._failures = [], []
        for name, count in self._topics.items():
            for number in range(count):
                self._producer.produce(name, b"x" * 100, partition=number, on_delivery=self._delivered)
        wanted = sum(self._topics.values())
        deadline_s = time.monotonic() + self._timeout_s
        while len(self._acknowledged) + len(self._failures) < wanted and time.monotonic() < deadline_s:
            self._producer.poll(POLL_S)
        if len(self._acknowledged) < wanted:
            raise BenchError(
                f"{len(self._acknowledged)} of {wanted} partitions took a write in {self._timeout_s:g} s;"
                f" failures: {self._failures[:1]}"
            )
        return sorted(self._acknowledged)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is None:
            self._acknowledged.append(time.time())
        else:
            self._failures.append(str(error))
