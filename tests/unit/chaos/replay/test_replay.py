"""The known histories come out as stated, because of the rule and of nothing else."""

import json
from copy import copy
from dataclasses import replace
from typing import NamedTuple

import pytest

import fetcher.replication
from kraft.chaos.replay.broker import ReplayError
from kraft.chaos.replay.histories import HISTORIES
from kraft.chaos.replay.play import first_difference, play
from kraft.chaos.replay.rules import Rule
from kraft.chaos.replay.stage import Stage
from kraft.cli import app
from leader_epoch.truncation import Truncation

EVERY_RULE = [
    pytest.param(history, rule, id=f"{history.name}-{rule.name}")
    for history in HISTORIES.values()
    for rule in history.rules.values()
]


@pytest.mark.parametrize(("history", "rule"), EVERY_RULE)
def test_the_checker_says_what_the_history_states(history, rule):
    outcome = play(history, rule)
    assert outcome.verdict == history.verdicts[rule.name]
    assert outcome.is_as_stated


def renamed(rule, name):
    """A rule that passes for another one."""
    other = copy(rule)
    other.name = name
    return other


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_verdicts_swap_with_the_rules(history):
    stated = history.verdicts
    assert stated[history.today.name] == "held" != stated[history.old.name]
    old, today = renamed(history.today, history.old.name), renamed(history.old, history.today.name)
    swapped = replace(history, old=old, today=today)
    assert play(swapped, old).verdict == "held"
    assert play(swapped, today).verdict == stated[history.old.name]
    assert not play(swapped, old).is_as_stated
    assert not play(swapped, today).is_as_stated


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_two_plays_are_equal_and_the_rules_part_somewhere(history):
    old, today = play(history, history.old), play(history, history.today)
    assert play(history, history.old).steps == old.steps
    parts = first_difference(old, today)
    assert parts is not None
    assert old.steps[: parts - 1] == today.steps[: parts - 1]
    assert first_difference(old, old) is None


def test_todays_rule_is_the_products(monkeypatch):
    """A product that cut to the high watermark would fork the log here, and the checker would say so."""

    def to_high_watermark(cache, answer, *, log_end_offset, high_watermark):
        return Truncation(min(high_watermark, log_end_offset), completed=True)

    monkeypatch.setattr(fetcher.replication, "truncation_offset", to_high_watermark)
    history = HISTORIES["kip-101-fork"]
    with pytest.raises(ReplayError, match="broker 1 has nothing to fetch"):
        play(history, history.today)  # it finds nothing to cut, for ever, and backs off


def test_a_script_that_asks_for_the_impossible_is_told_so():
    stage = Stage(Rule(), 2, {})
    stage.create_topic(1, 2)
    stage.brokers[2].crash()
    with pytest.raises(ReplayError, match="broker 2 has no replica"):
        stage.produce("m1", to=2)
    with pytest.raises(ReplayError, match="does not run"):
        stage.brokers[2].crash()


class Ran(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capsys):
    """`kraft chaos replay …`, in this process."""

    def ran(*arguments):
        capsys.readouterr()
        exit_code = app.run(["chaos", "replay", *arguments])
        return Ran(exit_code, *capsys.readouterr())

    return ran


def test_both_rules_side_by_side(run):
    result = run("kip-101-loss")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    heading = next(line for line in lines if "rule: " in line)
    assert heading.split() == ["rule:", "high-watermark", "rule:", "leader-epoch"]
    parting = next(number for number, line in enumerate(lines) if line.startswith("4 ≠  "))
    assert "[0:m1/0] 0@0" in lines[parting + 1]
    assert "[0:m1/0 1:m2/0] 0@0" in lines[parting + 1]
    assert "rule high-watermark: lost" in lines
    assert lines[-1] == "rule leader-epoch: held"


@pytest.mark.parametrize("name", HISTORIES)
def test_no_line_is_wider_than_a_terminal_of_120_columns(run, name):
    assert max(len(line.rstrip()) for line in run(name).stdout.splitlines()) <= 120


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_every_history_under_each_rule_as_json(run, history):
    partings = set()
    for option, rule in (("old", history.old.name), ("current", history.today.name)):
        result = run(history.name, "--rule", option, "--json")
        [line] = result.stdout.splitlines()
        document = json.loads(line)
        assert (result.exit_code, document["scenario"], document["rule"]) == (0, history.name, rule)
        assert document["verdict"] == history.verdicts[rule]
        assert [step["step"] for step in document["steps"]] == list(range(1, len(document["steps"]) + 1))
        partings.add(document["first_difference"])
    both = run(history.name, "--json")
    document = json.loads(both.stdout)
    assert both.exit_code == 0
    assert partings == {document["first_difference"]}
    assert [one["verdict"] for one in document["plays"]] == [
        history.verdicts[rule.name] for rule in (history.old, history.today)
    ]


@pytest.mark.parametrize(
    ("name", "truncation", "verdict"),
    [
        (name, truncation, HISTORIES[name].verdicts[truncation])
        for name in ("kip-101-loss", "kip-101-fork", "kip-279")
        for truncation in ("high-watermark", "leader-epoch")
    ],
)
def test_truncation_by_name(run, name, truncation, verdict):
    result = run(name, "--truncation", truncation, "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["rule"], document["verdict"]) == (0, truncation, verdict)


def test_an_unexpected_verdict_is_a_failure(run, monkeypatch):
    history = HISTORIES["kip-320"]
    wrong = replace(history, verdicts={"old": "held", "current": "held"})
    monkeypatch.setitem(HISTORIES, "kip-320", wrong)
    result = run("kip-320")
    assert result.exit_code == 1
    assert "and not held as it should be" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("kip-1",), "choose one of kip-101-loss"),
        (("kip-966", "--truncation", "high-watermark"), "takes --rule old or --rule current"),
        (("kip-101-loss", "--truncation", "guess"), "--truncation is one of"),
        (("kip-101-loss", "--rule", "new"), "--rule is old or current"),
        (("kip-101-loss", "--rule", "old", "--truncation", "leader-epoch"), "not both"),
        (("--rule", "old"), "name the history"),
    ],
)
def test_wrong_usage(run, arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert not result.stdout


def test_without_a_name_all_are_listed(run):
    result = run()
    assert result.exit_code == 0
    for name in HISTORIES:
        assert name in result.stdout
