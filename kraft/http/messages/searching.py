"""A search: records that hold some bytes, as they are found, until all is read or a bound is met.

It ends when the browser goes away: each event that cannot be sent ends it, and one is sent every `PROGRESS_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from kraft.http.console.streams import EventStream
from kraft.http.messages.batches import Opened, Row
from kraft.http.messages.leaders import Bounds, TopicReads, Trouble
from kraft.http.messages.pages import starts
from kraft.http.messages.queries import Offsets, SearchQuery, chosen
from kraft.http.messages.scanning import Cursor, Scan
from kraft.http.messages.views import Json, encoded, message_view
from partitions.ports import Executor

PROGRESS_S: Final = 0.25
MATCHES_PER_EVENT: Final = 50


class Search:
    """One request. `run` once."""

    def __init__(self, reads: TopicReads, executor: Executor, query: SearchQuery) -> None:
        self._reads = reads
        self._executor = executor
        self._query = query
        self._matched = 0
        self._errors: dict[int, str] = {}

    async def run(self, stream: EventStream) -> None:
        """Sends what it finds. Raises StreamOver."""
        selection = self._query.selection
        numbers = chosen(selection.partitions, len(self._reads.topic.partitions))
        bounds = await self._reads.bounds(numbers)
        self._errors = {number: one.sentence for number, one in bounds.items() if isinstance(one, Trouble)}
        known = {number: one for number, one in bounds.items() if isinstance(one, Bounds)}
        if selection.is_newest:
            selection = selection._replace(start=Offsets())
        starting = await starts(self._reads, selection, known, self._errors)
        limit = self._query.limit
        cursors = [Cursor(n, start, known[n].end_offset, limit) for n, start in starting.items()]
        scan = Scan(self._reads, self._executor, cursors, self._query.needle)
        await stream.send("progress", self._progress(scan))
        reason = "seconds"
        try:
            async with asyncio.timeout(self._query.max_s):
                reason = await self._scan(scan, stream)
        except TimeoutError:
            pass
        self._note_errors(scan)
        if reason == "end" and self._errors:
            reason = "errors"
        await stream.send("done", {"reason": reason, **self._progress(scan)})

    async def _scan(self, scan: Scan, stream: EventStream) -> str:
        """Why it ended."""
        loop = asyncio.get_running_loop()
        told_s = loop.time()
        async for opened in scan.rounds():
            await self._send_matches(scan, opened, stream)
            if self._matched >= self._query.limit:
                return "limit"
            if scan.unfolded_bytes >= self._query.max_bytes:
                return "bytes"
            if loop.time() - told_s >= PROGRESS_S:
                told_s = loop.time()
                self._note_errors(scan)
                await stream.send("progress", self._progress(scan))
        return "end"

    async def _send_matches(self, scan: Scan, opened: Sequence[Opened], stream: EventStream) -> None:
        found = [(one.span.partition, row) for one in opened for row in one.rows]
        room = self._query.limit - self._matched
        for number, (_, record) in found[room:]:
            scan.give_back(number, record.offset)
        found = found[:room]
        self._matched += len(found)
        for start in range(0, len(found), MATCHES_PER_EVENT):
            data = await self._executor.run(
                _matches, found[start : start + MATCHES_PER_EVENT], self._query.field_bytes
            )
            await stream.send_encoded("matches", data)

    def _note_errors(self, scan: Scan) -> None:
        self._errors.update((one.partition, one.error) for one in scan.cursors if one.error is not None)

    def _progress(self, scan: Scan) -> Json:
        return {
            "records": scan.records,
            "bytes": scan.unfolded_bytes,
            "matched": self._matched,
            "offsets_left": scan.offsets_left,
            "skipped": scan.skipped().view(),
            "errors": {str(number): sentence for number, sentence in self._errors.items()},
            "next_offsets": scan.next_offsets(),
        }


def _matches(found: Sequence[tuple[int, Row]], shown_max: int) -> bytes:
    """Run in the executor."""
    views = [message_view(number, header, record, shown_max) for number, (header, record) in found]
    return encoded({"messages": views})
