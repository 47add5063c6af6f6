"""The comparison with Spark's own source leaves no option out."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from bench.spark.equal_rows import cases
from kraft.spark.options import known_options

OURS_ALONE = {"columns", "maxBytesPerPartition", "maxBytesPerTrigger", "groupIdForLag", "path"}
"""Spark's own source does not have them."""
OF_BROKERS_WITH_SASL = {"kafka.sasl.mechanism", "kafka.sasl.jaas.config"}


def test_every_option_has_a_case() -> None:
    compared = {name for case in cases() for name in case.options} | {"kafka.bootstrap.servers"}
    assert set(known_options()) - compared == OURS_ALONE | OF_BROKERS_WITH_SASL


def test_no_case_is_there_twice() -> None:
    names = [(case.name, case.stream) for case in cases()]
    assert len(set(names)) == len(names)
