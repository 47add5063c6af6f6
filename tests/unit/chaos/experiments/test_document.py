"""Experiment documents: what a file says, and what is said of its mistakes, with their lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from kraft.chaos.experiments.document import ExperimentError, load
from kraft.chaos.experiments.shelf import lesson
from kraft.chaos.experiments.targets import Target
from kraft.chaos.experiments.verdict import RULES
from kraft.chaos.experiments.vocabulary import ANOMALIES, FAULTS, PROBES
from tests.support.source_tree import ROOT
from tests.unit.chaos.experiments.planted import TEXT, experiment


def test_a_file_becomes_values():
    found = experiment()
    assert (found.name, found.backends, found.duration_s, found.steady_s) == (
        "planted",
        ("sim", "real"),
        20.0,
        5.0,
    )
    [topic] = found.cluster.topics
    assert (topic.name, topic.partitions, topic.replicas) == ("orders", 1, 3)
    assert topic.configs == {"min.insync.replicas": "2"}
    assert found.cluster.settings == {"broker.session.timeout.ms": "3000"}
    [step] = found.method
    assert step.target == Target("leader of orders-0", "leader", ("orders", 0))
    assert (step.fault, step.at_s, step.for_s, step.end_s) == ("kill", 2.0, 5.0, 7.0)
    ailments, unavailable = found.hypothesis.probes
    assert (ailments.at_most, ailments.when) == (0.0, {"before", "after"})
    assert (unavailable.at_most, unavailable.when, unavailable.tolerance) == (4.0, {"during"}, "at most 4s")
    [producer, consumer] = found.workload
    assert (producer.rate, producer.acks, consumer.kind) == (10.0, -1, "consumer")
    assert (found.expect.verdict, found.promises[0].count, found.promises[0].value) == ("held", "acked", 10)
    assert lesson(found) == "What it teaches, at length."


def test_sizes_are_whole_bytes():
    slow = "- {kind: slow-consumer, topic: orders, backlog: 2.5MB, bandwidth: 1MB/s}"
    found = experiment(("[sim, real]", "[real]"), ("- {kind: consumer, topic: orders}", slow))
    assert repr(found.workload[1].backlog_bytes) == "2500000"


def test_words_of_yaml_are_taken_as_the_node_takes_them():
    found = experiment(("min.insync.replicas: 2", "unclean.leader.election.enable: on"))
    assert found.cluster.topics[0].configs == {"unclean.leader.election.enable": "true"}


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ("fault: kill", "fault: kil", 19, "'kil' is none of kill, stop"),
        ("for: 5s", "for: 5", 19, "for: 5 is not a duration like 5s or 200ms"),
        (", for: 5s", "", 19, "the fault kill needs 'for'"),
        ("for: 5s", "for: 5s, ramp: 1s", 19, "the fault kill has no 'ramp'"),
        ("for: 5s", "for: 5s, delay: 1s", 19, "the fault kill has no 'delay'"),
        ("for: 5s", "for: 19s", 19, "within the duration of 20s"),
        ("leader of orders-0", "leader of orders-1", 19, "there is no partition orders-1"),
        ("leader of orders-0", "boss of orders-0", 19, "names no target: it is one of leader of T-P"),
        ("leader of orders-0", "node 4", 19, "the cluster has nodes 1 to 3"),
        ("leader of orders-0", "node of step 1", 19, "names an earlier step"),
        ("replicas: 3", "replicas: 4", 11, "orders wants 4 replicas on 3 nodes"),
        ("nodes: 3", "nodes: 0", 8, "less than the minimum of 1"),
        ("nodes: 3", "nodes: [3", 9, "expected"),
        ("duration: 20s", "duration: 2h", 5, "a run lasts from 1s to 3600s"),
        ("rate: 10/s", "rate: 10", 16, "is not a rate like 50/s"),
        ("rate: 10/s", "rate: 0/s", 16, "rate must be above 0"),
        ("rate: 10/s", "acks: 1", 16, "the workload idempotent-producer has no 'acks'"),
        ("topic: orders, rate", "topic: others, rate", 16, "there is no topic 'others'"),
        ("at-most: 4s, ", "", 14, "the probe unavailable needs a tolerance"),
        ("at-most: 4s", "at-most: 4%", 14, "at-most: '4%' is not a duration"),
        ("probe: ailments", "probe: health", 13, "'health' is none of ailments"),
        ("acked >= 10", "acked > 10", 21, "is no promise like"),
        ("expect: held", "expect: lost", 20, "expect"),
        (
            "expect: held",
            "expect:\n  violated: [unseen, lost-wirte]",
            21,
            "did you mean lost-write? Known are aborted",
        ),
        (
            "expect: held",
            "expect: {violated: [x]}",
            20,
            "nobody reports an anomaly 'x': Known are aborted-offset,",
        ),
        ("expect: held", "expect: held\nexpect: held", 21, "the key 'expect' stands here twice"),
        ("promises", "promise", 21, "unknown key 'promise'"),
        ("expect: held\n", "", 2, "'expect' is a required property"),
        ("fault: kill,", "fault: cpu-pressure,", 4, "sim has no cpu-pressure: name only real"),
        ("steady: 5s", "steady: &a 5s\nminimums: *a", 7, "aliases (*name) are not used"),
    ],
)
def test_a_mistake_is_told_with_its_line(old: str, new: str, line: int, text: str):
    with pytest.raises(ExperimentError) as error:
        experiment((old, new))
    assert str(error.value).startswith(f"line {line}: "), error.value
    assert text in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "a: b: c", "x" * 70_000, "- &a [*a]", "{1: 2}", "\x00"])
def test_what_is_no_experiment_is_refused_in_a_sentence(text: str):
    with pytest.raises(ExperimentError, match=r"^line \d+: "):
        load(text)


def test_each_fault_of_the_vocabulary_can_be_written():
    for name, word in FAULTS.items():
        values = {
            "delay": "50ms",
            "rate": "1kB/s",
            "lost": "10%",
            "sync": "1s",
            "offset": "5min",
            "share": "50%",
        }
        parameters = "".join(f", {key}: {values[key]}" for key in sorted(word.required))
        lasts = ", for: 5s" if word.lasts else ""
        changes = [("{fault: kill, target: leader of orders-0, at: 2s, for: 5s}",
                    f"{{fault: {name}, target: node 1, at: 2s{lasts}{parameters}}}")]  # fmt: skip
        changes.append(("[sim, real]", f"[{', '.join(sorted(word.backends))}]"))
        assert experiment(*changes).method[0].fault == name


def test_every_probe_has_a_unit_of_its_own_tolerance():
    for name, word in PROBES.items():
        value = {"s": "2s", "/s": "2/s", "share": "2%", "": "2"}[word.unit]
        [probe, _] = experiment(("probe: ailments", f"probe: {name}, at-most: {value}")).hypothesis.probes
        assert probe.holds(probe.at_most or 0.0)
        assert probe.tolerance == f"at most {value}"


def test_whatever_is_reported_can_be_expected():
    """Every name that a judge of `kraft.chaos` gives in its source, and every rule of the verdict that finds a
    violation. The campaign of the quorum alone, and replays, have no experiment files."""
    reported = {rule.name for rule in RULES if rule.grade == "violated" and rule.name != "anomaly"}
    for path in (ROOT / "kraft/chaos").rglob("*.py"):
        if {"quorum", "replay"}.isdisjoint(path.relative_to(ROOT).parts):
            words = TELLING | ({"add"} if path.parent.name == "checker" else set())
            reported |= set(_reported(ast.parse(path.read_text()), words))
    assert reported - ANOMALIES == set()
    assert len(reported) > 40


TELLING = {"violated", "add_unread", "add_read", "add_cycle"}


def _reported(tree: ast.Module, words: set[str]) -> Iterator[str]:
    """The first arguments of `….violated("lost-write", …)` and its like that stand there as they are."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
            for name in ast.walk(node.args[0]):
                is_text = isinstance(name, ast.Constant) and isinstance(name.value, str)
                if is_text and node.func.attr.lstrip("_") in words:
                    yield name.value


def test_the_text_of_the_file_is_kept():
    assert experiment().text == TEXT
