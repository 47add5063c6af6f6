"""Records as the console shows them: told whole, counted whole, and bounded, whatever the bytes are."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.http.console.paging import QueryError
from kraft.http.messages import views
from kraft.http.messages.batches import Needle, Opened, Skipped, Span, in_order, open_batches
from kraft.http.messages.leaders import Bounds, Fetched, OutOfRange, TopicReads, Trouble
from kraft.http.messages.pages import Page
from kraft.http.messages.queries import (
    Offsets,
    RawQuery,
    chosen,
    download_query,
    page_query,
    search_query,
    tail_query,
)
from kraft.http.messages.scanning import ATTEMPTS, Cursor, Scan
from kraft.http.messages.tailing import FRAME_BYTES, Frame, _frame_of
from kraft.http.messages.views import WHOLE, encoded, field_view, line_pieces, message_view
from kraft.protocol.fetch import AbortedTransaction
from partitions.records.batch import parse_header
from partitions.records.builder import build_batch
from partitions.records.compression import Codec
from partitions.records.record import Record
from tests.support.forged_batches import with_fields
from tests.support.logs import InlineExecutor
from tests.support.transactions import ABORT, COMMIT, marker_of, transactional

ANYWHERE = {"in_key": True, "in_value": True, "in_headers": True}


def batch_at(offset: int, *values: bytes | None, codec: int = 0, **fields: Any) -> bytes:
    return build_batch(
        [(1000 + offset + n, b"k", value, ()) for n, value in enumerate(values)],
        base_offset=offset,
        codec=codec,
        **fields,
    )


def at(offset: int, batch: bytes) -> bytes:
    return with_fields(batch, base_offset=offset)


def span(start: int = 0, end: int = 1_000, limit: int = 1_000, **more: Any) -> Span:
    return Span(0, start, end, limit, **more)


def values(opened: Opened) -> list[bytes | None]:
    return [record.value for _, record in opened.rows]


def offsets(opened: Opened) -> list[int]:
    return [record.offset for _, record in opened.rows]


# -- how a field is told


@given(st.binary(max_size=64), st.integers(1, 64))
def test_what_is_shown_of_a_field_is_its_beginning(data: bytes, shown_max: int) -> None:
    view = field_view(data, shown_max)
    assert view is not None
    shown = bytes.fromhex(view["hex"]) if "hex" in view else view["text"].encode()
    assert view["size_bytes"] == len(data)
    assert view["shown_bytes"] == len(shown) <= shown_max
    assert data.startswith(shown)
    assert ("text" in view) != ("hex" in view)
    if "text" in view and len(data) > shown_max:
        assert shown_max - len(shown) < 4, "no more is left out than a part of a character"
    if len(data) <= shown_max:
        assert shown == data


def test_null_is_told_from_empty() -> None:
    assert field_view(None, 10) is None
    assert field_view(b"", 10) == {"size_bytes": 0, "shown_bytes": 0, "text": ""}


TEXTS = st.text(max_size=40).map(str.encode)
FIELDS = st.none() | st.binary(max_size=40) | TEXTS | st.builds(lambda text: text[:-1], TEXTS)
HEADERS = st.lists(st.tuples(st.text(max_size=30), FIELDS), max_size=4).map(tuple)


@given(st.lists(st.tuples(FIELDS, FIELDS, HEADERS), min_size=1, max_size=4), st.integers(1, 24))
def test_records_in_pieces_are_what_they_are_whole(
    content: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]], piece_bytes: int
) -> None:
    batch = build_batch([(5, *fields) for fields in content])
    rows = [(7, row) for row in open_batches(batch, (), span()).rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "PIECE_BYTES", piece_bytes)
        pieces = list(line_pieces(rows))
    assert b"".join(pieces) == b"".join(encoded(message_view(n, *row, WHOLE)) + b"\n" for n, row in rows)
    assert all(pieces)


@pytest.mark.parametrize("last", [b"\0", b"\xff"], ids=["text", "no text"])
def test_a_large_record_costs_a_few_pieces(last: bytes) -> None:
    """Not the sixfold of itself that its escapes are."""
    value = bytes(8 * 1024 * 1024) + last
    record = Record(0, 0, None, value, (("n" * 1_000_000, value), ("\0" * 1_000_000, b"")))
    tracemalloc.start()
    try:
        size = sum(len(piece) for piece in line_pieces([(0, (parse_header(batch_at(0, b""), 0), record))]))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 2 * (6 if last == b"\0" else 2) * len(value)
    assert peak_bytes < 48 * views.PIECE_BYTES < len(value)


def test_headers_share_one_allowance_and_are_counted() -> None:
    headers = tuple((f"h{n}", b"x" * 10) for n in range(40))
    batch = build_batch([(5, None, b"v", headers)])
    header = parse_header(batch, 0)
    (row,) = open_batches(batch, (), span()).rows
    view = message_view(3, header, row[1], 25)
    assert (view["partition"], view["offset"], view["timestamp_ms"], view["headers_total"]) == (3, 0, 5, 40)
    assert [one["value"]["shown_bytes"] for one in view["headers"]] == [10, 10, 5, *[0] * 29]


def test_names_of_headers_share_one_allowance_too() -> None:
    headers = tuple((f"{n:02}" + "n" * 998, b"x") for n in range(20))
    (row,) = open_batches(build_batch([(5, None, b"v", headers)]), (), span()).rows
    names = [one["name"] for one in message_view(0, *row, 16)["headers"]]
    assert names == [headers[0][0], headers[1][0][:24], *[""] * 18]
    names = [one["name"] for one in message_view(0, *row, WHOLE)["headers"]]
    assert names == [name for name, _ in headers]


def test_a_frame_of_a_tail_is_bounded_whatever_its_records_are_made_of() -> None:
    headers = tuple((f"{n:02}" + "n" * 500, b"x" * 500) for n in range(32))
    data = build_batch([(5, None, None, headers)] * 200)
    (opened,), frame = _frame_of([(fetched(data, 200), span(end=200, newest=True))], 16 * 1024, Frame())
    assert opened.next_offset == 200
    assert frame is not None
    assert len(frame) < 2 * FRAME_BYTES
    told = json.loads(frame)
    assert told["messages"][-1]["offset"] == 199
    assert len(told["messages"]) + told["not_shown"] == 200


def test_a_line_of_json_is_one_line_whatever_a_record_holds() -> None:
    batch = batch_at(0, b"</script>\r\n\ndata: \xe2\x80\xa8\x00")
    view = message_view(0, *open_batches(batch, (), span()).rows[0], 100)
    line = encoded(view)
    assert line.splitlines() == [line]
    assert json.loads(line) == view


# -- what is opened, and what is passed


def test_transactions_are_read_as_their_markers_say() -> None:
    data = (
        at(0, transactional(7, b"a", b"b"))
        + at(2, transactional(8, b"c"))
        + at(3, marker_of(7, ABORT))
        + at(4, transactional(7, b"d"))
        + at(5, marker_of(7, COMMIT))
        + at(6, marker_of(8, COMMIT))
    )
    opened = open_batches(data, [AbortedTransaction(7, 0)], span(end=7))
    assert values(opened) == [b"c", b"d"]
    assert opened.skipped == Skipped(control=3, aborted=2)
    assert opened.next_offset == 7


def test_a_damaged_batch_is_passed_and_counted() -> None:
    rotten = bytearray(batch_at(1, b"bad", b"worse"))
    rotten[-1] ^= 1
    opened = open_batches(batch_at(0, b"good") + bytes(rotten) + batch_at(3, b"fine"), (), span(end=4))
    assert (values(opened), opened.next_offset, opened.error) == ([b"good", b"fine"], 4, None)
    assert opened.skipped == Skipped(damaged=1)


def test_bytes_that_are_no_batches_end_it_with_a_sentence() -> None:
    opened = open_batches(batch_at(0, b"good") + b"\xff" * 100, (), span())
    assert values(opened) == [b"good"]
    assert opened.next_offset == 1
    assert opened.error is not None


def test_a_bomb_is_not_unfolded() -> None:
    bomb = batch_at(0, *[bytes(1024 * 1024)] * 40, codec=Codec.ZSTD)
    assert len(bomb) < 200_000
    opened = open_batches(bomb + batch_at(40, b"after"), (), span())
    assert values(opened) == [b"after"]
    assert opened.skipped == Skipped(too_large=1)


def test_a_bomb_of_headers_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.http.messages.batches.HEADERS_MAX", 20_000)
    bomb = build_batch([(5, b"k", b"v", (("", None),) * 20_001)], codec=Codec.ZSTD)
    assert len(bomb) < 1_000
    opened = open_batches(bomb + batch_at(1, b"after"), (), span())
    assert values(opened) == [b"after"]
    assert opened.skipped == Skipped(too_large=1)


def test_large_batches_of_records_with_some_headers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.http.messages.batches.HEADERS_MAX", 12)
    headers = (("a", b"1"), ("b", None), ("c", b"x" * 200))
    batch = build_batch(
        [(5, key, value, headers) for key in (None, b"", b"k" * 90) for value in (None, b"v")]
    )
    assert open_batches(batch, (), span()).skipped == Skipped(too_large=1)
    monkeypatch.setattr("kraft.http.messages.batches.HEADERS_MAX", 18)
    assert len(open_batches(batch, (), span()).rows) == 6


def test_a_job_opens_a_bounded_part_of_an_answer() -> None:
    data = b"".join(batch_at(n, bytes(1024 * 1024), codec=Codec.LZ4) for n in range(20))
    opened = open_batches(data, (), span())
    assert opened.next_offset == len(opened.rows) == 4


@given(st.data())
def test_every_offset_is_a_row_or_is_counted(data: st.DataObject) -> None:
    """With gaps between batches, and within them; from any offset, up to any other."""
    parts, offset, stored = [], 0, []
    for _ in range(data.draw(st.integers(1, 6))):
        offset += data.draw(st.integers(0, 3))
        count = data.draw(st.integers(1, 4))
        tail = data.draw(st.integers(0, 2))  # offsets at the end that compaction emptied
        batch = batch_at(
            offset, *[b"%d" % (offset + n) for n in range(count)], codec=data.draw(st.sampled_from(Codec))
        )
        parts.append(with_fields(batch, last_offset_delta=count - 1 + tail))
        stored += range(offset, offset + count)
        offset += count + tail
    start = data.draw(st.integers(0, offset - 1))
    end = data.draw(st.integers(start + 1, offset))
    limit = data.draw(st.integers(1, 10))
    newest = data.draw(st.booleans())
    wanted = [one for one in stored if start <= one < end]
    answer = b"".join(part for part in parts if parse_header(part, 0).next_offset > start) + batch_at(
        offset, b""
    )
    opened = open_batches(answer, (), Span(0, start, end, limit, newest))
    assert offsets(opened) == (wanted[-limit:] if newest else wanted[:limit])
    if not newest and len(wanted) >= limit:
        assert opened.next_offset == wanted[limit - 1] + 1
    else:
        assert opened.next_offset == end
    passed = opened.next_offset - start
    assert opened.records + opened.skipped.absent == passed
    seek = Needle(b"3", ignore_case=False, **ANYWHERE)
    found = open_batches(answer, (), Span(0, start, end, 100, newest, seek))
    assert offsets(found) == [one for one in wanted if "3" in str(one)]
    assert found.records + found.skipped.absent == found.next_offset - start


def test_rows_of_partitions_are_in_the_order_of_time_and_of_their_partition() -> None:
    one = list(open_batches(batch_at(0, b"a", b"b", b"c"), (), span()).rows)
    late = with_fields(batch_at(0, b"d", b"e"), base_timestamp=1001, max_timestamp=1002)
    other = list(open_batches(late, (), span()).rows)
    rows = {0: one, 1: other}
    told = [row[1].value for _, row in in_order(rows, 10, newest=False)]
    assert told == [b"a", b"b", b"d", b"c", b"e"]
    assert [row[1].value for _, row in in_order(rows, 3, newest=False)] == told[:3]
    assert [row[1].value for _, row in in_order(rows, 3, newest=True)] == told[-3:]


# -- rounds over leaders that fail


class ScriptedReads:
    """Answers each fetch with the next of a partition's script, and bounds with what they are."""

    def __init__(
        self,
        script: Mapping[int, Sequence[Fetched | OutOfRange | Trouble]],
        bounds: Mapping[int, Bounds] = {},
    ) -> None:
        self._script = {number: list(answers) for number, answers in script.items()}
        self._bounds = bounds
        self.asked: list[Mapping[int, int]] = []

    async def fetch(
        self, positions: Mapping[int, int], max_wait_ms: int = 0
    ) -> Mapping[int, Fetched | OutOfRange | Trouble]:
        self.asked.append(dict(positions))
        return {number: self._script[number].pop(0) for number in positions}

    async def bounds(self, partitions: Sequence[int]) -> Mapping[int, Bounds]:
        return {number: self._bounds[number] for number in partitions}


