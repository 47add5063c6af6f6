"""Further features of a scenario, each drawn independently: the second half of the swarm.

The features are fetch sessions of consumers and their number at a broker (KIP-227), racks and reading from
followers (KIP-392), throttled replication (KIP-73), segments that reserve their room at once, consumer groups of
both protocols, transactions, clusters that flush every record, whose machines all lose their power at once, and
clusters with users, permissions and quotas. Their
random streams are their own, so that a seed keeps the cluster, the clients and the faults that it would have without
them. Pure; `swarm` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from kraft.chaos import security
from kraft.chaos.scenario import FaultSpec, Scenario, TopicSpec, WorkloadSpec
from partitions.replica_selector import RACK_AWARE_SELECTOR

SESSIONS_ODDS = 0.6
"""The part of consumers that keep fetch sessions, as all newer clients do."""
FEW_SLOTS_ODDS = 0.4
SLOTS = (0, 1, 1, 2, 2, 3, 5)
RACKS_ODDS = 0.35
RACKS = ("a", "b", "c")
PREALLOCATE_ODDS = 0.2
"""Of topics."""
THROTTLE_ODDS = 0.25
WRITTEN_BYTES = 1_200
"""Bytes of one send, on average."""
THROTTLE_SHARES = (0.3, 1.0)
"""The part of the clients' write rate that may be copied: a follower that is behind may stay behind until the faults
are over."""
GROUPS_ODDS = 0.4
"""The part of clusters with consumer groups."""
FLUSHED_ODDS = 0.15
"""The part of clusters in which every topic has flush.messages=1, the internal ones too."""
POWER_LOSSES = (1, 2, 3)
"""How often everybody loses power in such a cluster."""
MEMBER_KINDS = ("classic-member", "consumer-member")
LEADER, FOLLOWER = "leader", "follower"
TRANSACTIONS_ODDS = 0.4
"""The part of clusters with transactions."""
TRANSACTION_VERSION = "transaction.version"
OLD_CLUSTER_ODDS, OLD_CLIENT_ODDS = 0.3, 0.25
"""Of clusters of transaction.version 1, and of clients that speak the older protocol to a cluster of version 2."""
SECURED_ODDS = 0.2
"""The part of clusters whose clients say who they are, and with guests whose permissions change."""
SHORT_SESSIONS_ODDS, SESSIONS_MS = 0.7, (2_500, 5_000)
"""The part of these whose guests have to say anew who they are, and how often."""
LEDGER, RESULTS, PROCESSORS = "ledger", "results", "processors"


def add_features(scenario: Scenario, *, adds_faults: bool = True) -> Scenario:
    """The scenario with the features that its seed draws; those that are faults only where it `adds_faults`."""
    rng = Random(f"{scenario.seed}/swarm/features")
    for feature in (_sessions, _racks, _preallocated, _throttled):
        scenario = feature(rng, scenario)
    scenario = _grouped(Random(f"{scenario.seed}/swarm/groups"), scenario)
    scenario = _transacted(Random(f"{scenario.seed}/swarm/transactions"), scenario)
    if adds_faults:
        scenario = _flushed(Random(f"{scenario.seed}/swarm/flushes"), scenario)
    return _secured(Random(f"{scenario.seed}/swarm/security"), scenario)


def _sessions(rng: Random, scenario: Scenario) -> Scenario:
    """Draws fetch sessions and few or many slots: where they are few, consumers give way to followers."""
    workloads = tuple(
        replace(one, fetch_sessions=rng.random() < SESSIONS_ODDS) if one.kind == "consumer" else one
        for one in scenario.workloads
    )
    properties = dict(scenario.properties)
    if rng.random() < FEW_SLOTS_ODDS:
        properties["max.incremental.fetch.session.cache.slots"] = str(rng.choice(SLOTS))
    return replace(scenario, workloads=workloads, properties=properties)


def _racks(rng: Random, scenario: Scenario) -> Scenario:
    if rng.random() >= RACKS_ODDS:
        return scenario
    return replace(
        scenario,
        nodes=tuple(
            replace(node, rack=rng.choice(RACKS)) if "broker" in node.roles else node
            for node in scenario.nodes
        ),
        workloads=tuple(
            replace(one, rack=rng.choice(RACKS)) if one.kind == "consumer" else one
            for one in scenario.workloads
        ),
        properties={**scenario.properties, "replica.selector.class": RACK_AWARE_SELECTOR},
    )


def _preallocated(rng: Random, scenario: Scenario) -> Scenario:
    topics = tuple(
        replace(topic, configs={**topic.configs, "preallocate": "true"})
        if rng.random() < PREALLOCATE_ODDS
        else topic
        for topic in scenario.topics
    )
    return replace(scenario, topics=topics)


def _throttled(rng: Random, scenario: Scenario) -> Scenario:
    """Draws limits on the copying of one topic or all: on leaders' sending, on followers' fetching, or both."""
    if rng.random() >= THROTTLE_ODDS:
        return scenario
    sides = rng.choice(((LEADER,), (FOLLOWER,), (LEADER, FOLLOWER)))
    throttled = rng.choice((scenario.topics[:1], scenario.topics))
    all_replicas = {f"{side}.replication.throttled.replicas": "*" for side in sides}
    topics = tuple(
        replace(topic, configs={**topic.configs, **all_replicas}) if topic in throttled else topic
        for topic in scenario.topics
    )
    names = {topic.name for topic in throttled}
    sends = sum(one.per_second for one in scenario.workloads if "producer" in one.kind and one.topic in names)
    rate = str(int(WRITTEN_BYTES * sends * rng.choice(THROTTLE_SHARES)))
    return replace(
        scenario,
        topics=topics,
        properties={**scenario.properties, "replication.quota.window.num": str(rng.choice((2, 5)))},
        run_time_configs={f"{side}.replication.throttled.rate": rate for side in sides},
    )


def _grouped(rng: Random, scenario: Scenario) -> Scenario:
    """Draws one group or two, of two to four members; most have a topic that comes, grows and goes. Commits are a
    compacted topic's records: segments are small, and some clusters clean soon."""
    if rng.random() >= GROUPS_ODDS:
        return scenario
    workloads = list(scenario.workloads)
    for group in ("readers", "others")[: rng.choice((1, 1, 2))]:
        kind, topic = rng.choice(MEMBER_KINDS), rng.choice(scenario.topics).name
        rate = rng.choice((3.0, 8.0))
        for _ in range(rng.choice((2, 3, 3, 4))):
            workloads.append(WorkloadSpec(kind, len(workloads), topic, per_second=rate, group=group))
        if rng.random() < 0.6:
            changes = rng.choice((0.5, 1.0))
            workloads.append(WorkloadSpec("group-topic", len(workloads), per_second=changes, group=group))
    properties = {
        **scenario.properties,
        "offsets.topic.num.partitions": str(rng.choice((1, 2, 4))),
        "offsets.topic.segment.bytes": str(rng.choice((16_384, 65_536, 1_048_576))),
        "group.initial.rebalance.delay.ms": str(rng.choice((0, 300))),
    }
    if rng.random() < 0.5:
        properties.setdefault("log.cleaner.backoff.ms", str(rng.choice((500, 1_500))))
    return replace(scenario, workloads=tuple(workloads), properties=properties)


