"""A node's metrics for Prometheus: plain integers while the node works, families when somebody scrapes it.

Names are those of Kafka's beans behind the JMX exporter (`kafka_server_brokertopicmetrics_bytesin_total`, …). Each node
has a registry of its own, so that several nodes can live in one process. The hot path only adds to
`kraft.broker.metrics`; `quorum.metadata.tally` keeps up what partitions are like as the metadata changes. Replicas'
lag is shown by follower broker, not by partition: such series would outlive the lag, and `kraft topics describe` has
each log's end. Modules beside this one have those of topics, requests, groups and transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Protocol

from prometheus_client import PROCESS_COLLECTOR
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kraft.broker.client_quotas import QuotasSnapshot
from kraft.broker.metrics import BrokerMetrics, TopicMetrics
from kraft.broker.replicas.partition_health import FollowerLag
from kraft.http.exposition import CONTENT_TYPE, Families, exposition
from kraft.http.group_metrics import GroupsSnapshot, group_families
from kraft.http.histograms import times_histogram
from kraft.http.request_metrics import request_families
from kraft.http.topic_metrics import TopicsSnapshot, partition_families, topic_counters
from kraft.http.transaction_metrics import TransactionsSnapshot, transaction_families
from kraft.network.request_times import PhaseTimes, RequestTimes
from kraft.protocol.api import ApiKey
from partitions.log.log import PartitionLog
from partitions.partition import Partition
from partitions.topic_partition import TopicPartition
from quorum.leader_elections import LeaderElections
from quorum.metadata.image import MetadataImage
from quorum.metadata.tally import LedPartitions, PartitionCounts


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """What a scrape shows of a broker. `state` is KIP-631's number of the broker's state."""

    broker_id: int
    counters: BrokerMetrics
    state: int
    partition_count: int
    image: MetadataImage
    led: LedPartitions
    offline_replicas: int = 0
    offline_log_directories: int = 0
    refusing_log_directories: int = 0
    uncleanable_partitions: int = 0
    follower_lags: Mapping[int, FollowerLag] = field(default_factory=dict)
    """By follower broker, in the partitions that this broker leads."""
    throttled_rates: Mapping[str, float] = field(default_factory=dict)
    """Bytes a second of throttled replicas: as leader, as follower."""
    quotas: QuotasSnapshot | None = None
    fetch_sessions: int = 0
    fetch_session_partitions: int = 0
    fetch_session_evictions: int = 0
    request_times: Mapping[ApiKey, RequestTimes] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Requests in purgatory, by Kafka's name of what they wait for."""
    replicas: Sequence[Partition] = ()
    logs: Mapping[TopicPartition, PartitionLog] = field(default_factory=dict)
    connections: Mapping[str, int] = field(default_factory=dict)
    """Open ones, by listener."""
    open_listeners: int = 0
    """That other hosts reach in plain text, without a name."""
    groups: GroupsSnapshot | None = None
    transactions: TransactionsSnapshot | None = None


@dataclass(frozen=True, slots=True)
class ControllerSnapshot:
    """What a scrape shows of a controller. `leader_id` is -1 while the quorum has none."""

    active: bool
    leader_id: int
    epoch: int
    pending_proposals: int
    image: MetadataImage
    partitions: PartitionCounts
    elections: LeaderElections


class MetricsSource(Protocol):
    """Where a scrape looks; None for a role that the node does not have, or not yet."""

    @property
    def start_time_ms(self) -> int:
        """When the node started, in ms since the Unix epoch."""

    @property
    def loop_lag(self) -> PhaseTimes:
        """How late the event loop was."""

    async def broker_snapshot(self) -> BrokerSnapshot | None: ...

    def controller_snapshot(self) -> ControllerSnapshot | None: ...


_LED_STATES = (
    (LedPartitions.LED, "leadercount", "Partitions led by this broker."),
    (
        LedPartitions.UNDER_REPLICATED,
        "underreplicatedpartitions",
        "Partitions led by this broker whose ISR lacks a replica, those that are still to come not counted.",
    ),
    (
        LedPartitions.UNDER_MIN_ISR,
        "underminisrpartitioncount",
        "Partitions led by this broker whose ISR is below min.insync.replicas: acks=all is refused.",
    ),
    (
        LedPartitions.AT_MIN_ISR,
        "atminisrpartitioncount",
        "Partitions led by this broker whose ISR is at min.insync.replicas: one more gone, and acks=all is refused.",
    ),
    (
        LedPartitions.REASSIGNING,
        "reassigningpartitions",
        "Partitions led by this broker that are moving to other brokers.",
    ),
)
"""State, end of the metric's name, text."""

