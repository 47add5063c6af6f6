"""DescribeConfigs (32): every key that is honoured, of topics and of brokers, and where each value is from."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.config_keys import CONFIG_KEYS
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.configs import (
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from partitions.log.config import TOPIC_CONFIGS, TopicConfigKey
from quorum.metadata.records import TOPIC_RESOURCE

_TYPES = {
    "boolean": ConfigType.BOOLEAN,
    "string": ConfigType.STRING,
    "int": ConfigType.INT,
    "long": ConfigType.LONG,
    "list": ConfigType.LIST,
    "password": ConfigType.PASSWORD,
}


def handle_describe_configs(
    services: BrokerServices, request: Request[DescribeConfigsRequest]
) -> DescribeConfigsResponse:
    """Answers DescribeConfigs for topics, and for this broker."""
    body = request.body
    return DescribeConfigsResponse(
        results=[
            _describe(services, resource, body.include_synonyms, body.include_documentation)
            for resource in body.resources
        ]
    )


def _describe(
    services: BrokerServices, resource: DescribeConfigsResource, synonyms: bool, documentation: bool
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    if resource.resource_type == ConfigResourceType.TOPIC:
        if services.metadata.image.topic(resource.resource_name) is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            result.error_message = f"there is no topic {resource.resource_name!r}"
            return result
        entries = _topic_entries(services, resource.resource_name, synonyms)
    elif resource.resource_type == ConfigResourceType.BROKER:
        if resource.resource_name not in ("", str(services.broker_id)):
            result.error_code = ErrorCode.INVALID_REQUEST
            asked = resource.resource_name
            result.error_message = (
                f"this is broker {services.broker_id}; broker {asked} knows its own configs"
            )
            return result
        entries = _broker_entries(services, resource.resource_name, synonyms)
    else:
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = f"resources of type {resource.resource_type} have no configs here"
        return result
    wanted = frozenset(resource.configuration_keys or ())  # none named: all, as in Kafka
    for entry in entries:
        if not wanted or entry.name in wanted:
            if not documentation:
                entry.documentation = None
            result.configs.append(entry)
    return result


def _topic_entries(
    services: BrokerServices, topic: str, synonyms: bool
) -> Iterator[DescribeConfigsResourceResult]:
    overrides = services.metadata.image.config(TOPIC_RESOURCE, topic)
    effective = services.config.log_defaults.with_overrides(overrides)
    for key in TOPIC_CONFIGS.values():
        chain = list(_topic_synonyms(services, key, overrides.get(key.name)))
        yield DescribeConfigsResourceResult(
            name=key.name,
            value=effective.value_of(key.name),
            config_source=chain[0].source,
            synonyms=chain if synonyms else [],
            config_type=_TYPES[key.type],
            documentation=key.doc,
        )


def _topic_synonyms(
    services: BrokerServices, key: TopicConfigKey, override: str | None
) -> Iterator[DescribeConfigsSynonym]:
    """Where the value can come from, the one that counts first."""
    if override is not None:
        yield DescribeConfigsSynonym(name=key.name, value=override, source=ConfigSource.DYNAMIC_TOPIC_CONFIG)
    defaults = services.config.log_defaults.value_of(key.name)
    if key.synonym in services.config.properties:
        yield DescribeConfigsSynonym(
            name=key.synonym, value=defaults, source=ConfigSource.STATIC_BROKER_CONFIG
        )
    default = str(key.default).lower() if isinstance(key.default, bool) else str(key.default)
    yield DescribeConfigsSynonym(name=key.synonym, value=default, source=ConfigSource.DEFAULT_CONFIG)


def _broker_entries(
    services: BrokerServices, name: str, synonyms: bool
) -> Iterator[DescribeConfigsResourceResult]:
    """The keys of server.properties; for the name "" (all brokers) nothing, since none are set for all."""
    if not name:
        return
    properties = services.config.properties
    for key in CONFIG_KEYS.values():
        value = properties.get(key.name, key.default)
        source = ConfigSource.STATIC_BROKER_CONFIG if key.name in properties else ConfigSource.DEFAULT_CONFIG
        shown = None if key.sensitive else value
        yield DescribeConfigsResourceResult(
            name=key.name,
            value=shown,
            read_only=True,
            config_source=source,
            is_sensitive=key.sensitive,
            synonyms=[DescribeConfigsSynonym(name=key.name, value=shown, source=source)] if synonyms else [],
            config_type=_TYPES[key.type],
            documentation=key.doc,
        )
    for topic_key in TOPIC_CONFIGS.values():
        source = (
            ConfigSource.STATIC_BROKER_CONFIG
            if topic_key.synonym in properties
            else ConfigSource.DEFAULT_CONFIG
        )
        value = services.config.log_defaults.value_of(topic_key.name)
        yield DescribeConfigsResourceResult(
            name=topic_key.synonym,
            value=value,
            read_only=True,
            config_source=source,
            synonyms=[DescribeConfigsSynonym(name=topic_key.synonym, value=value, source=source)]
            if synonyms
            else [],
            config_type=_TYPES[topic_key.type],
            documentation=topic_key.doc,
        )
