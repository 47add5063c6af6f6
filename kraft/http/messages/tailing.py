"""A live tail: what is written to a topic from now on, some ten times a second.

Each frame has at most `FRAME_RECORDS` of the newest records and about `FRAME_BYTES` of them; the rest is counted. A
reader that falls behind goes on near the end, and tells how many offsets it passed. A tail of all partitions takes in
those that are added meanwhile, from their beginning: all of it was written since. While nothing comes, a ping every
`PING_S` finds out whether the browser is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraft.http.console.streams import EventStream
from kraft.http.messages.batches import Opened, Skipped, Span, in_order
from kraft.http.messages.leaders import Bounds, Fetched, OutOfRange, TopicReads, Trouble
from kraft.http.messages.queries import TailQuery, chosen
from kraft.http.messages.scanning import open_all
from kraft.http.messages.views import Json, encoded, message_view, shown_bytes
from partitions.ports import Executor

FRAME_S: Final = 0.1
"""Between two frames, at least."""
WAIT_MS: Final = 100
"""That a leader waits for something new."""
FRAME_RECORDS: Final = 1_000
FRAME_BYTES: Final = 512 * 1024
BEHIND_MAX: Final = 20_000
"""Offsets between the reader and a partition's end."""
PING_S: Final = 5.0
RETRY_S: Final = 1.0
"""After a round in which no leader answered."""


@dataclass(slots=True)
class Frame:
    """What one frame tells beside its messages."""

    matched: int = 0
    passed: int = 0
    """Offsets that were not read: the reader was too far behind."""
    skipped: Skipped = field(default_factory=Skipped)
    errors: dict[str, str] = field(default_factory=dict)

    def view(self) -> Json:
        return {
            "matched": self.matched,
            "passed": self.passed,
            "skipped": self.skipped.view(),
            "errors": self.errors,
        }


class Tail:
    """One stream. `is_allowed` is asked in each frame: an ACL may be taken back meanwhile."""

    def __init__(
        self, reads: TopicReads, executor: Executor, query: TailQuery, is_allowed: Callable[[], bool]
    ) -> None:
        self._reads = reads
        self._executor = executor
        self._query = query
        self._is_allowed = is_allowed
        self._numbers: tuple[int, ...] = ()
        self._positions: dict[int, int] = {}
        self._new: set[int] = set()
        """Partitions that were added since the start, and are still to be begun."""
        self._errors: dict[str, str] = {}

    async def run(self, stream: EventStream) -> None:
        """Until the browser goes, the topic is deleted, or the right to read it is taken back. Raises StreamOver."""
        loop = asyncio.get_running_loop()
        self._look_for_new()
        self._new.clear()  # those that there are at the start
        await self._begin(self._numbers)
        await stream.send("start", self._start())
        told_s = loop.time()
        while True:
            began_s = loop.time()
            stream.check()
            if not self._is_allowed():
                await stream.send(
                    "refused", {"error": f"topic {self._reads.topic.name} may not be read any more"}
                )
                return
            if self._reads.is_gone:
                await stream.send("refused", {"error": f"topic {self._reads.topic.name} was deleted"})
                return
            self._look_for_new()
            frame, data = await self._frame()
            if data is not None or frame.errors != self._errors or frame.passed:
                self._errors = frame.errors
                await stream.send_encoded(
                    "messages", data or encoded({"messages": [], "not_shown": 0, **frame.view()})
                )
                told_s = loop.time()
            elif loop.time() - told_s >= PING_S:
                await stream.ping()
                told_s = loop.time()
            is_silent = len(frame.errors) == len(self._numbers)
            await asyncio.sleep(max(began_s + (RETRY_S if is_silent else FRAME_S) - loop.time(), 0))

    def _start(self) -> Json:
        is_all = self._query.partitions is None
        left_out = self._reads.partition_count - len(self._numbers) if is_all else 0
        next_offsets = {str(number): offset for number, offset in self._positions.items()}
        return {"next_offsets": next_offsets, "partitions_left_out": left_out}

    def _look_for_new(self) -> None:
        numbers = chosen(self._query.partitions, self._reads.partition_count)
        self._new.update(numbers[len(self._numbers) :])
        self._numbers = numbers

    async def _begin(self, numbers: Sequence[int]) -> None:
        """At the ends; where a partition was added since the start, at its beginning."""
        for number, bounds in (await self._reads.bounds(numbers)).items():
            if isinstance(bounds, Bounds):
                is_new = number in self._new
                self._positions[number] = bounds.log_start_offset if is_new else bounds.end_offset
                self._new.discard(number)

    async def _frame(self) -> tuple[Frame, bytes | None]:
        frame, numbers = Frame(), self._numbers
        unknown = [number for number in numbers if number not in self._positions]
        if unknown:  # a leader that did not answer at first
            await self._begin(unknown)
        answers = await self._reads.fetch(self._positions, WAIT_MS)
        spans = self._spans(answers, frame)
        frame.errors.update(
            (str(n), "its leader does not answer") for n in numbers if n not in self._positions
        )
        # Each partition comes first in turn: leaders serve the first ones first.
        self._positions = {
            n: self._positions[n] for n in [*list(self._positions)[1:], *list(self._positions)[:1]]
        }
        missing = [number for number, answer in answers.items() if isinstance(answer, OutOfRange)]
        for number in missing:
            del self._positions[number]
        if not spans:
            return frame, None
        opened, data = await self._executor.run(_frame_of, spans, self._query.field_bytes, frame)
        for one in opened:
            self._positions[one.span.partition] = one.next_offset
        return frame, data

    def _spans(
        self, answers: Mapping[int, Fetched | OutOfRange | Trouble], frame: Frame
    ) -> list[tuple[Fetched, Span]]:
        spans = []
        for number, answer in answers.items():
            position = self._positions[number]
            if isinstance(answer, Trouble):
                frame.errors[str(number)] = answer.sentence
            elif isinstance(answer, Fetched) and answer.end_offset - position > BEHIND_MAX:
                target = answer.end_offset - FRAME_RECORDS
                frame.passed += target - position
                self._positions[number] = target
            elif isinstance(answer, Fetched) and len(answer.data):
                span = Span(number, position, answer.end_offset, FRAME_RECORDS, True, self._query.needle)
                spans.append((answer, span))
        return spans


def _frame_of(
    answers: Sequence[tuple[Fetched, Span]], shown_max: int, frame: Frame
) -> tuple[list[Opened], bytes | None]:
    """Run in the executor: opens the answers and makes the frame's JSON; None: it has nothing to tell."""
    opened = open_all(answers)
    for one in opened:
        frame.matched += one.matched
        frame.skipped.add(one.skipped)
        if one.error is not None:
            frame.errors[str(one.span.partition)] = one.error
            frame.passed += one.span.end - one.next_offset
            one.next_offset = one.span.end
    rows = {one.span.partition: tuple(one.rows) for one in opened}
    messages: list[Json] = []
    left_bytes = FRAME_BYTES
    for number, (header, record) in reversed(in_order(rows, FRAME_RECORDS, newest=True)):
        message = message_view(number, header, record, shown_max)
        left_bytes -= shown_bytes(message)
        if left_bytes < 0 and messages:
            break
        messages.append(message)
    messages.reverse()
    if not frame.matched and frame.skipped == Skipped():
        return opened, None
    not_shown = frame.matched - len(messages)
    return opened, encoded({"messages": messages, "not_shown": not_shown, **frame.view()})
