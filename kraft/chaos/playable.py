"""The check that a scenario written or changed by a person can be played.

A scenario with a slip in it would be played all the same, and the slip held against the cluster. So a file is
checked before its first step: every name is known, every number in its range, every config one that a node accepts.
Scenarios of `kraft.chaos.swarm` are playable; `kraft chaos` calls this for cases.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.faults import FAULTS
from kraft.chaos.scenario import NodeSpec, Scenario, ScenarioError, TopicSpec, WorkloadSpec
from kraft.chaos.workload import WORKLOADS
from kraft.chaos.workload.groups.member import topic_of
from kraft.chaos.world.simulation import HOSTS_MAX, Simulation
from kraft.config import BROKER_ROLE, CONTROLLER_ROLE, ConfigError, load_config
from kraft.config_keys import RUN_TIME_KEYS
from partitions.log.config import validate_topic_configs
from partitions.log.errors import InvalidConfig
from quorum.controller.topic_names import topic_name_problem
from quorum.metadata.features import SUPPORTED_FEATURES

SECONDS_MAX: Final = 86_400.0
PARTITIONS_MAX: Final = 10_000
LOG_DIRS_MAX: Final = 16
NODES_MAX: Final = HOSTS_MAX // 2
WORKLOADS_MAX: Final = HOSTS_MAX // 4
WITHOUT_TOPIC: Final = frozenset(("topic-churn", "operator", "group-topic"))
"""Workloads that have topics of their own, or all."""
OF_GROUPS: Final = frozenset(("classic-member", "consumer-member", "group-topic", "processor"))
"""Workloads that belong to a group."""
OF_TRANSACTIONS: Final = frozenset(("transactional-producer", "zombie-producer", "processor"))
"""Workloads that have a transactional id."""
TRANSACTION_VERSIONS: Final = (1, 2)
ACKS: Final = (-1, 0, 1)


def check_playable(scenario: Scenario) -> None:
    """Raises ScenarioError with the first mistake, in a sentence."""
    _check_number("seconds", scenario.seconds, above=0.0, most=SECONDS_MAX)
    _check_nodes(scenario)
    names = [topic.name for topic in scenario.topics]
    _check(len(set(names)) == len(names), "two topics have one name")
    for topic in scenario.topics:
        _check_topic(topic, len(scenario.brokers))
    _check(len(scenario.workloads) <= WORKLOADS_MAX, f"more than {WORKLOADS_MAX} workloads")
    for workload in scenario.workloads:
        _check_workload(workload, names)
    _check_groups(scenario.workloads, names)
    for fault in scenario.faults:
        is_fault = isinstance(fault.name, str) and fault.name in FAULTS
        _check(is_fault, f"there is no fault {fault.name!r}: `kraft chaos faults` lists them")
        _check_number(f"at_s of the fault {fault.name}", fault.at_s, least=0.0, most=SECONDS_MAX)
        _check_integer(f"stream of the fault {fault.name}", fault.stream)
    _check_run_time_configs(scenario.run_time_configs)
    for feature, level in scenario.features.items():
        known = SUPPORTED_FEATURES.get(feature)
        has_level = known is not None and isinstance(level, int) and known.lowest <= level <= known.highest
        _check(has_level, f"feature {feature!r} has no level {level!r}")


def _check_nodes(scenario: Scenario) -> None:
    nodes = scenario.nodes
    _check(0 < len(nodes) <= NODES_MAX, f"{len(nodes)} nodes: a cluster has 1 to {NODES_MAX}")
    for node in nodes:
        _check_node(node)
    _check(len({node.node_id for node in nodes}) == len(nodes), "two nodes have one id")
    _check(bool(scenario.controllers), "no node is a controller")
    _check(bool(scenario.brokers), "no node is a broker")
    _check_texts("properties", scenario.properties)
    cluster = SimulatedCluster(Simulation(scenario.seed), nodes, scenario.properties)
    try:
        for node in nodes:
            load_config(cluster.properties_of(node.node_id))
    except ConfigError as error:
        raise ScenarioError(f"the properties are not a node's: {error}") from error


def _check_node(node: NodeSpec) -> None:
    _check_integer("node_id", node.node_id, least=0)
    roles = set(node.roles)
    known = {BROKER_ROLE, CONTROLLER_ROLE}
    _check(bool(roles) and roles <= known, f"roles of node {node.node_id} are {node.roles!r}")
    _check_integer(f"log_dirs of node {node.node_id}", node.log_dirs, least=1, most=LOG_DIRS_MAX)


def _check_topic(topic: TopicSpec, brokers: int) -> None:
    problem = topic_name_problem(topic.name) if isinstance(topic.name, str) else "it is no text"
    _check(problem is None, f"the name of a topic is {topic.name!r}: {problem}")
    _check_integer(f"partitions of {topic.name}", topic.partitions, least=1, most=PARTITIONS_MAX)
    _check_integer(f"replication_factor of {topic.name}", topic.replication_factor, least=1)
    _check(
        topic.replication_factor <= brokers,
        f"{topic.name} wants {topic.replication_factor} replicas on {brokers} brokers",
    )
    _check_texts(f"configs of {topic.name}", topic.configs)
    try:
        validate_topic_configs(topic.configs)
    except InvalidConfig as error:
        raise ScenarioError(f"configs of {topic.name}: {error}") from error


def _check_workload(workload: WorkloadSpec, topics: list[str]) -> None:
    kind = workload.kind
    is_kind = isinstance(kind, str) and kind in WORKLOADS
    _check(is_kind, f"there is no workload {kind!r}: choose from {', '.join(WORKLOADS)}")
    _check(kind in WITHOUT_TOPIC or workload.topic in topics, f"{kind} has no such topic: {workload.topic!r}")
    _check(isinstance(workload.group, str), f"group of {kind} is {workload.group!r}, no text")
    _check(bool(workload.group) or kind not in OF_GROUPS, f"{kind} names no group")
    is_transactional = isinstance(workload.transactional_id, str) and bool(workload.transactional_id)
    _check(is_transactional or kind not in OF_TRANSACTIONS, f"{kind} names no transactional_id")
    version = workload.transaction_version
    _check(version in TRANSACTION_VERSIONS, f"transaction_version of {kind} is {version!r}")
    _check(
        workload.output in topics or kind != "processor", f"{kind} has no such output: {workload.output!r}"
    )
    _check(workload.acks in ACKS, f"acks of {kind} is {workload.acks!r}")
    _check_integer(f"stream of {kind}", workload.stream)
    _check_number(f"per_second of {kind}", workload.per_second, above=0.0)
    if workload.operations_max is not None:
        _check_integer(f"operations_max of {kind}", workload.operations_max, least=0)


def _check_groups(workloads: Sequence[WorkloadSpec], topics: Collection[str]) -> None:
    """The members of a group are of one protocol and read one topic; it has one topic of its own at most."""
    members: dict[str, WorkloadSpec] = {}
    with_topic: set[str] = set()
    for workload in workloads:
        group, kind = workload.group, workload.kind
        if kind == "group-topic":
            name = topic_of(group)
            problem = topic_name_problem(name)
            _check(problem is None, f"the topic of group {group!r} would be {name!r}: {problem}")
            _check(
                name not in topics, f"there is a topic {name}, which group {group!r} would have for itself"
            )
            _check(group not in with_topic, f"group {group!r} has two topics of its own")
            with_topic.add(group)
        elif kind in OF_GROUPS:
            first = members.setdefault(group, workload)
            _check(
                (kind, workload.topic) == (first.kind, first.topic),
                f"group {group!r} has members of two protocols, or of two topics",
            )


def _check_run_time_configs(configs: Mapping[str, str]) -> None:
    _check_texts("run_time_configs", configs)
    for name, text in configs.items():
        _check(name in RUN_TIME_KEYS, f"{name} is no key that is set at run time")
        try:
            RUN_TIME_KEYS[name].parse(text)
        except ValueError as error:
            raise ScenarioError(f"{name}={text}: {error}") from error


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ScenarioError(f"it cannot be played: {otherwise}")


def _check_texts(what: str, values: Mapping[str, str]) -> None:
    _check(isinstance(values, Mapping), f"{what} are {values!r}")
    _check(all(isinstance(value, str) for value in values.values()), f"a value of {what} is no text")


def _check_number(
    what: str, value: float, *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf
) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    _check(is_number and least <= value <= most and value > above, f"{what} is {value!r}")


def _check_integer(what: str, value: int, *, least: float = -math.inf, most: float = math.inf) -> None:
    _check(isinstance(value, int) and not isinstance(value, bool), f"{what} is {value!r}, no whole number")
    _check_number(what, value, least=least, most=most)
