"""ApiVersions (18): the APIs that this broker serves, and the cluster's features (KIP-35, KIP-511, KIP-584).

The epoch of the finalized features is the metadata offset that they are read at, as in Kafka.
"""

from __future__ import annotations

import re

from kraft.broker.handlers.features import finalized_features, supported_features
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    supported_api_versions,
)

FIRST_VERSION_WITH_SOFTWARE_NAME = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle_api_versions(
    services: BrokerServices, request: Request[ApiVersionsRequest]
) -> ApiVersionsResponse:
    """Answers ApiVersions; a client that names its software wrongly is told so, as in Kafka."""
    if request.version >= FIRST_VERSION_WITH_SOFTWARE_NAME:
        names = (request.body.client_software_name, request.body.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        request.session.client_software_name, request.session.client_software_version = names
    image = services.metadata.image
    return ApiVersionsResponse(
        api_keys=supported_api_versions(),
        supported_features=supported_features(request.version),
        finalized_features_epoch=image.offset,
        finalized_features=finalized_features(image),
    )