_LAG_FIELDS = (
    (
        "max_records",
        "maxlag",
        "The most records that a follower lacks in a partition led by this broker, as `followerlag` counts.",
    ),
    (
        "sum_records",
        "lag",
        "Records that a follower lacks, as far as is known, in all partitions led by this broker: all of a partition"
        " from which it has not fetched since this broker leads.",
    ),
    (
        "max_ms",
        "maxlagms",
        "Since when a follower that lags was not caught up, in ms; +Inf if it never was since this broker leads.",
    ),
    ("partitions", "laggingpartitions", "Partitions led by this broker in which a follower lags."),
)
"""Field of FollowerLag, end of the metric's name, text."""


class NodeMetrics:
    """The metrics of one node, and their text for Prometheus."""

    content_type = CONTENT_TYPE

    def __init__(self, source: MetricsSource) -> None:
        self._source = source

    async def exposition(self) -> bytes:
        """Every metric, in the text format of Prometheus."""
        return await exposition(self._families(await self._source.broker_snapshot()))

    def _families(self, broker: BrokerSnapshot | None) -> Families:
        yield _gauge(
            "kafka_server_app_info_starttimems",
            "When the node started, in ms since the Unix epoch.",
            self._source.start_time_ms,
        )
        yield from PROCESS_COLLECTOR.collect()
        yield times_histogram(
            "kraft_event_loop_lag_seconds",
            "How much later than it was due the event loop ran a timer that looks twice a second.",
            None,
            {"": self._source.loop_lag},
        )
        if broker is not None:
            yield from broker_families(broker)
        controller = self._source.controller_snapshot()
        if controller is not None:
            yield from controller_families(controller)


def broker_families(broker: BrokerSnapshot) -> Families:
    """The metrics of the broker role."""
    of_topics = {one.name for one in fields(TopicMetrics)}
    for counter in fields(BrokerMetrics):
        if not counter.metadata:
            continue  # those by topic
        name, text = f"kafka_server_{counter.metadata['name']}", counter.metadata["text"]
        yield CounterMetricFamily(name, text, value=getattr(broker.counters, counter.name))
        if counter.name in of_topics:
            yield from topic_counters(broker.counters.topics, counter.name, name, text)
    yield from partition_families(
        TopicsSnapshot(broker.counters.topics, broker.replicas, broker.logs, broker.image)
    )
    yield _gauge("kafka_server_kafkaserver_brokerstate", "The broker's state (KIP-631).", broker.state)
    yield _gauge(
        "kraft_open_listeners",
        "Listeners that other hosts reach, and that neither encrypt nor ask who one is.",
        broker.open_listeners,
    )
    yield _gauge(
        "kafka_server_replicamanager_partitioncount", "Replicas on this broker.", broker.partition_count
    )
    for state, name, text in _LED_STATES:
        yield _gauge(f"kafka_server_replicamanager_{name}", text, broker.led.count(state))
    yield _gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas on this broker whose logs it cannot serve.",
        broker.offline_replicas,
    )
    yield from _follower_families(broker.follower_lags)
    yield from _throttle_families(broker.throttled_rates)
    if broker.quotas is not None:
        yield from _quota_families(broker.quotas)
    yield from _session_families(broker)
    yield from _labelled(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests that wait, by what they wait for.",
        "delayedoperation",
        broker.waiting,
    )
    yield from _labelled(
        "kafka_server_socket_server_metrics_connection_count",
        "Connections that are open.",
        "listener",
        broker.connections,
    )
    yield from request_families(broker.request_times)
    if broker.groups is not None:
        yield from group_families(broker.groups)
    if broker.transactions is not None:
        yield from transaction_families(broker.transactions)
    yield _gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Data directories that this broker cannot use.",
        broker.offline_log_directories,
    )
    yield _gauge(
        "kafka_log_logmanager_refusinglogdirectorycount",
        "Data directories that take no appends, for want of room or of descriptors; their records are served.",
        broker.refusing_log_directories,
    )
    yield _gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Compacted logs on this broker that cannot be cleaned, and are left as they are until it starts again.",
        broker.uncleanable_partitions,
    )
    yield _gauge(
        "kafka_server_broker_metadata_metrics_last_applied_record_offset",
        "How far this broker has applied the metadata log.",
        broker.image.offset,
    )


