"""The history checker, case by case: each definition, what is exempt from it, and when it cannot tell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kraft.chaos.checker import MalformedHistoryError, Report, check_history
from kraft.chaos.history import History, Operation, OperationKind, OperationStatus, TopicKey

ORDERS = b"\x01" * 16
MADE_ANEW = b"\x02" * 16
KEY = (ORDERS, 0)
OK, FAIL, INFO = OperationStatus.OK, OperationStatus.FAIL, OperationStatus.INFO

Records = Sequence[tuple[int, str]]


class Story:
    """A history told in a few words; values are letters, and a clock ticks with every beginning and end."""

    def __init__(self) -> None:
        self.history = History()
        self.now_s = 0.0

    def tick(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def begin(
        self,
        process: str,
        values: str,
        *,
        acks: int = -1,
        idempotent: bool = True,
        key: TopicKey = KEY,
        topic: str = "orders",
    ) -> Operation:
        return self.history.invoke(
            process,
            OperationKind.SEND,
            self.tick(),
            key=key,
            topic=topic,
            acks=acks,
            idempotent=idempotent,
            values=[letter.encode() for letter in values],
        )

    def end(self, operation: Operation, status: OperationStatus = OK, *, at: int = -1) -> None:
        self.history.complete(operation, status, self.tick(), base_offset=at)

    def send(
        self,
        values: str,
        at: int = -1,
        *,
        by: str = "producer",
        status: OperationStatus = OK,
        acks: int = -1,
        idempotent: bool = True,
        key: TopicKey = KEY,
        topic: str = "orders",
    ) -> Operation:
        operation = self.begin(by, values, acks=acks, idempotent=idempotent, key=key, topic=topic)
        self.end(operation, status, at=at)
        return operation

    def poll(
        self,
        records: Records | str,
        *,
        by: str = "consumer",
        start: int | None = None,
        to: int | None = None,
        sought: bool = False,
        final: bool = False,
        status: OperationStatus = OK,
        key: TopicKey = KEY,
        topic: str = "orders",
    ) -> Operation:
        """`records` as pairs, or as letters at `start`, `start` + 1, …"""
        if isinstance(records, str):
            records = list(enumerate(records, start or 0))
        start = records[0][0] if start is None and records else (start or 0)
        to = (records[-1][0] + 1 if records else start) if to is None else to
        operation = self.history.invoke(
            by,
            OperationKind.POLL,
            self.tick(),
            key=key,
            topic=topic,
            position=start,
            final=final,
            sought=sought,
        )
        seen = [(offset, letter.encode()) for offset, letter in records]
        self.history.complete(operation, status, self.tick(), records=seen, next_offset=to)
        return operation

    def read_finally(
        self, records: Records | str, *, start: int | None = None, key: TopicKey = KEY, topic: str = ""
    ) -> None:
        self.poll(records, by="final", start=start, sought=True, final=True, key=key, topic=topic)

    def delete(self, topic: str = "orders", status: OperationStatus = OK) -> None:
        operation = self.history.invoke("churn", OperationKind.DELETE_TOPIC, self.tick(), topic=topic)
        self.end(operation, status)

    def report(self, gone: Sequence[tuple[int, str]] = ()) -> Report:
        """`gone`: the records whose loss injected faults explain."""
        explained = [(KEY, offset, letter.encode()) for offset, letter in gone]
        return check_history(self.history, is_excused=lambda *record: record in explained)

    def oracles(self, gone: Sequence[tuple[int, str]] = ()) -> set[str]:
        return {anomaly.oracle for anomaly in self.report(gone).anomalies}


@pytest.fixture
def story() -> Story:
    return Story()


def excused_oracles(report: Report) -> set[str]:
    return {text.partition(":")[0] for text in report.excused}


class TestValid:
    def test_what_was_acknowledged_is_read(self, story: Story) -> None:
        story.send("ab", 0)
        story.poll("a")
        story.poll("b", start=1)
        story.send("c", 2)
        story.read_finally("abc")
        report = story.report()
        assert (report.verdict, report.undecided, report.anomalies) == ("valid", "", [])
        assert report.counts["records demanded"] == 3
        assert report.counts["idempotent sends judged"] == 2
        assert report.counts["final polls"] == 1

    def test_holes_of_markers_and_compaction_are_no_skips(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 5)
        story.poll([(0, "a")], to=3)
        story.poll([(5, "b")], start=3, to=8)
        story.read_finally([(0, "a"), (5, "b")])
        assert story.report().verdict == "valid"

    def test_an_unanswered_send_may_be_there_or_not(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", status=INFO)
        story.send("c", status=INFO)
        story.begin("crashed", "d")
        story.read_finally("acd")
        assert story.report().verdict == "valid"

    def test_the_same_history_gives_the_same_report_whatever_the_hash_seed(self, story: Story) -> None:
        program = (
            "from tests.unit.chaos.test_checker import Story\n"
            "story = Story()\n"
            "for n, letter in enumerate('abcdefgh'): story.send(letter, n)\n"
            "story.poll('badxyz'); story.poll('aa', by='other'); story.read_finally('abgh')\n"
            "print(story.report())\n"
        )
        root = Path(__file__).parents[3]
        reports = {
            subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
                capture_output=True,
                check=True,
                cwd=root,
            ).stdout
            for seed in ("1", "77")
        }
        assert len(reports) == 1


class TestInconsistentOffsets:
    def test_two_readers_saw_two_values(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1, acks=1)
        story.send("c", status=INFO, acks=1)
        story.poll("ac")
        story.read_finally("ab")
        [anomaly] = story.report().anomalies
        assert anomaly.oracle == "inconsistent-offsets"
        assert anomaly.text == "orders-0: offset 1 showed c to consumer and b to final"
        assert len(anomaly.operations) == 2

    def test_another_value_was_read_where_one_was_acknowledged(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", status=INFO)
        story.read_finally("b")
        assert story.oracles() == {"inconsistent-offsets", "lost-write"}

    def test_two_sends_were_given_one_offset(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1, by="one")
        story.send("c", 1, by="two")
        story.read_finally("a")
        assert story.oracles() == {"inconsistent-offsets", "unseen"}

    def test_an_acknowledged_value_lies_elsewhere(self, story: Story) -> None:
        story.send("a", 3)
        story.read_finally("a")
        assert story.oracles() == {"inconsistent-offsets"}

    def test_acks_1_may_lose_its_offset_to_another_value(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1, acks=1)
        story.send("c", 1)
        story.poll("ac")
        story.read_finally("ac")
        report = story.report()
        assert report.verdict == "valid"
        assert report.counts["records acks=1 never read"] == 1

    def test_but_what_was_read_stays_whatever_the_acks(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1, acks=1)
        story.send("c", 1)
        story.poll("ab")
        story.read_finally("ac")
        assert story.oracles() == {"inconsistent-offsets"}

    def test_nor_does_it_vanish(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1, acks=1)
        story.poll("ab")
        story.read_finally("a")
        assert story.oracles() == {"inconsistent-offsets"}

    def test_a_plain_producer_knows_one_of_its_copies(self, story: Story) -> None:
        story.send("a", 0, idempotent=False)
        story.send("b", 4, idempotent=False)
        story.read_finally([(0, "a"), (1, "b"), (4, "b")])
        report = story.report()
        assert report.verdict == "valid"
        assert report.counts["values doubled by plain producers"] == 1

    def test_and_the_copy_that_it_knows_is_there(self, story: Story) -> None:
        story.send("a", 0, idempotent=False)
        story.send("b", 4, idempotent=False)
        story.read_finally("ab")
        story.poll("", by="final", start=2, to=6, final=True)
        assert story.oracles() == {"inconsistent-offsets"}

    def test_an_idempotent_value_was_written_anew_where_nobody_looked(self, story: Story) -> None:
        story.send("a", 0)
        retried = story.begin("producer", "bc")
        story.poll([(2, "b"), (3, "c")])
        story.end(retried, at=1)
        story.send("d", 9)
        story.history.log_starts[KEY] = 9
        story.read_finally("d", start=9)
        assert story.oracles() == {"inconsistent-offsets"}
        assert story.report(gone=[(2, "b"), (3, "c")]).verdict == "valid"

    def test_the_loss_of_another_copy_explains_nothing(self, story: Story) -> None:
        story.send("a", 0)
        retried = story.begin("producer", "b")
        story.poll([(3, "b")])
        story.end(retried, at=1)
        story.read_finally("a")
        assert story.oracles(gone=[(3, "b")]) == {"inconsistent-offsets"}

    def test_excused_if_the_other_value_is_explained_to_be_gone(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1)
        story.poll("ab")
        story.send("c", 1, by="other")
        story.read_finally("ac")
        report = story.report(gone=[(1, "b")])
        assert report.verdict == "valid"
        assert excused_oracles(report) == {"inconsistent-offsets"}


class TestDuplicate:
    def test_an_idempotent_value_lies_twice(self, story: Story) -> None:
        story.send("a", 0)
        story.read_finally("aa")
        assert story.oracles() == {"duplicate"}

    def test_even_if_its_send_was_never_answered(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", status=INFO)
        story.read_finally("abb")
        assert story.oracles() == {"duplicate"}

    def test_a_plain_retry_may_double_a_whole_batch(self, story: Story) -> None:
        story.send("x", 0)
        story.send("ab", status=INFO, idempotent=False)
        story.send("ab", 3, idempotent=False)
        story.read_finally("xabab")
        report = story.report()
        assert report.verdict == "valid"
        assert report.counts["values doubled by plain producers"] == 2

    def test_and_may_be_answered_with_both_offsets(self, story: Story) -> None:
        story.send("a", 0, idempotent=False)
        story.send("a", 1, idempotent=False)
        story.read_finally("aa")
        assert story.report().verdict == "valid"

    def test_a_retry_is_answered_with_the_old_offset(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", status=INFO)
        story.send("c", 2)
        story.send("b", 1)
        story.read_finally("abc")
        assert story.report().verdict == "valid"

    def test_or_it_is_a_duplicate(self, story: Story) -> None:
        story.send("a", 0)
        story.send("a", 1)
        story.read_finally("a")
        assert "duplicate" in story.oracles()

    def test_excused_if_the_first_copy_is_explained_to_be_gone(self, story: Story) -> None:
        story.send("a", 0)
        story.send("bc", status=INFO)
        story.poll("abc")
        story.send("d", 1, by="other")
        story.send("bc", 2)
        story.read_finally("adbc")
        report = story.report(gone=[(1, "b"), (2, "c")])
        assert report.verdict == "valid"
        assert "duplicate" in excused_oracles(report)


class TestAbortedAndUnsentRead:
    def test_the_send_had_failed(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", status=FAIL)
        story.read_finally("ab")
        assert story.oracles() == {"aborted-read"}

    def test_one_attempt_had_not(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", status=INFO)
        story.send("b", status=FAIL)
        story.read_finally("ab")
        assert story.report().verdict == "valid"

    def test_nobody_sent_it(self, story: Story) -> None:
        story.send("a", 0)
        story.read_finally("az")
        assert story.oracles() == {"unsent-read"}

    def test_it_was_sent_to_another_partition(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 0, key=(ORDERS, 1))
        story.read_finally("ab")
        story.read_finally("b", key=(ORDERS, 1))
        assert story.oracles() == {"unsent-read"}


class TestLostWrite:
    def test_higher_offsets_were_read(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1)
        story.send("c", 2)
        story.read_finally([(0, "a"), (2, "c")])
        assert story.oracles() == {"lost-write", "poll-skip"}

    def test_the_very_first_record(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1)
        story.read_finally([(1, "b")], start=0)
        assert story.oracles() == {"lost-write", "poll-skip"}

    def test_what_was_read_after_the_final_phase_began_proves_nothing(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", status=INFO)
        story.read_finally("a")
        story.poll("ab", sought=True)
        assert story.report().verdict == "valid"

    def test_it_was_read_and_then_it_was_gone(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1)
        story.poll("ab")
        story.read_finally("a")
        [anomaly] = story.report().anomalies
        assert anomaly.oracle == "lost-write"
        assert "consumer read b at offset 1" in anomaly.text

    def test_the_rest_of_an_unanswered_batch(self, story: Story) -> None:
        story.send("a", 0)
        story.send("bc", status=INFO)
        story.send("d", 3, by="other")
        story.read_finally([(0, "a"), (1, "b"), (3, "d")])
        assert story.oracles() == {"torn-batch", "lost-write"}

    def test_something_else_ends_the_log_in_its_place(self, story: Story) -> None:
        story.send("a", 0)
        story.send("bc", status=INFO)
        story.send("d", 2, by="other")
        story.read_finally("abd")
        assert story.oracles() == {"torn-batch", "lost-write"}

    def test_an_unanswered_batch_with_lower_acks_is_torn_only(self, story: Story) -> None:
        story.send("a", 0)
        story.send("bc", status=INFO, acks=1)
        story.send("d", 3, by="other")
        story.read_finally([(0, "a"), (1, "b"), (3, "d")])
        assert story.oracles() == {"torn-batch"}

    @pytest.mark.parametrize("acks", [0, 1])
    def test_lower_acks_promise_nothing(self, story: Story, acks: int) -> None:
        story.send("a", 0)
        story.send("b", 1 if acks else -1, acks=acks)
        story.send("c", 1, by="other")
        story.read_finally("ac")
        report = story.report()
        assert report.verdict == "valid"
        assert report.counts[f"records acks={acks} never read"] == 1

    def test_retention_has_passed_it(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1)
        story.send("c", 2)
        story.history.log_starts[KEY] = 2
        story.read_finally("c", start=2)
        report = story.report()
        assert report.verdict == "valid"
        assert report.counts["records demanded"] == 1

    def test_what_lies_at_the_log_start_is_demanded(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1)
        story.send("c", 2)
        story.poll("abc")
        story.history.log_starts[KEY] = 1
        story.read_finally("c", start=2)
        assert story.oracles() == {"lost-write"}

    def test_as_is_the_rest_of_a_batch_and_the_copy_that_was_acknowledged(self, story: Story) -> None:
        story.send("a", 0)
        story.send("bc", status=INFO)
        story.poll([(0, "a"), (1, "b")], to=3)
        story.send("d", 3, by="other")
        story.history.log_starts[KEY] = 2
        story.read_finally("d", start=3)
        assert story.oracles() == {"torn-batch", "lost-write"}
        story.send("e", 4, by="other", idempotent=False)
        story.history.log_starts[KEY] = 4
        story.poll([(6, "e")], by="final", start=4, final=True)
        assert "inconsistent-offsets" in story.oracles()

    def test_a_log_start_that_nobody_explains_is_a_loss(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1)
        story.read_finally("b", start=1)
        assert story.oracles() == {"lost-write"}

    def test_excused_if_explained_and_only_then(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1)
        story.send("c", 2)
        story.poll("ab")
        story.read_finally("a")
        assert story.oracles(gone=[(1, "b")]) == {"unseen"}
        report = story.report(gone=[(1, "b"), (2, "c")])
        assert report.verdict == "valid"
        assert excused_oracles(report) == {"lost-write", "unseen"}
        assert report.counts["findings excused"] == 2

    def test_many_are_told_as_one(self, story: Story) -> None:
        for offset, letter in enumerate("abcdefg"):
            story.send(letter, offset)
        story.read_finally([(6, "g")])
        [anomaly] = [one for one in story.report().anomalies if one.oracle == "lost-write"]
        assert anomaly.text.count("nobody read it") == 3
        assert anomaly.text.endswith("; and 3 more")


class TestUnavailable:
    """The final phase had to stop: every copy was found to be damaged, and is offline."""

    @pytest.fixture
    def story(self) -> Story:
        story = Story()
        story.history.unavailable.add(KEY)
        return story

    def test_what_it_had_not_come_to_is_not_demanded(self, story: Story) -> None:
        story.send("ab", 0)
        story.send("c", 2)
        story.send("d", acks=1)
        story.poll("abcd")
        story.send("e", 4)
        story.send("f")
        story.read_finally("ab")
        report = story.report()
        assert (report.verdict, report.anomalies, report.excused) == ("valid", [], [])
        assert report.counts["records demanded"] == 2

    def test_what_lies_before_is(self, story: Story) -> None:
        for offset, letter in enumerate("abcd"):
            story.send(letter, offset)
        story.poll("ab")
        story.read_finally([(0, "a"), (2, "c")])
        assert story.oracles() == {"lost-write", "poll-skip"}
        report = story.report(gone=[(1, "b")])
        assert excused_oracles(report) >= {"lost-write"}
        assert report.counts["records demanded"] == 3

    def test_even_if_nobody_promised_to_keep_it(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1, acks=1)
        story.poll("ab")
        story.read_finally("a", start=0)
        story.poll("", by="final", start=1, to=2, final=True)
        assert "inconsistent-offsets" in story.oracles()

    def test_as_is_what_somebody_else_read_past(self, story: Story) -> None:
        for offset, letter in enumerate("abc"):
            story.send(letter, offset)
        story.poll([(0, "a"), (2, "c")])
        story.read_finally("a")
        assert story.oracles() == {"lost-write", "poll-skip"}

    def test_another_value_in_its_place_is_none_of_that(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1)
        story.poll("ab")
        story.send("x", status=INFO)
        story.poll("x", start=1, by="other")
        story.read_finally("a")
        assert story.oracles() == {"inconsistent-offsets"}

    def test_what_retention_had_deleted_before_is_not(self, story: Story) -> None:
        for offset, letter in enumerate("abc"):
            story.send(letter, offset)
        story.poll("abc")
        story.read_finally("b", start=1)
        report = story.report()
        assert (report.verdict, report.counts["records demanded"]) == ("valid", 1)

    def test_if_it_could_not_begin_that_says_nothing(self, story: Story) -> None:
        story.send("a", 0)
        story.poll("a")
        report = story.report()
        assert report.verdict == "unknown"
        assert report.undecided == "of all that was acknowledged nothing had to be there at the end"


class TestUnseen:
    def test_it_is_not_there_at_the_end(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1)
        story.read_finally("a")
        assert story.oracles() == {"unseen"}

    def test_a_partition_lost_everything(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 0, key=(ORDERS, 1))
        story.read_finally("a")
        story.read_finally("", key=(ORDERS, 1))
        assert story.oracles() == {"unseen"}

    def test_an_acknowledgement_without_an_offset_is_one(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b")
        story.read_finally("a")
        assert story.oracles() == {"unseen"}

    def test_and_says_nothing_of_where_holes_are(self, story: Story) -> None:
        story.send("a", 0)
        story.send("bcd")
        story.read_finally("a")
        story.poll("", by="final", start=1, to=3, final=True)
        assert story.oracles() == {"unseen"}

    def test_somebody_saw_it_before_the_end(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b")
        story.read_finally("ab")
        assert story.report().verdict == "valid"

    def test_it_was_acknowledged_after_the_end(self, story: Story) -> None:
        story.send("a", 0)
        late = story.begin("slow", "b")
        story.read_finally("a")
        story.end(late, at=1)
        report = story.report()
        assert report.verdict == "unknown"
        assert "1 acknowledged records, and no final phase" in report.undecided


class TestPolls:
    @pytest.fixture
    def story(self) -> Story:
        story = Story()
        story.send("abcdef", 0)
        return story

    def test_an_offset_that_held_a_marker_was_given_anew_if_the_marker_is_excused(self) -> None:
        story = Story()
        story.send("a", at=0)
        story.poll("a", to=2).markers = (1,)
        story.send("b", at=1)
        story.read_finally("ab")
        assert story.oracles() == {"poll-skip"}
        assert story.oracles(gone=[(1, "")]) == set()
        assert len(story.report(gone=[(1, "")]).excused) == 1

    def test_a_poll_past_a_lost_marker_has_not_looked_at_what_came_in_its_place(self) -> None:
        """And the final phase cannot read the partition any more."""
        story = Story()
        story.send("a", at=0)
        story.poll("a", to=2).markers = (1,)
        story.send("b", at=1)
        story.send("c", at=2)
        story.poll("c", start=2)
        story.read_finally("")
        story.history.unavailable.add(KEY)
        assert "lost-write" in story.oracles()
        assert story.oracles(gone=[(1, "")]) == set()

    def test_who_read_past_a_lost_marker_reads_on_in_the_middle_of_what_came_in_its_place(self) -> None:
        """The send whose first record stands where the marker was is not torn for it."""
        story = Story()
        story.send("a", at=0)
        story.poll("a", to=2).markers = (1,)
        story.send("bc", at=1)
        story.poll("c", start=2)
        story.read_finally("")
        story.history.unavailable.add(KEY)
        assert "torn-batch" in story.oracles()
        assert "torn-batch" not in story.oracles(gone=[(1, "")])

    def test_skip_between_two_polls(self, story: Story) -> None:
        story.poll("ab")
        story.poll("def", start=3)
        story.read_finally("abcdef")
        assert story.oracles() == {"poll-skip"}

    def test_skip_inside_one(self, story: Story) -> None:
        story.poll([(0, "a"), (2, "c")])
        story.read_finally("abcdef")
        assert story.oracles() == {"poll-skip"}

    def test_skip_at_the_end_of_one(self, story: Story) -> None:
        story.poll("ab", to=4)
        story.read_finally("abcdef")
        assert story.oracles() == {"poll-skip"}

    def test_other_processes_skip_nothing(self, story: Story) -> None:
        story.poll("ab", by="consumer.1")
        story.poll("def", by="consumer.2", start=3, sought=True)
        story.read_finally("abcdef")
        assert story.report().verdict == "valid"

    def test_a_seek_is_no_skip_and_no_step_back(self, story: Story) -> None:
        story.poll("ab")
        story.poll("ef", start=4, sought=True)
        story.poll("bc", start=1, sought=True)
        story.read_finally("abcdef")
        assert story.report().verdict == "valid"

    def test_a_seek_whose_first_poll_failed_is_one_still(self, story: Story) -> None:
        story.poll("ab")
        story.poll("", start=4, sought=True, status=INFO)
        story.poll("ef", start=4)
        story.read_finally("abcdef")
        assert story.report().verdict == "valid"

    def test_after_a_seek_everything_from_there_is_read(self, story: Story) -> None:
        story.poll([(4, "e")], start=3, sought=True)
        story.read_finally("abcdef")
        assert story.oracles() == {"poll-skip"}

    def test_what_retention_has_passed_may_be_skipped(self, story: Story) -> None:
        story.poll("ab")
        story.poll("ef", start=4)
        story.history.log_starts[KEY] = 4
        story.read_finally("ef", start=4)
        assert story.report().verdict == "valid"

    def test_back_between_two_polls(self, story: Story) -> None:
        story.poll("abc")
        story.poll("cdef", start=2)
        story.read_finally("abcdef")
        assert story.oracles() == {"non-monotonic-poll"}

    def test_back_inside_one(self, story: Story) -> None:
        story.poll([(0, "a"), (1, "b"), (0, "a"), (1, "b"), (2, "c")])
        story.read_finally("abcdef")
        assert story.oracles() == {"non-monotonic-poll"}

    def test_a_poll_that_found_nothing_changes_nothing(self, story: Story) -> None:
        story.poll("ab")
        story.poll("", start=2)
        story.poll("cdef", start=2)
        story.read_finally("abcdef")
        assert story.report().verdict == "valid"

    def test_a_skip_of_what_is_explained_to_be_gone(self, story: Story) -> None:
        story.send("g", 6)
        story.send("h", 7)
        story.poll("abcdefg")
        story.poll("abcdef", by="other")
        story.poll([(7, "h")], by="other", start=6)
        story.read_finally("abcdef", start=0)
        story.poll([(7, "h")], by="final", start=6, final=True)
        assert story.oracles() == {"poll-skip", "lost-write"}
        assert story.report(gone=[(6, "g")]).verdict == "valid"


class TestSends:
    def test_back(self, story: Story) -> None:
        story.send("a", 1)
        story.send("b", 0)
        story.read_finally("ba")
        assert story.oracles() == {"non-monotonic-send"}

    def test_back_is_told_once(self, story: Story) -> None:
        story.send("e", 4)
        for offset, letter in enumerate("abcd"):
            story.send(letter, offset)
        story.read_finally("abcde")
        [anomaly] = story.report().anomalies
        assert "more" not in anomaly.text

    def test_pipelined_idempotent_sends_lie_in_the_order_of_their_invocation(self, story: Story) -> None:
        first, second = story.begin("producer", "a"), story.begin("producer", "b")
        story.end(second, at=1)
        story.end(first, at=0)
        story.read_finally("ab")
        assert story.report().verdict == "valid"

    def test_and_not_the_other_way_round(self, story: Story) -> None:
        first, second = story.begin("producer", "a"), story.begin("producer", "b")
        story.end(second, at=0)
        story.end(first, at=1)
        story.read_finally("ba")
        assert story.oracles() == {"non-monotonic-send"}

    def test_pipelined_plain_sends_may_overtake_each_other(self, story: Story) -> None:
        first = story.begin("producer", "a", idempotent=False)
        second = story.begin("producer", "b", idempotent=False)
        story.end(second, at=0)
        story.end(first, at=1)
        story.read_finally("ba")
        assert story.report().verdict == "valid"

    def test_a_send_that_follows_an_answer_at_once_is_later(self, story: Story) -> None:
        story.send("a", 1, idempotent=False)
        story.now_s -= 1.0
        story.send("b", 0, idempotent=False)
        story.read_finally("ba")
        assert story.oracles() == {"non-monotonic-send"}

    def test_but_not_those_that_are_answered(self, story: Story) -> None:
        slow = story.begin("producer", "a", idempotent=False)
        story.send("b", 1, idempotent=False)
        story.send("c", 0, idempotent=False)
        story.end(slow, at=2)
        story.read_finally("cba")
        assert story.oracles() == {"non-monotonic-send"}

    def test_a_retry_keeps_the_place_of_the_first_attempt(self, story: Story) -> None:
        story.send("a", status=INFO)
        story.send("b", 1)
        story.send("a", 0)
        story.read_finally("ab")
        assert story.report().verdict == "valid"

    def test_other_processes_and_lower_acks_have_an_order_of_their_own(self, story: Story) -> None:
        story.send("a", 2, by="one")
        story.send("b", 0, by="two")
        story.send("c", 9, acks=1)
        story.send("d", 1)
        story.read_finally("bda")
        assert story.report().verdict == "valid"

    def test_excused_if_the_higher_one_is_explained_to_be_gone(self, story: Story) -> None:
        story.send("a", 0)
        story.send("bc", 1)
        story.send("d", 1)
        story.read_finally("ad")
        report = story.report(gone=[(1, "b"), (2, "c")])
        assert report.verdict == "valid"
        assert "non-monotonic-send" in excused_oracles(report)


class TestTornBatch:
    def test_a_part_of_a_send_is_missing(self, story: Story) -> None:
        story.send("x", 0)
        story.send("abc", 1, acks=1)
        story.read_finally([(0, "x"), (1, "a"), (3, "c")])
        [anomaly] = story.report().anomalies
        assert anomaly.oracle == "torn-batch"
        assert "at 2, where b of the same send must be, nothing" in anomaly.text

    def test_another_value_is_in_the_midst(self, story: Story) -> None:
        story.send("x", 0)
        story.send("ab", status=INFO)
        story.send("y", 2, by="other")
        story.read_finally("xayb")
        assert story.oracles() == {"torn-batch"}

    def test_the_order_is_another(self, story: Story) -> None:
        story.send("x", 0)
        story.send("ab", status=INFO)
        story.read_finally("xba")
        assert story.oracles() == {"torn-batch"}

    def test_a_doubled_batch_is_doubled_whole(self, story: Story) -> None:
        story.send("x", 0)
        story.send("ab", status=INFO, idempotent=False)
        story.read_finally("xaba")
        story.poll("", by="final", start=4, to=5, final=True)
        assert story.oracles() == {"torn-batch"}

    def test_who_read_a_part_only_proves_nothing(self, story: Story) -> None:
        story.send("x", 0)
        story.send("ab", 0, key=(MADE_ANEW, 0), topic="side")
        story.poll("b", start=1, key=(MADE_ANEW, 0), topic="side")
        story.delete("side")
        story.read_finally("x")
        assert story.report().verdict == "valid"


class TestDeletedTopics:
    def test_they_are_not_demanded(self, story: Story) -> None:
        story.send("x", 0, key=(MADE_ANEW, 0), topic="kept")
        story.read_finally("x", key=(MADE_ANEW, 0))
        story.send("abc", 0)
        story.poll("abc")
        story.delete()
        report = story.report()
        assert report.verdict == "valid"
        assert report.counts["records demanded"] == 1
        assert report.counts["partitions that may be deleted"] == 1

    def test_an_unanswered_deletion_may_have_happened_a_failed_one_has_not(self, story: Story) -> None:
        story.send("x", 0, key=(MADE_ANEW, 0), topic="kept")
        story.read_finally("x", key=(MADE_ANEW, 0))
        story.send("a", 0)
        story.delete(status=FAIL)
        assert story.report().verdict == "unknown"
        story.delete(status=INFO)
        assert story.report().verdict == "valid"

    def test_consistency_is_judged_still(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", status=INFO)
        story.poll("a", by="one")
        story.poll("b", by="two")
        story.delete()
        assert story.oracles() == {"inconsistent-offsets"}

    def test_and_so_is_what_somebody_read_past(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 1)
        story.send("c", 2)
        story.poll([(0, "a"), (2, "c")])
        story.delete()
        assert story.oracles() == {"lost-write", "poll-skip"}

    def test_but_not_what_lies_below_a_first_seek(self, story: Story) -> None:
        story.send("x", 0, key=(MADE_ANEW, 0), topic="kept")
        story.read_finally("x", key=(MADE_ANEW, 0))
        story.send("ab", 0)
        story.send("c", 2)
        story.poll("c", start=2, sought=True)
        story.delete()
        assert story.report().verdict == "valid"

    def test_a_final_phase_that_found_one_still_demands_nothing(self, story: Story) -> None:
        story.send("x", 0, key=(MADE_ANEW, 0), topic="kept")
        story.read_finally("x", key=(MADE_ANEW, 0))
        story.send("ab", 0)
        story.poll("ab")
        story.delete()
        story.read_finally("a")
        assert story.report().verdict == "valid"

    def test_a_topic_of_the_same_name_is_another_one(self, story: Story) -> None:
        story.send("ab", 0)
        story.poll("ab")
        story.delete()
        story.send("c", 0, key=(MADE_ANEW, 0))
        story.poll("c", by="later", key=(MADE_ANEW, 0))
        report = story.report()
        assert report.anomalies == []
        assert report.verdict == "unknown", "nothing had to be there at the end"

    def test_a_send_by_name_may_reach_the_new_one(self, story: Story) -> None:
        story.send("a", 0)
        late = story.begin("producer", "b")
        story.poll("a")
        story.delete()
        story.end(late, at=0)
        story.poll("b", by="later", key=(MADE_ANEW, 0))
        assert story.report().anomalies == []

    def test_one_that_was_answered_before_may_not(self, story: Story) -> None:
        story.send("a", 0)
        story.delete()
        story.poll("a", by="later", key=(MADE_ANEW, 0))
        [anomaly] = story.report().anomalies
        assert anomaly.oracle == "unsent-read"
        assert "topic of that name that was deleted" in anomaly.text

    def test_an_earlier_attempt_of_it_may(self, story: Story) -> None:
        story.send("a", status=INFO, idempotent=False)
        story.send("a", 0, idempotent=False)
        story.delete()
        story.poll("a", by="later", key=(MADE_ANEW, 0))
        assert story.report().anomalies == []

    def test_a_failed_send_may_not(self, story: Story) -> None:
        story.send("b", status=FAIL)
        story.delete()
        story.poll("b", by="later", key=(MADE_ANEW, 0))
        [anomaly] = story.report().anomalies
        assert anomaly.oracle == "aborted-read"
        assert "orders-0 (topic id 02020202)" in anomaly.text


class TestCannotTell:
    def test_nothing_happened(self, story: Story) -> None:
        report = story.report()
        assert report.verdict == "unknown"
        assert "no send with acks=all was acknowledged" in report.undecided
        assert "no poll read a record" in report.undecided

    def test_nothing_was_promised(self, story: Story) -> None:
        story.send("a", 0, acks=1)
        story.send("b", status=INFO)
        story.read_finally("ab")
        report = story.report()
        assert report.verdict == "unknown"
        assert report.undecided == "no send with acks=all was acknowledged"

    def test_nothing_was_read(self, story: Story) -> None:
        story.send("a", 0)
        assert story.report().verdict == "unknown"

    def test_there_was_no_final_phase(self, story: Story) -> None:
        story.send("a", 0)
        story.poll("a")
        report = story.report()
        assert report.verdict == "unknown"
        assert report.undecided == "orders-0: 1 acknowledged records, and no final phase that read them"

    def test_the_final_phase_left_a_partition_out(self, story: Story) -> None:
        story.send("a", 0)
        story.send("b", 0, key=(ORDERS, 1))
        story.read_finally("a")
        report = story.report()
        assert report.verdict == "unknown"
        assert "orders-1" in report.undecided

    def test_the_final_phase_did_not_come_to_its_end(self, story: Story) -> None:
        story.send("ab", 0)
        story.read_finally("a")
        story.history.invoke("final", OperationKind.POLL, story.tick(), key=KEY, position=1, final=True)
        report = story.report()
        assert (report.verdict, report.anomalies) == ("unknown", [])

    def test_retention_has_passed_everything(self, story: Story) -> None:
        story.send("a", 0)
        story.poll("a")
        story.history.log_starts[KEY] = 1
        story.read_finally("", start=1)
        report = story.report()
        assert report.undecided == "of all that was acknowledged nothing had to be there at the end"

    def test_an_anomaly_decides_all_the_same(self, story: Story) -> None:
        story.send("a", 0, acks=1)
        story.poll("z")
        report = story.report()
        assert report.verdict == "invalid"
        assert report.undecided


class TestMalformed:
    def test_a_value_in_two_batches(self, story: Story) -> None:
        story.send("ab", 0)
        story.send("bc", 2)
        with pytest.raises(MalformedHistoryError, match="operation 1 sends b'b' in another batch"):
            story.report()

    def test_a_value_twice_in_one(self, story: Story) -> None:
        story.send("aa", 0)
        with pytest.raises(MalformedHistoryError, match="a value twice"):
            story.report()
