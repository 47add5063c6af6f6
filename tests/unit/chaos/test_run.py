"""Whole runs: a quiet one, one with a fault, and runs that must fail."""

from __future__ import annotations

import dataclasses
import io

import pytest

from kraft.chaos.faults import FaultContext
from kraft.chaos.pool import run_isolated
from kraft.chaos.run import run
from kraft.chaos.scenario import FaultSpec, NodeSpec, Scenario, TopicSpec, WorkloadSpec
from partitions.errors import NotEnoughReplicas
from partitions.leadership import Leadership
from partitions.partition import Partition

QUIET = Scenario(
    seed=5,
    seconds=5.0,
    nodes=(NodeSpec(1), NodeSpec(2), NodeSpec(3)),
    topics=(TopicSpec("orders", 6, 3, {"min.insync.replicas": "2"}),),
    workloads=(
        WorkloadSpec("idempotent-producer", 0, "orders", per_second=120.0),
        WorkloadSpec("consumer", 1, "orders", per_second=120.0),
        WorkloadSpec("producer", 2, "orders", 1, per_second=20.0),
    ),
)


def test_nothing_happens_without_a_reason():
    outcome = run_isolated(lambda: run(QUIET))
    assert not outcome.violations
    assert not outcome.excused
    assert not outcome.error
    assert not outcome.undecided
    happened = outcome.coverage
    assert happened["controller election"] == 1
    for never in ("ISR shrink", "truncation", "broker fenced", "partition without leader", "duplicate batch"):
        assert happened[never] == 0, never
    assert outcome.history["sends acks=1 ok"] > 50
    assert outcome.history["sends acks=all ok"] == outcome.history["idempotent sends judged"] > 200
    assert outcome.operations > 200 * QUIET.seconds
    assert min(outcome.acknowledged.values()) > 50


def test_equal_scenarios_give_equal_runs_and_others_do_not():
    scenario = dataclasses.replace(QUIET, seconds=2.0, faults=(FaultSpec("kill-leader", 0.5, 0),))
    first = run_isolated(lambda: run(scenario))

    def watched():
        times: list[float] = []
        story = io.StringIO()
        return run(scenario, story=story, on_time=times.append), times, story.getvalue()

    second, times, story = run_isolated(watched)
    assert times == sorted(times)
    assert len({time for time in times if 0 < time < second.virtual_s}) > 10
    other = run_isolated(lambda: run(dataclasses.replace(scenario, seed=6)))
    assert first.coverage["fault: kill-leader"] == 1
    assert (first.digest, first.steps, first.coverage) == (second.digest, second.steps, second.coverage)
    assert_tells_of_a_dead_leader(story)
    assert other.digest != first.digest


def assert_tells_of_a_dead_leader(story: str) -> None:
    """In order: fault and target, who is fenced, the election, the end of the fault, the start, the verdict."""
    lines = story.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "Seed 5: 2 s of faults against 3 combined nodes."
    [at] = [number for number, line in enumerate(lines) if " FAULT 1 " in line]
    victim = lines[at].partition("kill-leader: node ")[2].partition(",")[0]
    for word, text in (
        ("fenced", f"broker {victim}"),
        ("election", f"leader {victim} → "),
        ("over 1", "kill-leader"),
        ("starts", f"node {victim}"),
        ("unfenced", f"broker {victim}"),
        ("ISR", "→ 1,2,3"),
        ("phase", "a fresh client reads everything"),
        ("verdict", "held"),
    ):
        found = [n for n in range(at + 1, len(lines)) if lines[n][10:22].strip() == word and text in lines[n]]
        assert found, f"no line of {word!r} with {text!r} after line {at}"
        at = found[0]


def test_a_cluster_that_does_not_recover_breaks_liveness(monkeypatch):
    monkeypatch.setattr("kraft.chaos.faults.context.FaultContext.revive", lambda context, node_id: None)
    scenario = dataclasses.replace(QUIET, seconds=2.0, faults=(FaultSpec("kill", 0.5, 0),))

    def told():
        story = io.StringIO()
        return run(scenario, story=story), story.getvalue()

    outcome, story = run_isolated(told)
    assert "  ANOMALY     liveness: " in story
    assert story.endswith("verdict     violated: liveness\n")
    assert [violation.oracle for violation in outcome.violations] == ["liveness"]
    assert "is not running" in outcome.violations[0].text


def test_a_whole_cluster_that_takes_no_writes_breaks_liveness(monkeypatch):
    """Whole, and every write answered: but with an error."""
    ended = FaultContext.end_all

    def refuse(partition, records, *, acks, now_ms, **rest):
        raise NotEnoughReplicas("as it likes")

    def end_all(context):
        ended(context)
        monkeypatch.setattr(Partition, "append_records", refuse)

    monkeypatch.setattr(FaultContext, "end_all", end_all)
    outcome = run_isolated(lambda: run(dataclasses.replace(QUIET, seconds=2.0)))
    assert [violation.oracle for violation in outcome.violations] == ["liveness"]
    assert "nothing was acknowledged" in outcome.violations[0].text
    assert "idempotent-producer#0 to orders-5" in outcome.violations[0].text
    assert "producer#2" not in outcome.violations[0].text, "it has acks=1"


def test_a_broken_rule_is_seen_by_its_oracle_with_the_events_before_it(monkeypatch):
    monkeypatch.setattr(
        Leadership, "committed_offset", lambda leading, leader_end_offset, *_: leader_end_offset
    )
    outcome = run_isolated(lambda: run(dataclasses.replace(QUIET, seconds=1.0)))
    assert "strong-isr" in {violation.oracle for violation in outcome.violations}
    violation = outcome.violations[0]
    assert 0 < violation.step < outcome.steps
    steps = [int(event.partition(" step ")[2].partition(":")[0]) for event in outcome.last_events]
    assert steps == sorted(steps)
    assert len(set(steps)) > 1
    assert steps[-1] <= violation.step


def test_code_that_reaches_for_the_real_world_fails_the_run(monkeypatch):
    def careless(leading, leader_end_offset, *_):
        with open("/tmp/kraft-reaches-out", "w"):
            return leader_end_offset

    monkeypatch.setattr(Leadership, "committed_offset", careless)
    outcome = run_isolated(lambda: run(dataclasses.replace(QUIET, seconds=1.0)))
    assert "the real file '/tmp/kraft-reaches-out'" in outcome.error


@pytest.mark.parametrize("shape", [(("broker", "controller"),), (("controller",), ("broker",))])
def test_small_clusters(shape):
    nodes = tuple(NodeSpec(number, roles) for number, roles in enumerate(shape, start=1))
    topics = (TopicSpec("orders", 2, 1),)
    scenario = dataclasses.replace(QUIET, seconds=2.0, nodes=nodes, topics=topics)
    outcome = run_isolated(lambda: run(scenario))
    assert not outcome.violations
    assert min(outcome.acknowledged.values()) > 10
