"""Partitions read from some offset up to another, round by round: what pages, searches and downloads have in common.

A round asks all leaders at once, opens what came in the executor, and then rests as long as that took: a reader takes
half of one core at most, and clients' requests come between. A partition whose leader does not answer is tried
`ATTEMPTS` times; then it ends with the reason, and the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraft.http.messages.batches import JOB_BYTES, Needle, Opened, Skipped, Span, open_batches
from kraft.http.messages.leaders import Bounds, Fetched, OutOfRange, TopicReads, Trouble
from partitions.ports import Executor

ATTEMPTS: Final = 5
BACKOFF_S: Final = 0.2
REST_MAX_S: Final = 0.25
PARTITIONS_PER_ROUND: Final = 32


@dataclass(slots=True, eq=False)
class Cursor:
    """How far one partition is read."""

    partition: int
    position: int
    end: int
    """Exclusive."""
    limit: int
    """Rows wanted."""
    newest: bool = False
    failures: int = 0
    error: str | None = None
    is_over: bool = False
    skipped: Skipped = field(default_factory=Skipped)

    @property
    def is_active(self) -> bool:
        return not self.is_over and self.error is None and self.position < self.end

    def failed(self, sentence: str) -> None:
        self.failures += 1
        if self.failures >= ATTEMPTS:
            self.error = sentence

    def move_to(self, bounds: Bounds) -> None:
        """To where the log begins now, if what is to be read was deleted meanwhile."""
        if bounds.log_start_offset > self.position:
            start = min(bounds.log_start_offset, self.end)
            self.skipped.deleted += start - self.position
            self.position = start
        else:
            self.failed(
                "the log ends before the offset: it may have lost records in an unclean leader election"
            )


def open_all(answers: Sequence[tuple[Fetched, Span]]) -> list[Opened]:
    """Run in the executor: opens answers until it has opened JOB_BYTES; the others are asked for again."""
    opened: list[Opened] = []
    for fetched, span in answers:
        opened.append(open_batches(fetched.data, fetched.aborted, span))
        if sum(one.unfolded_bytes for one in opened) >= JOB_BYTES:
            break
    return opened


class Scan:
    """One pass over `cursors`. It moves them; whoever iterates ends it by breaking off."""

    def __init__(
        self,
        reads: TopicReads,
        executor: Executor,
        cursors: Sequence[Cursor],
        needle: Needle | None = None,
    ) -> None:
        self._reads = reads
        self._executor = executor
        self._needle = needle
        self.cursors = list(cursors)
        self.records = 0
        self.unfolded_bytes = 0

    @property
    def offsets_left(self) -> int:
        """Of partitions that can be read on."""
        return sum(one.end - one.position for one in self.cursors if one.is_active or one.limit <= 0)

    def skipped(self) -> Skipped:
        """Of all partitions."""
        total = Skipped()
        for one in self.cursors:
            total.add(one.skipped)
        return total

    def give_back(self, partition: int, offset: int) -> None:
        """A row that is not told after all: the next reader begins there."""
        cursor = next(one for one in self.cursors if one.partition == partition)
        cursor.position = min(cursor.position, offset)

    def next_offsets(self) -> Mapping[str, int]:
        """Where another reader goes on, by partition."""
        return {str(one.partition): one.position for one in self.cursors}

    async def rounds(self) -> AsyncIterator[Sequence[Opened]]:
        """What each round opened, until all is read. A round in which leaders failed, or had nothing, has nothing."""
        loop = asyncio.get_running_loop()
        waiting = list(self.cursors)
        while active := [one for one in waiting if one.is_active]:
            asked = {one.partition: one for one in active[:PARTITIONS_PER_ROUND]}
            answers = await self._reads.fetch({number: one.position for number, one in asked.items()})
            spans, has_failed = await self._settle(asked, answers)
            began_s = loop.time()
            opened = await self._executor.run(open_all, spans) if spans else []
            for one in opened:
                self._take(asked[one.span.partition], one)
            # Leaders serve the first partitions first: those that got something go to the end.
            served = [asked[one.span.partition] for one in opened]
            waiting = [one for one in active if one not in served] + served
            yield opened
            rest_s = min(loop.time() - began_s, REST_MAX_S)
            await asyncio.sleep(BACKOFF_S if has_failed else rest_s)

    async def _settle(
        self, asked: Mapping[int, Cursor], answers: Mapping[int, Fetched | OutOfRange | Trouble]
    ) -> tuple[Sequence[tuple[Fetched, Span]], bool]:
        """What there is to open, and whether leaders failed."""
        spans, has_failed, missing = list[tuple[Fetched, Span]](), False, list[int]()
        for number, answer in answers.items():
            cursor = asked[number]
            if isinstance(answer, Trouble):
                cursor.failed(answer.sentence)
                has_failed = True
            elif isinstance(answer, OutOfRange):
                missing.append(number)
            else:
                if len(answer.data):
                    span = Span(
                        number, cursor.position, cursor.end, cursor.limit, cursor.newest, self._needle
                    )
                    spans.append((answer, span))
                elif answer.end_offset <= cursor.position:
                    cursor.is_over = True
        if not spans and not has_failed and not missing:
            for cursor in asked.values():
                cursor.is_over = True  # the first has a batch, if it has any: nothing can be read now
        if missing:
            for number, bounds in (await self._reads.bounds(missing)).items():
                if isinstance(bounds, Trouble):
                    asked[number].failed(bounds.sentence)
                else:
                    asked[number].move_to(bounds)
        return spans, has_failed

    def _take(self, cursor: Cursor, opened: Opened) -> None:
        self.records += opened.records
        self.unfolded_bytes += opened.unfolded_bytes
        cursor.skipped.add(opened.skipped)
        if opened.next_offset > cursor.position:
            cursor.failures = 0
        elif opened.error is None:
            cursor.failed("its leader sends only records that were read already")
        cursor.position = opened.next_offset
        cursor.error = cursor.error or opened.error
        if not cursor.newest:
            cursor.limit -= len(opened.rows)
            cursor.is_over = cursor.is_over or cursor.limit <= 0
