"""Request times by phase, as numbers that people compare: mean, percentiles and maximum, in ms.

Percentiles and the maximum are the upper bounds of their buckets, powers of two of a microsecond. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraft.network.request_times import PhaseTimes, RequestTimes
from kraft.protocol.api import APIS, ApiKey

PHASES: Final = ("queue", "local", "remote", "send")


def times_document(times: PhaseTimes) -> dict[str, float | None]:
    """TIMES of docs/console-api.md; None where nothing was in the phase."""
    count = sum(times.buckets)
    if not count:
        return {"mean_ms": None, "p50_ms": None, "p99_ms": None, "max_ms": None}
    last = max(number for number, in_bucket in enumerate(times.buckets) if in_bucket)
    return {
        "mean_ms": 1000 * times.sum_s / count,
        "p50_ms": _bound_ms(times, count * 0.5),
        "p99_ms": _bound_ms(times, count * 0.99),
        "max_ms": 2**last / 1000,
    }


def _bound_ms(times: PhaseTimes, wanted: float) -> float:
    seen = 0
    for number, in_bucket in enumerate(times.buckets):
        seen += in_bucket
        if seen >= wanted:
            return float(2**number / 1000)
    raise AssertionError("the buckets have all of them")


def request_rows(request_times: Mapping[ApiKey, RequestTimes]) -> list[dict[str, Any]]:
    """The APIs that were asked for, the most frequent first."""
    asked = sorted(
        ((key, times) for key, times in request_times.items() if times.count), key=lambda one: -one[1].count
    )
    return [
        {
            "api": APIS[key].stem,
            "count": times.count,
            "total_ms": 1000 * sum(getattr(times, phase).sum_s for phase in PHASES) / times.count,
            **{phase: times_document(getattr(times, phase)) for phase in PHASES},
        }
        for key, times in asked
    ]
