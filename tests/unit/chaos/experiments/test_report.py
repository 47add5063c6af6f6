"""The report: three sentences, JSON, JUnit, and a page that stands alone."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from kraft.chaos.experiments.evidence import Anomaly, LogLine
from kraft.chaos.experiments.report import write_report
from kraft.chaos.experiments.report.page import page
from kraft.chaos.experiments.report.series import buckets, leaders, unhealthy
from kraft.chaos.experiments.report.summary import Run, document, junit, sentences
from kraft.chaos.experiments.verdict import RULES, judge
from tests.unit.chaos.experiments.planted import FAULT, SAMPLES, evidence, experiment, send

NASTY = "<script>alert('&')</script>"


def run_of(**changes: object) -> Run:
    found = evidence(**changes)
    return Run(
        experiment(), found, judge(experiment(), found), "kraft chaos run planted --backend sim --seed 1"
    )


BAD = run_of(
    anomalies=(Anomaly("lost-write", f"record {NASTY}", (f"send {NASTY}",), 9.0),),
    faults=(replace(FAULT, proof=NASTY),),
    logs=(LogLine(9.0, "node-1", "error", NASTY),),
    samples=(*SAMPLES, send(15.0, status="fail"), send(15.1, status="info")),
    environment={"note": NASTY},
)


class Tags(HTMLParser):
    """Checks that every element is closed in its turn."""

    VOID = frozenset(("meta",))

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags_of(run: Run) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(page(run))
    assert parser.open == []
    return parser.seen


@pytest.mark.parametrize(
    "run", [run_of(), BAD, run_of(journal=None, samples=(), faults=(), final_reads=None)]
)
def test_the_page_is_whole_and_fetches_nothing(run: Run):
    tags = tags_of(run)
    assert not [attrs for _, attrs in tags if {"src", "href"} & attrs.keys()]
    assert sum(tag == "script" for tag, _ in tags) == 1
    assert "http" not in page(run).replace("http-equiv", "")
    assert "prefers-color-scheme: dark" in page(run)
    assert "@media print" in page(run)


def test_what_clients_and_nodes_say_is_text_and_no_markup():
    assert NASTY not in page(BAD)
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)" in page(BAD)


def test_the_timeline_has_the_fault_the_leaders_and_the_series():
    text = page(BAD)
    spans = re.findall(r'<div class="span ([a-z0-9-]+)" data-from="([0-9.]+)" data-until="([0-9.]+)"', text)
    assert ("fault", "7.000", "12.000") in spans
    assert ("node-1", "0.000", "9.900") in spans
    assert ("node-2", "9.900", "12.500") in spans
    assert ("unwell", "7.000", "13.000") in spans
    assert text.count('<rect class="failed"') == text.count('<rect class="unknown"') == 1
    assert "leader 2 · ISR 2,3" in text


def test_the_sentences_tell_what_was_done_and_found():
    done, found, meaning = sentences(run_of())
    assert done.endswith("it was struck by kill of leader of orders-0 (node 1) at 7.0 s.")
    assert found.startswith("Of 211 records acknowledged with acks=all, 0 were lost and 0 doubled;")
    assert "waited for at most 3.00 s" in found
    assert meaning == "Every promise held, as the file expects."
    assert sentences(BAD)[2].startswith(
        "A promise was violated, which is not what the file expects: lost-write:"
    )
    assert sentences(run_of(journal=None))[2].startswith(
        "It could not be decided: there is no metadata journal"
    )


def test_the_document_is_the_contract():
    found = document(run_of(), "report.html")
    assert found["experiment"] == "planted"
    assert (found["backend"], found["seed"], found["verdict"], found["as_expected"]) == (
        "sim",
        1,
        "held",
        True,
    )
    assert (found["acked"], found["lost"], found["doubled"], found["anomalies"]) == (211, 0, 0, {})
    [fault] = found["faults"]
    assert (fault["name"], fault["target"], fault["took_effect"]) == ("kill", "leader of orders-0", True)
    assert (fault["began_s"], fault["ended_s"], fault["unavailable_ms"]) == (7.0, 12.0, 3000)
    assert (fault["detected_s"], fault["elected_s"]) == (9.9, 9.9)
    assert found["report"] == "report.html"
    assert document(BAD, "")["anomalies"] == {"lost-write": 1}


def test_junit_has_a_case_for_each_rule():
    good, bad = ET.fromstring(junit(run_of())), ET.fromstring(junit(BAD))
    assert len(good) == len(bad) == len(RULES) + 1 == int(good.attrib["tests"])
    assert (good.attrib["failures"], good.attrib["errors"]) == ("0", "0")
    assert bad.attrib["failures"] == "2"
    assert {case.attrib["name"] for case in bad if len(case)} == {"safety: anomaly", "as expected"}
    undecided = ET.fromstring(junit(run_of(journal=None)))
    assert (undecided.attrib["failures"], undecided.attrib["errors"]) == ("1", "1")


def test_all_of_it_is_written_beside_each_other(tmp_path):
    path = write_report(tmp_path, run_of())
    assert path == tmp_path / "report.html"
    assert json.loads((tmp_path / "report.json").read_text())["report"] == str(path)
    assert {one.name for one in tmp_path.iterdir()} == {
        "report.html",
        "report.json",
        "junit.xml",
        "experiment.yaml",
    }


def test_series_and_spans():
    series = buckets(evidence())
    assert series.acknowledged.top == pytest.approx(10.0, rel=0.3)
    assert series.max_ms.top == pytest.approx(3000.0)
    assert series.failed.top == 0.0
    assert [one.kind for one in leaders(evidence())["orders", 0]] == ["node-1", "node-2", "node-2"]
    [unwell] = unhealthy(evidence())
    assert (unwell.from_s, unwell.until_s) == (7.0, 13.0)
