"""Scenarios as values: they survive being written down, and refuse what is none."""

import dataclasses
import json

import pytest

from kraft.chaos import swarm
from kraft.chaos.faults import DEFAULT_FAULTS, FAULTS
from kraft.chaos.playable import WITHOUT_TOPIC
from kraft.chaos.scenario import Scenario, ScenarioError
from kraft.chaos.security import VAULT
from kraft.chaos.swarm import scenario_of
from kraft.chaos.swarm_features import LEDGER, MEMBER_KINDS, RESULTS
from kraft.chaos.workload import WORKLOADS

SEEDS = range(1, 200)


def test_a_scenario_survives_being_written_down():
    for seed in SEEDS:
        scenario = scenario_of(seed)
        again = Scenario.from_json(scenario.to_json())
        assert again == scenario
        assert repr(again) == repr(scenario), "configs keep their order: it is that of the records"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', '{"format": 1, "seed": "x"}'])
def test_what_is_no_scenario_is_refused(text):
    with pytest.raises(ScenarioError, match="scenario"):
        Scenario.from_json(text)


def test_an_unknown_field_is_refused():
    document = json.loads(scenario_of(1).to_json())
    document["topics"][0]["colour"] = "red"
    with pytest.raises(ScenarioError, match="colour"):
        Scenario.from_json(json.dumps(document))


def test_an_unknown_part_is_refused():
    document = json.loads(scenario_of(1).to_json()) | {"colour": "red"}
    with pytest.raises(ScenarioError, match="colour"):
        Scenario.from_json(json.dumps(document))


def test_equal_arguments_give_equal_scenarios_and_seeds_differ():
    assert scenario_of(7) == scenario_of(7)
    assert len({scenario_of(seed).to_json() for seed in SEEDS}) == len(SEEDS)


def test_every_scenario_can_be_built():
    for seed in SEEDS:
        scenario = scenario_of(seed)
        brokers = len(scenario.brokers)
        names = {topic.name for topic in scenario.topics}
        assert scenario.controllers
        for topic in scenario.topics:
            assert 1 <= int(topic.configs["min.insync.replicas"]) <= topic.replication_factor <= brokers
        for workload in scenario.workloads:
            assert workload.kind in WORKLOADS
            assert workload.topic in names or workload.kind in WITHOUT_TOPIC
        assert {fault.name for fault in scenario.faults} <= FAULTS.keys()
        assert [fault.at_s for fault in scenario.faults] == sorted(fault.at_s for fault in scenario.faults)
        assert all(fault.at_s < scenario.seconds for fault in scenario.faults)


def test_brokers_have_one_data_directory_or_two():
    drawn = {node.log_dirs for seed in SEEDS for node in scenario_of(seed).nodes if "broker" in node.roles}
    assert drawn == {1, 2}
    assert {n.log_dirs for s in SEEDS for n in scenario_of(s).nodes if "broker" not in n.roles} == {1}


def groups_of(scenario):
    return {one.group for one in scenario.workloads if one.group and not one.transactional_id}


def test_a_scenario_that_does_not_tell_of_directories_has_one_each():
    document = json.loads(scenario_of(1).to_json())
    for node in document["nodes"]:
        del node["log_dirs"]
    assert {node.log_dirs for node in Scenario.from_json(json.dumps(document)).nodes} == {1}


def test_streams_tell_parts_apart():
    for seed in SEEDS:
        scenario = scenario_of(seed)
        for parts in (scenario.faults, scenario.workloads):
            assert len({part.stream for part in parts}) == len(parts)


def test_the_swarm_varies():
    scenarios = [scenario_of(seed) for seed in SEEDS]
    assert {len(scenario.nodes) for scenario in scenarios} >= {1, 3, 4, 5, 6}
    assert {len(scenario.controllers) for scenario in scenarios} == {1, 3, 5}
    struck = {fault.name for scenario in scenarios for fault in scenario.faults}
    assert struck == {*DEFAULT_FAULTS, "power-loss-all"}
    assert {workload.kind for scenario in scenarios for workload in scenario.workloads} == set(WORKLOADS)
    assert {w.acks for s in scenarios for w in s.workloads if w.kind == "producer"} == {-1, 0, 1}


def test_topics_have_one_to_five_replicas_and_any_rule_for_what_counts_as_safe():
    topics = [topic for seed in range(1, 1000) for topic in scenario_of(seed).topics]
    configs = [topic.configs for topic in topics]
    assert {topic.replication_factor for topic in topics} == {1, 2, 3, 4, 5}
    assert {config["min.insync.replicas"] for config in configs} == {"1", "2"}
    assert {config.get("unclean.leader.election.enable") for config in configs} == {None, "true"}
    policies = [config.get("cleanup.policy") for config in configs]
    assert set(policies) == {None, "compact", "compact,delete"}
    assert all(topic.is_compacted == bool(policy) for topic, policy in zip(topics, policies, strict=True))


def test_compacted_topics_are_cleaned_soon():
    for seed in SEEDS:
        scenario = scenario_of(seed)
        is_compacted = any(topic.is_compacted for topic in scenario.topics)
        is_cleaned = "log.cleaner.backoff.ms" in scenario.properties
        assert is_cleaned if is_compacted else not is_cleaned or groups_of(scenario)


