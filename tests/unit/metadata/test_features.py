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
    assert image.features == {"eligible.leader.replicas.version": 1, "metadata.version": 26}
    assert features.elr_enabled(image.features)
    for name, lowest, highest in features.supported_ranges():
        assert lowest <= features.SUPPORTED_FEATURES[name].default <= highest
    assert list(features.SUPPORTED_FEATURES) == sorted(features.SUPPORTED_FEATURES)


def test_metadata_without_features_keeps_the_behaviour_it_was_written_with() -> None:
    assert not features.elr_enabled(EMPTY.features)
    assert features.level(EMPTY.features, features.METADATA_VERSION) == 0