def scanned(reads: ScriptedReads, *cursors: Cursor) -> tuple[list[bytes | None], Scan]:
    async def run() -> tuple[list[bytes | None], Scan]:
        found: list[bytes | None] = []
        scan = Scan(_as_reads(reads), InlineExecutor(), cursors)
        async for opened in scan.rounds():
            found += [value for one in opened for value in values(one)]
        return found, scan

    return asyncio.run(run())


def _as_reads(reads: Any) -> TopicReads:
    found: TopicReads = reads
    return found


def fetched(data: bytes, end_offset: int) -> Fetched:
    return Fetched(data, (), end_offset, 0)


def test_what_was_deleted_meanwhile_is_counted() -> None:
    reads = ScriptedReads({0: [OutOfRange(), fetched(batch_at(40, b"x"), 41)]}, {0: Bounds(40, 41)})
    found, scan = scanned(reads, Cursor(0, 10, 41, 100))
    assert found == [b"x"]
    assert scan.skipped() == Skipped(deleted=30)
    assert reads.asked == [{0: 10}, {0: 40}]


def test_a_leader_that_fails_is_tried_again_and_then_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.http.messages.scanning.BACKOFF_S", 0)
    trouble = Trouble("its leader does not answer")
    reads = ScriptedReads({0: [trouble, fetched(batch_at(0, b"x"), 1)], 1: [trouble] * ATTEMPTS})
    found, scan = scanned(reads, Cursor(0, 0, 1, 9), Cursor(1, 0, 5, 9))
    assert found == [b"x"]
    assert [one.error for one in scan.cursors] == [None, trouble.sentence]


