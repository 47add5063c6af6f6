"""An experiment, and the evidence of a run of it in which everything is as it should be: tests take something away."""

from __future__ import annotations

from dataclasses import replace

from kraft.chaos.experiments.document import Experiment, load
from kraft.chaos.experiments.evidence import (
    ControllerChange,
    Evidence,
    FaultEvidence,
    FinalRead,
    Journal,
    MetadataChange,
    Reading,
    ReplicaComparison,
    Sample,
    Starvation,
)

TEXT = """\
# What it teaches, at length.
experiment: planted
teaches: A killed leader costs an election.
backends: [sim, real]
duration: 20s
steady: 5s
cluster:
  nodes: 3
  settings: {broker.session.timeout.ms: 3000}
  topics:
    orders: {partitions: 1, replicas: 3, configs: {min.insync.replicas: 2}}
hypothesis:
  - {probe: ailments}
  - {probe: unavailable, at-most: 4s, when: during}
workload:
  - {kind: idempotent-producer, topic: orders, rate: 10/s}
  - {kind: consumer, topic: orders}
method:
  - {fault: kill, target: leader of orders-0, at: 2s, for: 5s}
expect: held
promises: [acked >= 10]
"""
"""The kill is at 7 s of the workload's clock, its end at 12 s."""


def experiment(*changes: tuple[str, str]) -> Experiment:
    """The experiment, with parts of its text replaced."""
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return load(text)


def send(
    at_s: float, took_s: float = 0.01, *, status: str = "ok", acks: int = -1, partition: int = 0
) -> Sample:
    return Sample("send", "producer#0.1", "orders", partition, acks, at_s, at_s + took_s, status, 1)


FAULT = FaultEvidence(
    step=0,
    name="kill",
    target="leader of orders-0",
    nodes=(1,),
    partitions=(("orders", 0),),
    began_s=7.0,
    ended_s=12.0,
    took_effect=True,
    proof="process 4711 is gone",
    healed=True,
    heal_proof="process 4712 runs",
)
SAMPLES = (
    *(send(number / 10) for number in range(70)),
    send(7.0, 3.0),
    *(send(10 + number / 10) for number in range(140)),
)
"""Ten a second; the one that was sent when the leader was killed waited for three seconds."""


def evidence(**changes: object) -> Evidence:
    """The evidence of a good run; `changes`: fields that are otherwise."""
    good = Evidence(
        experiment="planted",
        backend="sim",
        seed=1,
        ended_s=24.0,
        steady_until_s=5.0,
        healed_s=13.0,
        faults=(FAULT,),
        samples=SAMPLES,
        readings=tuple(
            Reading(number / 2, *((1, 1, 1, "node 1 is not running") if 14 <= number < 26 else (0, 0, 0)))
            for number in range(49)
        ),
        journal=Journal(
            (
                MetadataChange(0.0, 10, "orders", 0, 1, 0, (1, 2, 3)),
                MetadataChange(9.9, 20, "orders", 0, 2, 1, (2, 3)),
                MetadataChange(12.5, 30, "orders", 0, 2, 1, (1, 2, 3)),
            ),
            (ControllerChange(0.0, 3, 1),),
        ),
        counts={"acked": 211, "lost": 0, "doubled": 0},
        final_reads=(FinalRead("orders", 0, 0, 211, 211),),
        replicas=(ReplicaComparison("orders", 0, (1, 2, 3), (1, 2, 3), 211, True),),
        starvation=Starvation(3.0, 0.0),
        environment={"digest": "abc"},
    )
    return replace(good, **changes)  # type: ignore[arg-type]
