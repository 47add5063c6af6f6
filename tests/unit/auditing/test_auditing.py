"""Counts of producers, and their comparison."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.auditing import comparing
from kraft.auditing.comparing import (
    NEVER,
    Known,
    Numbers,
    Outcome,
    Produced,
    TooManyWindowsError,
    Verdict,
    Window,
    WindowsDifferError,
    judge,
    outcome,
)
from kraft.auditing.counting import MAX_WINDOWS, WindowCounter
from kraft.auditing.messages import CountMessage, decode_count

MINUTE = 60_000
NOW = 1_000 * MINUTE


def message(window: int, count: int, sequence: int, **fields: object) -> CountMessage:
    known = CountMessage("produced", "web-1", "p1", "orders", window * MINUTE, MINUTE, count, sequence)
    return replace(known, **fields)  # type: ignore[arg-type]


# ---- messages


def test_a_message_is_read_back() -> None:
    one = message(5, 3, 0, host="zürich")
    assert decode_count(one.encode()) == one
    assert decode_count(one.encode()[:-1] + b', "version": 2}') == one


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "Expecting value"),
        (b"\xff", "codec can't decode"),
        (b"[" * 100_000, "too deep"),
        (b"[]", "no JSON object"),
        (message(5, 3, 0).encode().replace(b'"host"', b'"guest"'), "a text host"),
        (message(5, 3, 0).encode().replace(b'"count": 3', b'"count": true'), "a whole number count"),
        (message(5, 3, 0).encode().replace(b'"count": 3', b'"count": 0'), "from 1 on"),
        (message(5, 3, 0, window_start_ms=7).encode(), "no multiple"),
    ],
)
def test_what_is_no_message(value: bytes | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode_count(value)


# ---- counting


def test_counts_are_due_when_their_windows_are_over_and_late_ones_with_the_next() -> None:
    counter = WindowCounter("web-1", "p1", MINUTE)
    assert counter.due(NOW) == []
    for seconds in (0, 59, 60):
        counter.add("orders", NOW + seconds * 1000)
    assert counter.due(NOW + MINUTE - 1) == []
    assert counter.due(NOW + MINUTE) == [message(1000, 2, 0)]
    counter.add("orders", NOW + 1)  # acknowledged late
    assert counter.due(NOW + MINUTE + 1) == []
    assert counter.due(NOW + 2 * MINUTE) == [message(1000, 1, 1), message(1001, 1, 2)]
    counter.add("orders", NOW)
    counter.add("other", NOW + 9 * MINUTE, 4)
    assert counter.rest() == [message(1000, 1, 3), message(1009, 4, 4, topic="other")]
    assert counter.rest() == []


def test_no_more_windows_are_held_back_than_the_limit() -> None:
    counter = WindowCounter("web-1", "p1", MINUTE)
    counter.due(NOW)
    for number in range(MAX_WINDOWS + 1):
        counter.add("orders", NOW + number * MINUTE)
    assert len(counter.due(NOW)) == MAX_WINDOWS + 1


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(-10, 500), st.booleans()), max_size=60),
    st.randoms(use_true_random=False),
)
def test_messages_add_up_to_what_was_added_however_often_they_are_sent(adds, random) -> None:  # type: ignore[no-untyped-def]
    counter = WindowCounter("web-1", "p1", 100)
    sent, wanted, now_ms = [], Counter[int](), 0
    for topic, time_ms, asks in adds:
        counter.add(topic, time_ms)
        wanted[time_ms // 100 * 100] += topic == "a"
        if asks:
            now_ms += 60
            sent += counter.due(now_ms)
    sent += counter.rest()
    doubled = [one for one in sent for _ in range(random.choice([1, 1, 2]))]
    for _ in range(3):  # requests in flight may change places
        if len(doubled) > 1:
            at = random.randrange(len(doubled) - 1)
            doubled[at : at + 2] = reversed(doubled[at : at + 2])
    produced = Produced("a")
    for one in doubled:
        produced.take(decode_count(one.encode()))
    assert {start: sum(hosts.values()) for start, hosts in produced.by_window(100).items()} == +wanted
    assert (produced.missing, produced.duplicates) == (0, len(doubled) - len(sent))


# ---- what messages say


def test_a_message_that_is_missing_is_noticed() -> None:
    produced = Produced("orders")
    for sequence in (0, 1, 4):
        produced.take(message(5, 10, sequence))
    produced.take(message(5, 10, 2, producer="p2"))
    produced.take(message(5, 10, 0, tier="consumed"))
    assert produced.missing == 2 + 2
    assert produced.by_window(MINUTE) == {5 * MINUTE: {"web-1": 40}}
    expired = Produced("orders", is_whole=False)
    expired.take(message(5, 10, 7))
    assert expired.missing == 0


def test_a_producer_that_lost_many_messages_is_not_remembered_without_end() -> None:
    produced = Produced("orders")
    for sequence in range(1, comparing._MAX_AHEAD + 5):
        produced.take(message(5, 1, sequence))
    assert produced.missing == 1
    assert not produced._producers["p1"]._ahead


def test_windows_of_several_sizes() -> None:
    produced = Produced("orders")
    produced.take(message(5, 10, 0))
    produced.take(message(0, 3, 0, producer="p2", window_ms=10_000, window_start_ms=310_000))
    assert produced.window_ms() == MINUTE
    assert produced.by_window(MINUTE) == {5 * MINUTE: {"web-1": 13}}
    produced.take(message(0, 3, 0, producer="p3", window_ms=45_000, window_start_ms=0))
    with pytest.raises(WindowsDifferError, match="windows of 10 s, 45 s, 60 s, which do not fit"):
        produced.window_ms()


def test_a_bound_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "MAX_WINDOWS", 2)
    produced = Produced("orders")
    produced.take(message(0, 1, 0))
    produced.take(message(1, 1, 1))
    with pytest.raises(TooManyWindowsError, match="--from-time"):
        produced.take(message(2, 1, 2))


# ---- verdicts

SETTLED = Known(open_from_ms=NOW)
OLD = 5 * MINUTE


@pytest.mark.parametrize(
    ("produced", "stored", "taken", "ingested", "known", "verdict"),
    [
        (7, 7, None, None, SETTLED, "equal"),
        (7, 6, None, None, SETTLED, "lost"),
        (7, 8, None, None, SETTLED, "uncounted"),
        (7, 8, None, None, Known(open_from_ms=OLD + MINUTE - 1), "open"),
        (7, 8, None, None, Known(open_from_ms=OLD + MINUTE), "uncounted"),
        (7, 6, None, None, Known(open_from_ms=OLD), "open"),
        (7, 6, None, None, Known(NOW, is_held_back=True), "open"),
        (7, 8, None, None, Known(NOW, is_held_back=True), "uncounted"),
        (7, 6, None, None, Known(NOW, stored_from_ms=OLD + 1), "unknown"),
        (7, 6, None, None, Known(NOW, stored_from_ms=OLD), "lost"),
        (7, 8, None, None, Known(NOW, stored_from_ms=OLD + 1), "uncounted"),
        (7, 6, None, None, Known(NOW, is_compacted=True), "unknown"),
        (7, 8, None, None, Known(NOW, counted_from_ms=OLD + 1), "unknown"),
        (7, 8, None, None, Known(NOW, counts_are_missing=True), "unknown"),
        (7, 7, 7, 7, SETTLED, "equal"),
        (7, 7, 7, 6, SETTLED, "not ingested"),
        (7, 7, 7, 8, SETTLED, "doubled"),
        (7, 7, 5, 5, SETTLED, "behind"),
        (7, 7, 5, 6, SETTLED, "doubled"),
        (7, 6, 6, 6, SETTLED, "lost"),
        (7, 8, 8, 7, Known(open_from_ms=OLD), "not ingested"),
        (7, 5, 5, 7, Known(NOW, stored_from_ms=OLD + 1), "equal"),
        (7, 5, 5, 6, Known(NOW, stored_from_ms=OLD + 1), "unknown"),
    ],
)
def test_verdicts(
    produced: int, stored: int, taken: int | None, ingested: int | None, known: Known, verdict: str
) -> None:
    window = Window(OLD, {"web-1": produced}, stored, taken, ingested)
    assert judge(window, MINUTE, known) == verdict


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], "undecided"),
        ([Verdict.OPEN, Verdict.BEHIND], "undecided"),
        ([Verdict.EQUAL, Verdict.OPEN, Verdict.BEHIND], "equal"),
        ([Verdict.EQUAL, Verdict.UNKNOWN], "undecided"),
        ([Verdict.EQUAL, Verdict.FORMER], "equal"),
        ([Verdict.DOUBLED, Verdict.FORMER], "different"),
        ([Verdict.FORMER], "undecided"),
        ([Verdict.EQUAL, Verdict.UNKNOWN, Verdict.LOST], "different"),
    ],
)
def test_outcomes(verdicts: list[Verdict], expected: str) -> None:
    assert outcome(dict(enumerate(verdicts))) is Outcome(expected)


@pytest.mark.parametrize(
    ("ingested", "shared", "former", "taken", "verdict"),
    [
        (0, 7, 0, 7, "equal"),
        (3, 4, 0, 7, "equal"),
        (3, 3, 0, 7, "not ingested"),
        (8, 0, 0, 7, "doubled"),
        (7, 1, 0, 7, "former"),
        (7, 0, 1, 7, "former"),
        (0, 5, 0, 0, "former"),
        (0, 0, 0, 0, "behind"),
    ],
)
def test_rows_of_a_former_topic(ingested: int, shared: int, former: int, taken: int, verdict: str) -> None:
    """Of offsets that both topics have, no row more is the topic's own than it lacks."""
    numbers = Numbers({OLD: {"a": 7}}, {OLD: 7}, {OLD: taken}, {OLD: ingested}, {OLD: shared}, {OLD: former})
    window = numbers.window(OLD)
    assert judge(window, MINUTE, SETTLED) == verdict
    assert window.former + (window.ingested or 0) == ingested + shared + former
    if verdict == "former":  # rows that nobody can account for may be anybody's
        assert judge(window, MINUTE, Known(NOW, table_is_whole=False)) == "unknown"


def test_every_window_that_anybody_knows_of() -> None:
    numbers = Numbers({1: {"a": 2, "b": 3}}, {2: 4}, {2: 4}, {3: 1})
    assert [numbers.window(start) for start in numbers.starts] == [
        Window(1, {"a": 2, "b": 3}, 0, 0, 0),
        Window(2, {}, 4, 4, 0),
        Window(3, {}, 0, 0, 1),
    ]
    assert numbers.window(1).produced == 5
    assert Known(0).stored_from_ms == NEVER
