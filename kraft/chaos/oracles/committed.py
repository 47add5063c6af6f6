"""The committed records of one partition: the first value that any leader committed at an offset stays for ever.

The true high watermark is the highest that any leader reached; every batch below it is known. A batch leaves the
prefix only when injected damage, an allowed unclean election or retention explains its loss. Pure;
`replication.Replication` keeps it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter

from kraft.chaos.oracles.shadow_log import Batch, ShadowLog

_base_of = attrgetter("base")


class CommittedPrefix:
    """The committed batches of one partition that retention has not deleted."""

    __slots__ = ("_acknowledged", "_expired", "_given_again", "_had_before", "_replaced", "bases", "batches",
                 "excused", "high_watermark", "newest_epoch", "of_epoch", "retained_from")  # fmt: skip

    def __init__(self) -> None:
        self.high_watermark = 0
        """The highest that a leader of the partition reached, less losses with an excuse."""
        self.retained_from = 0
        """Records below may be gone: some replica's retention was allowed to delete them."""
        self.batches: list[Batch] = []
        self.bases: list[int] = []
        self.of_epoch: list[int] = []
        """The leader epoch in which each batch was committed (not written)."""
        self.newest_epoch = -1
        self.excused: dict[Batch, None] = {}
        """Committed batches that are gone, and may be."""
        self._expired: list[Batch] = []
        """The committed batches below `retained_from`, in order, kept for the whole run: a crash may take a log's
        start back, so a batch below all starts may show up again."""
        self._replaced: dict[Batch, None] = {}
        """Batches that retention had taken from a history that another one replaced, with an excuse."""
        self._acknowledged: dict[int, list[tuple[Batch | None, tuple[bytes, ...]]]] = {}
        self._given_again: list[tuple[int, int]] = []
        """Ranges of offsets that retention had taken and that went to other records after an excused loss."""
        self._had_before: set[tuple[int, bytes]] = set()
        """The acknowledgements at those offsets until then."""

    def commit(self, batches: Sequence[Batch], high_watermark: int, leader_epoch: int) -> None:
        """Takes batches that a leader's high watermark has passed."""
        self.batches.extend(batches)
        self.bases.extend([batch.base for batch in batches])
        self.of_epoch.extend([leader_epoch] * len(batches))
        self.high_watermark = high_watermark
        self.newest_epoch = max(self.newest_epoch, leader_epoch)

    def between(self, low: int, high: int) -> list[Batch]:
        """The committed batches that begin at `low` or later and below `high`."""
        bases = self.bases
        return self.batches[bisect_left(bases, low) : bisect_left(bases, high)]

    def ever_between(self, low: int, high: int) -> list[Batch]:
        """As `between`, with batches that retention may have deleted: each replica has its own, so a replica that is
        behind with it still has them all, and others copy them."""
        expired = self._expired
        first, end = (bisect_left(expired, offset, key=_base_of) for offset in (low, high))
        return expired[first:end] + self.between(low, high)

    def expired_from(self, offset: int) -> list[Batch]:
        """The committed batches at `offset` or above that retention has taken."""
        return self._expired[bisect_left(self._expired, offset, key=_base_of) :]

    def before_epoch(self, leader_epoch: int) -> list[Batch]:
        """The batches committed before this leader epoch began that are to be kept."""
        first = bisect_left(self.bases, self.retained_from)
        if self.newest_epoch < leader_epoch:
            return self.batches[first:]
        chosen = zip(self.batches[first:], self.of_epoch[first:], strict=True)
        return [batch for batch, epoch in chosen if epoch < leader_epoch]

    def contains(self, batch: Batch) -> bool:
        index = bisect_left(self.bases, batch.base)
        return index < len(self.batches) and self.batches[index] == batch

    def retain_from(self, offset: int) -> None:
        """Notes that retention was allowed to delete everything below `offset`."""
        if offset <= self.retained_from:
            return
        self.retained_from = offset
        first = bisect_left(self.bases, offset)
        if first and self.batches[first - 1].next > offset:
            first -= 1
        self._expired += self.batches[:first]
        del self.batches[:first], self.bases[:first], self.of_epoch[:first]

    @property
    def went_back(self) -> bool:
        """Whether committed records are gone with an excuse, or their offsets went to other records."""
        return bool(self.excused or self._given_again)

    def never_in(self, start: int, wanted: Sequence[Batch]) -> list[Batch]:
        """The batches of `wanted` below a log's `start` that it never had: there its retention took other records,
        of a history that was given up. Otherwise they would count as retained."""
        return [batch for batch in wanted if batch.next <= start and batch not in self._replaced]

    def parts_from(self, log: ShadowLog) -> int:
        """The offset at which a log leaves the batches that retention took: its end, or where it has other records."""
        return min(log.end, next((batch.base for batch in self._expired if not log.contains(batch)), log.end))

    def reach(self, expired: Sequence[Batch], offset: int) -> int:
        """How far a retention that deleted `expired`, the whole log below `offset`, went into records to be kept.

        A replica that has not heard yet that its history was given up goes on in it: its high watermark lies above
        the partition's, and it expires records that it knows as committed. That is no loss. The walk goes batch by
        batch, so that uncommitted batches count, and only at the end, since kept batches may follow a lost one.
        """
        for batch in reversed(expired):
            if self.contains(batch) or not (batch in self.excused or batch in self._replaced):
                return offset if batch is expired[-1] else batch.next
        return 0 if expired else offset

    def give_up(self, batches: Sequence[Batch]) -> None:
        """Notes batches as gone; the high watermark goes back if they were the last ones."""
        gone = dict.fromkeys(batches)
        self.excused.update(gone)
        kept = [
            (batch, epoch)
            for batch, epoch in zip(self.batches, self.of_epoch, strict=True)
            if batch not in gone
        ]
        self.batches = [batch for batch, _ in kept]
        self.bases = [batch.base for batch in self.batches]
        self.of_epoch = [epoch for _, epoch in kept]
        if self._expired and any(batch.base < self.retained_from for batch in gone):
            self._expired = [batch for batch in self._expired if batch not in gone]
        last = max((batch.next for batch in gone), default=-1)
        if last >= self.high_watermark:
            first = min(batch.base for batch in gone)
            self.high_watermark = self.batches[-1].next if self.batches else max(first, self.retained_from)

    def start_over(self, offset: int) -> None:
        """Begins anew from `offset` on, with an excuse: the leader has none of this, not even retained records."""
        if offset >= self.retained_from:
            return
        self._given_again.append((offset, self.retained_from))
        for base, known in self._acknowledged.items():
            for _, values in known:
                self._had_before.update(
                    (told, value)
                    for told, value in enumerate(values, base)
                    if offset <= told < self.retained_from
                )
        self.retained_from = offset
        first = bisect_left(self._expired, offset, key=_base_of)
        self._replaced.update(dict.fromkeys(self._expired[first:]))
        del self._expired[first:]
        if not self.batches:
            self.high_watermark = offset

    # -- acknowledgements

    def acknowledge(self, base_offset: int, values: tuple[bytes, ...]) -> str | None:
        """Takes an acknowledgement of an acks=-1 send at `base_offset`. Returns the problem with it, if any."""
        end = base_offset + len(values)
        index = bisect_left(self.bases, base_offset)
        batch = self.batches[index] if index < len(self.bases) else None
        if batch is not None and (batch.base, batch.next) == (base_offset, end):
            self._remember(base_offset, batch, values)
            return None
        for lost in self.excused:
            if (lost.base, lost.next) == (base_offset, end):
                self._remember(base_offset, lost, values)
                return None
        if _have_one(self._replaced, base_offset, end) and not _have_one(self._expired, base_offset, end):
            self._had_before.update(enumerate(values, base_offset))
            return None
        self._remember(base_offset, None, values)
        if end <= self.retained_from:
            return None
        if end > self.high_watermark:
            return f"offsets {base_offset} to {end - 1}, but the high watermark is {self.high_watermark}"
        return f"offsets {base_offset} to {end - 1}, where no such batch was committed"

    def _remember(self, base_offset: int, batch: Batch | None, values: tuple[bytes, ...]) -> None:
        self._acknowledged.setdefault(base_offset, []).append((batch, values))

    @property
    def has_acknowledged(self) -> bool:
        """Whether any record was acknowledged to a client."""
        return bool(self._acknowledged)

    def was_acknowledged(self, batch: Batch) -> bool:
        """Whether this batch was acknowledged to a client."""
        return any(known == batch for known, _ in self._acknowledged.get(batch.base, ()))

    def explains(self, offset: int, value: bytes) -> bool:
        """Whether `value` was at `offset`, is gone, and may be."""
        if (offset, value) in self._had_before:
            return True
        covering = [batch for batch in self.excused if batch.base <= offset < batch.next]
        if not covering:
            return self._was_given_again(offset) and not self._is_known(offset, value)
        known = False
        for batch in covering:
            for acknowledged, values in self._acknowledged.get(batch.base, ()):
                if values[offset - batch.base : offset - batch.base + 1] == (value,):
                    known = True
                    if acknowledged == batch:
                        return True
        return not known

    def _was_given_again(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self._given_again)

    def _is_known(self, offset: int, value: bytes) -> bool:
        """Whether the value was acknowledged at the offset."""
        return any(
            values[offset - base : offset - base + 1] == (value,)
            for base, known in self._acknowledged.items()
            if base <= offset
            for _, values in known
        )


def _have_one(batches: Iterable[Batch], base: int, end: int) -> bool:
    return any((batch.base, batch.next) == (base, end) for batch in batches)
