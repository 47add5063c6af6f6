"""DescribeConfigs (32): every key that is honoured, of topics and of brokers, and where each value is from; the levels
of this broker's loggers. ListConfigResources (74): the resources that have configs.

A value comes, in this order, from the topic or the group, from this broker's resource, from the one of all brokers,
from server.properties or from the default; the synonyms are that chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator

from kraft.broker.handlers import broker_loggers
from kraft.broker.handlers.broker_views import handle_views, is_about_views
from kraft.broker.handlers.forwarding import Refusal, Split, too_many
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.config_keys import CONFIG_KEYS, RUN_TIME_KEYS, ConfigKey
from kraft.dynamic_configs import ALL_BROKERS, DYNAMIC_CONFIGS, TOPIC_DEFAULTS, dynamic_log_defaults
from kraft.group_configs import GROUP_CONFIGS
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.configs import (
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kraft.protocol.texts import shortened
from partitions.log.config import TOPIC_CONFIGS, TopicConfigKey, server_synonyms
from quorum.metadata.records import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE

_TYPES = {
    "boolean": ConfigType.BOOLEAN,
    "string": ConfigType.STRING,
    "int": ConfigType.INT,
    "short": ConfigType.SHORT,
    "long": ConfigType.LONG,
    "double": ConfigType.DOUBLE,
    "list": ConfigType.LIST,
    "password": ConfigType.PASSWORD,
}
_NAMED_TWICE = Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def handle_describe_configs(
    services: BrokerServices, request: Request[DescribeConfigsRequest]
) -> DescribeConfigsResponse | Awaitable[DescribeConfigsResponse]:
    """Answers DescribeConfigs for topics, for this broker, and for what is set for all brokers."""
    body = request.body
    if is_about_views(body):
        return handle_views(services, body)
    if problem := too_many(len(body.resources), "resources"):
        return DescribeConfigsResponse(results=_refuse(body.resources, problem))
    named = Counter((resource.resource_type, resource.resource_name) for resource in body.resources)
    split = Split(
        body.resources,
        lambda one: _NAMED_TWICE if named[one.resource_type, one.resource_name] > 1 else None,
        _refuse,
    )
    described = (
        _describe(services, resource, body.include_synonyms, body.include_documentation)
        for resource in split.allowed
    )
    return DescribeConfigsResponse(results=split.merged(described))


def _refuse(resources: Iterable[DescribeConfigsResource], refusal: Refusal) -> list[DescribeConfigsResult]:
    return [
        DescribeConfigsResult(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, code, message in refusal.of(resources)
    ]


def _describe(
    services: BrokerServices, resource: DescribeConfigsResource, synonyms: bool, documentation: bool
) -> DescribeConfigsResult:
    name = resource.resource_name
    if resource.resource_type == ConfigResourceType.TOPIC:
        if services.metadata.image.topic(name) is None:
            unknown = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {shortened(name)!r}")
            return _refuse((resource,), unknown)[0]
        entries = topic_entries(services, name)
    elif resource.resource_type == ConfigResourceType.GROUP:
        if not name:
            nameless = Refusal(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            return _refuse((resource,), nameless)[0]
        entries = _group_entries(services, name)
    elif resource.resource_type == ConfigResourceType.BROKER:
        if name not in (ALL_BROKERS, str(services.broker_id)):
            sentence = f"this is broker {services.broker_id}; broker {shortened(name)} knows its own configs"
            return _refuse((resource,), Refusal(ErrorCode.INVALID_REQUEST, sentence))[0]
        entries = broker_entries(services) if name else _all_brokers_entries(services)
    elif resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        if problem := broker_loggers.node_problem(services, name):
            return _refuse((resource,), problem)[0]
        entries = broker_loggers.logger_entries(services)
    else:
        sentence = f"resources of type {resource.resource_type} have no configs here"
        return _refuse((resource,), Refusal(ErrorCode.INVALID_REQUEST, sentence))[0]
    wanted = frozenset(resource.configuration_keys or ())  # none named: all, as in Kafka
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=name)
    for entry in entries:
        if not wanted or entry.name in wanted:
            if not synonyms:
                entry.synonyms = []
            if not documentation:
                entry.documentation = None
            result.configs.append(entry)
    return result


def topic_entries(services: BrokerServices, topic: str) -> Iterator[DescribeConfigsResourceResult]:
    """All configs of a topic that there is."""
    image = services.metadata.image
    overrides = image.config(TOPIC_RESOURCE, topic)
    defaults = dynamic_log_defaults(services.config.log_defaults, image, services.broker_id)
    effective = defaults.with_overrides(overrides)
    for key in TOPIC_CONFIGS.values():
        chain = list(_server_chain(services, key)) if key.synonym else [_default(key)]
        override = overrides.get(key.name)
        if override is not None:
            source = ConfigSource.DYNAMIC_TOPIC_CONFIG
            chain.insert(0, DescribeConfigsSynonym(name=key.name, value=override, source=source))
        yield _entry(key, key.name, effective.value_of(key.name), chain)


def broker_entries(services: BrokerServices) -> Iterator[DescribeConfigsResourceResult]:
    """The keys of server.properties, those that topics take their defaults from, and the limits."""
    for key in CONFIG_KEYS.values():
        yield _static_entry(services, key)
    defaults = dynamic_log_defaults(services.config.log_defaults, services.metadata.image, services.broker_id)
    for name, topic_key in TOPIC_DEFAULTS.items():
        chain = list(_server_chain(services, topic_key))
        yield _entry(topic_key, name, defaults.value_of(topic_key.name), chain)
    for name, key in RUN_TIME_KEYS.items():
        default = DescribeConfigsSynonym(name=name, value=key.default, source=ConfigSource.DEFAULT_CONFIG)
        chain = [*_set_at_run_time(services, name), default]
        yield _entry(key, name, chain[0].value, chain)


def _group_entries(services: BrokerServices, group_id: str) -> Iterator[DescribeConfigsResourceResult]:
    """The keys of a group, whether or not it exists, as in Kafka: its own value goes before the broker's."""
    own = services.metadata.image.config(GROUP_RESOURCE, group_id)
    for key in GROUP_CONFIGS.values():
        chain = _static_entry(services, key.default).synonyms
        if key.name in own:
            source = ConfigSource.DYNAMIC_GROUP_CONFIG
            chain.insert(0, DescribeConfigsSynonym(name=key.name, value=own[key.name], source=source))
        yield _entry(key.default, key.name, chain[0].value, chain)


