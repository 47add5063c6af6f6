"""The table of topic configuration keys."""

from __future__ import annotations

import pytest

from partitions.log.config import (
    TOPIC_CONFIGS,
    LogConfig,
    parse_topic_config,
    server_log_config,
    server_log_config_keys,
    validate_topic_configs,
)
from partitions.log.errors import InvalidConfig


def test_defaults_are_kafkas() -> None:
    assert {name: key.default for name, key in TOPIC_CONFIGS.items()} == {
        "cleanup.policy": "delete",
        "compression.gzip.level": -1,
        "compression.lz4.level": 9,
        "compression.type": "producer",
        "compression.zstd.level": 3,
        "delete.retention.ms": 86_400_000,
        "file.delete.delay.ms": 60_000,
        "flush.messages": 2**63 - 1,
        "flush.ms": 2**63 - 1,
        "follower.replication.throttled.replicas": "",
        "index.interval.bytes": 4096,
        "leader.replication.throttled.replicas": "",
        "max.compaction.lag.ms": 2**63 - 1,
        "max.message.bytes": 1048588,
        "message.timestamp.after.max.ms": 3_600_000,
        "message.timestamp.before.max.ms": 2**63 - 1,
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": 0.5,
        "min.compaction.lag.ms": 0,
        "min.insync.replicas": 1,
        "preallocate": False,
        "retention.bytes": -1,
        "retention.ms": 604800000,
        "segment.bytes": 1073741824,
        "segment.index.bytes": 10485760,
        "segment.jitter.ms": 0,
        "segment.ms": 604800000,
        "unclean.leader.election.enable": False,
    }
    assert list(TOPIC_CONFIGS) == sorted(TOPIC_CONFIGS)


def test_overrides_and_values_as_text() -> None:
    config = LogConfig().with_overrides(
        {"segment.bytes": "1000", "unclean.leader.election.enable": "TRUE", "cleanup.policy": "delete"}
    )
    assert (config.segment_bytes, config.unclean_leader_election_enable) == (1000, True)
    assert config.value_of("unclean.leader.election.enable") == "true"
    assert config.value_of("segment.bytes") == "1000"


@pytest.mark.parametrize("text", ["", " "])
def test_a_topic_may_have_no_cleanup_at_all(text: str) -> None:
    config = LogConfig().with_overrides({"cleanup.policy": text})
    assert (config.deletes, config.is_compacted) == (False, False)
    assert config.value_of("cleanup.policy") == ""
    assert server_log_config({"log.cleanup.policy": text}) == config


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("segment.byte", "1", "Unknown topic config name"),
        ("compression.type", "brotli", "use uncompressed or zstd or lz4 or snappy or gzip or producer"),
        ("compression.gzip.level", "0", "neither between 1 and 9 nor -1"),
        ("segment.bytes", "many", "not a whole number"),
        ("segment.bytes", "1_000", "not a whole number"),
        ("segment.bytes", "\uff11\uff12", "not a whole number"),
        ("segment.bytes", "13", "not between 14"),
        ("retention.ms", "-2", "not between -1"),
        ("flush.messages", "0", "not between 1"),
        ("flush.ms", "-1", "not between 0"),
        ("segment.jitter.ms", "-1", "not between 0"),
        ("preallocate", "perhaps", "neither true nor false"),
        ("cleanup.policy", "compress", "use compact, delete or compact,delete"),
        ("cleanup.policy", "compact,", "use compact, delete or compact,delete"),
        ("min.cleanable.dirty.ratio", "1.5", "not between 0 and 1"),
        ("min.cleanable.dirty.ratio", "nan", "not a number"),
        ("min.cleanable.dirty.ratio", "0.0_1", "not a number"),
        ("message.timestamp.type", "createtime", "use CreateTime or LogAppendTime"),
        ("unclean.leader.election.enable", "yes", "neither true nor false"),
    ],
)
def test_bad_values_say_why(key: str, value: str, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason) as error:
        validate_topic_configs({key: value})
    assert (error.value.key, error.value.code) == (key, "INVALID_CONFIG")


def test_server_keys_set_the_defaults_in_the_finest_unit_given() -> None:
    config = server_log_config(
        {
            "log.segment.bytes": "5000",
            "message.max.bytes": "2000",
            "log.retention.hours": "2",
            "log.roll.hours": "3",
            "node.id": "1",
        }
    )
    assert (config.segment_bytes, config.max_message_bytes) == (5000, 2000)
    assert (config.retention_ms, config.segment_ms) == (7_200_000, 10_800_000)
    config = server_log_config(
        {"log.retention.hours": "2", "log.retention.minutes": "5", "log.retention.ms": "-1"}
    )
    assert config.retention_ms == -1
    assert server_log_config({"log.retention.minutes": "5"}).retention_ms == 300_000
    assert server_log_config({"log.retention.hours": "-1"}).retention_ms == -1
    assert server_log_config({"log.roll.jitter.hours": "2"}).segment_jitter_ms == 7_200_000
    assert server_log_config({"log.flush.scheduler.interval.ms": "2000"}).flush_ms == 2000
    both = {"log.flush.scheduler.interval.ms": "2000", "log.flush.interval.ms": "50"}
    assert server_log_config(both).flush_ms == 50
    for text in ("x", "1_0"):
        with pytest.raises(InvalidConfig, match=r"log\.retention\.hours"):
            server_log_config({"log.retention.hours": text})
    assert {"log.segment.bytes", "log.retention.hours", "log.roll.hours"} <= set(server_log_config_keys())


def test_parsed_values_are_typed() -> None:
    assert parse_topic_config("segment.bytes", " 77 ") == 77
    assert parse_topic_config("unclean.leader.election.enable", "false") is False
