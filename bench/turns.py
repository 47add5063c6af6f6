"""One producer and then one consumer: two ways or more in alternating pairs, rates and the brokers' CPU as ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.brokers import Cluster
from bench.rows import ONE_RECORD, PARTITIONS, TICK_S_PER_GB, Sample, measure
from bench.workers import RECORD_BYTES

SINGLE_SHARE = 0.02
"""Of the records that a run with records one by one sends."""


class Turn(NamedTuple):
    """One run: what was produced in large batches, what was consumed, and what was produced one by one."""

    produced: Sample
    consumed: Sample
    single: Sample | None


def turn(
    brokers: Cluster, bootstrap: str, records: int, settings: Mapping[str, str], *, single: bool
) -> Turn:
    """On new topics. Raises BenchError."""
    words = [f"{key}={value}" for key, value in settings.items()]
    with brokers.topic(PARTITIONS, 1) as topic:
        produce = ["produce", bootstrap, topic, PARTITIONS, records, "1", RECORD_BYTES, *words]
        consume = ["consume", bootstrap, topic, 0, PARTITIONS, records, *words]
        produced = measure(brokers, [produce], RECORD_BYTES)
        consumed = measure(brokers, [consume], RECORD_BYTES)
    if not single:
        return Turn(produced, consumed, None)
    few = max(PARTITIONS, round(records * SINGLE_SHARE / PARTITIONS) * PARTITIONS)
    with brokers.topic(PARTITIONS, 1) as topic:
        one_by_one = ["produce", bootstrap, topic, PARTITIONS, few, "1", RECORD_BYTES]
        load = [*one_by_one, *ONE_RECORD.settings, *words]
        return Turn(produced, consumed, measure(brokers, [load], RECORD_BYTES))


def in_turns(pairs: int, ways: Mapping[str, Callable[[], Turn]]) -> dict[str, list[Turn]]:
    """Each way in each round; who begins changes. Where there are several, one more before them warms up."""
    found: dict[str, list[Turn]] = {name: [] for name in ways}
    for number in range(0 if pairs == 1 else -1, pairs):
        names = list(ways)
        for name in names if number % 2 else reversed(names):
            result = ways[name]()
            if number >= 0:
                found[name].append(result)
    return found


def ratios(turns: Sequence[Turn], base: Sequence[Turn], part: str) -> dict[str, float]:
    """Of one part of the turns: medians of each pair's ratios of the rates and of the brokers' CPU."""
    samples = [(getattr(one, part), getattr(other, part)) for one, other in zip(turns, base, strict=True)]
    return {
        "rate": statistics.median(one.records_per_s / other.records_per_s for one, other in samples),
        "cpu": statistics.median(
            max(one.broker_cpu_s_per_gb, TICK_S_PER_GB) / max(other.broker_cpu_s_per_gb, TICK_S_PER_GB)
            for one, other in samples
        ),
    }


def document(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """All runs as JSON values; CPU in seconds per GB of values."""
    return [
        {
            part: {
                "records_per_s": sample.records_per_s,
                "broker_cpu_s_per_gb": sample.broker_cpu_s_per_gb,
                "client_cpu_s_per_gb": sample.client_cpu_s_per_gb,
            }
            for part, sample in one._asdict().items()
            if sample is not None
        }
        for one in turns
    ]