def test_a_leader_that_moves_is_waited_for_though_others_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    monkeypatch.setattr("kraft.http.messages.scanning.BACKOFF_S", 7.0)
    monkeypatch.setattr("asyncio.sleep", sleep)
    reads = ScriptedReads(
        {
            0: [Trouble("its leader is changing"), fetched(batch_at(0, b"x"), 1)],
            1: [fetched(batch_at(0, b"y"), 2), fetched(batch_at(1, b"z"), 2)],
        }
    )
    found, scan = scanned(reads, Cursor(0, 0, 1, 9), Cursor(1, 0, 2, 9))
    assert sorted(value or b"" for value in found) == [b"x", b"y", b"z"]
    assert [one.error for one in scan.cursors] == [None, None]
    assert [one == 7.0 for one in slept] == [True, False]


class SlowReads(ScriptedReads):
    """Of a topic with one partition; the time of a page is over when its script is."""

    topic = SimpleNamespace(name="t", partitions=(None,))

    async def fetch(
        self, positions: Mapping[int, int], max_wait_ms: int = 0
    ) -> Mapping[int, Fetched | OutOfRange | Trouble]:
        if not self._script[0]:
            raise TimeoutError
        return await super().fetch(positions, max_wait_ms)


@pytest.mark.parametrize("params", [{"offset": "earliest"}, {}])
def test_a_page_whose_time_is_over_says_where_to_read_on(params: Mapping[str, str]) -> None:
    reads = SlowReads({0: [fetched(batch_at(0, b"x", b"y"), 9)]}, {0: Bounds(0, 9)})
    page = Page(_as_reads(reads), InlineExecutor(), page_query(params))
    answer = json.loads(asyncio.run(page.read()))
    assert answer["ended"] == "seconds"
    assert [one["value"]["text"] for one in answer["messages"]] == ["x", "y"]
    (place,) = answer["partitions"]
    assert (place["first_offset"], place["next_offset"]) == (0, 2 if params else 9)


