"""A download: records as JSON lines, whole, or one field of one record as it is.

JSON lines end with one that says why they end and where to read on: a file that lacks it is cut off. A browser that
does not read for `WRITE_TIMEOUT_S` is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from kraft.http.messages.leaders import Bounds, TopicReads, Trouble
from kraft.http.messages.pages import starts
from kraft.http.messages.queries import DownloadQuery, Offsets, RawQuery, chosen
from kraft.http.messages.scanning import Cursor, Scan
from kraft.http.messages.views import encoded, line_pieces
from partitions.ports import Executor

DOWNLOAD_MAX_S: Final = 120.0
DOWNLOAD_MAX_BYTES: Final = 256 * 1024 * 1024
"""Unfolded."""
WRITE_TIMEOUT_S: Final = 20.0


class Download:
    """JSON lines. `run` once."""

    def __init__(self, reads: TopicReads, executor: Executor, query: DownloadQuery) -> None:
        self._reads = reads
        self._executor = executor
        self._query = query

    async def run(self, request: web.Request, keep_open: Callable[[], None]) -> web.StreamResponse:
        """The answer, sent. Records of several partitions come as they were read. `keep_open` is called after each
        part; the answer is cut off if that raises ConnectionError."""
        selection = self._query.selection
        numbers = chosen(selection.partitions, len(self._reads.topic.partitions))
        bounds = await self._reads.bounds(numbers)
        errors = {number: one.sentence for number, one in bounds.items() if isinstance(one, Trouble)}
        known = {number: one for number, one in bounds.items() if isinstance(one, Bounds)}
        ends = {number: one.end_offset for number, one in known.items()}
        if selection.is_newest:
            before = selection.before or Offsets()
            ends = {number: min(before.of(number, end), end) for number, end in ends.items()}
            share = max(self._query.limit // max(len(ends), 1), 1)
            starting = {n: max(known[n].log_start_offset, end - share) for n, end in ends.items()}
        else:
            starting = await starts(self._reads, selection, known, errors)
        limit = self._query.limit
        scan = Scan(
            self._reads, self._executor, [Cursor(n, at, ends[n], limit) for n, at in starting.items()]
        )
        response = web.StreamResponse(
            headers=headers(f"{self._reads.topic.name}.jsonl", "application/x-ndjson")
        )
        await response.prepare(request)

        async def write(data: bytes) -> None:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await response.write(data)
            keep_open()

        try:
            reason = await self._send(scan, write)
            errors.update((one.partition, one.error) for one in scan.cursors if one.error is not None)
            if reason == "end" and errors:
                reason = "errors"
            await write(
                encoded(
                    {
                        "end": reason,
                        "next_offsets": scan.next_offsets(),
                        "skipped": scan.skipped().view(),
                        "errors": {str(number): sentence for number, sentence in errors.items()},
                    }
                )
                + b"\n"
            )
            await response.write_eof()
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()  # the last line is missing, and the browser is told of a failure
        return response

    async def _send(self, scan: Scan, write: Callable[[bytes], Awaitable[None]]) -> str:
        """Why it ended."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + DOWNLOAD_MAX_S
        left = self._query.limit
        async for opened in scan.rounds():
            rows = [(one.span.partition, row) for one in opened for row in one.rows]
            for number, (_, record) in rows[left:]:
                scan.give_back(number, record.offset)
            pieces = line_pieces(rows[:left])
            # A round may be large, and a browser slow: it does not hold the round for longer than that.
            async with asyncio.timeout_at(end_s + WRITE_TIMEOUT_S):
                while piece := await self._executor.run(next, pieces, b""):
                    await write(piece)
            left -= len(rows[:left])
            if left <= 0:
                return "limit"
            if scan.unfolded_bytes >= DOWNLOAD_MAX_BYTES:
                return "bytes"
            if loop.time() >= end_s:
                return "seconds"
        return "end"


async def raw_field(reads: TopicReads, executor: Executor, query: RawQuery) -> bytes | str | None:
    """The bytes of a record's key or value, None if it is null; or a sentence: why there is no such record."""
    chosen((query.partition,), len(reads.topic.partitions))
    cursor = Cursor(query.partition, query.offset, query.offset + 1, 1)
    async for opened in Scan(reads, executor, [cursor]).rounds():
        for one in opened:
            for _, record in one.rows:
                return record.key if query.field == "key" else record.value
    return cursor.error or f"there is no record at offset {query.offset} of partition {query.partition}"


def headers(file_name: str, content_type: str) -> dict[str, str]:
    """Of an answer that a browser keeps, and never shows. Topics' names need no quoting."""
    return {
        "Content-Type": content_type,
        "Content-Disposition": f'attachment; filename="{file_name}"',
        "Cache-Control": "no-store",
    }
