"""Stories: what is a line, what waits for its bunch, and how narrow it all is."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from kraft.chaos.narrator import headline
from kraft.chaos.outcome import Outcome, Violation
from kraft.chaos.story import BUNCH_S, COLUMNS, Story
from tests.unit.chaos import played


class Telling:
    """A story, and its clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._file = io.StringIO()
        self.story = Story(self._file, lambda: self.now_s)

    @property
    def lines(self) -> list[str]:
        return self._file.getvalue().splitlines()


@pytest.fixture
def telling() -> Telling:
    return Telling()


def test_a_line_has_its_time_and_its_word(telling: Telling) -> None:
    telling.now_s = 12.3456
    telling.story.tell("fenced", "broker 2")
    telling.story.tell("ISR", "orders-0: ISR 1,2 → 1", 12.0)
    assert telling.lines == [
        "  12.346  fenced      broker 2",
        "  12.000  ISR         orders-0: ISR 1,2 → 1",
    ]


def test_long_lines_fold_below_their_text(telling: Telling) -> None:
    telling.story.tell("FAULT 1", "partition: " + ", ".join(f"client-{n}" for n in range(20)))
    assert max(map(len, telling.lines)) <= COLUMNS
    assert all(line.startswith(" " * 22) for line in telling.lines[1:])
    assert " ".join(line[22:] for line in telling.lines) == "partition: " + ", ".join(
        f"client-{n}" for n in range(20)
    )


def test_what_happens_often_is_told_once(telling: Telling) -> None:
    for number in range(10):
        telling.now_s = number / 20
        telling.story.bunch("clients", "NOT_LEADER_OR_FOLLOWER")
    telling.story.bunch("clients", "NETWORK_EXCEPTION", 3)
    telling.story.tell("election", "orders-0: leader 1 → 2")
    assert len(telling.lines) == 1, "it waits for more"
    telling.now_s = BUNCH_S
    telling.story.pass_time()
    assert telling.lines[1] == ("   1.000  clients     within 1.0 s: 10x NOT_LEADER_OR_FOLLOWER, 3x")
    telling.now_s = 10.0
    telling.story.bunch("topics", "created", within_s=5.0)
    telling.now_s = 14.0
    telling.story.pass_time()
    assert len(telling.lines) == 3
    telling.story.conclude(Outcome(1))
    assert telling.lines[3] == "  14.000  topics      within 4.0 s: created"


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Outcome(1), "held: no promise was broken"),
        (Outcome(1, undecided="nobody did anything"), "could not be told: nobody did anything"),
        (Outcome(1, violations=[Violation("lost-write", 7, 3.5, "it is gone")]), "violated: lost-write"),
        (Outcome(1, error="it crashed"), "violated: run-failed"),
    ],
)
def test_the_last_line_is_the_verdict(telling: Telling, outcome: Outcome, verdict: str) -> None:
    telling.story.conclude(outcome)
    assert telling.lines[-1] == f"   0.000  verdict     {verdict}"
    if outcome.violations:
        assert "   3.500  violated    lost-write: it is gone" in telling.lines


def test_the_headline_says_what_is_played() -> None:
    scenario = replace(played.scenario(7), properties={"replica.selector.class": "org.apache.kafka.X"})
    assert list(headline(scenario)) == [
        "Seed 7: 60 s of faults against 1 combined node.",
        "Topic orders: partitions 1, replicas 1, segment.bytes=16384.",
        "Topic idle: partitions 1, replicas 1.",
        "Clients: 4x producer of orders.",
        "Settings: replica.selector.class=X.",
        "Times are virtual seconds since the nodes started.",
    ]