def _flushed(rng: Random, scenario: Scenario) -> Scenario:
    """Draws flush.messages=1 for all topics. No power loss excuses a lost record there, so everybody may lose it."""
    if rng.random() >= FLUSHED_ODDS:
        return scenario
    first_stream = 1 + max((fault.stream for fault in scenario.faults), default=-1)
    more = [
        FaultSpec("power-loss-all", round(rng.uniform(0.1, 1.0) * scenario.seconds, 6), first_stream + number)
        for number in range(rng.choice(POWER_LOSSES))
    ]
    return replace(
        scenario,
        faults=tuple(sorted((*scenario.faults, *more), key=lambda fault: fault.at_s)),
        properties={**scenario.properties, "log.flush.interval.messages": "1"},
    )


def _secured(rng: Random, scenario: Scenario) -> Scenario:
    return secured(rng, scenario) if rng.random() < SECURED_ODDS else scenario


def secured(rng: Random, scenario: Scenario) -> Scenario:
    """The scenario with clients that say who they are, guests, and a topic of theirs."""
    factor = min(3, len(scenario.brokers))
    vault = TopicSpec(
        security.VAULT, rng.choice((1, 2)), factor, {"min.insync.replicas": str(min(2, factor))}
    )
    first = len(scenario.workloads)
    workloads = [WorkloadSpec("security-operator", first, security.VAULT, per_second=rng.choice((3.0, 8.0)))]
    for number, user in enumerate(rng.choices(security.GUESTS, k=rng.choice((2, 3))), first + 1):
        rate = rng.choice((10.0, 25.0))
        workloads.append(WorkloadSpec("guest", number, security.VAULT, per_second=rate, user=user))
    sessions = {security.SESSIONS: str(rng.choice(SESSIONS_MS))} if rng.random() < SHORT_SESSIONS_ODDS else {}
    return replace(
        scenario,
        topics=(*scenario.topics, vault),
        workloads=(*scenario.workloads, *workloads),
        properties={**scenario.properties, **security.PROPERTIES, **sessions},
    )


