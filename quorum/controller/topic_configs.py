"""The port through which the controller judges topic configs, and its implementation over the log's table.

The controller stores what users set and knows no keys itself; the keys, types and defaults are those
that the partition log honours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from partitions.log.config import LogConfig, parse_topic_config, validate_topic_configs
from partitions.log.errors import InvalidConfig

UNCLEAN_LEADER_ELECTION_ENABLE = "unclean.leader.election.enable"


class TopicConfigSchema(Protocol):
    """What the controller has to know about topic configs."""

    def problem(self, configs: Mapping[str, str]) -> str | None:
        """A sentence on what is wrong with a topic's whole set of configs; None when it is valid."""

    def unclean_leader_election_enable(self, configs: Mapping[str, str]) -> bool:
        """The effective value for a topic with these (valid) configs."""


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

    def unclean_leader_election_enable(self, configs: Mapping[str, str]) -> bool:
        value = configs.get(UNCLEAN_LEADER_ELECTION_ENABLE)
        if value is None:
            return self._defaults.unclean_leader_election_enable
        return parse_topic_config(UNCLEAN_LEADER_ELECTION_ENABLE, value) is True
