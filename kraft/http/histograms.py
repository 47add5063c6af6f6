"""Times that were counted by power of two, as Prometheus's histograms; in seconds, under names of kraft's own."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric

from kraft.network.request_times import PhaseTimes

_FIRST, _LAST = 7, 24
BOUNDS: Final = tuple(repr(2**power / 1e6) for power in range(_FIRST, _LAST + 1))
"""128 microseconds to 17 seconds."""


def times_histogram(name: str, text: str, label: str | None, times: Mapping[str, PhaseTimes]) -> Metric:
    """One series for each value of the label; without a label for the only one."""
    family = HistogramMetricFamily(name, text, labels=None if label is None else [label])
    for value, one in times.items():
        counts = list(accumulate(one.buckets))
        buckets = [
            (bound, counts[power]) for power, bound in zip(range(_FIRST, _LAST + 1), BOUNDS, strict=True)
        ]
        family.add_metric(
            [] if label is None else [value], [*buckets, ("+Inf", counts[-1])], sum_value=one.sum_s
        )
    return family
