"""The metrics of groups, as text."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from kraft.broker.coordinators.group_lag import GroupLagView
from kraft.coordinator.groups.context import GroupCounters, GroupType
from kraft.coordinator.groups.lag import PartitionLag, TopicLag, Unlisted
from kraft.http.group_metrics import GroupsSnapshot, group_families

NOTHING = GroupLagView({}, 0, [], [], Unlisted())
BEAN = "kafka_server_group_coordinator_metrics_"
MANAGER = "kafka_coordinator_group_groupmetadatamanager_"


def exposition(lag: GroupLagView, counters: GroupCounters | None = None) -> str:
    class One(Collector):
        def collect(self):  # type: ignore[no-untyped-def]
            return group_families(GroupsSnapshot(counters or GroupCounters(), lag, 4, 1))

    registry = CollectorRegistry(auto_describe=False)
    registry.register(One())
    return generate_latest(registry).decode()


def samples(text: str) -> dict[str, float]:
    """By name, and the values of labels."""
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def row(partition: int, lag: int | None, lag_s: float | None, group_id: str = "g") -> PartitionLag:
    return PartitionLag(group_id, "t", partition, 3, None if lag is None else 3 + lag, lag, lag_s)


def test_lag_in_the_names_of_kafka_exporter() -> None:
    rows = [row(0, 7, 2.5), row(1, 0, None), row(2, None, None)]
    text = exposition(GroupLagView({}, 3, rows, [TopicLag("g", "t", 7)], Unlisted()))
    labels = 'consumergroup="g",partition="0",topic="t"'
    assert f"kafka_consumergroup_lag{{{labels}}} 7.0\n" in text
    assert f"kafka_consumergroup_current_offset{{{labels}}} 3.0\n" in text
    assert f"kafka_consumergroup_lag_seconds{{{labels}}} 2.5\n" in text
    assert 'kafka_consumergroup_lag_sum{consumergroup="g",topic="t"} 7.0\n' in text
    found = samples(text)
    assert {name for name in found if name.startswith("kafka_consumergroup_lag{")} == {
        "kafka_consumergroup_lag{g}{0}{t}", "kafka_consumergroup_lag{g}{1}{t}"
    }, "what is not known is left out"  # fmt: skip
    assert found["kafka_consumergroup_lag{g}{1}{t}"] == 0
    assert [name for name in found if name.startswith("kafka_consumergroup_lag_seconds")] == [
        "kafka_consumergroup_lag_seconds{g}{0}{t}"
    ], "nothing is unread at the end"
    assert len([name for name in found if name.startswith("kafka_consumergroup_current_offset")]) == 3


def test_what_has_no_series_of_its_own_is_summed() -> None:
    found = samples(exposition(NOTHING._replace(unlisted=Unlisted(12, 345, 6.5))))
    assert found["kafka_consumergroup_unlisted_partitions"] == 12
    assert found["kafka_consumergroup_unlisted_lag_sum"] == 345
    assert found["kafka_consumergroup_unlisted_lag_seconds_max"] == 6.5
    assert "kafka_consumergroup_unlisted_lag_seconds_max" not in samples(exposition(NOTHING))


def test_a_name_that_needs_escapes_is_told_whole() -> None:
    odd = 'a "group"\\\nof two lines'
    text = exposition(NOTHING._replace(listed=[row(0, 1, None, odd)]))
    (family,) = (f for f in text_string_to_metric_families(text) if f.name == "kafka_consumergroup_lag")
    assert family.samples[0].labels["consumergroup"] == odd


def test_states_of_groups() -> None:
    states = {
        (GroupType.CLASSIC, "PreparingRebalance"): 2,
        (GroupType.CLASSIC, "Stable"): 3,
        (GroupType.CONSUMER, "Reconciling"): 4,
        (GroupType.CONSUMER, "Empty"): 5,
    }
    found = samples(exposition(GroupLagView(states, 17, [], [], Unlisted())))
    assert found[f"{BEAN}group_count{{classic}}"] == found[f"{MANAGER}numgroups"] == 5
    assert found[f"{BEAN}group_count{{consumer}}"] == 9
    assert found[f"{MANAGER}numgroupspreparingrebalance"] == 2
    assert found[f"{MANAGER}numgroupsstable"] == 3
    assert found[f"{MANAGER}numgroupsempty"] == 0
    assert found[f"{BEAN}consumer_group_count{{Reconciling}}"] == 4
    assert found[f"{BEAN}consumer_group_count{{Assigning}}"] == 0
    assert found[f"{MANAGER}numoffsets"] == 17
    assert (found[f"{BEAN}num_partitions{{active}}"], found[f"{BEAN}num_partitions{{loading}}"]) == (4, 1)


def test_counters_and_the_length_of_rebalances() -> None:
    counters = GroupCounters(offset_commits=11, offset_expirations=12, offset_deletions=13)
    counters.rebalances.update({GroupType.CLASSIC: 2, GroupType.CONSUMER: 3})
    counters.rebalance_ms.update({GroupType.CLASSIC: 2_500, GroupType.CONSUMER: 90})
    found = samples(exposition(NOTHING, counters))
    assert found[f"{BEAN}offset_commit_total"] == 11
    assert found[f"{BEAN}offset_expiration_total"] == 12
    assert found[f"{BEAN}offset_deletion_total"] == 13
    assert found[f"{BEAN}group_completed_rebalance_total"] == 2
    assert found[f"{BEAN}consumer_group_rebalance_total"] == 3
    assert found[f"{BEAN}rebalance_time_ms_count{{classic}}"] == 2
    assert found[f"{BEAN}rebalance_time_ms_sum{{classic}}"] == 2_500
    assert found[f"{BEAN}rebalance_time_ms_sum{{consumer}}"] == 90
