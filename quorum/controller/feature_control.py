"""Finalized features: the levels of a new cluster, and the changes that UpdateFeatures may make (KIP-584, KIP-1022).

Guarantees: a level is finalized only if this controller and every registered broker, fenced or not, support it, and
a broker that does not support it cannot register. A level goes down only if the request says that it means to. The
updates of one request are all made or none. A cluster with metadata from before features keeps working at level 0.
Called by `state` (a new cluster), `requests` and `cluster_control`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from quorum.controller import replication_control
from quorum.controller.decision import ClusterView, Decision, Unit, decided
from quorum.errors import ControllerError
from quorum.metadata.features import (
    ELR_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    elr_enabled,
    level,
)
from quorum.metadata.image import MetadataImage
from quorum.metadata.records import FeatureLevel, FeatureRange, UserScramCredential
from quorum.rpc.messages import (
    FEATURE_UPDATE_FAILED,
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    FeatureUpdateResult,
    RegisterBrokerRequest,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


def bootstrap(image: MetadataImage, records: tuple[FeatureLevel | UserScramCredential, ...]) -> list[Unit]:
    """The first records of a new cluster's first controller: the levels and the users it starts with. Nothing in any
    other cluster."""
    is_new = not (
        image.features
        or image.brokers
        or image.topics
        or image.configs
        or image.next_producer_id
        or image.scram_credentials
    )
    return [Unit(*records)] if is_new and records else []


def check_registration(view: ClusterView, request: RegisterBrokerRequest) -> None:
    """Raises ControllerError UNSUPPORTED_VERSION if the broker cannot work with a finalized level."""
    for name, finalized in view.image.features.items():
        range_ = _range_of(request.features, name)
        if range_ is None or not range_[0] <= finalized <= range_[1]:
            supports = "does not know it" if range_ is None else f"supports versions {range_[0]}-{range_[1]}"
            raise ControllerError(
                "UNSUPPORTED_VERSION",
                f"Unable to register because the cluster works with version {finalized} of feature {name}, and "
                f"broker {request.broker_id} {supports}; run the version of the software that the others run.",
            )


def update_features(view: ClusterView, request: UpdateFeaturesRequest) -> Decision:
    """Finalizes levels. If one update is refused, the others are too, with FEATURE_UPDATE_FAILED."""
    named = Counter(update.name for update in request.updates)
    refused: dict[int, ControllerError] = {}
    for position, update in enumerate(request.updates):
        try:
            if named[update.name] > 1:
                raise ControllerError("INVALID_REQUEST", f"Feature {update.name} is named more than once.")
            _check(view, update)
        except ControllerError as error:
            refused[position] = error
    if refused:
        culprit = request.updates[min(refused)].name
        others = ControllerError(
            FEATURE_UPDATE_FAILED, f"No feature was updated, because the update of {culprit} was refused."
        )
        errors = [refused.get(position, others) for position in range(len(request.updates))]
        results = [
            FeatureUpdateResult(update.name, error.code, error.message)
            for update, error in zip(request.updates, errors, strict=True)
        ]
        return decided(UpdateFeaturesResponse(tuple(results)))
    response = UpdateFeaturesResponse(tuple(FeatureUpdateResult(update.name) for update in request.updates))
    return decided(response, *([] if request.validate_only else _units(view, request)))


def _units(view: ClusterView, request: UpdateFeaturesRequest) -> Iterator[Unit]:
    """First the changes of existing partitions that a feature demands, then all levels at once."""
    features = view.image.features
    changes = [update for update in request.updates if update.level != level(features, update.name)]
    for update in changes:
        if update.name == ELR_VERSION and elr_enabled(features) != (update.level > 0):
            yield from replication_control.switch_elr(view, enabled=update.level > 0)
    if changes:
        yield Unit(*(FeatureLevel(update.name, update.level) for update in changes))


def _check(view: ClusterView, update: FeatureUpdate) -> None:
    """Raises ControllerError INVALID_UPDATE_VERSION."""
    problem = _problem(view, update, level(view.image.features, update.name))
    if problem is not None:
        raise ControllerError(
            "INVALID_UPDATE_VERSION",
            f"Invalid update version {update.level} for feature {update.name}. {problem}",
        )


def _problem(view: ClusterView, update: FeatureUpdate, current: int) -> str | None:
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    unsupported = _unsupported(view, update)
    if unsupported is not None:
        return unsupported
    if update.level < current and update.upgrade_type == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if update.level > current and update.upgrade_type != UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _unsupported(view: ClusterView, update: FeatureUpdate) -> str | None:
    """A sentence naming a node that cannot work with the level; None if all can."""
    own = SUPPORTED_FEATURES.get(update.name)
    if own is None:
        known = ", ".join(SUPPORTED_FEATURES)
        return f"The controller does not support this feature; it supports {known}."
    if update.level == 0 and update.name != METADATA_VERSION:
        return None  # level 0 is the behaviour of a node that does not know the feature
    if not own.lowest <= update.level <= own.highest:
        return f"The controller only supports versions {own.lowest}-{own.highest}."
    for broker_id in sorted(view.image.brokers):
        range_ = _range_of(view.image.brokers[broker_id].features, update.name)
        if range_ is None:
            return f"Broker {broker_id} does not support this feature; upgrade it first, or unregister it."
        if not range_[0] <= update.level <= range_[1]:
            return f"Broker {broker_id} only supports versions {range_[0]}-{range_[1]}; upgrade it first."
    return None


def _range_of(features: tuple[FeatureRange, ...], name: str) -> tuple[int, int] | None:
    return next(((lowest, highest) for feature, lowest, highest in features if feature == name), None)
