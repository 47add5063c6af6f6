"""`kraft chaos quorum`: a campaign of its kind. What plays the seeds is a rule here, no quorum."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kraft.chaos.quorum.run
from kraft.chaos.outcome import Outcome, Violation
from kraft.chaos.quorum.run import COUNTERS
from kraft.chaos.quorum.settings import QuorumScenario
from kraft.cli.app import run

Play = Callable[[QuorumScenario], Outcome]
EVERYTHING = dict.fromkeys(COUNTERS, 1)


def sound(scenario: QuorumScenario) -> Outcome:
    return Outcome(scenario.seed, acknowledged={"proposals": 2}, virtual_s=1.0, coverage=EVERYTHING)


def third_breaks(scenario: QuorumScenario) -> Outcome:
    outcome = sound(scenario)
    if scenario.seed == 3:
        outcome.violations = [Violation("vote-once", 77, 4.5, "voter 1 voted twice")]
    return outcome


def nothing_happens(scenario: QuorumScenario) -> Outcome:
    return Outcome(scenario.seed, acknowledged={"proposals": 2})


def second_crashes(scenario: QuorumScenario) -> Outcome:
    if scenario.seed == 2:
        raise ZeroDivisionError("in the run")
    return sound(scenario)


def quorum(monkeypatch: pytest.MonkeyPatch, play: Play, *arguments: str) -> int:
    monkeypatch.setattr(kraft.chaos.quorum.run, "run", play)
    return run(["chaos", "quorum", "--jobs", "1", *arguments])


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    [line] = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_a_campaign_that_held(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert quorum(monkeypatch, sound, "--seeds", "5", "--voters", "5", "--json") == 0
    document = answer(capsys)
    assert document["seeds"] == 5
    assert document["shapes"] == {"5 voters": 5}
    assert document["acknowledged"] == {"proposals": 10}
    assert document["violations"] == []
    assert document["coverage"] == dict.fromkeys(COUNTERS, 5)


def test_a_violation_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--seeds", "4", "--voters", "3", "--seconds", "2", "--json")
    assert quorum(monkeypatch, third_breaks, *arguments) == 1
    [violation] = answer(capsys)["violations"]
    assert violation == {
        "seed": 3,
        "oracle": "vote-once",
        "step": 77,
        "at_s": 4.5,
        "text": "voter 1 voted twice",
        "replay": "kraft chaos quorum --seed 3 --seconds 2 --voters 3",
    }


def test_a_run_that_crashes_is_a_violation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quorum(monkeypatch, second_crashes, "--seeds", "3", "--json") == 1
    document = answer(capsys)
    assert [row["oracle"] for row in document["violations"]] == ["run-failed"]
    assert "ZeroDivisionError" in document["violations"][0]["text"]


def test_what_never_happened_was_not_tested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quorum(monkeypatch, nothing_happens, "--seeds", "100", "--json") == 3
    assert len(answer(capsys)["shortcomings"]) == len(COUNTERS)


def test_one_seed_need_not_show_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quorum(monkeypatch, nothing_happens, "--seed", "9", "--counters") == 0
    assert "what really happened" in capsys.readouterr().out


def test_a_seed_tells_its_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a real quorum: faults, leaders and the verdict, narrow enough for any terminal."""
    story, timeline = tmp_path / "story.txt", tmp_path / "timeline.txt"
    files = ("--trace", str(story), "--trace-all", str(timeline))
    assert run(["chaos", "quorum", "--seed", "3", "--seconds", "3", "--json", *files]) == 0
    document = answer(capsys)
    lines = story.read_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("Seed 3: 3 s of faults against 3 voters")
    words = [line[10:22].strip() for line in lines if line[:8].strip()]
    assert words.count("leader") == document["coverage"]["raft: leader elected"]
    assert {"FAULT", "phase", "starts"} <= set(words)
    assert lines[-1].endswith("verdict     held: no promise was broken")
    assert len(timeline.read_text()) > len(story.read_text())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--seed", "1", "--seeds", "2"),
        ("--voters", "4"),
        ("--seeds", "0"),
        ("--seeds", "2", "--trace", "story.txt"),
        ("--seed", "1", "--verify", "--trace", "story.txt"),
    ],
    ids=" ".join,
)
def test_wrong_usage(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quorum(monkeypatch, sound, *arguments) == 2
    assert capsys.readouterr().out == ""
