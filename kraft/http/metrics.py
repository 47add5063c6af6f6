"""A node's metrics for Prometheus: plain integers while the node works, families when it is scraped.

Names are those that people know from Kafka's beans behind the JMX exporter
(`kafka_server_brokertopicmetrics_bytesin_total`, …). Each node has a registry of its own, so that
several nodes can live in one process. The hot path only adds to `kraft.broker.metrics`; a scrape
reads those numbers and looks through the metadata image once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from kraft.broker.metrics import BrokerMetrics
from quorum.metadata.image import MetadataImage, PartitionImage


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """What a scrape shows of a broker. `state` is KIP-631's number of the broker's state."""

    broker_id: int
    counters: BrokerMetrics
    state: int
    partition_count: int
    image: MetadataImage
    offline_log_directories: int = 0


@dataclass(frozen=True, slots=True)
class ControllerSnapshot:
    """What a scrape shows of a controller. `leader_id` is -1 while the quorum has none."""

    active: bool
    leader_id: int
    epoch: int
    pending_proposals: int
    image: MetadataImage
    unclean_elections: int = 0


class MetricsSource(Protocol):
    """Where a scrape looks; None for a role that the node does not have, or not yet."""

    @property
    def start_time_ms(self) -> int:
        """When the node started, in ms since the Unix epoch."""

    def broker_snapshot(self) -> BrokerSnapshot | None: ...

    def controller_snapshot(self) -> ControllerSnapshot | None: ...


_BROKER_COUNTERS = (
    ("messages_in", "kafka_server_brokertopicmetrics_messagesin", "Records appended by producers."),
    ("bytes_in", "kafka_server_brokertopicmetrics_bytesin", "Bytes of record batches from producers."),
    ("bytes_out", "kafka_server_brokertopicmetrics_bytesout", "Bytes of record batches to consumers."),
    (
        "replication_bytes_out",
        "kafka_server_brokertopicmetrics_replicationbytesout",
        "Bytes of record batches to followers.",
    ),
    ("produce_requests", "kafka_server_brokertopicmetrics_totalproducerequests", "Partitions produced to."),
    ("fetch_requests", "kafka_server_brokertopicmetrics_totalfetchrequests", "Fetches answered."),
    (
        "failed_produce_requests",
        "kafka_server_brokertopicmetrics_failedproducerequests",
        "Partitions whose produce failed.",
    ),
    ("isr_shrinks", "kafka_server_replicamanager_isrshrinks", "ISRs that a leader here proposed to shrink."),
    ("isr_expands", "kafka_server_replicamanager_isrexpands", "ISRs that a leader here proposed to expand."),
    (
        "leader_elections",
        "kafka_server_replicamanager_leaderelections",
        "Times that this broker became leader of a partition.",
    ),
    ("truncations", "kafka_server_replicafetchermanager_truncations", "Logs cut back to their leader's."),
    (
        "replication_retries",
        "kafka_server_replicafetchermanager_retries",
        "Fetches of a partition that are tried again after an error.",
    ),
    (
        "failed_partitions",
        "kafka_server_replicafetchermanager_failedpartitions",
        "Partitions that replication gave up because of an error in them.",
    ),
)
"""Field of BrokerMetrics, name of the metric without `_total`, text."""


class NodeMetrics:
    """The registry of one node, and its text for Prometheus."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, source: MetricsSource, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry(auto_describe=False)
        self.registry.register(_NodeCollector(source))

    def exposition(self) -> bytes:
        """Every metric, in the text format of Prometheus."""
        return generate_latest(self.registry)


class _NodeCollector(Collector):
    def __init__(self, source: MetricsSource) -> None:
        self._source = source

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not look at a node that is still being made."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield _gauge(
            "kafka_server_app_info_starttimems",
            "When the node started, in ms since the Unix epoch.",
            self._source.start_time_ms,
        )
        broker = self._source.broker_snapshot()
        if broker is not None:
            yield from broker_families(broker)
        controller = self._source.controller_snapshot()
        if controller is not None:
            yield from controller_families(controller)


def broker_families(broker: BrokerSnapshot) -> Iterator[Metric]:
    """The metrics of the broker role."""
    for field, name, text in _BROKER_COUNTERS:
        yield CounterMetricFamily(name, text, value=getattr(broker.counters, field))
    leaders = under_replicated = offline = 0
    for partition in _partitions(broker.image):
        offline += broker.broker_id in partition.offline_replicas
        if partition.leader == broker.broker_id:
            leaders += 1
            under_replicated += len(partition.isr) < len(partition.replicas)
    yield _gauge("kafka_server_kafkaserver_brokerstate", "The broker's state (KIP-631).", broker.state)
    yield _gauge(
        "kafka_server_replicamanager_partitioncount", "Replicas on this broker.", broker.partition_count
    )
    yield _gauge("kafka_server_replicamanager_leadercount", "Partitions led by this broker.", leaders)
    yield _gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions led by this broker whose ISR lacks a replica.",
        under_replicated,
    )
    yield _gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas on this broker whose logs it cannot serve.",
        offline,
    )
    yield _gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Data directories that this broker cannot use.",
        broker.offline_log_directories,
    )
    yield _gauge(
        "kafka_server_broker_metadata_metrics_last_applied_record_offset",
        "How far this broker has applied the metadata log.",
        broker.image.offset,
    )


def controller_families(controller: ControllerSnapshot) -> Iterator[Metric]:
    """The metrics of the controller role."""
    image = controller.image
    partitions = offline = 0
    for partition in _partitions(image):
        partitions += 1
        offline += not partition.has_leader
    fenced = sum(broker.fenced for broker in image.brokers.values())
    for name, text, value in (
        ("activecontrollercount", "1 on the active controller, 0 elsewhere.", int(controller.active)),
        ("activebrokercount", "Registered brokers that are not fenced.", len(image.brokers) - fenced),
        ("fencedbrokercount", "Registered brokers that are fenced.", fenced),
        ("globaltopiccount", "Topics of the cluster.", len(image.topics)),
        ("globalpartitioncount", "Partitions of the cluster.", partitions),
        ("offlinepartitionscount", "Partitions without a leader.", offline),
        ("lastappliedrecordoffset", "The last metadata record applied here.", image.offset),
        ("pendingproposals", "Proposals that are not committed yet.", controller.pending_proposals),
    ):
        yield _gauge(f"kafka_controller_kafkacontroller_{name}", text, value)
    yield CounterMetricFamily(
        "kafka_controller_controllerstats_uncleanleaderelections",
        "Leaders elected although they may lack acknowledged records.",
        value=controller.unclean_elections,
    )
    yield _gauge(
        "kafka_server_raft_metrics_current_leader", "The quorum's leader, or -1.", controller.leader_id
    )
    yield _gauge("kafka_server_raft_metrics_current_epoch", "The quorum's term.", controller.epoch)


def _partitions(image: MetadataImage) -> Iterator[PartitionImage]:
    for topic in image.topics.values():
        yield from topic.partitions


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
