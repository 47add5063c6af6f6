"""The features of this software, the levels that it supports, and the levels that a new cluster gets.

A feature is a behaviour that all nodes must switch to together. Its level is in the metadata image, and only the
controller changes it (KIP-584, KIP-1022). A feature that an image does not name is at level 0: metadata from before
features is read so, and such a cluster keeps its behaviour until an operator raises the level. Read by the controller
for its decisions, by brokers for their registration and ApiVersions, and by the commands that describe a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from quorum.metadata.records import FeatureLevel, FeatureRange

METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
KRAFT_VERSION = "kraft.version"
ELR_VERSION = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"


class Feature(NamedTuple):
    """The levels of one feature that this software supports, and the level that a new cluster starts at."""

    lowest: int
    highest: int
    default: int


SUPPORTED_FEATURES: Mapping[str, Feature] = {
    ELR_VERSION: Feature(0, 1, 1),
    GROUP_VERSION: Feature(0, 1, 1),
    KRAFT_VERSION: Feature(0, 0, 0),
    METADATA_VERSION: Feature(25, 26, 26),
    TRANSACTION_VERSION: Feature(0, 2, 2),
}
"""By name, ascending. Levels mean what they do in Kafka (`metadata.version` 25 is its 4.0-IV3, 26 its
4.1-IV0), so that Kafka's own tools name them rightly; the records behind them are ours."""

METADATA_VERSION_NAMES: Mapping[int, str] = {25: "4.0-IV3", 26: "4.1-IV0"}
"""Kafka's names of the levels of `metadata.version`."""


def supported_ranges() -> tuple[FeatureRange, ...]:
    """The ranges that a node of this software registers with."""
    return tuple((name, feature.lowest, feature.highest) for name, feature in SUPPORTED_FEATURES.items())


def new_cluster_records(chosen: Mapping[str, int] | None = None) -> tuple[FeatureLevel, ...]:
    """The records that start a cluster without metadata: at the `chosen` levels, by name, else at the default ones."""
    levels = {name: feature.default for name, feature in SUPPORTED_FEATURES.items()} | dict(chosen or {})
    return tuple(FeatureLevel(name, levels[name]) for name in sorted(levels) if levels[name] > 0)


def unsupported_level(name: str, wanted: int) -> str | None:
    """A sentence on a feature, or a level of it, that this software does not support; None if it does."""
    feature = SUPPORTED_FEATURES.get(name)
    if feature is None:
        return f"there is no feature {name!r}; there are {', '.join(SUPPORTED_FEATURES)}"
    if not feature.lowest <= wanted <= feature.highest:
        return f"{name} has the levels {feature.lowest} to {feature.highest}, not {wanted}"
    return None


def level(features: Mapping[str, int], name: str) -> int:
    """The level of a feature in an image's `features`; 0 when it has none."""
    return features.get(name, 0)


def consumer_groups_enabled(features: Mapping[str, int]) -> bool:
    """Whether groups of the consumer protocol (KIP-848) are served."""
    return level(features, GROUP_VERSION) >= 1


def elr_enabled(features: Mapping[str, int]) -> bool:
    """Whether eligible leader replicas (KIP-966) are kept and elected from."""
    return level(features, ELR_VERSION) >= 1
