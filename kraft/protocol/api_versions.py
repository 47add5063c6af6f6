"""ApiVersions (18): which APIs a broker serves in which versions, and its features (KIP-35, KIP-584)."""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import Message, array, boolean, int16, int32, int64, message, string


@message
class ApiVersionsRequest(Message):
    """The client names its software from version 3 on (KIP-511)."""

    API_KEY: ClassVar[ApiKey] = ApiKey.API_VERSIONS

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


@message
class ApiVersion(Message):
    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


@message
class SupportedFeatureKey(Message):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@message
class FinalizedFeatureKey(Message):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@message
class ApiVersionsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.API_VERSIONS

    error_code: int = int16("0+")
    api_keys: list[ApiVersion] = array(ApiVersion, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)