def test_a_leader_that_repeats_itself_does_not_hold_a_reader_for_ever() -> None:
    again = fetched(batch_at(0, b"x"), 9)
    _, scan = scanned(ScriptedReads({0: [again] * (ATTEMPTS + 1)}), Cursor(0, 0, 9, 100))
    assert scan.cursors[0].error is not None


def test_a_reader_ends_where_there_is_nothing_though_the_end_lies_beyond() -> None:
    found, scan = scanned(ScriptedReads({0: [fetched(b"", 9)]}), Cursor(0, 5, 9, 100))
    assert (found, scan.cursors[0].error, scan.offsets_left) == ([], None, 0)


# -- questions


def test_questions_are_read() -> None:
    selection, limit, field_bytes = page_query({})
    assert selection.is_newest
    assert (selection.partitions, selection.read_committed, limit, field_bytes) == (None, True, 50, 1024)
    selection = page_query({"offset": "3:7,1:2", "isolation_level": "read_uncommitted"}).selection
    assert (selection.partitions, selection.start, selection.read_committed) == (
        (3, 1),
        Offsets(None, {3: 7, 1: 2}),
        False,
    )
    assert page_query({"offset": "earliest"}).selection.start == Offsets()
    assert page_query({"before": "9", "partition": "2,0,2"}).selection.partitions == (2, 0)
    needle = search_query({"q": "Ünd A", "ignore_case": "true", "in": "key"}).needle
    assert needle == Needle("Ünd a".encode(), True, True, False, False)
    assert tail_query({}).needle is None
    assert download_query({"format": "raw", "partition": "1", "offset": "2", "field": "key"}) == RawQuery(
        1, 2, "key", True
    )


