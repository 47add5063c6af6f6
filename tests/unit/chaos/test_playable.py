"""What is no scenario of a cluster is refused before it is played, and never held against the cluster."""

import dataclasses
import math
from pathlib import Path

import pytest

from kraft.chaos.case import Case
from kraft.chaos.playable import check_playable
from kraft.chaos.scenario import FaultSpec, NodeSpec, Scenario, ScenarioError, TopicSpec, WorkloadSpec
from kraft.chaos.swarm import scenario_of

CORPUS = Path(__file__).parents[2] / "chaos" / "corpus"
SOUND = Scenario(
    seed=1,
    seconds=5.0,
    nodes=(NodeSpec(1), NodeSpec(2)),
    topics=(TopicSpec("orders", 2, 2, {"segment.bytes": "16384"}),),
    workloads=(WorkloadSpec("producer", 0, "orders"), WorkloadSpec("topic-churn", 1)),
    faults=(FaultSpec("kill", 1.0, 0),),
    properties={"log.cleaner.backoff.ms": "300"},
    run_time_configs={"leader.replication.throttled.rate": "1000"},
)
NODE, TOPIC, WORKLOAD, FAULT = SOUND.nodes[0], SOUND.topics[0], SOUND.workloads[0], SOUND.faults[0]


def test_what_is_drawn_and_what_is_kept_can_be_played():
    check_playable(SOUND)
    for seed in range(1, 60):
        check_playable(scenario_of(seed))
    paths = list(CORPUS.glob("*.json"))
    assert paths
    for path in paths:
        check_playable(Case.load(path).scenario)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seconds": math.nan}, "seconds is nan"),
        ({"seconds": math.inf}, "seconds is inf"),
        ({"seconds": -3.0}, "seconds is -3.0"),
        ({"seconds": 0.0}, "seconds is 0.0"),
        ({"nodes": ()}, "0 nodes"),
        ({"nodes": (NODE, NODE)}, "two nodes have one id"),
        ({"nodes": tuple(NodeSpec(n) for n in range(1, 200))}, "199 nodes"),
        ({"nodes": (NodeSpec(-1),)}, "node_id is -1"),
        ({"nodes": (NodeSpec("1"),)}, "node_id is '1'"),
        ({"nodes": (NodeSpec(1, ("king",)),)}, "roles of node 1"),
        ({"nodes": (NodeSpec(1, ()),)}, "roles of node 1"),
        ({"nodes": (NodeSpec(1, ("broker",)),)}, "no node is a controller"),
        ({"nodes": (NodeSpec(1, ("controller",)),)}, "no node is a broker"),
        ({"nodes": (NodeSpec(1, log_dirs=0),)}, "log_dirs of node 1 is 0"),
        ({"properties": {"num.replica.fetchers": "many"}}, "num.replica.fetchers=many"),
        ({"properties": {"num.replica.fetchers": 3}}, "a value of properties is no text"),
        ({"topics": (TOPIC, TOPIC)}, "two topics have one name"),
        ({"topics": (TopicSpec("a b", 1, 1),)}, "the name of a topic is 'a b'"),
        ({"topics": (TopicSpec(7, 1, 1),)}, "the name of a topic is 7"),
        ({"topics": (TopicSpec("orders", 0, 1),)}, "partitions of orders is 0"),
        ({"topics": (TopicSpec("orders", 1.5, 1),)}, "partitions of orders is 1.5, no whole number"),
        ({"topics": (TopicSpec("orders", True, 1),)}, "partitions of orders is True"),
        ({"topics": (TopicSpec("orders", 1, 9),)}, "orders wants 9 replicas on 2 brokers"),
        ({"topics": (TopicSpec("orders", 1, 1, {"segment.bytes": "abc"}),)}, "segment.bytes"),
        ({"topics": (TopicSpec("orders", 1, 1, {"colour": "red"}),)}, "colour"),
        ({"topics": (TopicSpec("orders", 1, 1, ["red"]),)}, "configs of orders are"),
        ({"workloads": (WorkloadSpec("wizard", 0, "orders"),)}, "there is no workload 'wizard'"),
        ({"workloads": (WorkloadSpec(["producer"], 0, "orders"),)}, "there is no workload"),
        ({"workloads": (WorkloadSpec("producer", 0, "payments"),)}, "no such topic: 'payments'"),
        ({"workloads": (WorkloadSpec("producer", 0),)}, "no such topic: ''"),
        ({"workloads": (WorkloadSpec("producer", 0, "orders", acks=2),)}, "acks of producer is 2"),
        (
            {"workloads": (WorkloadSpec("producer", 0, "orders", per_second=0),)},
            "per_second of producer is 0",
        ),
        (
            {"workloads": (WorkloadSpec("producer", 0, "orders", per_second="9"),)},
            "per_second of producer is '9'",
        ),
        ({"workloads": (WorkloadSpec("producer", 0, "orders", operations_max=-1),)}, "operations_max"),
        ({"workloads": (WorkloadSpec("classic-member", 0, "orders"),)}, "classic-member names no group"),
        ({"workloads": (WorkloadSpec("group-topic", 0),)}, "group-topic names no group"),
        ({"workloads": (WorkloadSpec("zombie-producer", 0, "orders"),)}, "names no transactional_id"),
        (
            {
                "workloads": (
                    WorkloadSpec("processor", 0, "orders", group="g", transactional_id="t", output="none"),
                )
            },
            "processor has no such output: 'none'",
        ),
        (
            {
                "workloads": (
                    WorkloadSpec(
                        "transactional-producer", 0, "orders", transactional_id="t", transaction_version=3
                    ),
                )
            },
            "transaction_version of transactional-producer is 3",
        ),
        ({"features": {"transaction.version": 9}}, "feature 'transaction.version' has no level 9"),
        ({"features": {"magic": 1}}, "feature 'magic' has no level 1"),
        ({"workloads": (WorkloadSpec("group-topic", 0, group=7),)}, "group of group-topic is 7"),
        ({"workloads": (WorkloadSpec("group-topic", 0, group="a b"),)}, "the topic of group 'a b'"),
        ({"workloads": (WorkloadSpec("group-topic", 0, group="g"),) * 2}, "'g' has two topics of its own"),
        (
            {
                "topics": (TOPIC, TopicSpec("topic-of-g", 1, 1)),
                "workloads": (WorkloadSpec("group-topic", 0, group="g"),),
            },
            "there is a topic topic-of-g",
        ),
        (
            {
                "workloads": (
                    WorkloadSpec("classic-member", 0, "orders", group="g"),
                    WorkloadSpec("consumer-member", 1, "orders", group="g"),
                )
            },
            "members of two protocols",
        ),
        ({"workloads": (WORKLOAD,) * 100}, "more than 62 workloads"),
        ({"faults": (FaultSpec("flood", 1.0, 0),)}, "there is no fault 'flood'"),
        ({"faults": (dataclasses.replace(FAULT, at_s="soon"),)}, "at_s of the fault kill is 'soon'"),
        ({"faults": (dataclasses.replace(FAULT, at_s=-1.0),)}, "at_s of the fault kill is -1.0"),
        ({"faults": (dataclasses.replace(FAULT, stream=0.5),)}, "stream of the fault kill is 0.5"),
        ({"run_time_configs": {"log.dirs": "/x"}}, "log.dirs is no key"),
        ({"run_time_configs": {"leader.replication.throttled.rate": "much"}}, "throttled.rate=much"),
    ],
)
def test_what_cannot_be_played_is_told_in_a_sentence(changes, words):
    with pytest.raises(ScenarioError) as refusal:
        check_playable(dataclasses.replace(SOUND, **changes))
    assert words in str(refusal.value)
