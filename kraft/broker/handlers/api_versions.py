"""ApiVersions (18): what this broker serves (KIP-35, KIP-511)."""

from __future__ import annotations

import re

from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.api import SUPPORTED
from kraft.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kraft.protocol.errors import ErrorCode

FIRST_VERSION_WITH_SOFTWARE_NAME = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle_api_versions(services: BrokerServices, request: Request[ApiVersionsRequest]) -> ApiVersionsResponse:
    """Answers ApiVersions; a client that names its software wrongly is told so, as in Kafka."""
    if request.version >= FIRST_VERSION_WITH_SOFTWARE_NAME:
        names = (request.body.client_software_name, request.body.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=_ranges())


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in version 0, to a version of ApiVersions that is not served: the ranges that are."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges())


def _ranges() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=int(key), min_version=versions.start, max_version=versions.stop - 1)
        for key, versions in SUPPORTED.items()
    ]
