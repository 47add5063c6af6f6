"""The committed configs of topics, from which judges take their rules.

A judge does not ask the broker that it judges: a broker with other values than its topic's would be believed. A
topic's own value goes first, then that of all brokers, then the nodes' configuration files. A value that one broker
sets for itself is ignored, and brokers take a moment to hear of new values: none of these may change while a run
lasts. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kraft.chaos.history import TopicKey
from partitions.log.config import LogConfig
from quorum.metadata.image import MetadataImage
from quorum.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE

_OF_BROKERS = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "flush.messages": "log.flush.interval.messages",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
}
"""Brokers' names of topic configs, where they differ."""


class RetentionRule(NamedTuple):
    """The limits of a log's age and size, beyond which it may be deleted; -1: no limit."""

    deletes: bool
    """Whether the topic's cleanup.policy has "delete" in it."""
    retention_ms: int
    retention_bytes: int


class TopicRules:
    """Asks the newest committed metadata; every answer about a missing topic is None."""

    def __init__(self, image: Callable[[], MetadataImage], defaults: LogConfig) -> None:
        self._image = image
        self._defaults = defaults

    def min_insync_replicas(self, key: TopicKey) -> int | None:
        """As configured: not bounded by the number of replicas."""
        return self._number(key, "min.insync.replicas", self._defaults.min_insync_replicas)

    def is_flushed(self, key: TopicKey) -> bool:
        """Whether nothing counts that is not flushed: flush.messages is 1."""
        return self._number(key, "flush.messages", self._defaults.flush_messages) == 1

    def delete_retention_ms(self, key: TopicKey) -> int | None:
        """How long a tombstone stays in a compacted log."""
        return self._number(key, "delete.retention.ms", self._defaults.delete_retention_ms)

    def retention(self, key: TopicKey) -> RetentionRule | None:
        """The topic's retention rule."""
        image = self._image()
        if key[0] not in image.topics:
            return None
        policy = topic_config(image, key, "cleanup.policy")
        if policy is None:  # an empty one counts
            policy = self._defaults.cleanup_policy
        retention_ms = self._number(key, "retention.ms", self._defaults.retention_ms)
        retention_bytes = self._number(key, "retention.bytes", self._defaults.retention_bytes)
        assert retention_ms is not None, "the topic is there"
        assert retention_bytes is not None, "the topic is there"
        words = [word.strip() for word in policy.split(",")]
        return RetentionRule("delete" in words, retention_ms, retention_bytes)

    def _number(self, key: TopicKey, name: str, default: int) -> int | None:
        image = self._image()
        if key[0] not in image.topics:
            return None
        value = topic_config(image, key, name)
        return default if value is None else int(value)


def topic_config(image: MetadataImage, key: TopicKey, name: str) -> str | None:
    """A topic's own value, else that of all brokers; None: neither is set."""
    topic = image.topics.get(key[0])
    own = None if topic is None else image.config(TOPIC_RESOURCE, topic.name).get(name)
    if own is not None:
        return own
    return image.config(BROKER_RESOURCE, "").get(_OF_BROKERS.get(name, name))
