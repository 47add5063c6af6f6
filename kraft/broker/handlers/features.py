"""UpdateFeatures (57), forwarded to the active controller, and what ApiVersions says of features
(KIP-584).
"""

from __future__ import annotations

from collections import Counter

from kraft.broker.handlers.forwarding import (
    Refusal,
    catch_up,
    error_code,
    forward,
    timeout_s,
    too_long,
    too_many,
)
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.api_versions import FinalizedFeatureKey, SupportedFeatureKey
from kraft.protocol.schemas.features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from quorum.metadata.features import SUPPORTED_FEATURES
from quorum.metadata.image import MetadataImage
from quorum.rpc import messages

FIRST_VERSION_WITH_ONE_OUTCOME = 2
FIRST_VERSION_WITH_UPGRADE_TYPE = 1
FIRST_API_VERSIONS_WITH_LEVEL_0 = 4


async def handle_update_features(
    services: BrokerServices, request: Request[UpdateFeaturesRequest]
) -> UpdateFeaturesResponse:
    """Answers UpdateFeatures. Either all updates are made or none."""
    body = request.body
    if problem := _problem(body):
        return _refuse(problem)
    updates = tuple(_update(update, request.version) for update in body.feature_updates)
    call = messages.UpdateFeaturesRequest(updates, body.validate_only)
    forwarded = await forward(services, call, timeout_s(body.timeout_ms))
    if isinstance(forwarded, Refusal):
        return _refuse(forwarded)
    culprit = _culprit(forwarded.response)
    if culprit is not None:
        sentence = f"no feature was updated because of {culprit.name}: {culprit.message}"
        return _refuse(Refusal(error_code(culprit.error), sentence))
    if not body.validate_only:
        await catch_up(services, forwarded.offset)
    if request.version < FIRST_VERSION_WITH_ONE_OUTCOME:
        return UpdateFeaturesResponse(results=[UpdatableFeatureResult(update.name) for update in updates])
    return UpdateFeaturesResponse()


def _refuse(refusal: Refusal) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=refusal.code, error_message=refusal.message)


def _culprit(answer: messages.UpdateFeaturesResponse) -> messages.FeatureUpdateResult | None:
    """The update that was refused for its own sake, not because of another one; None if all were made."""
    refused = [result for result in answer.features if result.error != messages.NO_ERROR]
    own = (result for result in refused if result.error != messages.FEATURE_UPDATE_FAILED)
    return next(own, refused[0] if refused else None)


def _problem(body: UpdateFeaturesRequest) -> Refusal | None:
    if not body.feature_updates:
        return Refusal(ErrorCode.INVALID_REQUEST, "no feature is named")
    names = [update.feature for update in body.feature_updates]
    if problem := too_many(len(names), "features") or too_long(names):
        return problem
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        return Refusal(ErrorCode.INVALID_REQUEST, f"the feature {twice[0]!r} is named more than once")
    return None


def _update(update: FeatureUpdateKey, version: int) -> messages.FeatureUpdate:
    """Version 0 says only whether a lower level is allowed; that is a safe downgrade, as in Kafka."""
    upgrade_type = update.upgrade_type
    if version < FIRST_VERSION_WITH_UPGRADE_TYPE and update.allow_downgrade:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE
    return messages.FeatureUpdate(update.feature, update.max_version_level, int(upgrade_type))


def supported_features(version: int) -> list[SupportedFeatureKey]:
    """The levels that this software can work with, as this version of ApiVersions may say them.

    Clients before version 4 fail on a level 0: they are told 1 as the lowest, and nothing of a feature
    that has no other level.
    """
    keys = []
    for name, feature in SUPPORTED_FEATURES.items():
        lowest = feature.lowest
        if version < FIRST_API_VERSIONS_WITH_LEVEL_0:
            lowest = max(1, lowest)
        if lowest <= feature.highest:
            keys.append(SupportedFeatureKey(name=name, min_version=lowest, max_version=feature.highest))
    return keys


def finalized_features(image: MetadataImage) -> list[FinalizedFeatureKey]:
    """The levels that the cluster works with, by name."""
    return [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in sorted(image.features.items())
        if level > 0
    ]
