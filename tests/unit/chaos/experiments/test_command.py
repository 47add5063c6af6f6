"""`kraft chaos run`, `list` and `explain`: what they print, write and exit with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft.chaos.experiments.document import EXAMPLE, load
from kraft.chaos.experiments.shelf import library
from kraft.chaos.experiments.vocabulary import FAULTS, PROBES, WORKLOADS
from kraft.cli.app import run
from kraft.cli.chaos.experiments import explanation
from tests.unit.chaos.experiments.planted import TEXT

SHORT = (
    TEXT.replace("steady: 5s", "steady: 1s")
    .replace("duration: 20s", "duration: 9s")
    .replace("at: 2s, for: 5s", "at: 1s, for: 2s")
)
KEYS = {
    "experiment",
    "backend",
    "seed",
    "verdict",
    "safety",
    "hypothesis",
    "as_expected",
    "anomalies",
    "acked",
    "lost",
    "doubled",
    "counts",
    "faults",
    "report",
}


def write(folder: Path, *changes: tuple[str, str]) -> str:
    text = SHORT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def test_a_file_is_run_judged_and_reported(tmp_path, capsys):
    out = tmp_path / "out"
    assert run(["chaos", "run", write(tmp_path), "--seed", "7", "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() >= KEYS
    assert (found["experiment"], found["backend"], found["seed"]) == ("planted", "sim", 7)
    assert (found["verdict"], found["as_expected"], found["lost"]) == ("held", True, 0)
    [fault] = found["faults"]
    assert fault.keys() >= {"name", "target", "took_effect", "began_s", "ended_s", "unavailable_ms"}
    assert (fault["began_s"], fault["ended_s"]) == (2.0, 4.0)
    assert Path(found["report"]).read_text().startswith("<!DOCTYPE html>")
    assert {one.name for one in out.iterdir()} == {
        "report.html",
        "report.json",
        "junit.xml",
        "experiment.yaml",
    }


def test_a_promise_that_is_not_met_is_undecided(tmp_path, capsys):
    path = write(tmp_path, ("acked >= 10", "lost_acks1 >= 1"))
    assert run(["chaos", "run", path, "--out", str(tmp_path)]) == 3
    printed = capsys.readouterr().out
    assert "undecided: the file promises lost_acks1 >= 1, and lost_acks1 is 0" in " ".join(printed.split())
    assert "verdict: undecided (safety undecided, hypothesis held), not as expected" in printed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["leader-kil"], "did you mean leader-kill?"),
        (["nothing-like-it"], "there are acks-compared, bit-rot,"),
        (["missing.yaml"], "cannot read missing.yaml"),
        (["leader-kill", "--backend", "moon"], "not on moon"),
        (["leader-kill", "--duration", "5"], "is not a duration like 5s"),
        (["leader-kill", "--duration", "5s"], "when the last fault of leader-kill has ended"),
        (["leader-kill", "--backlog", "5MB"], "leader-kill has none"),
        (["slow-client-backlog", "--backlog", "5"], "is not a size like 10MB"),
        (["slow-client-backlog", "--backlog", "0MB"], "at least 1 byte"),
        (["leader-kill", "--out", "/proc/1/nowhere"], "name another with --out"),
    ],
)
def test_wrong_usage_is_told_in_a_sentence(arguments, told, capsys):
    assert run(["chaos", "run", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_a_mistake_of_a_file_names_file_and_line(tmp_path, capsys):
    path = write(tmp_path, ("fault: kill", "fault: kil"))
    assert run(["chaos", "run", path]) == 2
    assert f"{path}, line 19: fault: 'kil' is none of" in capsys.readouterr().err


def test_the_library_is_listed_and_explained(capsys):
    assert run(["chaos", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["experiments"]
    assert all(one.keys() == {"name", "teaches", "expect", "backends"} for one in listed)
    assert run(["chaos", "explain", "leader-kill", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["experiments"] == [
        one for one in listed if one["name"] == "leader-kill"
    ]
    assert run(["chaos", "explain", "leader-kill"]) == 0
    assert "kraft chaos run leader-kill" in capsys.readouterr().out


def test_every_explanation_fits_a_terminal():
    for name, one in library().items():
        lines = explanation(one, name)
        assert max(map(len, lines)) <= 80, name
        assert f"  kraft chaos run {name} --backend {one.backends[0]}" in lines


def test_the_words_of_files_are_told(capsys):
    assert run(["chaos", "explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name in (*FAULTS, *PROBES, *WORKLOADS):
        assert any(line.startswith((f"  {name} (", f"  {name}:")) for line in lines), name
    assert run(["chaos", "explain", "--json"]) == 0
    words = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in words["faults"]} == set(FAULTS)
    assert load(EXAMPLE).name == "leader-kill"
