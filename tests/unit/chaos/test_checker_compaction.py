"""The history checker on compacted topics: what may be gone of a key, and what has to be there."""

from __future__ import annotations

import pytest

from kraft.chaos.checker import check_history
from kraft.chaos.history import History, OperationKind, OperationStatus
from kraft.chaos.keyed import keyed_value

KEY = (b"\x01" * 16, 0)
OK = OperationStatus.OK


class Story:
    """Sends of single records `KEY NAME` ("a1" is key a, name 1; "a!2" a tombstone), and polls of some."""

    def __init__(self, *, compacted: bool = True) -> None:
        self.history = History(compacted={"table"} if compacted else set())
        self.now_s = 0.0
        self.next_offset = 0

    def tick(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def send(
        self, *texts: str, status: OperationStatus = OK, acks: int = -1, idempotent: bool = True
    ) -> None:
        """One batch, at the next offsets."""
        operation = self.history.invoke(
            "producer",
            OperationKind.SEND,
            self.tick(),
            key=KEY,
            topic="table",
            acks=acks,
            idempotent=idempotent,
            values=[value(text) for text in texts],
        )
        base = self.next_offset if status is OK else -1
        self.history.complete(operation, status, self.tick(), base_offset=base)
        self.next_offset += len(texts)

    def poll(self, by: str, records: dict[int, str], to: int, *, start: int = 0, final: bool = False) -> None:
        operation = self.history.invoke(
            by,
            OperationKind.POLL,
            self.tick(),
            key=KEY,
            topic="table",
            position=start,
            final=final,
            sought=final,
        )
        seen = [(offset, value(text)) for offset, text in records.items()]
        self.history.complete(operation, OK, self.tick(), records=seen, next_offset=to)

    def read_finally(self, records: dict[int, str]) -> None:
        self.poll("final", records, self.next_offset, final=True)

    @property
    def oracles(self) -> set[str]:
        return self.oracles_beside()

    def oracles_beside(self, *lost: str) -> set[str]:
        """What is found beside the loss of these values, which faults explain."""
        excused = {value(text) for text in lost}
        report = check_history(self.history, is_excused=lambda key, offset, one: one in excused)
        return {anomaly.oracle for anomaly in report.anomalies}


def value(text: str) -> bytes:
    return keyed_value(text[:1].encode(), text[1:].strip("!").encode(), tombstone="!" in text)


@pytest.fixture
def story() -> Story:
    return Story()


def test_older_values_of_a_key_may_be_gone(story: Story) -> None:
    story.send("a1", "b2")
    story.send("a3")
    story.read_finally({1: "b2", 2: "a3"})
    assert story.oracles == set()


def test_and_in_no_other_topic():
    story = Story(compacted=False)
    story.send("a1", "b2")
    story.send("a3")
    story.read_finally({1: "b2", 2: "a3"})
    assert story.oracles == {"lost-write", "torn-batch", "poll-skip"}


def test_the_last_acknowledged_value_has_to_be_there(story: Story) -> None:
    story.send("a1")
    story.send("a2")
    story.send("b3")
    story.read_finally({0: "a1", 2: "b3"})
    assert story.oracles == {"lost-write", "poll-skip"}


def test_or_one_that_was_attempted_later(story: Story) -> None:
    story.send("a1")
    story.send("a2", status=OperationStatus.INFO)
    story.read_finally({1: "a2"})
    assert story.oracles == set()


def test_an_attempt_that_nobody_saw_replaces_nothing(story: Story) -> None:
    story.send("a1")
    story.send("b2")
    story.send("a3", status=OperationStatus.INFO)
    story.read_finally({1: "b2"})
    assert story.oracles == {"lost-write", "poll-skip"}


def test_what_is_read_is_what_was_acknowledged_there(story: Story) -> None:
    story.send("a1")
    story.send("a2")
    story.read_finally({0: "a1", 1: "a1"})
    assert story.oracles >= {"inconsistent-offsets", "duplicate"}


def test_a_consumer_may_pass_over_what_compaction_took_and_not_over_the_last_value(story: Story) -> None:
    for text in ("a1", "b2", "a3", "b4"):
        story.send(text)
    story.poll("fast", {0: "a1", 1: "b2", 2: "a3"}, 3)
    story.poll("slow", {1: "b2", 2: "a3"}, 3)
    story.poll("slow", {3: "b4"}, 4, start=3)
    story.read_finally({2: "a3", 3: "b4"})
    assert story.oracles == set()
    story.poll("blind", {3: "b4"}, 4)
    assert story.oracles == {"poll-skip"}


def test_what_was_read_and_has_no_successor_does_not_vanish(story: Story) -> None:
    story.send("a1", acks=1)
    story.send("b2")
    story.poll("early", {0: "a1", 1: "b2"}, 2)
    story.read_finally({1: "b2"})
    assert story.oracles == {"inconsistent-offsets", "poll-skip"}


def test_a_tombstone_stays_until_it_has_lapsed(story: Story) -> None:
    story.send("a1")
    story.send("a!2")
    story.send("b3")
    story.read_finally({2: "b3"})
    assert story.oracles == {"lost-write", "poll-skip"}
    story.history.lapsed = {KEY: {1: value("a!2")}}
    assert story.oracles == set()


def test_a_lapsed_tombstone_at_another_offset_explains_nothing(story: Story) -> None:
    story.send("a1")
    story.send("a!2")
    story.send("b3")
    story.read_finally({2: "b3"})
    story.history.lapsed = {KEY: {1: value("a!9")}}
    assert story.oracles == {"lost-write", "poll-skip"}


def test_of_what_a_plain_producer_doubled_the_first_copy_may_be_gone(story: Story) -> None:
    story.send("a1", idempotent=False)
    story.send("b2")
    story.next_offset = 3
    story.read_finally({1: "b2", 2: "a1"})
    assert story.oracles == set()


def test_of_two_values_at_an_offset_a_fault_may_have_taken_one_and_compaction_the_other(story: Story) -> None:
    story.send("a1", "b2")
    story.poll("early", {0: "a1", 1: "b2"}, 2)
    story.next_offset = 1  # a fault took b2
    story.send("c3")
    story.poll("late", {1: "c3"}, 2, start=1)
    story.send("c4")
    story.read_finally({0: "a1", 2: "c4"})
    assert story.oracles_beside("b2") == set()
    assert story.oracles_beside("c3") >= {"lost-write", "poll-skip"}, "b2 was not replaced by anything"


def test_and_where_compaction_had_to_leave_the_other_it_has_to_be_there(story: Story) -> None:
    story.send("a1", "b2")
    story.poll("early", {0: "a1", 1: "b2"}, 2)
    story.next_offset = 1
    story.send("c3")
    story.poll("late", {1: "c3"}, 2, start=1)
    story.send("d4")
    story.read_finally({0: "a1", 2: "d4"})
    assert story.oracles_beside("b2") == {"lost-write", "poll-skip"}
