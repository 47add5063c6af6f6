"""The configs of single groups: which keys a group has, where defaults are from, what may be set (KIP-848).

A value is set at run time and kept in the metadata image under ("group", GROUP_ID), whether or not the group exists. It
stays within the bounds that `group.consumer.min.*` and `group.consumer.max.*` of server.properties give; what is not
set is the broker's own. The controller judges changes with `DynamicGroupConfigs`; handlers describe with the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kraft.config_keys import CONFIG_KEYS, ConfigKey

SESSION_TIMEOUT_MS: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_MS: Final = "consumer.heartbeat.interval.ms"


class GroupConfigKey(NamedTuple):
    """One key of groups, by the broker's keys."""

    name: str
    default: ConfigKey
    """Its value counts for groups that set none; type and text are the same."""
    lowest: str
    highest: str


def _key(name: str) -> GroupConfigKey:
    role, limit = name.split(".", 1)
    default = CONFIG_KEYS[f"group.{name}"]
    return GroupConfigKey(name, default, f"group.{role}.min.{limit}", f"group.{role}.max.{limit}")


GROUP_CONFIGS: Final[Mapping[str, GroupConfigKey]] = {
    name: _key(name) for name in (HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS)
}
"""All keys by name, ascending."""


class DynamicGroupConfigs:
    """Judges what is set on a group; `get` gives the value of a key of server.properties."""

    def __init__(self, get: Callable[[str], Any]) -> None:
        self._get = get

    def problem(self, group_id: str, configs: Mapping[str, str]) -> str | None:
        """A sentence on what is wrong with all that is set on a group, or None."""
        unknown = sorted(name for name in configs if name not in GROUP_CONFIGS)
        if unknown:
            return f"Unknown group config name: {', '.join(unknown)}; groups have {', '.join(GROUP_CONFIGS)}"
        values: dict[str, int] = {}
        for name, key in GROUP_CONFIGS.items():
            try:
                values[name] = (
                    key.default.parse(configs[name]) if name in configs else self._get(key.default.name)
                )
            except ValueError as error:
                return f"Invalid value {configs[name]} for configuration {name}: {error}"
            if name in configs and (out_of_bounds := self._out_of_bounds(key, values[name])):
                return out_of_bounds
        if configs and values[SESSION_TIMEOUT_MS] <= values[HEARTBEAT_INTERVAL_MS]:
            return (
                f"{SESSION_TIMEOUT_MS} ({values[SESSION_TIMEOUT_MS]}) must be greater than"
                f" {HEARTBEAT_INTERVAL_MS} ({values[HEARTBEAT_INTERVAL_MS]})"
            )
        return None

    def _out_of_bounds(self, key: GroupConfigKey, value: int) -> str | None:
        lowest, highest = self._get(key.lowest), self._get(key.highest)
        if value < lowest:
            return f"{key.name} must be greater than or equal to {key.lowest} ({lowest}), and is {value}"
        if value > highest:
            return f"{key.name} must be less than or equal to {key.highest} ({highest}), and is {value}"
        return None

    def is_list(self, key: str) -> bool:
        """Whether the key's value is a list, which can be appended to: none is."""
        return False

    def default(self, key: str) -> str:
        """The text of a known key's value where the group sets none."""
        return str(self._get(GROUP_CONFIGS[key].default.name))
