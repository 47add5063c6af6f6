"""The known histories come out as stated, because of the rule and of nothing else."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import fetcher.replication
from kraft.chaos.replay.broker import ReplayError
from kraft.chaos.replay.histories import HISTORIES
from kraft.chaos.replay.play import first_difference, play
from kraft.chaos.replay.rules import Rule
from kraft.chaos.replay.stage import Stage
from kraft.cli.app import app
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


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_verdicts_swap_with_the_rules(history):
    swapped = replace(
        history,
        old=history.today,
        today=history.old,
        verdicts={**history.verdicts, history.old.name: history.verdicts[history.today.name],
                  history.today.name: history.verdicts[history.old.name]},
    )  # fmt: skip
    assert history.verdicts[history.today.name] == "held" != history.verdicts[history.old.name]
    assert not play(swapped, swapped.old).is_as_stated
    assert not play(swapped, swapped.today).is_as_stated


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


def run(*arguments):
    return CliRunner().invoke(app, ["chaos", "replay", *arguments])


def test_both_rules_side_by_side():
    result = run("kip-101-loss")
    assert result.exit_code == 0
    assert "rule: high-watermark" in result.stdout
    assert "rule: leader-epoch" in result.stdout
    assert "4 ≠" in result.stdout
    assert "rule high-watermark: lost" in result.stdout
    assert "rule leader-epoch: held" in result.stdout


@pytest.mark.parametrize(
    ("option", "rule", "verdict"),
    [
        (("--truncation", "high-watermark"), "high-watermark", "lost"),
        (("--rule", "old"), "high-watermark", "lost"),
        (("--truncation", "leader-epoch"), "leader-epoch", "held"),
        (("--rule", "current"), "leader-epoch", "held"),
    ],
)
def test_one_rule_as_json(option, rule, verdict):
    result = run("kip-101-loss", *option, "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (document["scenario"], document["rule"], document["verdict"]) == ("kip-101-loss", rule, verdict)
    assert document["first_difference"] == 4
    assert [step["step"] for step in document["steps"]] == list(range(1, len(document["steps"]) + 1))


def test_an_unexpected_verdict_is_a_failure(monkeypatch):
    history = HISTORIES["kip-320"]
    wrong = replace(history, verdicts={"old": "held", "current": "held"})
    monkeypatch.setitem(HISTORIES, "kip-320", wrong)
    result = run("kip-320")
    assert result.exit_code == 1
    assert "and not held as it should be" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("kip-1",),
        ("kip-966", "--truncation", "high-watermark"),
        ("kip-101-loss", "--truncation", "guess"),
        ("kip-101-loss", "--rule", "new"),
        ("kip-101-loss", "--rule", "old", "--truncation", "leader-epoch"),
        ("--rule", "old"),
    ],
)
def test_wrong_usage(arguments):
    assert run(*arguments).exit_code != 0


def test_without_a_name_all_are_listed():
    result = run()
    assert result.exit_code == 0
    for name in HISTORIES:
        assert name in result.stdout
