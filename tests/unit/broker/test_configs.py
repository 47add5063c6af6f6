"""DescribeConfigs: every key, its value, and where the value is from."""

from __future__ import annotations

from typing import Any

from kraft.broker.handlers.forwarding import MAX_ITEMS
from kraft.config_keys import CONFIG_KEYS
from kraft.dynamic_configs import DYNAMIC_CONFIGS
from kraft.loggers import PACKAGES, ROOT
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.configs import (
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    ListConfigResourcesRequest,
)
from partitions.log.config import TOPIC_CONFIGS
from quorum.metadata.records import BrokerChange, Config
from tests.support.broker_world import BrokerWorld, topic


def describe(
    world: BrokerWorld, kind: int, name: str, keys: list[str] | None = None, **fields: Any
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    result: DescribeConfigsResult = world.handle(
        DescribeConfigsRequest(resources=[resource], **fields), 4
    ).results[0]
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def test_a_topics_configs_and_their_sources() -> None:
    world = BrokerWorld(properties="log.retention.ms=1000\nmin.insync.replicas=2\n")
    await world.start(*topic("t", 1, (1,)), Config("topic", "t", "min.insync.replicas", "3"))
    result = describe(world, ConfigResourceType.TOPIC, "t", include_synonyms=True)
    entries = {entry.name: entry for entry in result.configs}
    assert entries.keys() == TOPIC_CONFIGS.keys()
    chain = entries["min.insync.replicas"]
    assert (chain.value, chain.config_source) == ("3", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert [(s.value, s.source) for s in chain.synonyms] == [
        ("3", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("2", ConfigSource.STATIC_BROKER_CONFIG),
        ("1", ConfigSource.DEFAULT_CONFIG),
    ]
    assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == (
        "1000",
        ConfigSource.STATIC_BROKER_CONFIG,
    )
    assert entries["cleanup.policy"].config_source == ConfigSource.DEFAULT_CONFIG
    assert all(entry.documentation is None for entry in result.configs)
    await world.close()


async def test_keys_are_chosen_and_none_is_all(world: BrokerWorld) -> None:
    await world.start(*topic("t", 1, (1,)))
    every = len(TOPIC_CONFIGS)
    for keys, count in ((None, every), ([], every), (["retention.ms"], 1), (["no.such.key"], 0)):
        assert len(describe(world, ConfigResourceType.TOPIC, "t", keys).configs) == count


async def test_a_brokers_configs_hide_what_is_secret() -> None:
    world = BrokerWorld(properties="controller.listener.secret=hush\nnum.partitions=7\n")
    await world.start()
    result = describe(world, ConfigResourceType.BROKER, "1", include_documentation=True)
    entries = {entry.name: entry for entry in result.configs}
    assert CONFIG_KEYS.keys() <= entries.keys()
    secret = entries["controller.listener.secret"]
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert (entries["num.partitions"].value, entries["num.partitions"].config_source) == (
        "7",
        ConfigSource.STATIC_BROKER_CONFIG,
    )
    assert all(entry.documentation for entry in result.configs)
    assert {name for name, entry in entries.items() if not entry.read_only} == DYNAMIC_CONFIGS.keys()
    assert not any("hush" in (entry.value or "") for entry in result.configs)
    await world.close()


async def test_what_is_set_at_run_time_goes_before_the_file() -> None:
    world = BrokerWorld(properties="log.retention.hours=1\n")
    await world.start(
        *topic("t", 1, (1,)),
        Config("broker", "", "log.retention.ms", "2000"),
        Config("broker", "1", "log.retention.ms", "1000"),
        Config("broker", "2", "log.retention.ms", "7"),
        Config("broker", "", "log.segment.bytes", "9999"),
    )
    chain = [
        ("log.retention.ms", "1000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.retention.ms", "2000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.hours", "1", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.ms", "604800000", ConfigSource.DEFAULT_CONFIG),
    ]
    for kind, name, key in (
        (ConfigResourceType.BROKER, "1", "log.retention.ms"),
        (ConfigResourceType.TOPIC, "t", "retention.ms"),
    ):
        (entry,) = describe(world, kind, name, [key], include_synonyms=True).configs
        assert (entry.value, entry.config_source) == ("1000", ConfigSource.DYNAMIC_BROKER_CONFIG)
        assert [(s.name, s.value, s.source) for s in entry.synonyms] == chain
    for_all = describe(world, ConfigResourceType.BROKER, "")
    assert [(e.name, e.value, e.config_source, e.read_only) for e in for_all.configs] == [
        ("log.retention.ms", "2000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, False),
        ("log.segment.bytes", "9999", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, False),
    ]
    await world.close()


async def test_hours_in_the_file_are_where_a_value_in_milliseconds_is_from() -> None:
    world = BrokerWorld(properties="log.retention.hours=1\n")
    await world.start(*topic("t", 1, (1,)))
    (entry,) = describe(world, ConfigResourceType.TOPIC, "t", ["retention.ms"]).configs
    assert (entry.value, entry.config_source) == ("3600000", ConfigSource.STATIC_BROKER_CONFIG)
    await world.close()


async def test_a_resource_is_described_once(world: BrokerWorld) -> None:
    await world.start()
    twice = [DescribeConfigsResource(resource_type=ConfigResourceType.BROKER, resource_name="1")] * 2
    answers = world.handle(DescribeConfigsRequest(resources=twice), 4).results
    assert [(a.error_code, a.configs) for a in answers] == [(ErrorCode.INVALID_REQUEST, [])] * 2
    many = [DescribeConfigsResource(resource_type=4, resource_name=str(n)) for n in range(MAX_ITEMS + 1)]
    answers = world.handle(DescribeConfigsRequest(resources=many), 4).results
    assert {a.error_code for a in answers} == {ErrorCode.POLICY_VIOLATION}


async def test_the_levels_of_loggers(world: BrokerWorld) -> None:
    await world.start()
    result = describe(world, ConfigResourceType.BROKER_LOGGER, "1", include_synonyms=True)
    assert [entry.name for entry in result.configs] == [ROOT, *PACKAGES]
    assert {(e.value, e.read_only, e.is_sensitive, e.config_source) for e in result.configs} == {
        ("INFO", False, False, ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG)
    }
    (entry,) = describe(world, ConfigResourceType.BROKER_LOGGER, "1", ["quorum"]).configs
    assert (entry.name, entry.value) == ("quorum", "INFO")
    for name in ("2", "", "one"):
        refused = describe(world, ConfigResourceType.BROKER_LOGGER, name)
        assert (refused.error_code, refused.configs) == (ErrorCode.INVALID_REQUEST, [])


def listed(world: BrokerWorld, version: int, *kinds: int) -> list[tuple[int, str]]:
    answer = world.handle(ListConfigResourcesRequest(resource_types=list(kinds)), version)
    assert answer.error_code == 0
    return [(one.resource_type, one.resource_name) for one in answer.config_resources]


async def test_what_has_configs(world: BrokerWorld) -> None:
    await world.start(*topic("u", 2, (1,)), *topic("t", 1, (1,)), BrokerChange(3, 3, fenced=True))
    kinds = ConfigResourceType
    topics = [(kinds.TOPIC, "t"), (kinds.TOPIC, "u")]
    brokers, loggers = ([(kind, str(n)) for n in (1, 2, 3)] for kind in (kinds.BROKER, kinds.BROKER_LOGGER))
    assert listed(world, 1) == [*topics, *brokers, *loggers]
    assert listed(world, 1, kinds.BROKER_LOGGER, kinds.TOPIC, kinds.TOPIC) == [*topics, *loggers]
    assert listed(world, 1, kinds.CLIENT_METRICS, kinds.GROUP) == []
    assert listed(world, 0) == []
    for unknown in (0, 1, 99, -1):
        answer = world.handle(ListConfigResourcesRequest(resource_types=[kinds.TOPIC, unknown]), 1)
        assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def test_what_is_not_here(world: BrokerWorld) -> None:
    await world.start()
    assert describe(world, ConfigResourceType.TOPIC, "x").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(world, ConfigResourceType.BROKER, "2").error_code == ErrorCode.INVALID_REQUEST
    assert describe(world, 99, "x").error_code == ErrorCode.INVALID_REQUEST
    for_all = describe(world, ConfigResourceType.BROKER, "")
    assert (for_all.error_code, for_all.configs) == (0, [])
