"""The dashboard and the alerts ask for nothing that a node does not tell."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraft.broker.coordinators.group_lag import GroupLagView
from kraft.broker.metrics import BrokerMetrics
from kraft.broker.replicas.undecided_partitions import StableLag
from kraft.coordinator.groups.context import GroupCounters
from kraft.coordinator.groups.lag import Unlisted
from kraft.coordinator.transactions.context import TransactionCounters
from kraft.http.group_metrics import GroupsSnapshot
from kraft.http.metrics import BrokerSnapshot, ControllerSnapshot, NodeMetrics
from kraft.http.transaction_metrics import TransactionsSnapshot
from kraft.network.request_times import PhaseTimes
from quorum.leader_elections import LeaderElections
from quorum.metadata.image import EMPTY
from quorum.metadata.tally import LedPartitions, PartitionCounts

DEPLOY = Path(__file__).parents[3] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
ALERTS_TEST = Path(__file__).with_name("alerts_test.yml")
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
OTHERS_DASHBOARDS = (
    # Kafka's own part of the dashboard "Strimzi Kafka", without what is of a JVM, its threads, or Kubernetes.
    "kafka_server_replicamanager_leadercount kafka_controller_kafkacontroller_activecontrollercount"
    " kafka_controller_controllerstats_uncleanleaderelections_total kafka_server_replicamanager_partitioncount"
    " kafka_server_replicamanager_underreplicatedpartitions kafka_cluster_partition_atminisr"
    " kafka_cluster_partition_underminisr kafka_controller_kafkacontroller_offlinepartitionscount process_open_fds"
    " kafka_server_brokertopicmetrics_bytesin_total kafka_server_brokertopicmetrics_bytesout_total"
    " kafka_server_brokertopicmetrics_messagesin_total kafka_server_brokertopicmetrics_totalproducerequests_total"
    " kafka_server_brokertopicmetrics_failedproducerequests_total"
    " kafka_server_brokertopicmetrics_totalfetchrequests_total"
    " kafka_server_brokertopicmetrics_failedfetchrequests_total"
    " kafka_server_socket_server_metrics_connection_count kafka_log_log_size",
    # "Kafka Exporter Overview".
    "kafka_topic_partition_current_offset kafka_consumergroup_lag kafka_topic_partitions",
)


class World:
    """A node with both roles, of which everything is known."""

    start_time_ms = 1
    loop_lag = PhaseTimes()

    async def broker_snapshot(self) -> BrokerSnapshot:
        lag = GroupLagView({}, 0, [], [], Unlisted())
        return BrokerSnapshot(
            broker_id=1,
            counters=BrokerMetrics(),
            state=3,
            partition_count=0,
            image=EMPTY,
            led=LedPartitions(1),
            groups=GroupsSnapshot(GroupCounters(), lag, 0, 0),
            transactions=TransactionsSnapshot(TransactionCounters(), {}, 0, 5, 0, 0, 0, StableLag([], 0, 0)),
        )

    def controller_snapshot(self) -> ControllerSnapshot:
        return ControllerSnapshot(
            active=True,
            leader_id=1,
            epoch=1,
            pending_proposals=0,
            image=EMPTY,
            partitions=PartitionCounts(),
            elections=LeaderElections(),
        )


@pytest.fixture
async def told() -> set[str]:
    """The names of all samples of a node that has some of everything."""
    names = set()
    for line in (await NodeMetrics(World()).exposition()).decode().splitlines():
        if found := re.fullmatch(r"# TYPE (\S+) (\S+)", line):
            name, kind = found[1].removesuffix("_total"), found[2]
            names.update(name + suffix for suffix in SUFFIXES.get(kind, ("",)))
    return names


def expressions(value: Any) -> Iterator[str]:
    """All values of `expr`, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "expr":
                yield inner
            else:
                yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)


def names(text: str) -> set[str]:
    return set(re.findall(r"\b(?:kafka|kraft|process)_\w+", text))


async def test_what_is_asked_for_is_told(told: set[str]) -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "kraft.json").read_text())
    alerts = yaml.safe_load(ALERTS.read_text())
    for document, at_least in ((dashboard, 25), (alerts, 10)):
        asked = list(expressions(document))
        assert len(asked) >= at_least
        assert all(names(one) for one in asked), "each is about a metric"
        assert set().union(*map(names, asked)) <= told
    assert {panel["title"] for panel in dashboard["panels"]} >= {"Lag in records", "Bytes in, by topic"}


@pytest.mark.parametrize("dashboard", OTHERS_DASHBOARDS, ids=["strimzi-kafka", "kafka-exporter-overview"])
async def test_the_names_of_well_known_dashboards(told: set[str], dashboard: str) -> None:
    assert names(dashboard) <= told


def promtool(*arguments: str) -> None:
    """Prometheus's own checker, where it is installed."""
    command = shutil.which("promtool")
    if command is not None:
        done = subprocess.run([command, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_alerts() -> None:
    """That it is YAML of its form is checked everywhere."""
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule.keys() >= {"alert", "expr", "labels", "annotations"}
            assert rule["expr"].count("(") == rule["expr"].count(")")
    promtool("check", "rules", "--lint-fatal", str(ALERTS))


def test_alerts_fire_when_they_should() -> None:
    """Each alert is played; promtool, where it is installed, is the judge."""
    played = yaml.safe_load(ALERTS_TEST.read_text())["tests"]
    named = {one["alertname"] for test in played for one in test["alert_rule_test"]}
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert named == {rule["alert"] for rule in rules}
    asked = set().union(*(names(rule["expr"]) for rule in rules))
    given = {series for test in played for one in test["input_series"] for series in names(one["series"])}
    assert given == asked, "nothing is played that no alert asks for"
    promtool("test", "rules", str(ALERTS_TEST))
