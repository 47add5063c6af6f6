"""Which configs of brokers can be altered at run time, and what they make of a broker's defaults."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft.config_keys import CONFIG_KEYS
from kraft.dynamic_configs import (
    CLUSTER_WIDE,
    DYNAMIC_CONFIGS,
    DynamicBrokerConfigs,
    dynamic_log_defaults,
    run_time_limit,
)
from partitions.log.config import LogConfig
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.metadata.image import MetadataImage

SCHEMA = DynamicBrokerConfigs(replace(LogConfig(), retention_ms=77))


def test_no_key_is_both_read_at_start_and_altered_at_run_time() -> None:
    assert DYNAMIC_CONFIGS.keys().isdisjoint(CONFIG_KEYS)
    assert DYNAMIC_CONFIGS.keys() >= CLUSTER_WIDE


@pytest.mark.parametrize("broker", ["", "1"])
def test_every_default_can_be_set(broker: str) -> None:
    values = {
        name: SCHEMA.default(name) for name in DYNAMIC_CONFIGS if not broker or name not in CLUSTER_WIDE
    }
    assert SCHEMA.problem(broker, values) is None
    assert values["log.retention.ms"] == "77"


def test_lists() -> None:
    assert SCHEMA.is_list("log.cleanup.policy")
    assert not SCHEMA.is_list("log.retention.ms")
    assert not SCHEMA.is_list("no.such.key")


@pytest.mark.parametrize(
    ("broker", "key", "value", "problem"),
    [
        ("", "node.id", "1", "dynamically"),
        ("1", "log.retention.minutes", "1", "dynamically"),
        ("", "no.such.key", "1", "Unknown"),
        ("1", "unclean.leader.election.enable", "true", "single broker"),
        ("", "message.max.bytes", "many", "whole number"),
        ("1", "leader.replication.throttled.rate", "fast", "whole number"),
        ("1", "follower.replication.throttled.rate", "-1", "between"),
        ("", "leader.replication.throttled.replicas", "*", "Unknown"),
    ],
)
def test_problems_name_the_key(broker: str, key: str, value: str, problem: str) -> None:
    sentence = SCHEMA.problem(broker, {key: value, "log.retention.ms": "5"})
    assert sentence is not None
    assert problem in sentence
    assert key in sentence


def test_limits_of_replication_are_a_brokers_own_before_those_of_all() -> None:
    key = "leader.replication.throttled.rate"
    image = MetadataImage(configs={("broker", ""): {key: "2"}, ("broker", "4"): {key: "3"}})
    assert [run_time_limit(image, broker_id, key) for broker_id in (4, 5)] == [3, 2]
    assert run_time_limit(MetadataImage(), 4, key) == 2**63 - 1


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_throttled_replicas_are_a_list_of_a_topic(side: str) -> None:
    key, topics = f"{side}.replication.throttled.replicas", LogTopicConfigs(LogConfig())
    assert topics.is_list(key)
    assert topics.default(key) == ""
    assert [topics.problem({key: value}) for value in ("*", "0:1,7:2", "")] == [None] * 3
    sentence = topics.problem({key: "0-1"})
    assert sentence is not None
    assert "partition:broker" in sentence
    assert key in sentence


def test_a_broker_goes_before_all_brokers_and_these_before_the_file() -> None:
    static = replace(LogConfig(), retention_ms=1, segment_bytes=100, index_interval_bytes=9)
    image = MetadataImage(
        configs={
            ("broker", ""): {"log.retention.ms": "2", "log.segment.bytes": "200", "of.another.version": "x"},
            ("broker", "4"): {"log.retention.ms": "3"},
            ("broker", "5"): {"log.retention.ms": "4"},
        }
    )
    effective = dynamic_log_defaults(static, image, 4)
    assert effective == replace(static, retention_ms=3, segment_bytes=200)
    assert dynamic_log_defaults(static, MetadataImage(), 4) == static
