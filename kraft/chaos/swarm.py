"""The swarm: a scenario drawn from a seed, with its own cluster, topics, workloads and subset of faults.

Swarm testing (Groce and others, ISSTA 2012): a run that leaves most features out reaches states that a run with all
of them never does. So each seed picks few or many kinds of faults, dense or sparse, with quiet periods in which the
cluster becomes whole again. Pure: a scenario depends on the arguments alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from kraft.chaos.faults import DEFAULT_FAULTS
from kraft.chaos.scenario import FaultSpec, NodeSpec, Scenario, TopicSpec, WorkloadSpec
from kraft.chaos.swarm_features import add_features

DEFAULT_SECONDS = 60.0
FAULTS_MAX = 200
FIRST_FAULT_S = 0.5

UNCLEAN_ODDS = 0.06
"""The part of topics that allow unclean elections."""
COMPACTED_ODDS = 0.18
"""The part of clusters with a compacted topic."""
FACTORS = (3, 2, 1, 4, 5)
FACTOR_ODDS = {1: (0, 0, 1, 0, 0), 3: (82, 14, 4, 0, 0), 5: (35, 10, 5, 25, 25)}
"""The odds of replication factors, by the number of brokers."""
CLUSTER_SHAPES = (
    ("three combined", 68),
    ("three controllers, three brokers", 8),
    ("one controller, three brokers", 8),
    ("five combined", 8),
    ("one combined", 8),
)
"""Shapes and their odds. A single broker has no replica to copy from, and loses records that it did not fsync."""


def scenario_of(
    seed: int, *, seconds: float = DEFAULT_SECONDS, faults: Sequence[str] | None = None
) -> Scenario:
    """The scenario of a seed. `faults`: all of these are enabled; None: a subset of the default ones."""
    rng = Random(f"{seed}/swarm")
    nodes = _nodes(rng)
    brokers = sum("broker" in node.roles for node in nodes)
    topics = _some_compacted(rng, _topics(rng, brokers))
    enabled = _subset(rng) if faults is None else list(faults)
    scenario = Scenario(
        seed=seed,
        seconds=seconds,
        nodes=_with_directories(rng, nodes),
        topics=topics,
        workloads=_workloads(rng, topics),
        faults=_faults(rng, enabled, seconds),
        properties=_properties(rng, topics),
    )
    return add_features(scenario, adds_faults=faults is None)


def _nodes(rng: Random) -> tuple[NodeSpec, ...]:
    [shape] = rng.choices([name for name, _ in CLUSTER_SHAPES], [odds for _, odds in CLUSTER_SHAPES])
    if shape == "three controllers, three brokers":
        controllers = tuple(NodeSpec(n, ("controller",)) for n in (101, 102, 103))
        return tuple(NodeSpec(n, ("broker",)) for n in (1, 2, 3)) + controllers
    if shape == "one controller, three brokers":
        return (*(NodeSpec(n, ("broker",)) for n in (1, 2, 3)), NodeSpec(101, ("controller",)))
    size = {"one combined": 1, "three combined": 3, "five combined": 5}[shape]
    return tuple(NodeSpec(n) for n in range(1, size + 1))


def _with_directories(rng: Random, nodes: Sequence[NodeSpec]) -> tuple[NodeSpec, ...]:
    """Brokers with one data directory or two; in half of the clusters all have one."""
    if rng.random() < 0.5:
        return tuple(nodes)
    return tuple(
        replace(node, log_dirs=rng.choice((1, 2, 2))) if "broker" in node.roles else node for node in nodes
    )


def _topics(rng: Random, brokers: int) -> tuple[TopicSpec, ...]:
    topics = []
    for name in ("orders", "events")[: rng.choice((1, 1, 2))]:
        # Most topics are replicated as people who care about their records replicate them.
        [factor] = rng.choices(FACTORS, FACTOR_ODDS[brokers])
        configs = {
            "min.insync.replicas": str(rng.choice((1, 2, 2, 2, 2)) if factor > 1 else 1),
            "segment.bytes": str(rng.choice((16_384, 65_536, 65_536, 1_048_576))),
        }
        configs.update(_retention(rng))
        if rng.random() < UNCLEAN_ODDS:
            configs["unclean.leader.election.enable"] = "true"
        # Many copies of many partitions would cost a run more than they are worth.
        partitions = rng.choice((1, 2, 3, 4, 6) if factor <= 3 else (1, 2))
        topics.append(TopicSpec(name, partitions, factor, configs))
    return tuple(topics)


def _some_compacted(rng: Random, topics: Sequence[TopicSpec]) -> tuple[TopicSpec, ...]:
    """In some clusters the last topic is compacted, some of these with retention besides."""
    *others, last = topics
    if rng.random() >= COMPACTED_ODDS:
        return (*others, last)
    has_retention = any(name.startswith("retention.") for name in last.configs)
    configs = {
        **last.configs,
        "cleanup.policy": "compact,delete" if has_retention else "compact",
        "segment.bytes": "16384",
        "min.cleanable.dirty.ratio": str(rng.choice((0.1, 0.3, 0.5))),
        "delete.retention.ms": str(rng.choice((500, 2_000, 10_000))),
        "min.compaction.lag.ms": str(rng.choice((0, 0, 0, 2_000))),
    }
    return (*others, replace(last, configs=configs))


def _retention(rng: Random) -> dict[str, str]:
    """Mostly none. By time, wall clocks that are wrong by minutes delete everything, as they would."""
    way = rng.random()
    if way < 0.12:
        return {"retention.bytes": str(rng.choice((32_768, 131_072)))}
    if way < 0.2:
        return {"retention.ms": str(rng.choice((8_000, 30_000)))}
    return {}


def _workloads(rng: Random, topics: Sequence[TopicSpec]) -> tuple[WorkloadSpec, ...]:
    names = [topic.name for topic in topics]
    workloads: list[WorkloadSpec] = []

    def add(kind: str, per_second: float, topic: str = "", acks: int = -1) -> None:
        workloads.append(
            WorkloadSpec(kind, stream=len(workloads), topic=topic, acks=acks, per_second=per_second)
        )

    for topic in names:
        add("idempotent-producer", rng.choice((80.0, 110.0, 140.0)) / len(names), topic)
        add("consumer", rng.choice((80.0, 110.0)) / len(names), topic)
    for _ in range(rng.choice((1, 1, 2))):
        add("producer", rng.choice((30.0, 60.0)), rng.choice(names), rng.choice((-1, -1, 0, 1)))
    if rng.random() < 0.5:
        add("list-offsets", rng.choice((4.0, 8.0)), rng.choice(names))
    if rng.random() < 0.5:
        add("topic-churn", rng.choice((5.0, 20.0)))
    if rng.random() < 0.5:
        add("operator", rng.choice((0.5, 1.5)))
    return tuple(workloads)


def _subset(rng: Random) -> list[str]:
    """Two to all kinds of the default faults."""
    kinds = list(DEFAULT_FAULTS)
    return rng.sample(kinds, rng.randint(2, len(kinds)))


def _faults(rng: Random, enabled: Sequence[str], seconds: float) -> tuple[FaultSpec, ...]:
    """Storms and quiet periods by turns. Every enabled kind strikes at least once if there is time."""
    if not enabled:
        return ()
    waiting = list(enabled)
    rng.shuffle(waiting)
    faults: list[FaultSpec] = []
    at_s = rng.uniform(FIRST_FAULT_S, 2.0)
    while at_s < seconds and len(faults) < FAULTS_MAX:
        storm_end_s = at_s + rng.uniform(1.0, 8.0)
        mean_s = rng.choice((0.3, 0.8, 1.5, 3.0))
        while at_s < min(storm_end_s, seconds) and len(faults) < FAULTS_MAX:
            name = waiting.pop() if waiting and rng.random() < 0.5 else rng.choice(list(enabled))
            faults.append(FaultSpec(name, round(at_s, 6), stream=len(faults)))
            at_s += rng.expovariate(1 / mean_s)
        at_s += rng.uniform(3.0, 12.0)
    return tuple(faults)


def _properties(rng: Random, topics: Sequence[TopicSpec]) -> dict[str, str]:
    properties = {
        "num.replica.fetchers": str(rng.choice((1, 1, 1, 1, 1, 2, 3))),
        "replica.lag.time.max.ms": str(rng.choice((1_000, 1_500, 3_000))),
        "replica.fetch.wait.max.ms": str(rng.choice((100, 500))),
        "metadata.log.max.record.bytes.between.snapshots": str(rng.choice((2_000, 10_000, 20_971_520))),
        "metadata.log.segment.ms": str(rng.choice((2_000, 10_000, 604_800_000))),
    }
    if rng.random() < 0.3:
        properties["replica.fetch.max.bytes"] = str(rng.choice((1_000, 20_000)))
    if any(topic.is_compacted for topic in topics):
        properties["log.cleaner.backoff.ms"] = str(rng.choice((500, 1_500)))
    return properties
