"""The limits of a run: name, value, bound. `python -m bench --check` fails if one is missed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.rows import RowResult

MIN_RATIO = 0.75
MIN_PRODUCE_RECORDS_PER_S = 1_000_000
MAX_CPU_RATIO = 1.3
MAX_FAILOVER_S = 3.0
MAX_RESTING_MB = 80.0
MAX_START_S = 3.0


@dataclass(frozen=True)
class Limit:
    """`value` must be at least `bound` when `at_least`, else at most."""

    name: str
    value: float
    bound: float
    unit: str
    at_least: bool

    @property
    def ok(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def limits_of(rows: Mapping[str, RowResult], cluster: Mapping[str, float]) -> list[Limit]:
    """The limits on the measured rows; rows that were not run (`--only`) have none."""
    limits: list[Limit] = []
    if (produce := rows.get("produce-1x")) is not None:
        limits += [
            Limit("one producer, no replication: rate / null", produce.ratio, MIN_RATIO, "", True),
            Limit(
                "one producer, no replication: records/s",
                produce.real.records_per_s,
                MIN_PRODUCE_RECORDS_PER_S,
                "",
                True,
            ),
        ]
        if produce.storing_cpu_ratio is not None:
            # The null broker stores nothing, so a broker that writes every byte to a file cannot come near
            # its CPU where a bare write of the same bytes alone costs more; so both are checked.
            name = "one producer, no replication: CPU / null (which stores nothing)"
            limits.append(Limit(name, produce.cpu_ratio, MAX_CPU_RATIO, "", False))
            name = "one producer, no replication: CPU / (null + bare file)"
            limits.append(Limit(name, produce.storing_cpu_ratio, MAX_CPU_RATIO, "", False))
    if (consume := rows.get("consume")) is not None:
        limits.append(Limit("one consumer: rate / null", consume.ratio, MIN_RATIO, "", True))
    for name, key, bound, unit in (
        ("leader killed: first acknowledged write", "failover_s", MAX_FAILOVER_S, "s"),
        ("a node at rest: memory", "resting_mb", MAX_RESTING_MB, "MB"),
        ("three nodes ready after kraft cluster start", "start_s", MAX_START_S, "s"),
    ):
        if key in cluster:
            limits.append(Limit(name, cluster[key], bound, unit, False))
    return limits