@pytest.mark.parametrize(
    ("read", "params", "said"),
    [
        (page_query, {"limti": "5"}, "there is no parameter 'limti'"),
        (page_query, {"limit": "501"}, "1 to 500"),
        (page_query, {"limit": "500", "field_bytes": "1000000"}, "ask for fewer"),
        (page_query, {"offset": "x"}, "whole number"),
        (page_query, {"offset": "1:2,x"}, "whole number"),
        (page_query, {"offset": "5", "before": "7"}, "exclude each other"),
        (page_query, {"offset": "-1"}, "whole number"),
        (page_query, {"offset": "9" * 30}, "whole number"),
        (page_query, {"partition": ",".join(map(str, range(101)))}, "100 are read at a time"),
        (page_query, {"isolation_level": "none"}, "read_committed or read_uncommitted"),
        (search_query, {}, "say what to look for"),
        (search_query, {"q_hex": "0g"}, "hexadecimal"),
        (search_query, {"q": "a", "q_hex": "00"}, "exclude each other"),
        (search_query, {"q": "a" * 1025}, "1024 bytes at most"),
        (search_query, {"q": "a", "in": "topic"}, "key, value and headers"),
        (search_query, {"q": "a", "max_s": "999"}, "1 to 120"),
        (search_query, {"q": "a", "before": "3"}, "before is not one"),
        (tail_query, {"offset": "3"}, "there is no parameter 'offset'"),
        (download_query, {"format": "xml"}, "jsonl or raw"),
        (download_query, {"format": "raw"}, "its partition and its offset"),
        (download_query, {"format": "raw", "partition": "0", "offset": "0", "field": "x"}, "key or value"),
    ],
)
def test_a_wrong_question_is_answered_with_what_it_may_be(
    read: Any, params: dict[str, str], said: str
) -> None:
    with pytest.raises(QueryError, match=said):
        read(params)


def test_partitions_that_there_are() -> None:
    assert chosen(None, 3) == (0, 1, 2)
    assert len(chosen(None, 5_000)) == 100
    with pytest.raises(QueryError, match="from 0 on"):
        chosen((0, 3), 3)
