"""Where a judge looks up what a topic asks for."""

from __future__ import annotations

import pytest

from kraft.chaos.oracles.topic_rules import RetentionRule, TopicRules
from partitions.log.config import LogConfig
from quorum.metadata.image import MetadataImage, TopicImage
from quorum.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from tests.unit.chaos.oracles.model import KEY, TOPIC_ID

DEFAULTS = LogConfig(min_insync_replicas=3, retention_ms=70, retention_bytes=700, delete_retention_ms=7)


def rules(own: dict[str, str], of_brokers: dict[str, str] | None = None) -> TopicRules:
    image = MetadataImage(
        offset=1,
        epoch=1,
        topics={TOPIC_ID: TopicImage(TOPIC_ID, "orders", ())},
        topic_ids={"orders": TOPIC_ID},
        configs={(TOPIC_RESOURCE, "orders"): own, (BROKER_RESOURCE, ""): of_brokers or {}},
    )
    return TopicRules(lambda: image, DEFAULTS)


@pytest.mark.parametrize(
    ("own", "of_brokers", "expected"),
    [
        ({}, {}, 3),
        ({}, {"min.insync.replicas": "2"}, 2),
        ({"min.insync.replicas": "1"}, {"min.insync.replicas": "2"}, 1),
    ],
)
def test_a_topics_own_value_goes_first(
    own: dict[str, str], of_brokers: dict[str, str], expected: int
) -> None:
    assert rules(own, of_brokers).min_insync_replicas(KEY) == expected


def test_retention_is_by_policy_age_and_size() -> None:
    assert rules({}).retention(KEY) == RetentionRule(True, 70, 700)
    own = {"cleanup.policy": "compact, delete", "retention.ms": "-1", "retention.bytes": "5"}
    assert rules(own).retention(KEY) == RetentionRule(True, -1, 5)
    for policy in ("compact", ""):
        assert rules({"cleanup.policy": policy}).retention(KEY) == RetentionRule(False, 70, 700)
    assert rules({"delete.retention.ms": "9"}).delete_retention_ms(KEY) == 9


def test_brokers_have_other_names_for_it() -> None:
    of_brokers = {
        "log.cleanup.policy": "compact",
        "log.retention.ms": "5",
        "log.retention.bytes": "6",
        "log.cleaner.delete.retention.ms": "8",
    }
    assert rules({}, of_brokers).retention(KEY) == RetentionRule(False, 5, 6)
    assert rules({}, of_brokers).delete_retention_ms(KEY) == 8
    assert rules({"retention.ms": "9"}, of_brokers).retention(KEY) == RetentionRule(False, 9, 6)


def test_a_topic_that_is_gone_asks_for_nothing() -> None:
    gone = (bytes(16), 0)
    asked = rules({})
    assert asked.min_insync_replicas(gone) is None
    assert asked.delete_retention_ms(gone) is None
    assert asked.retention(gone) is None
