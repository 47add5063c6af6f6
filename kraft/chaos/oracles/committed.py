"""What is committed in one partition: the first value that any leader committed at an offset stays for ever.

The true high watermark is the highest that any leader reached; below it every batch is known. A batch
leaves the prefix only when injected damage, an allowed unclean election or retention explains that it is
gone. Pure; kept by `replication.ReplicationModel`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter

from kraft.chaos.oracles.shadow_log import Batch, ShadowLog

_base_of = attrgetter("base")


class CommittedPrefix:
    """The committed batches of one partition that are not deleted by retention."""

    __slots__ = ("_acknowledged", "_expired", "_given_again", "_had_before", "_replaced", "bases", "batches",
                 "excused", "high_watermark", "newest_epoch", "of_epoch", "retained_from")  # fmt: skip

    def __init__(self) -> None:
        self.high_watermark = 0
        """Of the whole partition: the highest that a leader reached, less what was lost with an excuse."""
        self.retained_from = 0
        """What lies below may be gone: some replica's retention was allowed to delete it."""
        self.batches: list[Batch] = []
        self.bases: list[int] = []
        self.of_epoch: list[int] = []
        """The leader epoch in which each batch was committed (not the one in which it was written)."""
        self.newest_epoch = -1
        self.excused: dict[Batch, None] = {}
        """What was committed, is gone, and may be."""
        self._expired: list[Batch] = []
        """What was committed below `retained_from`, in order. All of it, for the whole run: a crash may take a log's
        start back, so that the starts of the replicas do not tell what none of them can show again."""
        self._replaced: dict[Batch, None] = {}
        """What retention had taken of a history that another one replaced, with an excuse."""
        self._acknowledged: dict[int, list[tuple[Batch | None, tuple[bytes, ...]]]] = {}
        self._given_again: list[tuple[int, int]] = []
        """Offsets that retention had taken, and that went to other records after an excused loss: from, to."""
        self._had_before: set[tuple[int, bytes]] = set()
        """What clients had been told of those offsets by then."""

    def commit(self, batches: Sequence[Batch], high_watermark: int, leader_epoch: int) -> None:
        """A leader's high watermark passed `batches`."""
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
        """As `between`, with what retention may have deleted: each replica goes by its own, so one that is behind
        with it has all of that still, and others copy it."""
        expired = self._expired
        first, end = (bisect_left(expired, offset, key=_base_of) for offset in (low, high))
        return expired[first:end] + self.between(low, high)

    def expired_from(self, offset: int) -> list[Batch]:
        """What was committed at `offset` or above, and retention has taken."""
        return self._expired[bisect_left(self._expired, offset, key=_base_of) :]

    def before_epoch(self, leader_epoch: int) -> list[Batch]:
        """What was committed before this leader epoch began, and is to be kept."""
        first = bisect_left(self.bases, self.retained_from)
        if self.newest_epoch < leader_epoch:
            return self.batches[first:]
        chosen = zip(self.batches[first:], self.of_epoch[first:], strict=True)
        return [batch for batch, epoch in chosen if epoch < leader_epoch]

    def contains(self, batch: Batch) -> bool:
        index = bisect_left(self.bases, batch.base)
        return index < len(self.batches) and self.batches[index] == batch

    def retain_from(self, offset: int) -> None:
        """Retention was allowed to delete what lies below `offset`."""
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
        """Whether something that was committed is gone with an excuse, or its offsets go to other records."""
        return bool(self.excused or self._given_again)

    def never_in(self, start: int, wanted: Sequence[Batch]) -> list[Batch]:
        """Those of `wanted` below a log's `start` that it never had: what its retention took there were other
        records, of a history that was given up. If it had had them, they would count as retained."""
        return [batch for batch in wanted if batch.next <= start and batch not in self._replaced]

    def parts_from(self, log: ShadowLog) -> int:
        """Where a log leaves what was committed and retention took: at its end, or where it has other records."""
        return min(log.end, next((batch.base for batch in self._expired if not log.contains(batch)), log.end))

    def reach(self, expired: Sequence[Batch], offset: int) -> int:
        """How far retention that deleted `expired`, all that a log had below `offset`, went into what is to be kept.

        A replica that has not heard yet that its history was given up goes on in it: its high watermark lies above
        that of the partition, and it expires what it knows to be committed. That takes nothing from anybody. Batch by
        batch, so that what was never committed counts, whoever deletes it; and only at the end, for behind a batch
        that was lost there may be others that are to be kept.
        """
        for batch in reversed(expired):
            if self.contains(batch) or not (batch in self.excused or batch in self._replaced):
                return offset if batch is expired[-1] else batch.next
        return 0 if expired else offset

    def give_up(self, batches: Sequence[Batch]) -> None:
        """These are gone; the high watermark goes back if they were the last ones."""
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
        """With an excuse, a leader has nothing of this from `offset` on, not even that older records were retained."""
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

    # -- what clients were told

    def acknowledge(self, base_offset: int, values: tuple[bytes, ...]) -> str | None:
        """An acks=-1 send was acknowledged at `base_offset`. Returns what is wrong with that, if anything."""
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

    def was_acknowledged(self, batch: Batch) -> bool:
        """Whether a client was told that this batch is safe."""
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
        """Whether a client was told that the value is at the offset."""
        return any(
            values[offset - base : offset - base + 1] == (value,)
            for base, known in self._acknowledged.items()
            if base <= offset
            for _, values in known
        )


def _have_one(batches: Iterable[Batch], base: int, end: int) -> bool:
    return any((batch.base, batch.next) == (base, end) for batch in batches)
