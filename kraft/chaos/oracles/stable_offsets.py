"""The model of open transactions in the logs of replicas, and the judge of last stable offsets (LSO).

Oracles:

- open-transaction-passed: a leader or follower tells a consumer an LSO behind the first record of a transaction whose
  marker is not below the high watermark in that very log;
- last-stable-offset-monotonic: what leaders tell goes back within a leader epoch.

It reads the batches themselves, and shares no code with the product's own account of producers. Pure;
`probes_transactions` feeds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from kraft.chaos.history import TopicKey
from kraft.chaos.verdict import Verdicts

PASSED, WENT_BACK = "open-transaction-passed", "last-stable-offset-monotonic"
HELD_BACK = "last stable offset held back"
MARKER_WRITTEN = "transaction marker in a log"
COUNTERS = HELD_BACK, MARKER_WRITTEN


class Kind(Enum):
    """What a batch is to transactions."""

    DATA = auto()
    MARKER = auto()


class TransactionBatch(NamedTuple):
    """One batch of a transaction."""

    offset: int
    """Its first."""
    producer_id: int
    kind: Kind


@dataclass(slots=True)
class _Span:
    first: int
    producer_id: int
    marker: int | None = None


@dataclass
class OpenTransactions:
    """One replica's log."""

    batches: list[TransactionBatch] = field(default_factory=list)
    _unstable: list[_Span] = field(default_factory=list)
    """Those that may hold back the LSO, in order."""

    def appended(self, batches: Iterable[TransactionBatch]) -> None:
        for batch in batches:
            self.batches.append(batch)
            self._take(batch)

    def _take(self, batch: TransactionBatch) -> None:
        open_ = next(
            (one for one in self._unstable if one.marker is None and one.producer_id == batch.producer_id),
            None,
        )
        if batch.kind is Kind.MARKER:
            if open_ is not None:
                open_.marker = batch.offset
        elif open_ is None:
            self._unstable.append(_Span(batch.offset, batch.producer_id))

    def cut(self, offset: int) -> None:
        """What lies at the offset and behind it is gone."""
        kept = len(self.batches)
        while kept and self.batches[kept - 1].offset >= offset:
            kept -= 1
        self.replaced(self.batches[:kept])

    def replaced(self, batches: Iterable[TransactionBatch]) -> None:
        """These are all there are."""
        self.batches, self._unstable = [], []
        self.appended(batches)

    def stable_up_to(self, high_watermark: int) -> int:
        """The highest LSO that may be told, under a high watermark that does not go back while the log is not cut."""
        self._unstable = [one for one in self._unstable if one.marker is None or one.marker >= high_watermark]
        first = self._unstable[0].first if self._unstable else high_watermark
        return min(first, high_watermark)


class StableOffsets:
    """All replicas of the partitions that transactions write to."""

    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts
        self._logs: dict[tuple[int, TopicKey], OpenTransactions] = {}
        self._seen: dict[tuple[TopicKey, int], int] = {}
        """By partition and leader epoch: the highest that its leader told."""

    def log(self, node: int, key: TopicKey) -> OpenTransactions:
        return self._logs.setdefault((node, key), OpenTransactions())

    def appended(self, node: int, key: TopicKey, batches: list[TransactionBatch]) -> None:
        self._verdicts.coverage[MARKER_WRITTEN] += sum(one.kind is Kind.MARKER for one in batches)
        self.log(node, key).appended(batches)

    def told(
        self, node: int, key: TopicKey, leader_epoch: int | None, high_watermark: int, stable: int, name: str
    ) -> None:
        """Judges what a replica tells a consumer. `leader_epoch`: None where it follows."""
        limit = self.log(node, key).stable_up_to(high_watermark)
        self._verdicts.coverage[HELD_BACK] += limit < high_watermark
        if stable > limit:
            self._verdicts.violated(
                PASSED,
                f"{name} at node {node}: the LSO is told as {stable}, and a transaction is open from {limit} on"
                f" below the high watermark {high_watermark}",
            )
        if leader_epoch is None:
            return
        seen = self._seen.get((key, leader_epoch), 0)
        if stable < seen:
            self._verdicts.violated(
                WENT_BACK, f"{name} at node {node}, epoch {leader_epoch}: the LSO was {seen}, and is {stable}"
            )
        self._seen[key, leader_epoch] = max(seen, stable)
