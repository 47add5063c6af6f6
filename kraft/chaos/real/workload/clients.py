"""All clients of an experiment: made of its file, started and stopped together."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kraft.chaos.experiments.document import Experiment, Workload
from kraft.chaos.experiments.evidence import CommandEnd
from kraft.chaos.real.brokers import Brokers
from kraft.chaos.real.workload.client import END_S, Client
from kraft.chaos.real.workload.commands import Command
from kraft.chaos.real.workload.consumers import (
    COMMITTED,
    UNCOMMITTED,
    AssignedConsumer,
    GroupMember,
    ask_finally,
)
from kraft.chaos.real.workload.crowds import ConnectionStorm, SlowConsumer
from kraft.chaos.real.workload.producers import RecordProducer, TransactionalProducer
from kraft.chaos.real.workload.recorder import Recorder

COMMITTED_S: Final = 10.0


def transactional_topics(experiment: Experiment) -> frozenset[str]:
    """The topics that transactions write to."""
    return frozenset(one.topic for one in experiment.workload if one.kind == "transactional-producer")


def crowd_topic(topic: str) -> str:
    """The topic of a backlog that nobody judges: beside the one that the file names."""
    return f"{topic}.backlog"


class Clients:
    """The clients of one run."""

    def __init__(
        self,
        experiment: Experiment,
        brokers: Brokers,
        recorder: Recorder,
        seed: int,
        folder: Path,
        helpers: Path,
    ) -> None:
        self._experiment = experiment
        self._brokers = brokers
        self._recorder = recorder
        self._seed = seed
        self._transactional = transactional_topics(experiment)
        self._threads = [
            client for number, spec in enumerate(experiment.workload) for client in self._made(number, spec)
        ]
        self._commands = [
            Command(spec, number, folder, helpers)
            for number, spec in enumerate(experiment.workload)
            if spec.kind == "command"
        ]

    def _made(self, number: int, spec: Workload) -> Iterator[Client]:
        brokers, recorder = self._brokers, self._recorder
        for copy in range(1 if spec.kind == "connection-storm" else spec.clients):
            name = f"{spec.kind}-{number + 1}" + (f"-{copy + 1}" if spec.clients > 1 else "")
            if spec.kind in ("producer", "idempotent-producer"):
                is_idempotent = spec.kind == "idempotent-producer"
                yield RecordProducer(name, brokers, recorder, spec, idempotent=is_idempotent)
            elif spec.kind == "transactional-producer":
                ending = f"-{copy}" if copy else ""
                rng = random.Random(f"{self._seed}/{name}")
                yield TransactionalProducer(
                    name, brokers, recorder, spec, transactional_id=spec.transactional_id + ending, rng=rng
                )
            elif spec.kind == "consumer":
                yield AssignedConsumer(name, brokers, recorder, spec.topic, UNCOMMITTED)
                if spec.topic in self._transactional:
                    yield AssignedConsumer(f"{name}-committed", brokers, recorder, spec.topic, COMMITTED)
            elif spec.kind == "group":
                yield GroupMember(name, brokers, recorder, spec.topic, spec.group)
            elif spec.kind == "connection-storm":
                yield ConnectionStorm(name, brokers, recorder, spec)
            elif spec.kind == "slow-consumer":
                yield SlowConsumer(name, brokers, recorder, spec, crowd_topic(spec.topic))

    def prepare(self) -> None:
        """What must be there before the workload begins: backlogs. Raises UserError."""
        for client in self._threads:
            if isinstance(client, SlowConsumer):
                client.prepare()

    def counts(self) -> dict[str, int]:
        """What those did who are a burden and no witnesses."""
        counts: Counter[str] = Counter()
        for client in self._threads:
            if isinstance(client, ConnectionStorm | SlowConsumer):
                counts.update(client.counts())
        return dict(counts)

    def start(self, seconds: float) -> None:
        """They go on for about so long."""
        for client in self._threads:
            client.start()
        for command in self._commands:
            command.start(self._brokers, self._recorder.partitions, seconds)

    def have_begun(self) -> bool:
        """Whether every partition that is written has acknowledged something to whoever waits for that, and every group
        has given some member something to read."""
        written = {
            (one.topic, number)
            for one in self._experiment.workload
            if one.kind.endswith("producer") and one.acks
            for number in range(self._recorder.partitions[one.topic])
        }
        groups = {one.group for one in self._experiment.workload if one.kind == "group"}
        return written <= self._recorder.acknowledged() and groups <= self._recorder.assigned()

    def stop(self) -> None:
        """Tells all of them; does not wait."""
        for client in self._threads:
            client.stopping.set()
        for command in self._commands:
            command.stop()

    def join(self) -> None:
        """Waits until every outcome that comes is recorded; one that does not end is a problem of the run."""
        for client in self._threads:
            if client.is_alive():
                client.join(END_S)
            if client.is_alive():
                self._recorder.problem(f"client {client.name} does not end")

    def commands(self) -> tuple[CommandEnd, ...]:
        """Waits for them, and reads their histories."""
        return tuple(command.end(self._recorder) for command in self._commands)

    def ask_groups_finally(self) -> None:
        """A fresh client asks what each group has committed, when all has healed: it must be no older than any commit
        that was ever told. An answer that does not come is a problem of the run."""
        for group, topic in sorted(
            {(one.group, one.topic) for one in self._experiment.workload if one.group}
        ):
            names = [(topic, number) for number in range(self._recorder.partitions[topic])]
            for name in ask_finally(self._brokers, self._recorder, group, names, COMMITTED_S):
                self._recorder.problem(
                    f"nobody tells what group {group} has committed in {name[0]}-{name[1]}"
                )
