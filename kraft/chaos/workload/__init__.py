"""The clients of a run: producers, consumers, topics that come and go, and the final reading.

Every operation enters the history. `Workloads` is the way in. A kind of workload is a subclass of
`kraft.chaos.workload.base.Workload`; each runs on a host of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.history import History
from kraft.chaos.scenario import Scenario, WorkloadSpec
from kraft.chaos.verdict import Verdicts
from kraft.chaos.workload.base import (
    Explains,
    OnAcknowledged,
    OnListOffsets,
    Surroundings,
    Workload,
    unjudged,
)
from kraft.chaos.workload.batches import Decoder
from kraft.chaos.workload.churn import TopicChurn
from kraft.chaos.workload.consumer import Consumer
from kraft.chaos.workload.final import ADMIN, READER, UNTHROTTLER, FinalReader, TopicCreation, Unthrottling
from kraft.chaos.workload.groups.classic_member import ClassicMember
from kraft.chaos.workload.groups.consumer_member import ConsumerMember
from kraft.chaos.workload.groups.topic import GroupTopic
from kraft.chaos.workload.groups.watch import Unwatched, WatchesGroups
from kraft.chaos.workload.guest import Guest
from kraft.chaos.workload.offset_lister import OffsetLister
from kraft.chaos.workload.operator import Operator
from kraft.chaos.workload.plain_producer import PlainProducer
from kraft.chaos.workload.producer import IdempotentProducer
from kraft.chaos.workload.security_operator import SecurityOperator
from kraft.chaos.workload.transactions.processor import Processor
from kraft.chaos.workload.transactions.producer import TransactionalProducer, ZombieProducer
from kraft.chaos.workload.transactions.readers import FINAL, CommittedConsumer, FinalCommittedReader
from kraft.chaos.workload.transactions.watch import UnwatchedTransactions, WatchesTransactions

__all__ = ["WORKLOADS", "WorkloadFactory", "Workloads", "transactional_topics"]

WorkloadFactory = Callable[[Surroundings, WorkloadSpec], Workload]
WORKLOADS: Mapping[str, WorkloadFactory] = {
    "idempotent-producer": IdempotentProducer,
    "producer": PlainProducer,
    "consumer": Consumer,
    "list-offsets": OffsetLister,
    "topic-churn": TopicChurn,
    "operator": Operator,
    "classic-member": ClassicMember,
    "consumer-member": ConsumerMember,
    "group-topic": GroupTopic,
    "guest": Guest,
    "security-operator": SecurityOperator,
    "transactional-producer": TransactionalProducer,
    "zombie-producer": ZombieProducer,
    "processor": Processor,
    "committed-consumer": CommittedConsumer,
}


def transactional_topics(scenario: Scenario) -> list[str]:
    """The topics that transactions write to."""
    writers = [one for one in scenario.workloads if one.transactional_id]
    return sorted({one.output or one.topic for one in writers})


class Workloads:
    """All client processes of a scenario."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        scenario: Scenario,
        history: History,
        verdicts: Verdicts,
        *,
        on_acknowledged: OnAcknowledged = lambda key, base_offset, values: None,
        explains: Explains = lambda key, offset, value: False,
        on_list_offsets: OnListOffsets = unjudged,
        groups: WatchesGroups | None = None,
        transactions: WatchesTransactions | None = None,
    ) -> None:
        """`on_acknowledged` hears of every batch acknowledged with acks=-1, before anything else happens.

        `explains` tells whether injected faults explain the loss of a record: then a producer accepts that the log
        which lost it refuses the next sequence. `on_list_offsets` hears of every ListOffsets before it is sent, and
        returns the judge of the answer. `groups` is told what members of groups do, `transactions` what transactional
        clients do.
        """
        topics = {topic.name: topic for topic in scenario.topics}
        history.compacted.update(topic.name for topic in scenario.topics if topic.is_compacted)
        self._around = Surroundings(
            cluster,
            topics,
            history,
            verdicts,
            Decoder(),
            on_acknowledged,
            explains,
            on_list_offsets,
            scenario.run_time_configs,
            Unwatched() if groups is None else groups,
            UnwatchedTransactions() if transactions is None else transactions,
        )
        self._creation = TopicCreation(self._around, ADMIN, scenario.features)
        self._readers: list[Workload] = [FinalReader(self._around, READER)]
        if written := transactional_topics(scenario):
            self._readers.append(FinalCommittedReader(self._around, FINAL))
            self._readers[-1].topics = written
        self._workloads = [WORKLOADS[spec.kind](self._around, spec) for spec in scenario.workloads]

    def create_topics(self) -> None:
        """Starts a client that creates the scenario's topics, and sets its run-time configs."""
        self._creation.start()

    @property
    def topics_created(self) -> bool:
        return self._creation.drained

    def take_limits_away(self) -> None:
        """Starts a client that undoes the scenario's run-time configs, if it has any."""
        if self._around.run_time_configs:
            Unthrottling(self._around, UNTHROTTLER).start()

    def start(self) -> None:
        """Starts every workload, on hosts of their own."""
        for workload in self._workloads:
            workload.start()

    def unserved_since(self, since_s: float) -> list[str]:
        """Every producer with acks=-1, by partition, without an acknowledged send begun after `since_s`; and every
        consumer that has read nothing since in a partition with such a send.
        """
        written = {
            name
            for workload in self._workloads
            for name, begun_s in workload.newest_write_s.items()
            if begun_s > since_s
        }
        unsent = [
            f"{workload.name} to {topic}-{partition}"
            for workload in self._workloads
            for topic, partition in workload.unserved_since(since_s)
        ]
        unread = [
            f"{workload.name} of {name[0]}-{name[1]}"
            for workload in self._workloads
            for name in workload.unread_since(since_s)
            if name in written
        ]
        return unsent + unread

    def calm(self) -> None:
        """The faults are over, and those of members of groups end, too."""
        for workload in self._workloads:
            workload.calm()

    def groups_not_whole_since(self, since_s: float) -> list[str]:
        """Every group that was not whole at any time since, and where its members stand: all of them in one
        generation, and each partition of the topic that stays owned once. Not those that are beyond repair."""
        return [
            f"group {group}: {standing}"
            for group, standing in self._around.board.not_whole_since(since_s).items()
            if not self._around.groups.is_beyond_repair(group)
        ]

    def stop(self) -> None:
        """Has every client begin no new operation."""
        for workload in self._workloads:
            workload.stop()

    @property
    def undrained(self) -> list[str]:
        """The clients that have an operation which was neither answered nor given up."""
        return [workload.name for workload in self._workloads if not workload.drained]

    def read_everything(self) -> None:
        """The final phase: a fresh client reads all of the scenario's topics, another one what is committed of those
        that transactions write to."""
        for reader in self._readers:
            reader.start()

    @property
    def read(self) -> bool:
        """Whether the final phase is over."""
        return all(reader.drained for reader in self._readers)

    @property
    def acknowledged(self) -> Mapping[str, int]:
        """Successful operations by workload ("kind#stream"); polls count if they found something."""
        return {workload.name: workload.acknowledged for workload in self._workloads}