def test_some_clusters_have_groups_of_either_protocol_on_topics_that_stay():
    scenarios = [scenario_of(seed) for seed in SEEDS]
    assert 0.25 < sum(bool(groups_of(scenario)) for scenario in scenarios) / len(scenarios) < 0.55
    for scenario in scenarios:
        kinds = {w.group: w.kind for w in scenario.workloads if w.kind in MEMBER_KINDS}
        assert groups_of(scenario) == kinds.keys()
        for group in kinds:
            members = [w for w in scenario.workloads if w.group == group and w.kind != "group-topic"]
            assert 2 <= len(members) <= 4
            assert len({(member.kind, member.topic) for member in members}) == 1


def test_consumers_and_brokers_differ_in_how_they_are_read_from():
    scenarios = [scenario_of(seed) for seed in SEEDS]
    consumers = [w for s in scenarios for w in s.workloads if w.kind == "consumer"]
    assert {consumer.fetch_sessions for consumer in consumers} == {True, False}
    readers = ("consumer", "committed-consumer")
    assert not any(
        w.fetch_sessions or w.rack for s in scenarios for w in s.workloads if w.kind not in readers
    )
    slots = "max.incremental.fetch.session.cache.slots"
    assert {s.properties.get(slots) for s in scenarios} >= {None, "0", "1", "2"}
    in_racks = [s for s in scenarios if "replica.selector.class" in s.properties]
    assert 0.2 < len(in_racks) / len(scenarios) < 0.5
    for scenario in scenarios:
        racks = [node.rack for node in scenario.nodes if "broker" in node.roles]
        racks += [one.rack for one in scenario.workloads if one.kind == "consumer"]
        assert all(racks) if scenario in in_racks else not any(racks)
        assert not any(node.rack for node in scenario.nodes if "broker" not in node.roles)


def test_some_topics_are_preallocated_and_some_throttled():
    scenarios = [scenario_of(seed) for seed in SEEDS]
    assert {topic.configs.get("preallocate") for s in scenarios for topic in s.topics} == {None, "true"}
    throttled = [s for s in scenarios if s.run_time_configs]
    assert throttled
    for scenario in scenarios:
        rates = {key.partition(".")[0] for key in scenario.run_time_configs}
        replicas = {
            key.partition(".")[0]
            for t in scenario.topics
            for key in t.configs
            if "replication.throttled" in key
        }
        assert rates == replicas
    sides = {tuple(sorted(key.partition(".")[0] for key in s.run_time_configs)) for s in throttled}
    assert sides == {("leader",), ("follower",), ("follower", "leader")}


def test_what_is_drawn_besides_leaves_the_rest_as_it_was(monkeypatch):
    scenarios = [scenario_of(seed) for seed in SEEDS]
    monkeypatch.setattr(swarm, "add_features", lambda scenario, **_: scenario)
    for scenario in scenarios:
        plain = scenario_of(scenario.seed)
        assert plain.faults == tuple(one for one in scenario.faults if one.name != "power-loss-all")
        assert plain.properties.items() <= scenario.properties.items()
        readers = [
            dataclasses.replace(one, rack="", fetch_sessions=False)
            for one in scenario.workloads
            if not one.group and not one.transactional_id and one.topic not in (LEDGER, RESULTS, VAULT)
        ]
        assert list(plain.workloads) == readers
        names = [topic.name for topic in scenario.topics]
        assert [topic.name for topic in plain.topics] == [
            n for n in names if n not in (LEDGER, RESULTS, VAULT)
        ]


def test_some_clusters_have_transactions_of_either_version():
    scenarios = [scenario_of(seed) for seed in SEEDS]
    transacted = [s for s in scenarios if any(w.transactional_id for w in s.workloads)]
    assert 0.25 < len(transacted) / len(scenarios) < 0.55
    assert {s.features.get("transaction.version", 2) for s in transacted} == {1, 2}
    assert not any(s.features for s in scenarios if s not in transacted)
    kinds = {w.kind for s in transacted for w in s.workloads}
    assert kinds >= {"transactional-producer", "zombie-producer", "processor", "committed-consumer"}
    for scenario in transacted:
        clients = [w for w in scenario.workloads if w.transactional_id]
        level = scenario.features.get("transaction.version", 2)
        assert all(1 <= client.transaction_version <= level for client in clients)
        written = {name: topic for topic in scenario.topics if (name := topic.name) in (LEDGER, RESULTS)}
        assert {w.output or w.topic for w in clients} == written.keys()
        assert not any("unclean.leader.election.enable" in topic.configs for topic in written.values())
        ids = [w.transactional_id for w in clients if w.kind != "zombie-producer"]
        assert len(set(ids)) == len(ids)


def test_where_all_lose_power_every_topic_is_flushed():
    scenarios = [scenario_of(seed) for seed in SEEDS]
    flushed = [s for s in scenarios if s.properties.get("log.flush.interval.messages") == "1"]
    assert flushed
    assert flushed == [s for s in scenarios if any(one.name == "power-loss-all" for one in s.faults)]
    for scenario in flushed:
        assert [one.at_s for one in scenario.faults] == sorted(one.at_s for one in scenario.faults)
        assert len({one.stream for one in scenario.faults}) == len(scenario.faults)


def test_faults_that_were_asked_for_all_strike():
    for seed in SEEDS:
        scenario = scenario_of(seed, seconds=60, faults=["kill", "wipe"])
        assert {fault.name for fault in scenario.faults} == {"kill", "wipe"}
    assert scenario_of(1, faults=[]).faults == ()


def test_taking_a_fault_away_leaves_the_others_as_they_were():
    scenario = scenario_of(3)
    fewer = dataclasses.replace(scenario, faults=scenario.faults[1:])
    assert fewer.faults == scenario.faults[1:]
    assert {fault.stream for fault in fewer.faults} < {fault.stream for fault in scenario.faults}
