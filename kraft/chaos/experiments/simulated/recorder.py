"""Who watches a simulated run, and brings its evidence home: readings of the cluster, the metadata journal, log lines,
and at the end what was read and compared. It adds no event to the run, so that a seed plays as it does unwatched.
"""

from __future__ import annotations

from typing import Final

from kraft.chaos.experiments.counts import counts_of
from kraft.chaos.experiments.evidence import (
    Anomaly,
    ControllerChange,
    Evidence,
    FaultEvidence,
    FinalRead,
    Journal,
    LogLine,
    MetadataChange,
    Reading,
    ReplicaComparison,
    Starvation,
    samples_of,
)
from kraft.chaos.experiments.simulated.closing import comparisons, final_reads
from kraft.chaos.history import TopicKey
from kraft.chaos.outcome import Outcome
from kraft.chaos.run import Observer, Parts
from quorum.metadata.image import MetadataImage, PartitionImage

LOG_LINES_MAX: Final = 400
SHOWN_LEVELS: Final = frozenset(("warning", "error", "critical", "exception"))
SHOWN_TEXTS: Final = ("leader", "controller", "ISR", "fenced", "election")


class Recorder(Observer):
    """Gathers the evidence of one run."""

    def __init__(self, name: str, steady_s: float = 0.0) -> None:
        """`steady_s`: how long the workload runs before faults may strike."""
        self._name = name
        self._steady_s = steady_s
        self.readings: list[Reading] = []
        self._changes: list[MetadataChange] = []
        self._controllers: list[ControllerChange] = []
        self._logs: list[LogLine] = []
        self._began_s = 0.0
        self._ended_s: float | None = None
        self._healed_s: float | None = None
        self._final_reads: tuple[FinalRead, ...] | None = None
        self._replicas: tuple[ReplicaComparison, ...] | None = None
        self._parts: Parts | None = None
        self.aborted = ""

    # -- for those who direct

    @property
    def parts(self) -> Parts:
        """The run, once it has begun."""
        assert self._parts is not None, "the run has begun"
        return self._parts

    def now_s(self) -> float:
        """Since the workload began."""
        return self.parts.simulation.now - self._began_s

    def faults_are_over(self) -> bool:
        """Whether no fault goes on, and none will strike."""
        return self.parts.faults.is_over

    def faults(self, journal: Journal) -> tuple[FaultEvidence, ...]:
        """The faults of the run."""
        return ()

    # -- phases

    def made(self, parts: Parts) -> None:
        """There is nothing to see yet."""

    def reached(self, phase: str) -> None:
        """The readings show it."""

    def began(self, parts: Parts) -> None:
        self._parts, self._began_s = parts, parts.simulation.now
        self._follow(parts)

    def looked(self, parts: Parts) -> None:
        if self._parts is not None and self._ended_s is None:
            self._see(parts)

    def ending(self, parts: Parts) -> None:
        self._see(parts)
        self._ended_s = self.now_s()

    def over(self, parts: Parts) -> None:
        self._final_reads = tuple(final_reads(parts))
        self._replicas = tuple(comparisons(parts))

    # -- looking

    def _see(self, parts: Parts) -> None:
        now_s, cluster = self.now_s(), parts.cluster
        image, topics = cluster.image(), parts.topics
        ailments = cluster.ailments(topics)
        states = _states(image, topics)
        self.readings.append(
            Reading(
                now_s,
                len(ailments),
                sum(state.leader < 0 for state in states),
                sum(len(state.isr) < len(state.replicas) for state in states),
                "; ".join(ailments[:3]),
            )
        )
        controller = cluster.active_controller()
        if controller is not None and (not self._controllers or self._controllers[-1].node != controller):
            node = cluster.nodes[controller].controller
            assert node is not None, "the active controller has one"
            self._controllers.append(ControllerChange(now_s, controller, node.epoch))
        if self._healed_s is None and not ailments and self.faults_are_over():
            self._healed_s = now_s

    def _follow(self, parts: Parts) -> None:
        """Hears of every change of a partition that the quorum commits, and of log lines worth showing."""
        metadata = parts.white_box.metadata
        heard = metadata.on_partition
        for topic in parts.topics:
            known = metadata.image.topic(topic)
            for number, state in enumerate(known.partitions if known is not None else ()):
                self._changed(topic, number, state, metadata.offset, is_unclean=False)

        def on_partition(key: TopicKey, before: PartitionImage | None, after: PartitionImage) -> None:
            topic = metadata.image.topics.get(key[0])
            if topic is not None and topic.name in parts.topics:
                is_new = before is None or before.leader_epoch != after.leader_epoch
                is_unclean = is_new and metadata.elections.is_unclean(key, after.leader_epoch)
                self._changed(topic.name, key[1], after, metadata.offset, is_unclean=is_unclean)
            heard(key, before, after)

        metadata.on_partition = on_partition
        parts.logs.on_line = self._on_line

    def _changed(
        self, topic: str, number: int, state: PartitionImage, offset: int, *, is_unclean: bool
    ) -> None:
        self._changes.append(
            MetadataChange(
                self.now_s(),
                offset,
                topic,
                number,
                state.leader,
                state.leader_epoch,
                tuple(state.isr),
                tuple(state.elr),
                is_unclean,
            )
        )

    def _on_line(self, who: str, level: str, text: str, values: str) -> None:
        is_shown = level in SHOWN_LEVELS or any(word in text for word in SHOWN_TEXTS)
        if is_shown and len(self._logs) < LOG_LINES_MAX:
            self._logs.append(LogLine(self.now_s(), who, level, f"{text} {values}".rstrip()))

    # -- evidence

    def evidence(self, outcome: Outcome) -> Evidence:
        """All of it, when the run is over."""
        journal = Journal(tuple(self._changes), tuple(self._controllers))
        history = None if self._parts is None else self._parts.history
        topics = () if self._parts is None else self._parts.topics
        ended_s = self._ended_s if self._ended_s is not None else outcome.virtual_s - self._began_s
        return Evidence(
            experiment=self._name,
            backend="sim",
            seed=outcome.seed,
            ended_s=ended_s,
            steady_until_s=self._steady_s,
            healed_s=self._healed_s,
            faults=self.faults(journal),
            samples=()
            if history is None
            else tuple(one for one in samples_of(history, self._began_s) if one.topic in topics),
            readings=tuple(self.readings),
            journal=journal,
            anomalies=tuple(
                Anomaly(one.oracle, one.text, at_s=one.at_s - self._began_s) for one in outcome.violations
            ),
            excused=tuple(outcome.excused),
            checker_undecided=outcome.undecided,
            counts={} if history is None else counts_of(history),
            final_reads=self._final_reads,
            replicas=self._replicas,
            starvation=Starvation(0.0, 0.0),
            bypasses=(),
            aborted=f"the simulation failed: {outcome.error}" if outcome.error else self.aborted,
            logs=tuple(self._logs),
            environment={
                "digest": outcome.digest,
                "virtual_s": f"{outcome.virtual_s:.3f}",
                "steps": str(outcome.steps),
                "cpu_s": f"{outcome.cpu_s:.1f}",
            },
        )


def _states(image: MetadataImage | None, topics: list[str]) -> list[PartitionImage]:
    known = [None if image is None else image.topic(name) for name in topics]
    return [state for topic in known if topic is not None for state in topic.partitions]
