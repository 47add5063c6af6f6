"""What a run has done so far, as numbers, as a line for people, and as the JSON at its end.

`run.py` tells it of cuts and commits; the command shows its lines, `metrics.py` its numbers. It knows no clock: whoever
calls passes the time, in seconds of a monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kraft.ingest.model import CommitRange, PartitionKey, RangeAudit, SliceResult, partition_key
from partitions.topic_partition import TopicPartition

RATE_WINDOW_S = 30.0
_NAMED_LAGS = 3


class Taken(NamedTuple):
    """What the run has taken of a partition."""

    start: int
    end: int
    audit: RangeAudit


class Progress:
    def __init__(self, topics: Sequence[str], now_s: float) -> None:
        self.topics = tuple(topics)
        self.rows = 0
        self.dead_letters = 0
        self.late_rows = 0
        self.files = 0
        self.commits = 0
        self.failures = 0
        """Cuts that were planned again."""
        self.version: int | None = None
        """Of the table; None: there is none."""
        self.taken: dict[PartitionKey, Taken] = {}
        self.lag: Mapping[TopicPartition, int] = {}
        self.started_s = now_s
        self.ended_s: float | None = None
        self._recent: deque[tuple[float, int]] = deque()
        """Time and rows of the commits in the window."""

    def standing(self, positions: Mapping[PartitionKey, int]) -> None:
        """Where the run begins."""
        self.taken = {key: Taken(offset, offset, RangeAudit()) for key, offset in positions.items()}

    def committed(
        self,
        ranges: Mapping[PartitionKey, CommitRange],
        results: Sequence[SliceResult],
        *,
        version: int,
        lag: Mapping[TopicPartition, int],
        now_s: float,
    ) -> None:
        self.version, self.lag, self.commits = version, lag, self.commits + 1
        for key, taken in ranges.items():
            before = self.taken.get(key, Taken(taken.start, taken.start, RangeAudit()))
            self.taken[key] = before._replace(end=taken.end)
        rows = 0
        for result in sorted(results, key=lambda result: result.part.start):
            key = partition_key(result.part)
            total = self.taken[key].audit + result.audit
            self.taken[key] = self.taken[key]._replace(audit=replace(total, holes=()))
            rows += result.audit.records
            self.dead_letters += result.audit.dead_letters
            self.late_rows += result.late_rows
            self.files += len(result.files)
        self.rows += rows
        self._recent.append((now_s, rows))
        while self._recent[0][0] < now_s - RATE_WINDOW_S:
            self._recent.popleft()

    def rows_per_s(self, now_s: float) -> float:
        """Over the last RATE_WINDOW_S; over the run while it is younger."""
        recent = tuple(self._recent)  # the metrics' thread calls this, too
        seconds = min(now_s - self.started_s, RATE_WINDOW_S)
        taken = sum(rows for at_s, rows in recent if at_s >= now_s - RATE_WINDOW_S)
        return taken / seconds if seconds > 0 else 0.0

    def line(self, now_s: float, *, next_commit_s: float | None = None) -> str:
        """One line for people; `next_commit_s` from now."""
        behind = sorted(((lag, partition) for partition, lag in self.lag.items() if lag), reverse=True)
        lag = f"lag {sum(self.lag.values()):,}"
        if behind:
            named = ", ".join(f"{partition}: {count:,}" for count, partition in behind[:_NAMED_LAGS])
            more = f", {len(behind) - _NAMED_LAGS} more" if len(behind) > _NAMED_LAGS else ""
            lag = f"{lag} ({named}{more})"
        parts = [f"{self.rows:,} rows", f"{self.rows_per_s(now_s):,.0f} rows/s", lag, f"{self.files:,} files"]
        if next_commit_s is not None:
            parts.append(f"next commit in {max(next_commit_s, 0.0):.1f} s")
        return ", ".join(parts)

    def summary(self, folder: object) -> str:
        """The last line for people."""
        seconds = (self.ended_s or self.started_s) - self.started_s
        rate = f" ({self.rows / seconds:,.0f} rows/s)" if seconds > 0 and self.rows else ""
        notes = [
            f"{count:,} {what}"
            for count, what in (
                (self.dead_letters, "rows with _error"),
                (self.late_rows, "late rows"),
                (self.failures, "cuts planned again"),
            )
            if count
        ]
        if not self.commits:
            at = "there is no table yet" if self.version is None else f"it is at version {self.version}"
            return f"nothing new for {folder}: {at}"
        facts = ", ".join([_counted(self.files, "file"), _counted(self.commits, "commit"), *notes])
        return f"{self.rows:,} rows into {folder}, version {self.version}: {facts}, in {seconds:.1f} s{rate}"

    def document(self) -> dict[str, Any]:
        """The JSON of the command. `holes` counts offsets that hold no record any more."""
        return {
            "topics": list(self.topics),
            "rows": self.rows,
            "dead_letters": self.dead_letters,
            "late_rows": self.late_rows,
            "files": self.files,
            "partitions": [
                {
                    "topic": key.topic,
                    "partition": key.partition,
                    "from": taken.start,
                    "to": taken.end,
                    "records": taken.audit.records,
                    "control": taken.audit.control,
                    "aborted": taken.audit.aborted,
                    "holes": taken.audit.hole_offsets,
                }
                for key, taken in sorted(self.taken.items())
            ],
            "version": self.version,
        }


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
