"""The ports through which the controller judges configs, and the implementation for topics over the log's table.

The controller stores users' values and knows no keys itself. The partition log defines the keys of topics, with types
and defaults; the node injects those of brokers and of groups. A topic's value is its own, else the one set at run time
for all brokers, else the server's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from partitions.log.config import (
    TOPIC_CONFIGS,
    LogConfig,
    parse_topic_config,
    topic_config_key,
    validate_topic_configs,
)
from partitions.log.config_values import ConfigValue
from partitions.log.errors import InvalidConfig

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION_ENABLE = "unclean.leader.election.enable"

NO_CONFIGS: Mapping[str, str] = {}


class TopicConfigSchema(Protocol):
    """The topic configs, as far as the controller needs them.

    `configs` are a topic's own (valid) configs, `cluster` those of the brokers' default resource.
    """

    def problem(self, configs: Mapping[str, str]) -> str | None:
        """A sentence on the problem with a topic's whole set of configs; None if it is valid."""

    def is_list(self, key: str) -> bool:
        """Whether the key's value is a list, which can be appended to."""

    def default(self, key: str) -> str:
        """The text of a known key's value where nothing is set."""

    def unclean_leader_election_enable(
        self, configs: Mapping[str, str], cluster: Mapping[str, str] = NO_CONFIGS
    ) -> bool:
        """The effective value for a topic."""

    def min_insync_replicas(self, configs: Mapping[str, str], cluster: Mapping[str, str] = NO_CONFIGS) -> int:
        """The effective value for a topic, at least 1; it may be more than the topic has replicas."""


class ResourceConfigSchema(Protocol):
    """The configs of brokers, or of groups, that can be altered at run time, as far as the controller needs them."""

    def problem(self, name: str, configs: Mapping[str, str]) -> str | None:
        """A sentence on the problem with the whole set of configs of the resource of that name, or None."""

    def is_list(self, key: str) -> bool:
        """Whether the key's value is a list, which can be appended to."""

    def default(self, key: str) -> str:
        """The text of a known key's value where nothing is set."""


ResourceConfigSchemas: TypeAlias = Mapping[str, ResourceConfigSchema]
"""By resource type; resources of other types than topics and these have no configs to be altered."""

NO_SCHEMAS: Final[ResourceConfigSchemas] = MappingProxyType({})


class LogTopicConfigs:
    """Topic configs as `partitions.log.config` defines them, over the server's own defaults."""

    def __init__(self, defaults: LogConfig) -> None:
        self._defaults = defaults

    def problem(self, configs: Mapping[str, str]) -> str | None:
        try:
            validate_topic_configs(configs)
        except InvalidConfig as error:
            return str(error)
        return None

    def is_list(self, key: str) -> bool:
        known = TOPIC_CONFIGS.get(key)
        return known is not None and known.type == "list"

    def default(self, key: str) -> str:
        return self._defaults.value_of(key)

    def unclean_leader_election_enable(
        self, configs: Mapping[str, str], cluster: Mapping[str, str] = NO_CONFIGS
    ) -> bool:
        value = self._effective(UNCLEAN_LEADER_ELECTION_ENABLE, configs, cluster)
        return self._defaults.unclean_leader_election_enable if value is None else value is True

    def min_insync_replicas(self, configs: Mapping[str, str], cluster: Mapping[str, str] = NO_CONFIGS) -> int:
        value = self._effective(MIN_INSYNC_REPLICAS, configs, cluster)
        return self._defaults.min_insync_replicas if value is None else int(value)

    def _effective(
        self, name: str, configs: Mapping[str, str], cluster: Mapping[str, str]
    ) -> ConfigValue | None:
        text = configs.get(name)
        if text is None:
            text = cluster.get(topic_config_key(name).synonym)
        return None if text is None else parse_topic_config(name, text)
