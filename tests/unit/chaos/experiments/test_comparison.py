"""The comparison of acks and min.insync.replicas: its plan, its rows, its table and its picture; and the command."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from kraft.chaos.experiments import comparison
from kraft.chaos.experiments.comparison import ACKS, CASES, MIN_INSYNC, Cell, Row, plan, row_of, table
from kraft.chaos.experiments.comparison.picture import picture
from kraft.chaos.experiments.verdict import judge
from kraft.chaos.experiments.vocabulary import BOTH
from kraft.cli.app import run
from tests.unit.chaos.experiments.planted import evidence, send

COUNTS = {
    "acked": 211,
    "acked_acks1": 100,
    "acked_acks0": 90,
    "lost": 0,
    "lost_acks1": 12,
    "lost_acks0": 30,
    "doubled_acks1": 5,
}
HELD = Row(
    "c", "a fault", 2, "held", "", (Cell(0, 9, 3, 0, None), Cell(1, 9, 2, 1, 1500), Cell(-1, 9, 0, 0, 250))
)
UNDECIDED = replace(HELD, min_insync=1, verdict="undecided", why="the run itself was starved")


def test_every_fault_is_played_with_each_min_insync_replicas_in_both_worlds():
    planned = plan()
    assert [(one.case.name, one.min_insync) for one in planned] == [
        (case.name, number) for case in CASES for number in MIN_INSYNC
    ]
    for one in planned:
        assert set(one.experiment.backends) == BOTH
        (topic,) = one.experiment.cluster.topics
        assert topic.configs["min.insync.replicas"] == str(one.min_insync)
        assert {spec.acks for spec in one.experiment.workload if "producer" in spec.kind} == set(ACKS)


def test_each_producer_is_measured_by_its_own_acknowledgements():
    """acks=1 goes on while acks=all waits three seconds."""
    (planned, _) = plan(["leader-killed"])
    found = evidence(counts=COUNTS)
    quick = tuple(send(number / 10, acks=1) for number in range(240))
    found = replace(found, samples=(*found.samples, *quick, send(8.0, acks=0)))
    row = row_of(planned, found, judge(planned.experiment, found))
    none, one, every = row.cells
    assert (none.sent, none.lost, none.doubled, none.unavailable_ms) == (90, 30, 0, None)
    assert (one.sent, one.lost, one.doubled) == (100, 12, 5)
    assert one.unavailable_ms == 10
    assert (every.sent, every.lost, every.doubled, every.unavailable_ms) == (211, 0, 0, 3000)


def test_a_run_that_is_not_held_is_marked_with_its_reason():
    told = table([UNDECIDED, HELD])
    assert "| a fault | 1 (undecided) | 3 / 0 / - | 2 / 1 / 1.5 s | 0 / 0 / 0.2 s |" in told
    assert "| a fault | 2 | 3 / 0 / - |" in told
    assert "- c, min.insync.replicas=1: undecided: the run itself was starved" in told
    assert "(undecided)" in picture([UNDECIDED, HELD], "")


def test_the_picture_draws_a_bar_for_what_was_counted_and_none_for_nothing():
    root = ET.fromstring(picture([UNDECIDED, HELD], "two runs & a caption"))
    bars = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if one.get("height") == "11"]
    by_class = {
        name: [int(one.get("width", "")) for one in bars if one.get("class") == name]
        for name in ("lost", "doubled", "waited")
    }
    assert {name: len(widths) for name, widths in by_class.items()} == {"lost": 4, "doubled": 2, "waited": 4}
    assert by_class["lost"][0] > by_class["lost"][1] > 0
    assert "two runs & a caption" in "".join(root.itertext())


def test_the_command_plays_judges_and_writes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(comparison, "MIN_INSYNC", (2,))
    arguments = ["--backend", "sim", "--faults", "leader-killed-ahead", "--out", str(tmp_path), "--json"]
    assert run(["chaos", "compare", *arguments]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["fault"], one["min_insync_replicas"], one["verdict"]) for one in told["rows"]] == [
        ("leader-killed-ahead", 2, "held"),
    ]
    lost = {producer["acks"]: producer["lost"] for producer in told["rows"][0]["producers"]}
    assert lost["all"] == 0
    assert min(lost["0"], lost["1"]) > 0
    assert len((tmp_path / "comparison.md").read_text().splitlines()) == 5
    assert ET.parse(tmp_path / "comparison.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "leader-killed-ahead-min-insync-2" / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--faults", "rain"],
            "choose from leader-killed, leader-killed-ahead, answers-lost, last-copy-lost",
        ),
        (["--backend", "moon"], "--backend is real or sim, not moon"),
    ],
)
def test_wrong_usage_is_told_in_a_sentence(arguments, told, capsys):
    assert run(["chaos", "compare", *arguments]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_the_help_names_the_faults(capsys):
    assert run(["chaos", "compare", "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(case.name in printed for case in CASES)
