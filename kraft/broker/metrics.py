"""What a broker counts: plain integers, so that the hot path pays an addition and nothing else.

`kraft.http` reads them, with their names and texts, when somebody asks for `/metrics`. Names follow Kafka's
BrokerTopicMetrics and ReplicaManager beans. Topics have counters of their own, `metrics.topics.max` of them; the
others share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage

TOPICS_MAX: Final = 1000
REST: Final = "(rest)"
"""Stands for the topics without counters of their own; no topic can have this name."""


def _counter(name: str, text: str) -> Any:
    """`name` is that of its metric, between `kafka_server_` and `_total`; `text` says there what it counts."""
    return field(default=0, metadata={"name": name, "text": text})


@dataclass(slots=True)
class TopicMetrics:
    """Counters of one topic, since the start of the broker or of the topic. The sums are in `BrokerMetrics`."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replication_bytes_out: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    """Times that a fetch brought records of a partition."""
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0


class TopicsMetrics:
    """The counters by topic. What is deleted is forgotten, and its place given to the next new topic."""

    def __init__(self, topics_max: int = TOPICS_MAX) -> None:
        self.topics_max = topics_max
        self._topics: dict[str, TopicMetrics] = {}
        self._rest = TopicMetrics()

    def of(self, topic: str) -> TopicMetrics:
        """The topic's own, or those of the rest."""
        found = self._topics.get(topic)
        if found is None:
            if len(self._topics) >= self.topics_max:
                return self._rest
            found = self._topics[topic] = TopicMetrics()
        return found

    @property
    def is_full(self) -> bool:
        """Whether a topic without counters of its own gets none."""
        return len(self._topics) >= self.topics_max

    def known(self, topic: str) -> TopicMetrics | None:
        """Its own counters, if it has any already: names that clients make up get none."""
        return self._topics.get(topic)

    def items(self) -> Iterator[tuple[str, TopicMetrics]]:
        """By name; the rest last, under the name `REST`, if there is any."""
        yield from sorted(self._topics.items())
        if self._rest != TopicMetrics():
            yield REST, self._rest

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> None:
        """Follows the metadata; a topic that is made anew begins anew."""
        for topic in changes.deleted_topics.values():
            self._topics.pop(topic.name, None)


@dataclass(slots=True)
class BrokerMetrics:
    """Counters since the start of the broker."""

    topics: TopicsMetrics = field(default_factory=TopicsMetrics)
    messages_in: int = _counter("brokertopicmetrics_messagesin", "Records appended by producers.")
    bytes_in: int = _counter("brokertopicmetrics_bytesin", "Bytes of record batches from producers.")
    bytes_out: int = _counter("brokertopicmetrics_bytesout", "Bytes of record batches to consumers.")
    replication_bytes_out: int = _counter(
        "brokertopicmetrics_replicationbytesout", "Bytes of record batches to followers."
    )
    produce_requests: int = _counter("brokertopicmetrics_totalproducerequests", "Partitions produced to.")
    fetch_requests: int = _counter("brokertopicmetrics_totalfetchrequests", "Fetches answered.")
    failed_produce_requests: int = _counter(
        "brokertopicmetrics_failedproducerequests", "Partitions whose produce failed."
    )
    failed_fetch_requests: int = _counter(
        "brokertopicmetrics_failedfetchrequests", "Partitions whose fetch failed."
    )
    isr_shrinks: int = _counter("replicamanager_isrshrinks", "ISRs that a leader here has shrunk.")
    isr_expands: int = _counter("replicamanager_isrexpands", "ISRs that a leader here has expanded.")
    failed_isr_updates: int = _counter(
        "replicamanager_failedisrupdates",
        "Proposals of a leader here for an ISR that were refused, or whose outcome is not known.",
    )
    leader_elections: int = _counter(
        "replicamanager_leaderelections", "Times that this broker became leader of a partition."
    )
    truncations: int = _counter("replicafetchermanager_truncations", "Logs cut back to their leader's.")
    truncated_records: int = _counter(
        "replicafetchermanager_truncatedrecords", "Records cut off by truncations, counted by offsets."
    )
    lost_records: int = _counter(
        "replicafetchermanager_lostrecords",
        "Records cut off here that an unclean election gave up, of which some may never have been"
        " acknowledged, or that were known to be committed. Each replica that had them counts them.",
    )
    replication_retries: int = _counter(
        "replicafetchermanager_retries", "Fetches of a partition that are tried again after an error."
    )
    failed_partitions: int = _counter(
        "replicafetchermanager_failedpartitions",
        "Times that replication of a partition was given up until the metadata changes, for an"
        " error in it or because a newer leader epoch fenced it.",
    )

    def on_produced(self, topic: str, records: int, size_bytes: int) -> None:
        """Batches of one partition were appended."""
        self.messages_in += records
        self.bytes_in += size_bytes
        self.produce_requests += 1
        of_topic = self.topics.of(topic)
        of_topic.messages_in += records
        of_topic.bytes_in += size_bytes
        of_topic.produce_requests += 1

    def on_produce_failed(self, topic: str) -> None:
        """Nothing was appended to one partition, which may not exist."""
        self.failed_produce_requests += 1
        of_topic = self.topics.known(topic)
        if of_topic is not None:
            of_topic.failed_produce_requests += 1

    def on_fetched(self, sizes: Iterable[tuple[str, int]], *, is_follower: bool) -> None:
        """A fetch was answered. `sizes`: topic and bytes of each partition that it had some of."""
        self.fetch_requests += 1
        total = 0
        for topic, size_bytes in sizes:
            total += size_bytes
            of_topic = self.topics.of(topic)
            of_topic.fetch_requests += 1
            if is_follower:
                of_topic.replication_bytes_out += size_bytes
            else:
                of_topic.bytes_out += size_bytes
        if is_follower:
            self.replication_bytes_out += total
        else:
            self.bytes_out += total

    def on_fetch_failed(self, topic: str | None) -> None:
        """A partition was answered with an error; None: nobody knows what it is called."""
        self.failed_fetch_requests += 1
        of_topic = None if topic is None else self.topics.known(topic)
        if of_topic is not None:
            of_topic.failed_fetch_requests += 1