def controller_families(controller: ControllerSnapshot) -> Iterator[Metric]:
    """The metrics of the controller role."""
    image, partitions = controller.image, controller.partitions
    fenced = sum(broker.fenced for broker in image.brokers.values())
    for name, text, value in (
        ("activecontrollercount", "1 on the active controller, 0 elsewhere.", int(controller.active)),
        ("activebrokercount", "Registered brokers that are not fenced.", len(image.brokers) - fenced),
        ("fencedbrokercount", "Registered brokers that are fenced.", fenced),
        ("globaltopiccount", "Topics of the cluster.", len(image.topics)),
        ("globalpartitioncount", "Partitions of the cluster.", partitions.partitions),
        ("offlinepartitionscount", "Partitions without a leader.", partitions.offline),
        (
            "preferredreplicaimbalancecount",
            "Partitions that are not led by the first of their replicas.",
            partitions.not_preferred,
        ),
        ("lastappliedrecordoffset", "The last metadata record applied here.", image.offset),
        ("pendingproposals", "Proposals that are not committed yet.", controller.pending_proposals),
    ):
        yield _gauge(f"kafka_controller_kafkacontroller_{name}", text, value)
    yield CounterMetricFamily(
        "kafka_controller_controllerstats_uncleanleaderelections",
        "Leaders elected although they may lack acknowledged records.",
        value=controller.elections.unclean,
    )
    elections = CounterMetricFamily(
        "kafka_controller_controllerstats_leaderelections",
        "Leaders elected while this controller was active: from the ISR (clean), back to the first replica"
        " (preferred), from the eligible leader replicas (elr); the others may lack acknowledged records.",
        labels=["kind"],
    )
    for kind, count in controller.elections.counts.items():
        elections.add_metric([kind.value], count)
    yield elections
    yield _gauge(
        "kafka_server_raft_metrics_current_leader", "The quorum's leader, or -1.", controller.leader_id
    )
    yield _gauge("kafka_server_raft_metrics_current_epoch", "The quorum's term.", controller.epoch)


def _follower_families(lags: Mapping[int, FollowerLag]) -> Iterator[Metric]:
    for field_name, name, text in _LAG_FIELDS:
        family = GaugeMetricFamily(f"kafka_server_replicamanager_follower{name}", text, labels=["follower"])
        for broker_id, lag in sorted(lags.items()):
            family.add_metric([str(broker_id)], getattr(lag, field_name))
        yield family


def _throttle_families(rates: Mapping[str, float]) -> Iterator[Metric]:
    for direction, rate in rates.items():
        yield _gauge(
            f"kafka_server_{direction}replication_byte_rate",
            f"Bytes a second of throttled replicas, as {direction}, over the windows of the quota.",
            rate,
        )


def _labelled(name: str, text: str, label: str, values: Mapping[str, int]) -> Iterator[Metric]:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    yield family


def _quota_families(quotas: QuotasSnapshot) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "kafka_server_quota_throttledrequests",
        "Requests that exceeded a quota of their client.",
        labels=["quota"],
    )
    times = CounterMetricFamily(
        "kafka_server_quota_throttletimems", "How long clients were muted for that, in ms.", labels=["quota"]
    )
    for kind, throttled in quotas.throttled.items():
        requests.add_metric([kind], throttled.requests)
        times.add_metric([kind], throttled.time_ms)
    yield requests
    yield times
    clients = GaugeMetricFamily(
        "kafka_server_quota_clients", "Clients whose rates are measured by themselves.", labels=["quota"]
    )
    for kind, count in quotas.sensors.items():
        clients.add_metric([kind], count)
    yield clients
    connections = CounterMetricFamily(
        "kafka_server_socketserver_throttledconnections",
        "Connections that came too soon: of an address (closed), through a listener (read later).",
        labels=["quota"],
    )
    connections.add_metric(["ip"], quotas.throttled_ips)
    connections.add_metric(["listener"], quotas.throttled_listeners)
    yield connections


def _session_families(broker: BrokerSnapshot) -> Iterator[Metric]:
    bean = "kafka_server_fetchsessioncache_"
    yield _gauge(bean + "numincrementalfetchsessions", "Fetch sessions that are kept.", broker.fetch_sessions)
    yield _gauge(
        bean + "numincrementalfetchpartitionscached",
        "Partitions in fetch sessions.",
        broker.fetch_session_partitions,
    )
    yield CounterMetricFamily(
        bean + "incrementalfetchsessionevictions",
        "Fetch sessions that had to make room for others.",
        value=broker.fetch_session_evictions,
    )


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
