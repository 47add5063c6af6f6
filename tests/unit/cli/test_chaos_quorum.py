"""`kraft chaos quorum`: what it prints, and its exit codes. What plays the seeds is a rule here, no quorum."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import kraft.chaos.quorum.campaign
from kraft.chaos.quorum.counters import COUNTERS
from kraft.chaos.quorum.run import QuorumOutcome
from kraft.chaos.quorum.settings import Settings
from kraft.cli.app import run

Play = Callable[[int, Settings], QuorumOutcome]
EVERYTHING = dict.fromkeys(COUNTERS, 1)


def sound(seed: int, settings: Settings) -> QuorumOutcome:
    return QuorumOutcome(seed, settings.voters, acknowledged=2, virtual_s=1.0, coverage=EVERYTHING)


def third_breaks(seed: int, settings: Settings) -> QuorumOutcome:
    if seed == 3:
        return QuorumOutcome(seed, settings.voters, "vote-once", "voter 1 voted twice", 4.5, 77)
    return sound(seed, settings)


def nothing_happens(seed: int, settings: Settings) -> QuorumOutcome:
    return QuorumOutcome(seed, settings.voters)


def second_crashes(seed: int, settings: Settings) -> QuorumOutcome:
    if seed == 2:
        raise ZeroDivisionError("in the run")
    return sound(seed, settings)


def quorum(monkeypatch: pytest.MonkeyPatch, play: Play, *arguments: str) -> int:
    monkeypatch.setattr(kraft.chaos.quorum.campaign, "play", play)
    return run(["chaos", "quorum", "--jobs", "1", *arguments])


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    [line] = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_a_campaign_that_held(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert quorum(monkeypatch, sound, "--seeds", "5", "--voters", "5", "--json") == 0
    document = answer(capsys)
    assert document["seeds"] == 5
    assert document["voters"] == {"5": 5}
    assert document["acknowledged"] == 10
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
        "voters": 3,
        "oracle": "vote-once",
        "step": 77,
        "at_s": 4.5,
        "text": "voter 1 voted twice",
        "replay": "kraft chaos quorum --seed 3 --voters 3 --seconds 2",
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
    assert quorum(monkeypatch, nothing_happens, "--seed", "9") == 0
    assert "what really happened" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [("--seed", "1", "--seeds", "2"), ("--voters", "4"), ("--seeds", "0")], ids=" ".join
)
def test_wrong_usage(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quorum(monkeypatch, sound, *arguments) == 2
    assert capsys.readouterr().out == ""
