"""DescribeConfigs (32): the configuration of topics and brokers, with the source and type of each value;
ListConfigResources (74): what can have one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Final

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import (
    INT8,
    STRING,
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    sentence,
    string,
)


class ConfigResourceType(IntEnum):
    """The owner of a set of configuration values."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


VIEW_RESOURCE_TYPE: Final = 120
"""A type that Kafka does not have: what a broker tells others of itself (`kraft.broker.handlers.broker_views`)."""


class ConfigSource(IntEnum):
    """The source of a configuration value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(IntEnum):
    """The type of a configuration value, which is always sent as text."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@message
class DescribeConfigsResource(Message):
    """`configuration_keys` None asks for all of them."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configuration_keys: list[str] | None = array(STRING, "0+", nullable="0+", default=None)


@message
class DescribeConfigsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_CONFIGS

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


@message
class DescribeConfigsSynonym(Message):
    name: str = string("1+")
    value: str | None = string("1+", nullable="0+", default=None)
    source: int = int8("1+")


@message
class DescribeConfigsResourceResult(Message):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+", default=None)
    read_only: bool = boolean("0+")
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("0+")
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="0+", default=None, ignorable=True)


@message
class DescribeConfigsResult(Message):
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult, "0+")


@message
class DescribeConfigsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_CONFIGS

    throttle_time_ms: int = int32("0+")
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, "0+")


@message
class ListConfigResourcesRequest(Message):
    """`resource_types` empty asks for all of them; version 0 knows client metrics alone (KIP-714, KIP-1142)."""

    API_KEY: ClassVar[ApiKey] = ApiKey.LIST_CONFIG_RESOURCES

    resource_types: list[int] = array(INT8, "1+")


@message
class ConfigResource(Message):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=ConfigResourceType.CLIENT_METRICS.value, ignorable=True)


@message
class ListConfigResourcesResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.LIST_CONFIG_RESOURCES

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")
