"""AlterConfigs (33): replaces the whole configuration of resources, for clients without IncrementalAlterConfigs.

IncrementalAlterConfigs (KIP-339) answers with the same struct. Its other structs have the same names as these, and so
are in a module of their own.
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import Message, array, boolean, int8, int16, int32, message, sentence, string


@message
class AlterableConfig(Message):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@message
class AlterConfigsResource(Message):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


@message
class AlterConfigsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.ALTER_CONFIGS

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


@message
class AlterConfigsResourceResponse(Message):
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


@message
class AlterConfigsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.ALTER_CONFIGS

    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")
