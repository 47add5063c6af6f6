"""The verdict: each rule finds the anomaly, or the missing evidence, that was planted, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft.chaos.experiments.evidence import (
    Anomaly,
    CommandEnd,
    FinalRead,
    Journal,
    MetadataChange,
    ReplicaComparison,
    Starvation,
)
from kraft.chaos.experiments.verdict import RULES, judge
from tests.unit.chaos.experiments.planted import FAULT, SAMPLES, evidence, experiment, send

LOST = Anomaly("lost-write", "record 7 was acknowledged and is gone")
UNWELL = tuple(replace(one, ailments=1, text="broker 2 is fenced") for one in evidence().readings)
COPIES = ReplicaComparison("orders", 0, (1, 2, 3), (1, 2, 3), 211, True)
COMMAND = CommandEnd("./mine", 0, 10)

PLANTED: list[tuple[str, dict[str, object], str]] = [
    ("anomaly", {"anomalies": (LOST,)}, "lost-write: record 7"),
    (
        "replicas-differ",
        {"replicas": (replace(COPIES, equal=False, problem="offset 9 of node 2"),)},
        "the replicas of orders-0 differ below the high watermark: offset 9 of node 2",
    ),
    ("command-failed", {"commands": (replace(COMMAND, exit_code=3, text="boom"),)}, "exit code 3: boom"),
    ("hypothesis", {"readings": UNWELL}, "ailments before the faults was 1, which is not at most 0"),
    (
        "hypothesis",
        {"samples": (*(s for s in SAMPLES if not 7 <= s.began_s < 12), send(7.0, 5.0))},
        "unavailable during",
    ),
    ("unmeasured", {"readings": ()}, "ailments before the faults could not be measured"),
    ("aborted", {"aborted": "unavailable was 61s"}, "the run was aborted: unavailable was 61s"),
    ("effect", {"faults": (replace(FAULT, took_effect=False, proof="it still runs"),)}, "it still runs"),
    ("effect", {"faults": (replace(FAULT, took_effect=None, proof=""),)}, "its probe saw nothing"),
    (
        "effect",
        {"faults": (replace(FAULT, began_s=None, proof="orders-0 has no leader"),)},
        "never struck: orders-0",
    ),
    ("effect", {"faults": ()}, "step 1 (kill of leader of orders-0) never struck"),
    (
        "healed",
        {"faults": (replace(FAULT, healed=False, heal_proof="it is gone"),)},
        "is not known to be over",
    ),
    ("healed", {"faults": (replace(FAULT, ended_s=None),)}, "never ended"),
    (
        "activity",
        {"samples": tuple(s for s in SAMPLES if s.began_s >= 6.9)},
        "acknowledged operations before it",
    ),
    (
        "activity",
        {"samples": tuple(s for s in SAMPLES if not 6.9 < s.began_s < 13.1)},
        "0 attempts during it",
    ),
    (
        "activity",
        {"samples": tuple(s for s in SAMPLES if s.began_s < 12)},
        "0 acknowledged operations after it",
    ),
    (
        "activity",
        {"samples": (*(s for s in SAMPLES if s.began_s < 12), *(send(13 + n, acks=0) for n in range(9)))},
        "0 acknowledged operations after it",
    ),
    (
        "target",
        {"faults": (replace(FAULT, target_problem="node 3 led"),)},
        "did not strike its target: node 3 led",
    ),
    ("journal", {"journal": None}, "there is no metadata journal"),
    ("final-read", {"final_reads": None}, "no fresh client read the partitions"),
    ("final-read", {"final_reads": ()}, "no fresh client read orders-0"),
    ("final-read", {"final_reads": (FinalRead("orders", 0, 0, 211, 200),)}, "was read from 0 to 200"),
    (
        "final-read",
        {"final_reads": (FinalRead("orders", 0, 0, 211, 211, began_at=5),)},
        "was read from 5 to 211",
    ),
    (
        "final-read",
        {"final_reads": (FinalRead("orders", 0, 0, 9, 9, problem="no leader"),)},
        "to its end: no leader",
    ),
    (
        "final-read",
        {"final_reads": (FinalRead("orders", 0, 200, 211, 211, began_at=200),)},
        "begins at offset 200 at the end, though nothing of it expires",
    ),
    ("replicas", {"replicas": None}, "the replicas were not compared"),
    ("replicas", {"replicas": ()}, "the replicas of orders-0 were not compared"),
    (
        "replicas",
        {"replicas": (replace(COPIES, equal=None, problem="no leader"),)},
        "could not be compared: no leader",
    ),
    ("replicas", {"replicas": (replace(COPIES, compared=(1, 2)),)}, "on node 3 was not compared"),
    ("history", {"checker_undecided": "no poll read a record"}, "the history proves nothing: no poll"),
    ("losses", {"counts": {"acked": 211, "lost": 2}}, "2 records acknowledged with acks=all were not read"),
    (
        "unknown-outcomes",
        {"samples": (*SAMPLES, *(send(20 + n / 100, status="info") for n in range(100)))},
        "100 of 311 sends have an unknown outcome",
    ),
    ("starved", {"starvation": Starvation(2500.0, 0.0)}, "its clock stood still for 2500 ms"),
    ("starved", {"starvation": Starvation(100.0, 3.0)}, "3.0 s in all"),
    ("starved", {"starvation": None}, "nobody watched whether the run itself was starved"),
    ("bypass", {"bypasses": ("127.0.0.1:5 to node 2",)}, "went around the relays: 127.0.0.1:5"),
    ("bypass", {"bypasses": None}, "nobody watched whether clients went around"),
    ("command", {"commands": (replace(COMMAND, exit_code=None),)}, "did not end in its time"),
    ("promise", {"counts": {"acked": 9}}, "the file promises acked >= 10, and acked is 9"),
]


def test_a_good_run_is_held():
    verdict = judge(experiment(), evidence())
    assert verdict.reasons == ()
    assert (verdict.verdict, verdict.safety, verdict.hypothesis, verdict.as_expected) == (
        "held",
        "held",
        "held",
        True,
    )
    assert verdict.counts["elections"] == 1
    assert verdict.counts["unavailable_ms"] == verdict.counts["unavailable_ms(orders)"] == 3000


@pytest.mark.parametrize(
    ("rule", "changes", "text"), PLANTED, ids=[f"{r}-{n}" for n, (r, _, _) in enumerate(PLANTED)]
)
def test_what_is_planted_is_found_and_nothing_else(rule: str, changes: dict[str, object], text: str):
    verdict = judge(experiment(), evidence(**changes))
    [found] = {one.rule for one in verdict.reasons}
    assert found == rule
    assert any(text in one.text for one in verdict.reasons), verdict.reasons
    [line] = [one for one in RULES if one.name == rule]
    assert getattr(verdict, line.part) == verdict.verdict == line.grade
    assert not verdict.as_expected


def test_every_rule_has_something_planted():
    assert {rule for rule, _, _ in PLANTED} == {rule.name for rule in RULES}


def test_a_cluster_that_never_healed_has_no_steady_state_afterwards():
    verdict = judge(experiment(), evidence(healed_s=None))
    assert {one.rule for one in verdict.reasons} == {"healed", "unmeasured"}
    assert (verdict.safety, verdict.hypothesis) == ("undecided", "undecided")


def test_a_violation_is_not_softened_by_missing_evidence():
    verdict = judge(experiment(), evidence(anomalies=(LOST,), journal=None, readings=(), replicas=None))
    assert (verdict.verdict, verdict.safety, verdict.hypothesis) == ("violated", "violated", "undecided")


def test_a_command_without_history_needs_probes():
    alone = experiment(
        ("hypothesis:\n  - {probe: ailments}\n  - {probe: unavailable, at-most: 4s, when: during}\n", "")
    )
    silent = evidence(commands=(replace(COMMAND, operations=0),))
    [reason] = judge(alone, silent).reasons
    assert reason.rule == "command"
    assert "wrote no history, and no probe measured anything" in reason.text
    assert judge(experiment(), silent).verdict == "held"


@pytest.mark.parametrize(
    ("changes", "verdict", "as_expected"),
    [
        ({"anomalies": (LOST,)}, "violated", True),
        ({"anomalies": (LOST, Anomaly("duplicate", "twice"))}, "violated", False),
        ({}, "held", False),
        ({"journal": None}, "undecided", False),
        ({"anomalies": (LOST,), "counts": {"acked": 9}}, "violated", False),
        ({"anomalies": (LOST,), "journal": None}, "violated", True),
        ({"anomalies": (LOST,), "replicas": (replace(COPIES, equal=False),)}, "violated", False),
        ({"anomalies": (LOST,), "readings": UNWELL}, "violated", False),
    ],
)
def test_only_the_anomalies_that_a_file_names_are_expected(
    changes: dict[str, object], verdict: str, as_expected: bool
):
    expects = experiment(("expect: held", "expect: {violated: [lost-write]}"))
    found = judge(expects, evidence(**changes))
    assert (found.verdict, found.as_expected) == (verdict, as_expected)


def test_losses_of_weaker_acks_are_counted_and_not_judged():
    counts = {"acked": 211, "lost": 0, "lost_acks1": 12, "lost_acks0": 30}
    promises = experiment(("promises: [acked >= 10]", "promises: [lost_acks1 >= 1]"))
    verdict = judge(promises, evidence(counts=counts))
    assert verdict.verdict == "held"
    assert verdict.counts["lost_acks0"] == 30


def test_an_expired_part_of_a_log_need_not_be_read():
    read = FinalRead("orders", 0, 5, 211, 211, began_at=12, expired=7)
    assert judge(experiment(), evidence(final_reads=(read,))).verdict == "held"


def test_a_log_begins_later_where_the_file_has_retention_delete_records():
    read = FinalRead("orders", 0, 5, 211, 211, began_at=5)
    retained = experiment(("min.insync.replicas: 2", "min.insync.replicas: 2, retention.ms: 1000"))
    assert judge(retained, evidence(final_reads=(read,))).verdict == "held"


def test_a_fault_is_not_judged_by_partitions_that_it_was_not_aimed_at():
    """Clients were busy, and none of them in the partition whose leader was killed."""
    quiet = ("partitions: 1", "partitions: 2")
    aimed = experiment(quiet, ("leader of orders-0", "leader of orders-1"))
    found = [one for one in judge(aimed, evidence()).reasons if one.rule == "activity"]
    assert [one.text.rpartition(": ")[2] for one in found] == ["nobody wrote to orders-1"]

    by_node = experiment(quiet, ("leader of orders-0", "node 1"))
    both = replace(FAULT, partitions=(("orders", 0), ("orders", 1)))
    found = [one for one in judge(by_node, evidence(faults=(both,))).reasons if one.rule == "activity"]
    assert found
    assert all("orders-1 had 0 " in one.text for one in found)


def test_nobody_was_answered_by_sends_with_acks_0():
    quiet = tuple(replace(one, acks=0) for one in SAMPLES)
    found = [
        one.text for one in judge(experiment(), evidence(samples=quiet)).reasons if one.rule == "activity"
    ]
    assert found == ["step 1 (kill of leader of orders-0): nobody wrote to orders-0"]
    unsure = (*quiet, *(send(20 + n / 100, status="info") for n in range(9)))
    rules = {one.rule for one in judge(experiment(), evidence(samples=unsure)).reasons}
    assert "unknown-outcomes" in rules


def test_unclean_elections_are_counted_from_the_journal():
    good = evidence()
    assert good.journal is not None
    unclean = MetadataChange(14.0, 40, "orders", 0, 3, 2, (3,), unclean=True)
    counts = judge(experiment(), evidence(journal=Journal((*good.journal.partitions, unclean)))).counts
    assert (counts["elections"], counts["unclean_elections"], counts["unclean_elections(orders)"]) == (
        2,
        1,
        1,
    )
