"""`kraft chaos`: what it prints, and its exit codes. What plays the scenarios is a rule here, no cluster."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import kraft.chaos.run
from kraft.chaos.campaign import Tally
from kraft.chaos.case import Case
from kraft.chaos.coverage import asked_of_clusters
from kraft.chaos.faults import DEFAULT_FAULTS, FAULTS
from kraft.chaos.outcome import Outcome
from kraft.chaos.scenario import Scenario
from kraft.chaos.swarm import scenario_of
from kraft.cli.app import run
from kraft.cli.chaos import display
from tests.unit.chaos import played

Play = Callable[[Callable[..., Outcome]], None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Takes a function in the place of the one that plays scenarios."""
    return lambda function: monkeypatch.setattr(kraft.chaos.run, "run", function)


def simulate(*arguments: str) -> int:
    return run(["chaos", "simulate", *arguments])


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    """The one JSON object on standard output."""
    [line] = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_a_campaign_that_held(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    play(played.sound)
    assert simulate("--seeds", "3", "--first-seed", "8", "--seconds", "5", "--jobs", "2", "--json") == 0
    document = answer(capsys)
    assert document["seeds"] == 3
    assert document["digests"].keys() == {"8", "9", "10"}
    assert document["virtual_s"] == 75
    assert document["violations"] == []
    assert document["excused"] == 0
    assert {f"fault: {name}" for name in DEFAULT_FAULTS} <= document["coverage"].keys()
    assert {"commit", "wall_s", "cpu_s", "operations"} <= document.keys()


def test_a_violation_is_told_at_once_and_at_the_end(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    play(played.fails_if(lambda scenario: scenario.seed == 2))
    assert simulate("--seeds", "2", "--seconds", "5", "--faults", "kill,bit-rot") == 1
    captured = capsys.readouterr()
    command = "replay: kraft chaos simulate --seed 2 --seconds 5 --faults kill,bit-rot"
    for text in captured.out, captured.err:
        assert "seed 2 failed lost-write at step 7" in text
        assert "29.0 step 6: kill node 1" in text
        assert command in text
    assert "faults that struck: bit-rot 1, kill 1\n" in captured.out


def unlucky(scenario: Scenario, **_: Any) -> Outcome:
    """Losses that the faults explain, in every seed but the second."""
    outcome = played.sound(scenario)
    outcome.coverage |= {"truncation": 7, "unclean election": 1, "replica offline": 0}
    outcome.history = {"polls": 5, "records acks=1 never read": 3, "records acks=0 never read": 0}
    if scenario.seed != 2:
        outcome.excused = [f"orders-0: batch {n}-{n} of epoch 0 is gone: power loss" for n in range(5)]
    return outcome


def test_an_excused_loss_is_explained(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    play(unlucky)
    assert simulate("--seeds", "6", "--seconds", "5") == 0
    out = capsys.readouterr().out
    assert "seeds with an excused loss" in out
    told = [line for line in out.splitlines() if line.startswith("seed ") or "and " in line]
    assert told == [
        "seed 1 lost records, and the injected faults explain it:",
        "  and 2 more",
        "seed 3 lost records, and the injected faults explain it:",
        "  and 2 more",
        "seed 4 lost records, and the injected faults explain it:",
        "  and 2 more",
        "and so did 2 other seeds (all in --json)",
    ]
    assert "  orders-0: batch 2-2 of epoch 0 is gone: power loss\n" in out
    assert simulate("--seeds", "2", "--seconds", "5", "--json") == 0
    document = answer(capsys)
    assert document["excused"] == 1
    assert [len(document["excuses"][seed]) for seed in document["excuses"]] == [5]
    play(played.sound)
    assert simulate("--seeds", "2", "--seconds", "5") == 0
    assert "excused" not in capsys.readouterr().out


def test_counters_are_shown_where_they_stand_out(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    play(unlucky)
    assert simulate("--seeds", "2", "--seconds", "5", "--faults", "kill") == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["unclean", "election", "2"] in shown
    assert ["history:", "records", "acks=1", "never", "read", "6"] in shown
    assert ["acknowledged:", "consumer", "0"] in shown
    words = {word for line in shown for word in line}
    assert words.isdisjoint(("truncation", "offline", "acks=0", "polls", "producer"))
    assert simulate("--seeds", "2", "--seconds", "5", "--faults", "kill", "--counters") == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    for line in (["truncation", "14"], ["replica", "offline", "0"], ["history:", "polls", "10"]):
        assert line in shown


def test_the_bar_moves_while_the_first_seeds_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(display, "console", Console(file=screen, force_terminal=True, width=100))
    with display.CampaignDisplay(asked_of_clusters(None, ()), 4, is_one=False) as bar:
        assert bar.is_shown
        bar.tick(Tally(under_way=1.0))
        assert bar._bar.tasks[0].percentage == 25.0
        bar.tick(Tally(seeds=3, wall_s=60.0, under_way=0.5))
        assert bar._bar.tasks[0].percentage == 87.5
        assert "3 seeds/min" in screen.getvalue()


def test_a_violation_as_json(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    play(played.fails_if(lambda _: True))
    assert simulate("--seed", "7", "--json") == 1
    document = answer(capsys)
    assert [(row["seed"], row["oracle"], row["step"]) for row in document["violations"]] == [
        (7, "lost-write", 7)
    ]


def test_what_says_nothing_is_neither_good_nor_bad(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    play(lambda scenario: Outcome(scenario.seed, undecided="nobody did anything"))
    assert simulate("--seed", "1") == 3
    assert "seed 1 shows nothing: nobody did anything" in capsys.readouterr().err
    play(lambda scenario: Outcome(scenario.seed))
    assert simulate("--seeds", "99", "--seconds", "1") == 0
    assert simulate("--seeds", "100", "--seconds", "1") == 3
    captured = capsys.readouterr()
    assert "the fault 'kill' was enabled and never struck" in captured.err
    assert " ISR expand," in captured.out.partition("never happened: ")[2]


def test_a_long_campaign_says_that_everything_happened(
    play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    play(lambda scenario: Outcome(scenario.seed, coverage={"fault: kill": 1}))
    assert simulate("--seeds", "99", "--seconds", "1", "--faults", "kill") == 0
    assert "stayed at zero" not in capsys.readouterr().out
    assert simulate("--seeds", "100", "--seconds", "1", "--faults", "kill") == 0
    assert "every enabled fault struck, and no counter stayed at zero" in capsys.readouterr().out
    assert simulate("--seeds", "1", "--faults", "kill", "--json") == 0
    assert answer(capsys)["never_happened"] == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("none", set()),
        ("bit-rot, kill", {"bit-rot", "kill"}),
        ("all", set(FAULTS)),
        ("default,bit-rot", {*DEFAULT_FAULTS, "bit-rot"}),
    ],
)
def test_faults_by_name(play: Play, capsys: pytest.CaptureFixture[str], text: str, names: set[str]) -> None:
    play(played.sound)
    assert simulate("--seeds", "1", "--faults", text, "--seconds", "300", "--json") == 0
    coverage = answer(capsys)["coverage"]
    assert {name.removeprefix("fault: ") for name, times in coverage.items() if times} == names


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--faults", "gremlins"], "no fault 'gremlins'; choose from: kill,"),
        (["--faults", ","], "names no fault"),
        (["--seed", "1", "--minutes", "1"], "leave out --minutes"),
        (["--seed", "1", "--seeds", "3"], "leave out --seeds"),
        (["--case", "x.json", "--seconds", "3"], "leave out --seconds"),
        (["--case", "/nowhere/x.json"], "cannot read /nowhere/x.json"),
        (["--seeds", "3", "--trace", "x"], "--trace writes the story of one run"),
        (["--seeds", "3", "--trace-all", "x"], "--trace-all writes the timeline of one run"),
        (["--seed", "3", "--trace", "/nowhere/x"], "no file that can be written"),
    ],
)
def test_wrong_usage_is_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(*arguments) == 2
    assert sentence in capsys.readouterr().err


def test_a_file_that_is_no_case_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "case.json"
    file.write_text("{}")
    assert simulate("--case", str(file)) == 2
    assert "this is no case" in capsys.readouterr().err
    scenario = replace(scenario_of(1), seconds=math.nan)
    file.write_text(Case(scenario, "liveness", "", "").to_json())
    for command in "simulate", "shrink":
        assert run(["chaos", command, "--case", str(file)]) == 2
        assert "it cannot be played: seconds is nan" in capsys.readouterr().err


def test_a_minute_ends(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    play(played.sound)
    assert simulate("--minutes", "0.01", "--first-seed", "70", "--jobs", "1", "--json") in (0, 3)
    captured = capsys.readouterr()
    assert "the first seed is 70" in captured.err
    assert next(iter(json.loads(captured.out)["digests"])) == "70"


def test_the_story_and_the_timeline_of_one_seed(play: Play, tmp_path: Path) -> None:
    play(played.sound)
    story, timeline = tmp_path / "story.txt", tmp_path / "timeline.txt"
    assert simulate("--seed", "4", "--trace", str(story), "--trace-all", str(timeline)) == 0
    assert story.read_text() == "the story of 4\n"
    assert timeline.read_text() == "the timeline of 4\n"


def test_verify(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    play(played.sound)
    assert simulate("--seed", "4", "--verify", "--json") == 0
    document = answer(capsys)
    assert document == {"seed": 4, "hashes": [document["hashes"][0]] * 2, "equal": True, "failed": []}


def test_verify_tells_of_broken_promises(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    play(played.wrong)
    assert simulate("--seed", "4", "--verify") == 1
    assert capsys.readouterr().out.endswith("equal; failed lost-write\n")
    assert simulate("--seeds", "2", "--verify", "--json") == 1
    document = answer(capsys)
    assert document["equal"]
    assert [row["failed"] for row in document["verified"]] == [["lost-write"]] * 2


def test_verify_finds_what_is_not_deterministic(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    play(played.hashing)
    assert simulate("--seeds", "1", "--verify") == 1
    captured = capsys.readouterr()
    assert captured.out.endswith("DIFFERENT\n")
    assert "two processes, two histories" in captured.err


def test_shrinking_writes_a_case_that_replays(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def has_kill(scenario: Scenario) -> bool:
        return any(fault.name == "kill" for fault in scenario.faults)

    monkeypatch.chdir(tmp_path)
    play(played.fails_if(has_kill))
    assert run(["chaos", "shrink", "--seed", "6", "--faults", "kill,pause", "--json"]) == 0
    document = answer(capsys)
    assert document["case"] == str(tmp_path / "seed-6-lost-write.json")
    assert (document["faults"], document["workloads"]) == (["kill"], [])
    case = Case.load(Path(document["case"]))
    assert (case.oracle, case.text) == ("lost-write", "it is gone")
    assert has_kill(case.scenario)
    assert simulate("--case", document["case"], "--json") == 1
    [row] = answer(capsys)["violations"]
    assert row["replay"] == f"kraft chaos simulate --case {document['case']}"
    play(played.sound)
    assert simulate("--case", document["case"]) == 0
    assert run(["chaos", "shrink", "--case", document["case"]]) == 3


def test_shrinking_needs_something_to_shrink(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chaos", "shrink"]) == 2
    assert "with --seed or with --case" in capsys.readouterr().err


def test_the_list_of_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chaos", "faults", "--json"]) == 0
    rows = answer(capsys)["faults"]
    assert {row["name"] for row in rows} == set(FAULTS)
    assert {row["name"] for row in rows if row["default"]} == set(DEFAULT_FAULTS)
    assert all(row["doc"] for row in rows)
    assert run(["chaos", "faults"]) == 0
    assert "clock-skew" in capsys.readouterr().out
