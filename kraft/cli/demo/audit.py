"""The demo's audit: compares acknowledged items with those that Spark ingested, by identity.

An item's identity is its key with a digest of its value, within its partition. Lost: an acknowledged identity that is
not in the Parquet. Duplicated: one that is there more than once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kraft.cli.demo.stream import Ledger, digest

ACKED_AFTER_KILL_MIN = 0.2


@dataclass(frozen=True)
class PartitionAudit:
    """One row of the audit."""

    partition: int
    sent: int
    acked: int
    ingested: int
    lost: int
    duplicated: int
    leaderless_ms: int


@dataclass(frozen=True)
class Audit:
    """The verdict and its rows."""

    partitions: list[PartitionAudit]
    acked_after_kill: int
    killed: int
    parquet: str
    picture: str | None = None
    """The PNG's path, where matplotlib is installed."""

    @property
    def acked(self) -> int:
        return sum(row.acked for row in self.partitions)

    def failures(self) -> list[str]:
        """Why the run failed, as sentences; empty if it held."""
        found = []
        if lost := sum(row.lost for row in self.partitions):
            found.append(f"{lost} acknowledged records are not in the Parquet")
        if duplicated := sum(row.duplicated for row in self.partitions):
            found.append(f"{duplicated} records are there more than once")
        if unacknowledged := sum(row.sent - row.acked for row in self.partitions):
            found.append(f"{unacknowledged} records were never acknowledged")
        if self.acked_after_kill < ACKED_AFTER_KILL_MIN * self.acked or not self.acked:
            found.append(
                f"only {self.acked_after_kill} of {self.acked} records were acknowledged after the kill"
            )
        return found

    def document(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "partitions": [asdict(row) for row in self.partitions],
            "acked_after_kill": self.acked_after_kill,
            "killed": self.killed,
            "parquet": self.parquet,
            "picture": self.picture,
        }


def ingested_identities(parquet: Path, partitions: int) -> list[Counter[tuple[bytes, int]]]:
    """How often each (key, digest of value) stands in the Parquet, per partition."""
    import pyarrow.dataset as dataset

    counts: list[Counter[tuple[bytes, int]]] = [Counter() for _ in range(partitions)]
    for batch in dataset.dataset(parquet, format="parquet").to_batches(columns=["partition", "key", "value"]):
        for partition, key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            counts[partition][key, digest(value)] += 1
    return counts


def audit(ledger: Ledger, parquet: Path, killed: int, leaderless_ms: list[int]) -> Audit:
    """Compares the ledger with the Parquet."""
    rows = []
    for partition, counts in enumerate(ingested_identities(parquet, ledger.partitions)):
        sent, acknowledged = ledger.sent[partition], ledger.acknowledged[partition]
        rows.append(
            PartitionAudit(
                partition=partition,
                sent=len(sent),
                acked=len(acknowledged),
                ingested=counts.total(),
                lost=sum(1 for key in acknowledged if (key, sent[key]) not in counts),
                duplicated=sum(count - 1 for count in counts.values()),
                leaderless_ms=leaderless_ms[partition],
            )
        )
    return Audit(rows, ledger.acknowledged_after_kill, killed, str(parquet))
