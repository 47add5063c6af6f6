"""ApiVersions (18), beside `produce` and `fetch`: the names declared in `schemas.api_versions`."""

from kraft.protocol.schemas.api_versions import (
    UNSUPPORTED_VERSION_ANSWER_VERSION,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
    supported_api_versions,
    unsupported_version_response,
)

__all__ = [
    "UNSUPPORTED_VERSION_ANSWER_VERSION",
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "FinalizedFeatureKey",
    "SupportedFeatureKey",
    "supported_api_versions",
    "unsupported_version_response",
]
