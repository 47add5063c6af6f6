"""The keys of groups: they belong to keys of the broker, and stay within its bounds."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.config_keys import CONFIG_KEYS
from kraft.group_configs import GROUP_CONFIGS, DynamicGroupConfigs

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def schema(**changed: int) -> DynamicGroupConfigs:
    """With these keys of the broker, named by the end of their names."""
    values: dict[str, Any] = {
        name: key.parse(key.default)
        for name, key in CONFIG_KEYS.items()
        if name.startswith("group.consumer.") and key.default is not None
    }
    named = {f"group.consumer.{name.replace('_', '.')}.ms": value for name, value in changed.items()}
    assert named.keys() <= values.keys()
    return DynamicGroupConfigs((values | named).__getitem__)


def test_every_default_is_a_key_of_the_broker_with_bounds() -> None:
    assert list(GROUP_CONFIGS) == [HEARTBEAT, SESSION]
    for key in GROUP_CONFIGS.values():
        assert {key.default.name, key.lowest, key.highest} <= CONFIG_KEYS.keys()
    defaults = {name: schema().default(name) for name in GROUP_CONFIGS}
    assert defaults == {SESSION: "45000", HEARTBEAT: "5000"}
    assert schema().problem("g", defaults) is None
    assert not any(schema().is_list(name) for name in GROUP_CONFIGS)


@pytest.mark.parametrize(
    ("configs", "problem"),
    [
        ({SESSION: "1000"}, None),
        ({SESSION: "999"}, "must be greater than or equal to group.consumer.min.session.timeout.ms (1000)"),
        ({SESSION: "70000"}, None),
        ({SESSION: "70001"}, "must be less than or equal to group.consumer.max.session.timeout.ms (70000)"),
        ({HEARTBEAT: "2000", SESSION: "2001"}, None),
        ({HEARTBEAT: "2000", SESSION: "2000"}, f"{SESSION} (2000) must be greater than {HEARTBEAT} (2000)"),
        ({HEARTBEAT: "6000"}, f"{SESSION} (6000) must be greater than {HEARTBEAT} (6000)"),
    ],
)
def test_bounds_are_those_of_the_broker(configs: dict[str, str], problem: str | None) -> None:
    judge = schema(
        session_timeout=6000,
        heartbeat_interval=500,
        min_session_timeout=1000,
        max_session_timeout=70000,
        min_heartbeat_interval=500,
        max_heartbeat_interval=6000,
    )
    found = judge.problem("g", configs)
    assert found == problem if problem is None else problem in str(found)


def test_a_group_that_sets_nothing_is_right_whatever_the_broker_has() -> None:
    """Deleting what is set must go, also where the broker's own keys contradict each other."""
    assert schema(session_timeout=1, heartbeat_interval=2).problem("g", {}) is None
