"""One page of messages: from some offsets or a time on, or the newest.

A page of several partitions is in the order of time as far as each partition's own order allows. For the newest, ranges
before the end are read and widened until they hold enough records, `WIDENINGS` times at most: compaction and
transactions leave offsets without any.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from kraft.http.messages.batches import Row, Skipped, in_order
from kraft.http.messages.leaders import Bounds, TopicReads, Trouble
from kraft.http.messages.queries import PageQuery, Selection, chosen
from kraft.http.messages.scanning import Cursor, Scan
from kraft.http.messages.views import Json, encoded, message_view
from partitions.ports import Executor

PAGE_MAX_S: Final = 10.0
PAGE_MAX_BYTES: Final = 64 * 1024 * 1024
"""Unfolded."""
WIDENINGS: Final = 5
WIDER: Final = 8

Rows: TypeAlias = dict[int, list[Row]]


class Page:
    """One request. `read` once."""

    def __init__(self, reads: TopicReads, executor: Executor, query: PageQuery) -> None:
        self._reads = reads
        self._executor = executor
        self._query = query
        self._rows: Rows = {}
        self._skipped = Skipped()
        self._unfolded_bytes = 0
        self._ended = "end"
        self._end_s = 0.0

    async def read(self) -> bytes:
        """The answer, as JSON."""
        selection = self._query.selection
        numbers = chosen(selection.partitions, len(self._reads.topic.partitions))
        bounds = await self._reads.bounds(numbers)
        errors = {number: one.sentence for number, one in bounds.items() if isinstance(one, Trouble)}
        known = {number: one for number, one in bounds.items() if isinstance(one, Bounds)}
        self._end_s = asyncio.get_running_loop().time() + PAGE_MAX_S
        if selection.is_newest:
            places = await self._read_newest(known, errors)
        else:
            places = await self._read_on(await starts(self._reads, selection, known, errors), known, errors)
        partitions = [
            _partition_view(number, known.get(number), places.get(number), errors.get(number))
            for number in numbers
        ]
        document = {
            "topic": self._reads.topic.name,
            "isolation_level": "read_committed" if selection.read_committed else "read_uncommitted",
            "partitions": partitions,
            "partitions_left_out": len(self._reads.topic.partitions) - len(numbers)
            if not selection.partitions
            else 0,
            "ended": self._ended,
            "skipped": self._skipped.view(),
        }
        return await self._executor.run(
            _encoded_page,
            document,
            self._rows,
            self._query.field_bytes,
            self._query.limit,
            selection.is_newest,
        )

    async def _read_on(
        self, starting: Mapping[int, int], known: Mapping[int, Bounds], errors: dict[int, str]
    ) -> dict[int, tuple[int, int]]:
        """The first `limit` rows from these offsets on; returns where each partition's begin, and where to read on."""
        cursors = [
            Cursor(number, start, known[number].end_offset, self._query.limit)
            for number, start in starting.items()
        ]
        await self._scan(cursors, errors)
        places = {one.partition: (starting[one.partition], one.position) for one in cursors}
        for number, left in _keep(self._rows, self._query.limit, newest=False).items():
            places[number] = (starting[number], left)
        return places

    async def _read_newest(
        self, known: Mapping[int, Bounds], errors: dict[int, str]
    ) -> dict[int, tuple[int, int]]:
        before = self._query.selection.before
        limit = self._query.limit
        ends = {
            number: one.end_offset
            if before is None
            else min(before.of(number, one.end_offset), one.end_offset)
            for number, one in known.items()
        }
        begins = {number: max(known[number].log_start_offset, end - limit) for number, end in ends.items()}
        upper = dict(ends)
        for _ in range(WIDENINGS):
            cursors = [
                Cursor(number, begins[number], upper[number], limit, newest=True)
                for number in ends
                if begins[number] < upper[number] and number not in errors
            ]
            found, self._rows = self._rows, {}
            await self._scan(cursors, errors)
            for number, rows in found.items():
                self._rows[number] = [*self._rows.get(number, ()), *rows][-limit:]
            short = [
                one.partition
                for one in cursors
                if len(self._rows.get(one.partition, ())) < limit
                and begins[one.partition] > known[one.partition].log_start_offset
            ]
            if not short or self._ended != "end":
                break
            for number in ends:
                upper[number] = begins[number]  # what is not short has nothing more to read
            for number in short:
                width = (ends[number] - begins[number]) * WIDER
                begins[number] = max(known[number].log_start_offset, begins[number] - width)
        places = {number: (begins[number], end) for number, end in ends.items()}
        for number, first in _keep(self._rows, limit, newest=True).items():
            places[number] = (first, ends[number])
        return places

    async def _scan(self, cursors: Sequence[Cursor], errors: dict[int, str]) -> None:
        scan = Scan(self._reads, self._executor, cursors)
        try:
            async with asyncio.timeout_at(self._end_s):
                async for opened in scan.rounds():
                    for one in opened:
                        rows = self._rows.setdefault(one.span.partition, [])
                        rows.extend(one.rows)
                        del rows[: -self._query.limit if one.span.newest else 0]
                    if self._unfolded_bytes + scan.unfolded_bytes > PAGE_MAX_BYTES:
                        self._ended = "bytes"
                        break
        except TimeoutError:
            self._ended = "seconds"
        self._unfolded_bytes += scan.unfolded_bytes
        self._skipped.add(scan.skipped())
        errors.update((one.partition, one.error) for one in cursors if one.error is not None)


async def starts(
    reads: TopicReads, selection: Selection, known: Mapping[int, Bounds], errors: dict[int, str]
) -> dict[int, int]:
    """Where a reader of `selection` begins, by partition: never before the log, never behind its end."""
    found: dict[int, int] = {}
    if selection.timestamp_ms is not None:
        times = await reads.offsets(dict.fromkeys(known, selection.timestamp_ms))
        for number, answer in times.items():
            if isinstance(answer, Trouble):
                errors[number] = answer.sentence
            else:
                found[number] = known[number].end_offset if answer < 0 else answer
    else:
        start = selection.start
        found = {
            n: one.log_start_offset if start is None else start.of(n, one.log_start_offset)
            for n, one in known.items()
        }
    return {n: min(max(one, known[n].log_start_offset), known[n].end_offset) for n, one in found.items()}


def _keep(rows: Rows, limit: int, *, newest: bool) -> dict[int, int]:
    """Keeps `limit` rows of all. Of each partition that loses some it says where what is kept ends (for the newest:
    begins): the offset to read on from."""
    kept = Counter(number for number, _ in in_order(rows, limit, newest=newest))
    places: dict[int, int] = {}
    for number, one in rows.items():
        count = kept[number]
        if count < len(one):
            if newest:
                places[number] = one[-count][1].offset if count else one[-1][1].offset + 1
                del one[: len(one) - count]
            else:
                places[number] = one[count][1].offset
                del one[count:]
    return places


def _partition_view(
    number: int, bounds: Bounds | None, place: tuple[int, int] | None, error: str | None
) -> Json:
    return {
        "partition": number,
        "log_start_offset": None if bounds is None else bounds.log_start_offset,
        "end_offset": None if bounds is None else bounds.end_offset,
        "first_offset": None if place is None else place[0],
        "next_offset": None if place is None else place[1],
        "error": error,
    }


def _encoded_page(document: Json, rows: Rows, shown_max: int, limit: int, is_newest: bool) -> bytes:
    """Run in the executor. The newest come last, as in a log."""
    ordered = in_order(rows, limit, newest=is_newest)
    document["messages"] = [message_view(n, header, record, shown_max) for n, (header, record) in ordered]
    return encoded(document)
