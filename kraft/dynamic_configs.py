"""Which keys of a broker can be altered while it runs, and the configuration that results (KIP-226).

These are the keys that topics take their defaults from, and the limits of throttled replication; all others are read
when a node starts and need a restart. A value for one broker goes before one for all brokers, and that before
server.properties. The controller judges changes with `DynamicBrokerConfigs`; handlers and the replica manager look at
the result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from kraft.config_keys import CONFIG_KEYS, RUN_TIME_KEYS, ConfigKey
from partitions.log.config import TOPIC_CONFIGS, LogConfig, TopicConfigKey, server_log_config_keys
from quorum.metadata.image import MetadataImage
from quorum.metadata.records import BROKER_RESOURCE

ALL_BROKERS: Final = ""
"""The name of the broker resource that holds what is set for all brokers."""

TOPIC_DEFAULTS: Final[Mapping[str, TopicConfigKey]] = {
    key.synonym: key
    for key in sorted(TOPIC_CONFIGS.values(), key=lambda key: key.synonym)
    if key.synonym  # throttled replicas are named by topics only
}
"""The keys that topics take their defaults from, by the broker's name of the key, ascending."""

DYNAMIC_CONFIGS: Final[Mapping[str, TopicConfigKey | ConfigKey]] = {**TOPIC_DEFAULTS, **RUN_TIME_KEYS}
"""All keys, by the broker's name of the key."""

CLUSTER_WIDE: Final = frozenset(("min.insync.replicas", "unclean.leader.election.enable"))
"""Keys that the controller decides by, and that can therefore not differ from broker to broker."""

_READ_ONLY: Final = frozenset((*CONFIG_KEYS, *server_log_config_keys(), "log.dir")) - DYNAMIC_CONFIGS.keys()


class DynamicBrokerConfigs:
    """Judges what is set on broker resources; `defaults` are what server.properties makes of the keys."""

    def __init__(self, defaults: LogConfig) -> None:
        self._defaults = defaults

    def names_problem(self, broker_name: str, names: Collection[str]) -> str | None:
        """A sentence on keys that cannot be set on this broker ("" for all brokers); None if there are none."""
        fixed = sorted(name for name in names if name in _READ_ONLY)
        if fixed:
            return (
                f"Cannot update these configs dynamically: {', '.join(fixed)};"
                " set them in server.properties and restart the broker"
            )
        unknown = sorted(name for name in names if name not in DYNAMIC_CONFIGS)
        if unknown:
            return f"Unknown broker config name: {', '.join(unknown)}"
        together = sorted(name for name in names if name in CLUSTER_WIDE)
        if together and broker_name != ALL_BROKERS:
            return (
                f"Cannot update these configs for a single broker: {', '.join(together)};"
                " leave the broker's id out to set them for all"
            )
        return None

    def problem(self, broker_name: str, configs: Mapping[str, str]) -> str | None:
        """A sentence on what is wrong with all that is set on a broker ("" for all brokers), or None."""
        problem = self.names_problem(broker_name, configs.keys())
        if problem is not None:
            return problem
        for name, text in configs.items():
            try:
                DYNAMIC_CONFIGS[name].parse(text)
            except ValueError as error:
                return f"Invalid value {text} for configuration {name}: {error}"
        return None

    def is_list(self, key: str) -> bool:
        """Whether the key's value is a list, which can be appended to."""
        known = DYNAMIC_CONFIGS.get(key)
        return known is not None and known.type == "list"

    def default(self, key: str) -> str:
        """The text of a known key's value where nothing is set at run time."""
        limit = RUN_TIME_KEYS.get(key)
        if limit is not None:
            return limit.default or ""
        return self._defaults.value_of(TOPIC_DEFAULTS[key].name)


def dynamic_log_defaults(static: LogConfig, image: MetadataImage, broker_id: int) -> LogConfig:
    """What a broker's topics take as defaults: its server.properties under what is set at run time.

    Keys that this software does not know (another version may have set them) are left alone.
    """
    effective = static
    for name in (ALL_BROKERS, str(broker_id)):
        configs = image.config(BROKER_RESOURCE, name)
        effective = effective.with_overrides(
            {TOPIC_DEFAULTS[key].name: text for key, text in configs.items() if key in TOPIC_DEFAULTS}
        )
    return effective


def run_time_limit(image: MetadataImage, broker_id: int, name: str) -> int:
    """What counts for a broker of one of `RUN_TIME_KEYS`: its own value, that of all brokers, or the default."""
    key = RUN_TIME_KEYS[name]
    text = image.config(BROKER_RESOURCE, str(broker_id)).get(name)
    if text is None:
        text = image.config(BROKER_RESOURCE, ALL_BROKERS).get(name)
    value: int = key.parse(text if text is not None else str(key.default))
    return value
