"""The judge of transactions, on histories with a planted anomaly each, and on those that only look like one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from kraft.chaos.checker import Excuses, TransactionReport, check_transactions
from kraft.chaos.history import TopicKey, Value
from kraft.chaos.transaction_history import (
    OffsetTold,
    Source,
    Transaction,
    TransactionEnd,
    TransactionHistory,
    Write,
)

P0, P1, INPUT = (b"t" * 16, 0), (b"t" * 16, 1), (b"i" * 16, 0)
COMMITTED, ABORTED = TransactionEnd.COMMITTED, TransactionEnd.ABORTED
UNKNOWN, OPEN = TransactionEnd.UNKNOWN, TransactionEnd.OPEN


@dataclass
class Story:
    """A history told step by step; a second passes with each."""

    history: TransactionHistory = field(default_factory=TransactionHistory)
    now_s: float = 0.0

    def begins(self, transactional_id: str = "t", *, group: str = "") -> Transaction:
        self.now_s += 1
        return self.history.begin(transactional_id, f"{transactional_id}.1", self.now_s, group=group)

    def writes(
        self, one: Transaction, key: TopicKey, offset: int, *values: Value, sources: Sequence[Source] = ()
    ) -> None:
        one.writes.append(Write(key, values, tuple(sources), offset))

    def ends(self, one: Transaction, end: TransactionEnd) -> None:
        self.now_s += 1
        if end is not ABORTED:
            one.commit_asked_s = self.now_s
        one.end = end

    def wrote(
        self,
        *writes: tuple[TopicKey, int, Value],
        end: TransactionEnd = COMMITTED,
        transactional_id: str = "t",
    ) -> Transaction:
        one = self.begins(transactional_id)
        for key, offset, value in writes:
            self.writes(one, key, offset, value)
        self.ends(one, end)
        return one

    def processed(
        self, source: Source, key: TopicKey, offset: int, value: Value, tag: str = "c"
    ) -> Transaction:
        one = self.begins("p", group="g")
        self.writes(one, key, offset, value, sources=[source])
        one.consumed[source[0]] = source[1] + 1
        one.tags.append(tag)
        self.ends(one, COMMITTED)
        return one

    def reads(
        self, key: TopicKey, start: int, end: int, *records: tuple[int, Value], final: bool = False
    ) -> None:
        self.now_s += 1
        self.history.polled("r", key, self.now_s, start, records, end, final=final)
        if final:
            self.history.log_starts[key] = 0

    def told(self, tag: str) -> None:
        self.now_s += 1
        self.history.told.append(OffsetTold(tag, self.now_s))


def _oracles(report: TransactionReport) -> list[str]:
    return [anomaly.oracle for anomaly in report.anomalies]


def _judged(story: Story) -> list[str]:
    return _oracles(check_transactions(story.history))


def test_whole_transactions_are_sound() -> None:
    story = Story()
    story.wrote((P0, 0, b"a"), (P1, 0, b"b"))
    story.wrote((P0, 2, b"c"), (P1, 2, b"d"), end=ABORTED)
    story.wrote((P0, 4, b"e"), (P1, 4, b"f"), end=UNKNOWN)
    story.reads(P0, 0, 4, (0, b"a"))
    story.reads(P0, 0, 6, (0, b"a"), (4, b"e"), final=True)
    story.reads(P1, 0, 6, (0, b"b"), (4, b"f"), final=True)
    report = check_transactions(story.history)
    assert _oracles(report) == []
    assert report.excused == []
    assert report.counts["records of transactions demanded"] == 4
    assert report.counts["transactions aborted"] == 1


@pytest.mark.parametrize("end", [ABORTED, OPEN])
def test_a_read_of_what_was_not_committed(end: TransactionEnd) -> None:
    story = Story()
    one = story.begins()
    story.writes(one, P0, 0, b"a")
    one.end = end
    story.reads(P0, 0, 1, (0, b"a"))
    assert _judged(story) == ["aborted-read"]


@pytest.mark.parametrize(("cut", "found"), [(P0, []), (P1, ["aborted-read"])])
def test_an_abort_whose_marker_is_lost_ends_with_the_next_commit(cut: TopicKey, found: list[str]) -> None:
    """A broker takes what is open for a part of the producer's next transaction."""
    story = Story()
    one = story.begins()
    story.writes(one, P0, 0, b"a")
    one.end = ABORTED
    story.wrote((P0, 1, b"b"))
    story.reads(P0, 0, 3, (0, b"a"), (1, b"b"))
    report = check_transactions(story.history, Excuses(is_cut=lambda key: key == cut))
    assert _oracles(report) == found
    assert bool(report.excused) is not bool(found)