def _transacted(rng: Random, scenario: Scenario) -> Scenario:
    """Draws transactional producers of a ledger, some with a zombie of their id beside them, readers of what is
    committed, and mostly two or three processors that turn the ledger into results. No retention, and no unclean
    elections: what is committed has to be there."""
    if rng.random() >= TRANSACTIONS_ODDS:
        return scenario
    factor = min(3, len(scenario.brokers))
    configs = {
        "min.insync.replicas": str(min(2, factor)),
        "segment.bytes": str(rng.choice((16_384, 65_536, 1_048_576))),
    }
    level = 1 if rng.random() < OLD_CLUSTER_ODDS else 2
    topics = [TopicSpec(LEDGER, rng.choice((1, 2, 3)), factor, configs)]
    if rng.random() < 0.75:
        topics.append(TopicSpec(RESULTS, rng.choice((1, 2)), factor, configs))
    specs = [*_transactional(rng, level, len(topics) > 1), *_readers(rng, scenario, topics)]
    first = len(scenario.workloads)
    workloads = [replace(spec, stream=number) for number, spec in enumerate(specs, first)]
    properties = {
        "transaction.state.log.num.partitions": str(rng.choice((1, 2, 4))),
        "transaction.state.log.segment.bytes": str(rng.choice((16_384, 65_536, 1_048_576))),
    }
    return replace(
        scenario,
        topics=(*scenario.topics, *topics),
        workloads=(*scenario.workloads, *workloads),
        properties={**scenario.properties, **properties},
        features={TRANSACTION_VERSION: 1} if level == 1 else {},
    )


def _transactional(rng: Random, level: int, has_results: bool) -> Iterator[WorkloadSpec]:
    """Producers and processors. In a cluster of version 2 some are older than that."""

    def client(kind: str, transactional_id: str, per_second: float, group: str = "") -> WorkloadSpec:
        is_old = level == 1 or rng.random() < OLD_CLIENT_ODDS
        return WorkloadSpec(
            kind,
            0,
            LEDGER,
            per_second=per_second,
            group=group,
            transactional_id=transactional_id,
            transaction_version=1 if is_old else 2,
            output=RESULTS if group else "",
        )

    for number in range(rng.choice((1, 2, 2, 3))):
        yield client("transactional-producer", f"{LEDGER}-{number}", rng.choice((10.0, 20.0)))
        if rng.random() < 0.4:
            yield client("zombie-producer", f"{LEDGER}-{number}", 5.0)
    for number in range(rng.choice((2, 3)) if has_results else 0):
        yield client("processor", f"{PROCESSORS}-{number}", rng.choice((5.0, 10.0)), PROCESSORS)


def _readers(rng: Random, scenario: Scenario, topics: Sequence[TopicSpec]) -> Iterator[WorkloadSpec]:
    """Of all that is written to the first topic, and of what is committed in each."""
    is_racked = "replica.selector.class" in scenario.properties
    kinds = [("consumer", topics[0]), *(("committed-consumer", topic) for topic in topics)]
    for kind, topic in kinds:
        rack, has_sessions = rng.choice(RACKS) if is_racked else "", rng.random() < SESSIONS_ODDS
        yield WorkloadSpec(kind, 0, topic.name, per_second=40.0, rack=rack, fetch_sessions=has_sessions)
