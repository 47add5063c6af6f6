"""Shrinking: what is left still fails the same oracle, and nothing of it can be left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kraft.chaos.case import CORPUS, Case
from kraft.chaos.scenario import Scenario, ScenarioError
from kraft.chaos.shrink import NothingToShrink, shrink
from tests.unit.chaos import played


def names(scenario: Scenario) -> list[str]:
    return [fault.name for fault in scenario.faults]


def operations(scenario: Scenario) -> list[int]:
    return [
        min(
            int(one.per_second * scenario.seconds),
            10**9 if one.operations_max is None else one.operations_max,
        )
        for one in scenario.workloads
    ]


def needs(scenario: Scenario) -> bool:
    """Fails with faults 2 and 7 together, 60 operations of workload 3, 18 seconds, and property b."""
    return (
        {"fault-2", "fault-7"} <= set(names(scenario))
        and any(
            w.stream == 3 and n >= 60 for w, n in zip(scenario.workloads, operations(scenario), strict=True)
        )
        and scenario.seconds >= 18
        and scenario.properties.get("b") == "2"
    )


@pytest.mark.parametrize("jobs", [1, 4])
def test_only_what_is_needed_is_left(jobs: int):
    stages: dict[str, None] = {}
    small = shrink(
        played.scenario(1, faults=20),
        played.fails_if(needs),
        jobs=jobs,
        on_progress=lambda stage, _: stages.update({stage: None}),
    )
    left = small.scenario
    assert names(left) == ["fault-2", "fault-7"]
    assert [workload.stream for workload in left.workloads] == [3]
    assert 60 <= operations(left)[0] <= 66
    assert 18 <= left.seconds <= 18.5
    assert left.properties == {"b": "2"}
    assert [(topic.name, topic.configs) for topic in left.topics] == [("orders", {})]
    assert needs(left)
    assert (small.oracle, small.text) == ("lost-write", "it is gone")
    assert small.is_minimal
    assert small.runs <= 100
    assert list(stages)[:3] == ["as it is", "what is after the violation", "faults"]


def test_readers_become_plain_if_that_does_not_matter():
    whole = played.scenario(1)
    whole = replace(
        whole,
        nodes=tuple(replace(node, rack="a") for node in whole.nodes),
        workloads=tuple(replace(one, rack="b", fetch_sessions=True) for one in whole.workloads),
        run_time_configs={"leader.replication.throttled.rate": "1"},
    )
    small = shrink(
        whole, played.fails_if(lambda s: bool(s.workloads) and s.nodes[0].rack == "a"), jobs=1
    ).scenario
    assert {(one.rack, one.fetch_sessions) for one in small.workloads} == {("", False)}
    assert [node.rack for node in small.nodes] == ["a"]
    assert small.run_time_configs == {}


def test_what_comes_after_the_violation_goes_in_one_run():
    calls: list[int] = []
    run = played.fails_if(lambda scenario: "fault-0" in names(scenario), at_s=3.2)
    shrink(
        played.scenario(1, faults=28),
        run,
        jobs=1,
        on_progress=lambda stage, runs: calls.append(runs) if stage == "faults" else None,
    )
    assert len(calls) <= 4, "faults after the fourth second are gone before faults are tried"


def test_another_oracle_is_not_the_same_failure():
    def run(scenario: Scenario, **options: object) -> object:
        oracle = "lost-write" if len(scenario.faults) > 4 else "duplicate"
        return played.fails_if(lambda _: True, oracle)(scenario)

    small = shrink(played.scenario(1), run, jobs=2)  # type: ignore[arg-type]
    assert len(small.scenario.faults) == 5


def test_a_run_that_crashes_can_be_shrunk():
    def run(scenario: Scenario, **options: object) -> object:
        if "fault-5" in names(scenario):
            raise ZeroDivisionError("by zero")
        return played.sound(scenario)

    small = shrink(played.scenario(1), run, jobs=2)  # type: ignore[arg-type]
    assert names(small.scenario) == ["fault-5"]
    assert small.oracle == "run-failed"
    assert "ZeroDivisionError" in small.text


def test_the_number_of_runs_is_bounded_and_the_best_is_kept():
    small = shrink(played.scenario(1, faults=20), played.fails_if(needs), jobs=3, runs_max=12)
    assert small.runs <= 12
    assert not small.is_minimal
    assert needs(small.scenario)
    assert len(small.scenario.faults) < 20


def test_nothing_to_shrink():
    with pytest.raises(NothingToShrink, match="breaks no promise"):
        shrink(played.scenario(1), played.sound, jobs=1)
    with pytest.raises(NothingToShrink, match="not fail 'unseen', but lost-write"):
        shrink(played.scenario(1), played.fails_if(lambda _: True), jobs=1, oracle="unseen")


def test_a_case_is_a_file_that_says_it_all(tmp_path: Path):
    case = Case(played.scenario(3), "lost-write", 'gone: b"\\x00"', "0123abc")
    path = tmp_path / "case.json"
    path.write_text(case.to_json())
    assert Case.load(path) == case


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "scenario": {}, "oracle": 1}']
)
def test_what_is_no_case_is_a_sentence(text: str):
    with pytest.raises(ScenarioError, match=r"case|scenario"):
        Case.from_json(text)


def test_a_case_goes_to_the_corpus_of_the_checkout_and_replaces_no_other(tmp_path: Path):
    case = Case(played.scenario(3), "lost-write", "", "")
    inside = tmp_path / "checkout" / "kraft"
    corpus = tmp_path / "checkout" / CORPUS
    inside.mkdir(parents=True)
    corpus.mkdir(parents=True)
    assert case.default_path(tmp_path) == tmp_path / "seed-3-lost-write.json"
    assert case.default_path(inside) == corpus / "seed-3-lost-write.json"
    (corpus / "seed-3-lost-write.json").touch()
    (corpus / "seed-3-lost-write-2.json").touch()
    assert case.default_path(inside) == corpus / "seed-3-lost-write-3.json"
    assert replace(case, oracle="duplicate").default_path(inside).name == "seed-3-duplicate.json"
