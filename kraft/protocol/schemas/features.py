"""UpdateFeatures (57): raises or lowers the finalized levels of features (KIP-584, KIP-778)."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import Message, array, boolean, int8, int16, int32, message, sentence, string

TIMEOUT_DEFAULT_MS = 60_000


class UpgradeType(IntEnum):
    """How far a feature's level may go. Version 0 has only `allow_downgrade`."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@message
class FeatureUpdateKey(Message):
    """`max_version_level` below 1 removes the feature."""

    feature: str = string("0+")
    max_version_level: int = int16("0+")
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=UpgradeType.UPGRADE.value)


@message
class UpdateFeaturesRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.UPDATE_FEATURES

    timeout_ms: int = int32("0+", default=TIMEOUT_DEFAULT_MS)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey, "0+")
    validate_only: bool = boolean("1+")


@message
class UpdatableFeatureResult(Message):
    feature: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")


@message
class UpdateFeaturesResponse(Message):
    """From version 2 on there is one outcome for all updates."""

    API_KEY: ClassVar[ApiKey] = ApiKey.UPDATE_FEATURES

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)
