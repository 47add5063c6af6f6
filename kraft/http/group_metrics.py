"""The metrics of the groups that a broker coordinates, as `kraft.http.metrics` shows them.

Names are Kafka's where Kafka tells the same (`GroupCoordinatorMetrics`), and kafka_exporter's for offsets and lag, so
that people's dashboards and alerts fit. At most `metrics.groups.max` partitions of groups have series of their own; the
others are summed. A value that is not known is left out, as is the age of what is not read where all is read. Counters
are those of the moment; states, offsets and lag are of the last round, at most `metrics.groups.interval.ms` before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from kraft.broker.coordinators.group_lag import GroupLagView
from kraft.coordinator.groups.context import GroupCounters, GroupType

_BEAN = "kafka_server_group_coordinator_metrics_"
_MANAGER = "kafka_coordinator_group_groupmetadatamanager_"
_GROUP = "kafka_consumergroup_"
_CLASSIC_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
_CONSUMER_STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
_REBALANCES = {GroupType.CLASSIC: "group_completed_rebalance", GroupType.CONSUMER: "consumer_group_rebalance"}


@dataclass(frozen=True, slots=True)
class GroupsSnapshot:
    """What a scrape shows of the groups that this broker coordinates."""

    counters: GroupCounters
    lag: GroupLagView
    active_shards: int
    """Partitions of __consumer_offsets that are led here, and read."""
    loading_shards: int


def group_families(groups: GroupsSnapshot) -> Iterator[Metric]:
    """All metrics of groups."""
    yield from _state_families(groups)
    yield from _counter_families(groups.counters)
    yield from _lag_families(groups.lag)


def _state_families(groups: GroupsSnapshot) -> Iterator[Metric]:
    states = groups.lag.states
    family = GaugeMetricFamily(
        f"{_BEAN}num_partitions", "Partitions of __consumer_offsets that this broker leads.", labels=["state"]
    )
    family.add_metric(["active"], groups.active_shards)
    family.add_metric(["loading"], groups.loading_shards)
    yield family
    family = GaugeMetricFamily(f"{_BEAN}group_count", "Groups, by their protocol.", labels=["protocol"])
    for group_type in GroupType:
        count = sum(count for (one, _), count in states.items() if one is group_type)
        family.add_metric([group_type.value], count)
        if group_type is GroupType.CLASSIC:
            yield GaugeMetricFamily(f"{_MANAGER}numgroups", "Classic groups.", value=count)
    yield family
    for state in _CLASSIC_STATES:
        yield GaugeMetricFamily(
            f"{_MANAGER}numgroups{state.lower()}",
            f"Classic groups in the state {state}.",
            value=states.get((GroupType.CLASSIC, state), 0),
        )
    family = GaugeMetricFamily(
        f"{_BEAN}consumer_group_count", "Consumer groups (KIP-848), by their state.", labels=["state"]
    )
    for state in _CONSUMER_STATES:
        family.add_metric([state], states.get((GroupType.CONSUMER, state), 0))
    yield family
    yield GaugeMetricFamily(
        f"{_MANAGER}numoffsets", "Offsets that groups have committed.", value=groups.lag.offsets
    )


def _counter_families(counters: GroupCounters) -> Iterator[Metric]:
    for name, text, value in (
        ("offset_commit", "Offsets that were committed.", counters.offset_commits),
        ("offset_expiration", "Offsets that expired.", counters.offset_expirations),
        ("offset_deletion", "Offsets that an administrator deleted.", counters.offset_deletions),
        *(
            (name, f"Rebalances of {group_type} groups.", counters.rebalances[group_type])
            for group_type, name in _REBALANCES.items()
        ),
    ):
        yield CounterMetricFamily(_BEAN + name, text, value=value)
    family = SummaryMetricFamily(
        f"{_BEAN}rebalance_time_ms",
        "How long a rebalance was, in ms: from the first change to a stable group.",
        labels=["protocol"],
    )
    for group_type in GroupType:
        family.add_metric(
            [group_type.value], counters.rebalances[group_type], counters.rebalance_ms[group_type]
        )
    yield family


def _lag_families(lag: GroupLagView) -> Iterator[Metric]:
    labels = ["consumergroup", "topic", "partition"]
    offset = GaugeMetricFamily(f"{_GROUP}current_offset", "The committed offset.", labels=labels)
    records = GaugeMetricFamily(
        f"{_GROUP}lag", "Records between the committed offset and the end of the log.", labels=labels
    )
    seconds = GaugeMetricFamily(
        f"{_GROUP}lag_seconds", "The age of the oldest record that is not read, in seconds.", labels=labels
    )
    for row in lag.listed:
        values = [row.group_id, row.topic, str(row.partition)]
        offset.add_metric(values, row.offset)
        if row.lag is not None:
            records.add_metric(values, row.lag)
        if row.lag_s is not None:
            seconds.add_metric(values, row.lag_s)
    topics = GaugeMetricFamily(
        f"{_GROUP}lag_sum", "The lag in all partitions of a topic for which it is known.", labels=labels[:2]
    )
    for topic in lag.topics:
        topics.add_metric([topic.group_id, topic.topic], topic.lag)
    yield from (offset, records, seconds, topics)
    rest = lag.unlisted
    yield GaugeMetricFamily(
        f"{_GROUP}unlisted_partitions",
        "Partitions of groups without series of their own, for want of room in metrics.groups.max.",
        value=rest.partitions,
    )
    yield GaugeMetricFamily(f"{_GROUP}unlisted_lag_sum", "The sum of their lag, in records.", value=rest.lag)
    if rest.max_lag_s is not None:
        yield GaugeMetricFamily(
            f"{_GROUP}unlisted_lag_seconds_max",
            "The age of the oldest record that is not read in them, in seconds.",
            value=rest.max_lag_s,
        )