def _all_brokers_entries(services: BrokerServices) -> Iterator[DescribeConfigsResourceResult]:
    """What is set at run time for all brokers, and nothing else, as in Kafka."""
    configs = services.metadata.image.config(BROKER_RESOURCE, ALL_BROKERS)
    for name, key in DYNAMIC_CONFIGS.items():
        if name in configs:
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            only = DescribeConfigsSynonym(name=name, value=configs[name], source=source)
            yield _entry(key, name, configs[name], [only])


def _entry(
    key: TopicConfigKey | ConfigKey, name: str, value: str | None, chain: list[DescribeConfigsSynonym]
) -> DescribeConfigsResourceResult:
    """A key that can be altered at run time; the first of the chain is what counts."""
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=False,
        config_source=chain[0].source,
        synonyms=chain,
        config_type=_TYPES[key.type],
        documentation=key.doc,
    )


def _static_entry(services: BrokerServices, key: ConfigKey) -> DescribeConfigsResourceResult:
    """A key that is read when the node starts."""
    properties = services.config.properties
    value = None if key.sensitive else properties.get(key.name, key.default)
    chain = []
    if key.name in properties:
        source = ConfigSource.STATIC_BROKER_CONFIG
        chain.append(DescribeConfigsSynonym(name=key.name, value=value, source=source))
    if key.default is not None:
        default = None if key.sensitive else key.default
        chain.append(DescribeConfigsSynonym(name=key.name, value=default, source=ConfigSource.DEFAULT_CONFIG))
    return DescribeConfigsResourceResult(
        name=key.name,
        value=value,
        read_only=True,
        config_source=chain[0].source if chain else ConfigSource.DEFAULT_CONFIG,
        is_sensitive=key.sensitive,
        synonyms=chain,
        config_type=_TYPES[key.type],
        documentation=key.doc,
    )


def _server_chain(services: BrokerServices, key: TopicConfigKey) -> Iterator[DescribeConfigsSynonym]:
    """Where a topic's default can come from, the one that counts first; it always ends with Kafka's."""
    properties = services.config.properties
    yield from _set_at_run_time(services, key.synonym)
    for name in server_synonyms(key.synonym):
        if name in properties:
            source = ConfigSource.STATIC_BROKER_CONFIG
            yield DescribeConfigsSynonym(name=name, value=properties[name], source=source)
    yield _default(key)


def _set_at_run_time(services: BrokerServices, name: str) -> Iterator[DescribeConfigsSynonym]:
    """What is set for this broker, then what for all brokers."""
    for resource, source in (
        (str(services.broker_id), ConfigSource.DYNAMIC_BROKER_CONFIG),
        (ALL_BROKERS, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    ):
        value = services.metadata.image.config(BROKER_RESOURCE, resource).get(name)
        if value is not None:
            yield DescribeConfigsSynonym(name=name, value=value, source=source)


def handle_list_config_resources(
    services: BrokerServices, request: Request[ListConfigResourcesRequest]
) -> ListConfigResourcesResponse:
    """Answers ListConfigResources: topics, brokers and their loggers, groups that have configs; no client
    metrics are here. Version 0 asks for client metrics alone."""
    metadata = services.metadata
    brokers = [
        str(broker_id)
        for broker_id in sorted(metadata.image.brokers)
        if metadata.endpoint(broker_id, request.session.listener_name) is not None
    ]
    known = {
        ConfigResourceType.TOPIC: sorted(metadata.image.topic_ids),
        ConfigResourceType.BROKER: brokers,
        ConfigResourceType.BROKER_LOGGER: brokers,
        ConfigResourceType.CLIENT_METRICS: [],
        ConfigResourceType.GROUP: sorted(
            name for kind, name in metadata.image.configs if kind == GROUP_RESOURCE
        ),
    }
    wanted = frozenset(request.body.resource_types)
    if request.version == 0:
        wanted = frozenset((ConfigResourceType.CLIENT_METRICS,))
    if not wanted <= known.keys():
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, names in known.items()
            if not wanted or kind in wanted
            for name in names
        ]
    )


def _default(key: TopicConfigKey) -> DescribeConfigsSynonym:
    """Kafka's own default, under the broker's name of the key if it has one."""
    text = str(key.default).lower() if isinstance(key.default, bool) else str(key.default)
    name = key.synonym or key.name
    return DescribeConfigsSynonym(name=name, value=text, source=ConfigSource.DEFAULT_CONFIG)
