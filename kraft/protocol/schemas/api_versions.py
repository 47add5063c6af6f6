"""ApiVersions (18): the versions that a client may use; the first request of most clients.

A request in a version above ours is answered with UNSUPPORTED_VERSION in the body of version 0,
and with our ranges, so that the client can go on with one that both know (KIP-511). Finalized
features are KIP-584's.
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import SUPPORTED, ApiKey
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message, array, boolean, int16, int32, int64, message, string

UNSUPPORTED_VERSION_ANSWER_VERSION = 0
"""The version in which `unsupported_version_response` is encoded: every client can read it."""


@message
class ApiVersionsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.API_VERSIONS

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


@message
class ApiVersion(Message):
    """The versions of one API that the broker serves, both ends included."""

    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


@message
class SupportedFeatureKey(Message):
    """Up to version 3 of the API, clients fail on a feature whose `min_version` is 0: leave it out."""

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


def supported_api_versions() -> list[ApiVersion]:
    """The served APIs and versions, in the order of the keys."""
    return [ApiVersion(int(key), versions[0], versions[-1]) for key, versions in sorted(SUPPORTED.items())]


def unsupported_version_response() -> ApiVersionsResponse:
    """The answer to an ApiVersions request in a version that is not served; see the version above."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=supported_api_versions())