def test_a_lost_marker_excuses_nothing_of_a_transaction_that_was_not_ended() -> None:
    story = Story()
    story.writes(story.begins(), P0, 0, b"a")
    story.reads(P0, 0, 1, (0, b"a"))
    report = check_transactions(story.history, Excuses(is_cut=lambda key: True))
    assert _oracles(report) == ["aborted-read"]


def test_a_read_of_a_commit_that_was_refused() -> None:
    story = Story()
    one = story.wrote((P0, 0, b"a"))
    one.end = ABORTED
    story.reads(P0, 0, 1, (0, b"a"))
    assert _judged(story) == ["aborted-read"]


def test_a_read_before_the_commit_was_asked() -> None:
    story = Story()
    one = story.begins()
    story.writes(one, P0, 0, b"a")
    story.reads(P0, 0, 1, (0, b"a"))
    story.ends(one, COMMITTED)
    assert _judged(story) == ["precommitted-read"]


def test_a_read_of_what_nobody_sent() -> None:
    story = Story()
    story.reads(P0, 0, 1, (0, b"a"))
    assert _judged(story) == ["unsent-read"]


@pytest.mark.parametrize("end", [COMMITTED, UNKNOWN])
def test_a_transaction_in_part(end: TransactionEnd) -> None:
    story = Story()
    story.wrote((P0, 0, b"a"), (P1, 0, b"b"), end=end)
    story.reads(P0, 0, 2, (0, b"a"), final=True)
    story.reads(P1, 0, 2, final=True)
    assert _judged(story) == ["torn-transaction"]


def test_nothing_of_a_commit() -> None:
    story = Story()
    story.wrote((P0, 0, b"a"))
    story.reads(P0, 0, 2, final=True)
    assert _judged(story) == ["lost-transaction"]


def test_nothing_of_a_commit_that_nobody_promised() -> None:
    story = Story()
    story.wrote((P0, 0, b"a"), end=UNKNOWN)
    story.reads(P0, 0, 2, final=True)
    assert _judged(story) == []


@pytest.mark.parametrize(
    "excuses",
    [
        Excuses(is_gone=lambda key, offset, value: (key, offset, value) == (P1, 0, b"b")),
        Excuses(is_cut=lambda key: key == P1),
        Excuses(is_forgotten=lambda transactional_id: transactional_id == "t"),
    ],
)
def test_a_torn_transaction_with_an_excuse(excuses: Excuses) -> None:
    story = Story()
    story.wrote((P0, 0, b"a"), (P1, 0, b"b"))
    story.reads(P0, 0, 2, (0, b"a"), final=True)
    story.reads(P1, 0, 2, final=True)
    report = check_transactions(story.history, excuses)
    assert _oracles(report) == []
    assert len(report.excused) == 1


def test_the_excuse_of_another_partition_does_not_count() -> None:
    story = Story()
    story.wrote((P0, 0, b"a"), (P1, 0, b"b"))
    story.reads(P0, 0, 2, (0, b"a"), final=True)
    story.reads(P1, 0, 2, final=True)
    report = check_transactions(story.history, Excuses(is_cut=lambda key: key == P0))
    assert _oracles(report) == ["torn-transaction"]


def test_what_retention_took_is_not_demanded() -> None:
    story = Story()
    story.wrote((P0, 0, b"a"), (P0, 1, b"b"))
    story.reads(P0, 1, 3, (1, b"b"), final=True)
    story.history.log_starts[P0] = 1
    assert _judged(story) == []


def test_a_reader_that_passes_a_committed_record() -> None:
    story = Story()
    story.wrote((P0, 0, b"a"))
    story.reads(P0, 0, 2)
    story.reads(P0, 0, 2, (0, b"a"), final=True)
    assert _judged(story) == ["skipped-commit"]


def test_a_reader_that_got_what_is_gone() -> None:
    story = Story()
    story.wrote((P0, 0, b"a"), end=UNKNOWN)
    story.reads(P0, 0, 2, (0, b"a"))
    story.reads(P0, 0, 2, final=True)
    assert _judged(story) == ["vanished-commit"]


def test_a_record_that_is_there_twice() -> None:
    story = Story()
    story.wrote((P0, 0, b"a"))
    story.reads(P0, 0, 3, (0, b"a"), (1, b"a"), final=True)
    assert _judged(story) == ["doubled-commit"]


