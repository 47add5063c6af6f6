"""The table of features agrees with itself and with what is read of an image."""

from __future__ import annotations

from quorum.metadata import features
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY


def test_a_new_cluster_starts_at_levels_that_this_software_supports() -> None:
    delta = MetadataDelta(EMPTY)
    for record in features.new_cluster_records():
        delta.apply(record, 0, 1)
    image = delta.finish(0, 1)
    assert image.features == {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "metadata.version": 26,
        "transaction.version": 2,
    }
    assert features.elr_enabled(image.features)
    assert features.consumer_groups_enabled(image.features)
    for name, lowest, highest in features.supported_ranges():
        assert lowest <= features.SUPPORTED_FEATURES[name].default <= highest
    assert list(features.SUPPORTED_FEATURES) == sorted(features.SUPPORTED_FEATURES)


def test_metadata_without_features_keeps_the_behaviour_it_was_written_with() -> None:
    assert not features.elr_enabled(EMPTY.features)
    assert not features.consumer_groups_enabled(EMPTY.features)
    assert features.level(EMPTY.features, features.METADATA_VERSION) == 0


def test_levels_that_were_chosen_go_before_the_default_ones() -> None:
    records = features.new_cluster_records({features.GROUP_VERSION: 0, features.METADATA_VERSION: 25})
    assert {record.name: record.level for record in records} == {
        features.ELR_VERSION: 1,
        features.METADATA_VERSION: 25,
        features.TRANSACTION_VERSION: 2,
    }


def test_a_level_that_this_software_lacks_is_told_with_those_that_it_has() -> None:
    for name, feature in features.SUPPORTED_FEATURES.items():
        for level in (feature.lowest, feature.highest):
            assert features.unsupported_level(name, level) is None
        for level in (feature.lowest - 1, feature.highest + 1):
            told = features.unsupported_level(name, level)
            assert told == f"{name} has the levels {feature.lowest} to {feature.highest}, not {level}"
    told = features.unsupported_level("group.versions", 1)
    assert told is not None
    assert all(name in told for name in ("'group.versions'", *features.SUPPORTED_FEATURES))
    levels = features.SUPPORTED_FEATURES[features.METADATA_VERSION]
    assert list(features.METADATA_VERSION_NAMES) == list(range(levels.lowest, levels.highest + 1))
