"""Configs of groups as clients ask for them: described with their sources, altered by the controller."""

from __future__ import annotations

import pytest

from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas import alter_configs as whole
from kraft.protocol.schemas.configs import (
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from kraft.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from quorum.metadata.records import Config
from quorum.rpc import messages
from tests.support.broker_world import BrokerWorld

GROUP = ConfigResourceType.GROUP.value
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def describe(world: BrokerWorld, name: str, keys: list[str] | None = None) -> DescribeConfigsResult:
    asked = DescribeConfigsResource(resource_type=GROUP, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
    result: DescribeConfigsResult = world.handle(request, 4).results[0]
    assert (result.resource_type, result.resource_name) == (GROUP, name)
    return result


async def test_a_groups_own_value_goes_before_the_brokers() -> None:
    world = BrokerWorld(properties="group.consumer.session.timeout.ms=50000\n")
    await world.start(Config("group", "g", SESSION, "60000"), Config("group", "h", "no.such.key", "1"))
    shown = {entry.name: entry for entry in describe(world, "g").configs}
    assert shown.keys() == {SESSION, HEARTBEAT}
    assert [(s.name, s.value, s.source) for s in shown[SESSION].synonyms] == [
        (SESSION, "60000", ConfigSource.DYNAMIC_GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "50000", ConfigSource.STATIC_BROKER_CONFIG),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT_CONFIG),
    ]
    for entry, value, source in (
        (shown[SESSION], "60000", ConfigSource.DYNAMIC_GROUP_CONFIG),
        (shown[HEARTBEAT], "5000", ConfigSource.DEFAULT_CONFIG),
        (describe(world, "h", [SESSION]).configs[0], "50000", ConfigSource.STATIC_BROKER_CONFIG),
    ):
        assert (entry.value, entry.config_source, entry.read_only) == (value, source, False)
        assert (entry.config_type, entry.is_sensitive) == (ConfigType.INT, False)
        assert entry.documentation
    assert [entry.name for entry in describe(world, "nobody.yet", [HEARTBEAT]).configs] == [HEARTBEAT]
    await world.close()


async def test_all_groups_have_no_configs_in_common(world: BrokerWorld) -> None:
    await world.start()
    refused = describe(world, "")
    assert (refused.error_code, refused.configs) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize("incremental", [True, False])
async def test_the_controller_alters_them(world: BrokerWorld, incremental: bool) -> None:
    await world.start()
    refusal = messages.AlterConfigsResult("group", "g", "INVALID_CONFIG", "it is too long")
    world.controller.answer(
        messages.AlterConfigsRequest,
        messages.AlterConfigsResponse((messages.AlterConfigsResult("group", "g"),)),
        messages.AlterConfigsResponse((refusal,)),
    )
    if incremental:
        changes = [AlterableConfig(SESSION, 0, "50000"), AlterableConfig(HEARTBEAT, 1, None)]
        resource = AlterConfigsResource(GROUP, "g", changes)
        request, version = IncrementalAlterConfigsRequest(resources=[resource]), 1
        expected = [
            messages.ConfigChange(SESSION, "50000"),
            messages.ConfigChange(HEARTBEAT, None, messages.DELETE),
        ]
    else:
        all_of_it = whole.AlterConfigsResource(GROUP, "g", [whole.AlterableConfig(SESSION, "50000")])
        request, version = whole.AlterConfigsRequest(resources=[all_of_it]), 2
        expected = [messages.ConfigChange(SESSION, "50000")]
    outcomes = []
    for _ in range(2):
        (response,) = (await world.handle(request, version)).responses
        assert (response.resource_type, response.resource_name) == (GROUP, "g")
        outcomes.append((response.error_code, response.error_message))
    assert outcomes == [(ErrorCode.NONE, None), (ErrorCode.INVALID_CONFIG, "it is too long")]
    change = messages.ConfigResourceChange("group", "g", tuple(expected), replace_all=not incremental)
    assert world.controller.calls == [messages.AlterConfigsRequest((change,))] * 2