def test_transactions_of_one_id_in_two_orders() -> None:
    story = Story()
    story.wrote((P0, 0, b"a"), (P1, 2, b"b"))
    story.wrote((P0, 2, b"c"), (P1, 0, b"d"))
    story.reads(P0, 0, 4, (0, b"a"), (2, b"c"), final=True)
    story.reads(P1, 0, 4, (0, b"d"), (2, b"b"), final=True)
    assert _judged(story) == ["write-cycle"]


def test_transactions_of_two_ids_may_interleave() -> None:
    story = Story()
    story.wrote((P0, 0, b"a"), (P1, 2, b"b"))
    story.wrote((P0, 2, b"c"), (P1, 0, b"d"), transactional_id="u")
    story.reads(P0, 0, 4, (0, b"a"), (2, b"c"), final=True)
    story.reads(P1, 0, 4, (0, b"d"), (2, b"b"), final=True)
    assert _judged(story) == []


def test_two_transactions_that_read_of_each_other() -> None:
    story = Story()
    one, other = story.begins("p"), story.begins("q")
    story.writes(one, P0, 0, b"a", sources=[(P1, 0)])
    story.writes(other, P1, 0, b"b", sources=[(P0, 0)])
    story.ends(one, COMMITTED)
    story.ends(other, COMMITTED)
    story.reads(P0, 0, 2, (0, b"a"), final=True)
    story.reads(P1, 0, 2, (0, b"b"), final=True)
    assert _judged(story) == ["read-cycle"]


def test_a_transaction_that_reads_of_itself() -> None:
    story = Story()
    one = story.begins("p")
    story.writes(one, P0, 0, b"a")
    story.writes(one, P1, 0, b"b", sources=[(P0, 0)])
    story.ends(one, COMMITTED)
    story.reads(P0, 0, 2, (0, b"a"), final=True)
    story.reads(P1, 0, 2, (0, b"b"), final=True)
    assert _judged(story) == ["read-cycle"]


def _with_inputs(story: Story) -> None:
    story.wrote((INPUT, 0, b"i"), (INPUT, 1, b"j"))
    story.reads(INPUT, 0, 3, (0, b"i"), (1, b"j"), final=True)


def test_outputs_equal_inputs_once() -> None:
    story = Story()
    _with_inputs(story)
    story.processed((INPUT, 0), P0, 0, b"a")
    story.processed((INPUT, 1), P0, 2, b"b")
    story.reads(P0, 0, 4, (0, b"a"), (2, b"b"), final=True)
    report = check_transactions(story.history)
    assert _oracles(report) == []
    assert report.counts["outputs judged"] == 2


def test_an_input_with_two_outputs() -> None:
    story = Story()
    _with_inputs(story)
    story.processed((INPUT, 0), P0, 0, b"a")
    story.processed((INPUT, 0), P0, 2, b"b")
    story.reads(P0, 0, 4, (0, b"a"), (2, b"b"), final=True)
    assert _judged(story) == ["doubled-output"]


def test_an_input_that_was_passed_without_output() -> None:
    story = Story()
    _with_inputs(story)
    story.processed((INPUT, 1), P0, 0, b"b")
    story.reads(P0, 0, 2, (0, b"b"), final=True)
    assert _judged(story) == ["missing-output"]
    assert (
        _oracles(check_transactions(story.history, Excuses(is_group_forgotten=lambda group: group == "g")))
        == []
    )


def test_an_input_that_nobody_has_read_yet() -> None:
    story = Story()
    _with_inputs(story)
    story.processed((INPUT, 0), P0, 0, b"a")
    story.reads(P0, 0, 2, (0, b"a"), final=True)
    assert _judged(story) == []


def test_an_aborted_output_is_made_again() -> None:
    story = Story()
    _with_inputs(story)
    story.processed((INPUT, 0), P0, 0, b"a").end = ABORTED
    story.processed((INPUT, 0), P0, 2, b"b", tag="d")
    story.reads(P0, 0, 4, (2, b"b"), final=True)
    assert _judged(story) == []


def test_offsets_of_what_was_not_committed() -> None:
    story = Story()
    _with_inputs(story)
    one = story.processed((INPUT, 0), P0, 0, b"a")
    story.told("c")
    assert _judged(story) == []
    one.end = ABORTED
    assert _judged(story) == ["aborted-offset"]


def test_offsets_of_an_open_transaction() -> None:
    story = Story()
    one = story.begins("p", group="g")
    one.tags.append("c")
    story.told("c")
    story.ends(one, COMMITTED)
    assert _judged(story) == ["precommitted-offset"]
