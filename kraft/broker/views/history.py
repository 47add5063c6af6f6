"""What a broker did lately, from counters that it has anyway: a minute by the second, an hour by the minute.

The node's HTTP server has it sampled once a second, which costs one addition for each API, whatever the broker does and
whoever looks. Its size is bounded. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

RATES: Final = (
    "bytes_in_per_s",
    "bytes_out_per_s",
    "messages_in_per_s",
    "replication_bytes_out_per_s",
    "requests_per_s",
    "failed_requests_per_s",
)
"""Of each counter of a sample, in its order."""
POINTS: Final = 60
SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
EARLY_S: Final = 0.1
Rates = dict[str, float | None]


class _Sample(NamedTuple):
    at_s: float
    """Of a clock that never goes back."""
    at_ms: int
    counters: tuple[int, ...]


class _Ring:
    """The last samples, `step_ms` apart or more."""

    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms
        self._samples: deque[_Sample] = deque(maxlen=POINTS + 1)

    def take(self, sample: _Sample) -> None:
        # A timer may be early by a part of a millisecond: a step that is a little short is one all the same.
        due_s = self._samples[-1].at_s + self._step_ms / 1000 - EARLY_S if self._samples else sample.at_s
        if sample.at_s >= due_s:
            self._samples.append(sample)

    def rates(self) -> list[tuple[float, ...]]:
        """Between each sample and the next."""
        samples = list(self._samples)
        return [
            tuple(
                max(0, new - old) / (after.at_s - before.at_s)
                for old, new in zip(before.counters, after.counters, strict=True)
            )
            for before, after in pairwise(samples)
        ]

    def document(self) -> dict[str, Any]:
        rates = self.rates()
        unknown = [None] * (POINTS - len(rates))
        return {
            "step_ms": self._step_ms,
            "end_at_ms": self._samples[-1].at_ms if self._samples else None,
            "series": {name: [*unknown, *(one[at] for one in rates)] for at, name in enumerate(RATES)},
        }


class RateHistory:
    """Of one broker."""

    def __init__(self) -> None:
        self._seconds, self._minutes = _Ring(SECOND_MS), _Ring(MINUTE_MS)

    def sample(self, at_s: float, at_ms: int, counters: tuple[int, ...]) -> None:
        """Takes the counters of `RATES` at a moment: `at_s` of a clock that never goes back, `at_ms` since 1970."""
        sample = _Sample(at_s, at_ms, counters)
        self._seconds.take(sample)
        self._minutes.take(sample)

    def rates(self) -> Rates:
        """Of the last second; None before the second sample."""
        found = self._seconds.rates()
        return dict.fromkeys(RATES) if not found else dict(zip(RATES, found[-1], strict=True))

    def document(self) -> dict[str, Any]:
        """JSON values: HISTORY of docs/console-api.md."""
        return {"seconds": self._seconds.document(), "minutes": self._minutes.document()}


def summed_rates(parts: Iterable[Mapping[str, float | None]]) -> Rates:
    """Of several brokers; None is what none of them knows."""
    rows = list(parts)
    return {name: _sum([row.get(name) for row in rows]) for name in RATES}


def summed_history(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of several brokers, the newest values side by side."""
    return {
        name: {
            "step_ms": step_ms,
            "end_at_ms": max((one[name]["end_at_ms"] or 0 for one in parts), default=0) or None,
            "series": {
                rate: [
                    _sum(values) for values in zip(*(one[name]["series"][rate] for one in parts), strict=True)
                ]
                if parts
                else [None] * POINTS
                for rate in RATES
            },
        }
        for name, step_ms in (("seconds", SECOND_MS), ("minutes", MINUTE_MS))
    }


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
