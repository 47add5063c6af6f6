"""The evidence of one run, in plain values: all that a verdict and a report are made of.

Both worlds fill it: `kraft.chaos.experiments.simulated` and `kraft.chaos.real`. It is picklable and can be written as
JSON. All times are seconds since the workload began (virtual or of the monotonic clock); negative ones were before.
None means "nobody could tell", which is never a pass. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kraft.chaos.history import History, OperationKind, OperationStatus

PartitionName = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """One operation of a client, without its values: what availability, rates and latencies are computed from."""

    kind: str
    """ "send", "poll" or "transaction"."""
    process: str
    topic: str
    partition: int
    acks: int
    """Of a send: 0, 1 or -1."""
    began_s: float
    ended_s: float | None
    """None: it never ended."""
    status: str
    """ "ok", "fail" (certainly without effect) or "info" (unknown)."""
    records: int
    error: str = ""


@dataclass(frozen=True)
class FaultEvidence:
    """What became of one fault. A step that strikes several times (a rolling restart) is one fault."""

    step: int
    """The step of the method, from 0."""
    name: str
    target: str
    """As the file names it: "leader of orders-0"."""
    nodes: tuple[int, ...] = ()
    """Whom it struck."""
    partitions: tuple[PartitionName, ...] = ()
    """The partitions that it was aimed at: the one of its role, else those that its nodes led. Empty: it is judged by
    all partitions of the workload together."""
    began_s: float | None = None
    """None: it never struck."""
    ended_s: float | None = None
    took_effect: bool | None = None
    """What its own probe saw while it lasted; None: the probe could not tell."""
    proof: str = ""
    """The probe's finding, in words: "process 4711 is gone, killed by signal 9"."""
    healed: bool | None = None
    """Whether its own probe saw that it was over."""
    heal_proof: str = ""
    target_problem: str = ""
    """What the metadata journal says against the target that was chosen when it struck; "": nothing."""


@dataclass(frozen=True)
class Reading:
    """One look at the cluster."""

    at_s: float
    ailments: int
    """Reasons why it is not whole: nodes down, brokers fenced, ISRs not full."""
    leaderless: int
    under_replicated: int
    text: str = ""
    """The first ailments, in words."""


@dataclass(frozen=True)
class MetadataChange:
    """A change of a partition's state in the metadata log."""

    at_s: float
    offset: int
    topic: str
    partition: int
    leader: int
    """-1: none."""
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    unclean: bool = False
    """Whether its leader was elected from outside of ISR and ELR."""


@dataclass(frozen=True)
class ControllerChange:
    """A new active controller."""

    at_s: float
    node: int
    epoch: int


@dataclass(frozen=True)
class Journal:
    """The metadata of the run, as its log has it. Excuses and the check of targets come from here."""

    partitions: tuple[MetadataChange, ...] = ()
    controllers: tuple[ControllerChange, ...] = ()
    internal: tuple[MetadataChange, ...] | None = None
    """Of internal topics: their partitions' leaders are the coordinators. None: coordinators are not checked."""


@dataclass(frozen=True)
class FinalRead:
    """What a fresh client read of one partition after everything had healed."""

    topic: str
    partition: int
    log_start: int
    """The earliest offset when it began."""
    log_end: int
    """The leader's end when it began."""
    read_to: int
    """The offset behind the last record or marker read."""
    began_at: int = 0
    """The first offset that it asked for."""
    expired: int = 0
    """Offsets that retention took before they could be read."""
    problem: str = ""
    """Why it could not be read to the end; "" if it was."""


@dataclass(frozen=True)
class ReplicaComparison:
    """The copies of one partition below its high watermark, compared after the nodes had stopped in order."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    """The assigned ones."""
    compared: tuple[int, ...]
    """Those that were, caught up to the high watermark."""
    high_watermark: int
    equal: bool | None
    """None: it could not be told."""
    problem: str = ""
    """Where they differ, or why a replica could not be compared."""


@dataclass(frozen=True)
class Anomaly:
    """A broken promise: one oracle's findings."""

    name: str
    text: str
    operations: tuple[str, ...] = ()
    """The operations that show it, in words."""
    at_s: float | None = None


@dataclass(frozen=True)
class CommandEnd:
    """What became of a client program of the user's own."""

    command: str
    exit_code: int | None
    """None: it did not end in its time."""
    operations: int
    """Of its history; 0: it wrote none."""
    text: str = ""
    """The end of what it printed."""


@dataclass(frozen=True)
class Starvation:
    """Whether the run itself had the time that it needed. Of a simulated run: it has none to lack."""

    lag_ms_max: float
    """The longest that the run's own clock stood still."""
    starved_s: float
    """How long it was behind by more than it may be."""
    cpu_share: float | None = None
    """The part of the machine's CPU time that was used; None: not measured."""


@dataclass(frozen=True)
class LogLine:
    """A line of a node's log that is worth showing."""

    at_s: float
    node: str
    level: str
    text: str


@dataclass(frozen=True)
class Evidence:
    """One run."""

    experiment: str
    backend: str
    seed: int
    ended_s: float
    """When the workload ended."""
    steady_until_s: float
    """When the method began: what was before is the steady state."""
    healed_s: float | None
    """When the last fault had ended and the cluster was whole; None: it never was."""
    faults: tuple[FaultEvidence, ...] = ()
    samples: tuple[Sample, ...] = ()
    readings: tuple[Reading, ...] = ()
    journal: Journal | None = None
    """None: there is none, and nothing is excused."""
    anomalies: tuple[Anomaly, ...] = ()
    excused: tuple[str, ...] = ()
    """Losses that the injected faults fully explain."""
    checker_undecided: str = ""
    """Why the history proves nothing; "" if it does."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """As `kraft.chaos.experiments.counts` names them."""
    final_reads: tuple[FinalRead, ...] | None = None
    """One a partition of the workload's topics; None: nobody read."""
    replicas: tuple[ReplicaComparison, ...] | None = None
    """One a partition; None: they were not compared."""
    starvation: Starvation | None = None
    bypasses: tuple[str, ...] | None = ()
    """Connections of clients that went around the relays; None: nobody looked."""
    commands: tuple[CommandEnd, ...] = ()
    aborted: str = ""
    """The abort condition that ended it, in words, or what else did; "": none did."""
    logs: tuple[LogLine, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Versions, kernel, cores, commit, digest: whatever tells this run from another."""


def samples_of(history: History, began_s: float = 0.0) -> tuple[Sample, ...]:
    """The samples of a history, with times since `began_s`; operations on topics and the final phase are left out."""
    kinds = {OperationKind.SEND: "send", OperationKind.POLL: "poll"}
    return tuple(
        Sample(
            kind=kinds[one.kind],
            process=one.process,
            topic=one.topic,
            partition=one.key[1],
            acks=one.acks,
            began_s=one.invoked_s - began_s,
            ended_s=None if one.status is OperationStatus.PENDING else one.completed_s - began_s,
            status="info" if one.status is OperationStatus.PENDING else one.status.value,
            records=len(one.values) if one.kind is OperationKind.SEND else len(one.records),
            error=one.error,
        )
        for one in history.operations
        if one.kind in kinds and one.key is not None and not one.final
    )


def partitions_of(samples: Sequence[Sample]) -> tuple[PartitionName, ...]:
    """The partitions that were written, in order."""
    return tuple(sorted({(one.topic, one.partition) for one in samples if one.kind == "send"}))
