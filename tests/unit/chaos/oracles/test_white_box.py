"""The probes on the product's own classes: a whole cluster, unhurt and with rules of it broken."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest

from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.oracles import COUNTERS, WhiteBox
from kraft.chaos.outcome import Outcome
from kraft.chaos.pool import run_isolated
from kraft.chaos.run import run
from kraft.chaos.scenario import FaultSpec, NodeSpec, Scenario, TopicSpec, WorkloadSpec
from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.simulation import Simulation
from partitions.leadership import Leadership
from partitions.log.log import PartitionLog
from partitions.partition import AckStatus, Partition, Transition
from quorum.raft.driver import RaftDriver


def scenario(*faults: str, min_isr: int = 2) -> Scenario:
    return Scenario(
        seed=5,
        seconds=8.0,
        nodes=tuple(NodeSpec(number) for number in (1, 2, 3)),
        topics=(TopicSpec("orders", 1, 3, {"min.insync.replicas": str(min_isr), "segment.bytes": "16384"}),),
        workloads=(WorkloadSpec("idempotent-producer", 1, "orders", per_second=200.0),),
        faults=tuple(FaultSpec(name, 0.5 + 2.5 * number, number) for number, name in enumerate(faults)),
    )


def outcome(*faults: str, min_isr: int = 2, breaking: Callable[[], None] = lambda: None) -> Outcome:
    def play() -> Outcome:
        breaking()
        return run(scenario(*faults, min_isr=min_isr))

    return run_isolated(play)


def oracles(result: Outcome) -> set[str]:
    return {violation.oracle for violation in result.violations}


def test_a_cluster_that_survives_its_faults_violates_nothing() -> None:
    result = outcome("kill", "power-loss", "kill")
    assert (oracles(result), result.error) == (set(), "")
    for name in ("leader election", "ISR shrink", "ISR expand", "log roll", "controller election", "vote"):
        assert result.coverage[name] > 0, name
    assert result.coverage["high watermark raised by follower fetch"] > 0
    assert set(COUNTERS) <= set(result.coverage)


def answer_at_the_log_end() -> None:
    original = Partition.ack_status

    def ack_status(self: Partition, required_offset: int, leader_epoch: int | None = None) -> AckStatus:
        status = original(self, required_offset, leader_epoch)
        return AckStatus.OK if status is AckStatus.PENDING else status

    Partition.ack_status = ack_status  # type: ignore[method-assign]


def ignore_min_isr() -> None:
    Leadership.is_under_min_isr = lambda self, min_insync_replicas: False  # type: ignore[method-assign]


def truncate_to_the_high_watermark() -> None:
    original = Partition.make_follower

    def make_follower(self: Partition, state: object, now_ms: int) -> Transition:
        transition = original(self, state, now_ms)  # type: ignore[arg-type]
        if transition is Transition.BECAME_FOLLOWER:
            self.log.truncate_to(self.high_watermark)
        return transition

    Partition.make_follower = make_follower  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("breaking", "min_isr", "oracle"),
    [
        (answer_at_the_log_end, 2, "no-committed-record-lost"),
        (ignore_min_isr, 3, "strong-isr"),
        (truncate_to_the_high_watermark, 2, "leader-candidate-completeness"),
    ],
)
def test_a_broken_rule_is_seen(breaking: Callable[[], None], min_isr: int, oracle: str) -> None:
    result = outcome("kill-leader", "kill-leader", "kill-leader", min_isr=min_isr, breaking=breaking)
    assert oracle in oracles(result)


def test_the_product_is_as_it_was_when_the_run_is_over() -> None:
    before = {cls: dict(vars(cls)) for cls in (PartitionLog, Partition, RaftDriver)}
    simulation = Simulation(1, trace=False)
    white_box = WhiteBox(SimulatedCluster(simulation, [NodeSpec(1)]), Verdicts(simulation.scheduler))
    with white_box.installed():
        assert vars(PartitionLog)["_write"] is not before[PartitionLog]["_write"]
    for cls, attributes in before.items():
        assert dict(vars(cls)) == attributes


def test_what_is_answered_in_another_leader_epoch_is_seen() -> None:
    verdicts = Verdicts(Simulation(1, trace=False).scheduler)
    simulation = verdicts.simulation
    white_box = WhiteBox(SimulatedCluster(simulation, [NodeSpec(1)]), verdicts)
    replica = SimpleNamespace(leader_epoch=4, topic_partition="orders-0")
    asked = []
    with white_box.installed():
        probes = white_box._leader_probes
        probes._whose = SimpleNamespace(node=lambda: 1)
        answer = partial(probes._answer, lambda replica, *rest, **options: asked.append(options) or "records")
        for epoch in (None, -1, 4):
            assert answer(replica, 0, current_leader_epoch=epoch) == "records"
        assert verdicts.violations == []
        answer(replica, 0, current_leader_epoch=3)
        answer(replica, 0, current_leader_epoch=5)
    assert [violation.oracle for violation in verdicts.violations] == ["epoch-fenced"] * 2
    assert len(asked) == 5
