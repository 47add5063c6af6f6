"""The base of all workloads: a client process on a host of its own, which may crash and come back.

A life of a workload is a process incarnation: it has connections, a name in the history and, if it produces,
identities of its own. The workload's own random stream draws its crashes, so that taking away a workload or a fault
leaves the others' draws as they were.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.history import History, Operation, OperationKind, OperationStatus, TopicKey, Value
from kraft.chaos.scenario import TopicSpec, WorkloadSpec
from kraft.chaos.verdict import Verdicts
from kraft.chaos.workload.batches import Decoder, draw_keyed_values, draw_values
from kraft.chaos.workload.client import Client, PartitionName
from kraft.chaos.workload.groups.board import GroupBoard
from kraft.chaos.workload.groups.watch import Unwatched, WatchesGroups
from kraft.chaos.workload.transactions.watch import UnwatchedTransactions, WatchesTransactions
from kraft.chaos.world.host import Host, Process
from kraft.security.mechanisms import Credentials

CLIENT_CRASH = "client crash"
LIFE_S = (6.0, 30.0)
"""How long a client process lives before it crashes, in virtual seconds."""
DEATH_S = (0.02, 0.5)
LOOKS_MAX, LOOK_EVERY_S = 400, 0.001
"""Half of the crashes wait, at most this long, until an operation is under way."""
PAUSE_MAX_S = 2.0
CRASHING_SHARE = 0.7
"""The part of workloads whose process crashes at all."""

OnAcknowledged = Callable[[TopicKey, int, Sequence[Value]], None]
"""Takes a partition, the base offset and the values of a batch that was acknowledged with acks=-1."""
Explains = Callable[[TopicKey, int, Value], bool]
"""Whether injected faults fully explain the loss of that record."""

JudgeListed = Callable[[int, int, int], None]
"""Takes offset, leader epoch and timestamp of a ListOffsets answer."""
OnListOffsets = Callable[[TopicKey, int, int], JudgeListed]
"""Takes a partition, the timestamp and the broker of a ListOffsets question about to be sent."""


def unjudged(key: TopicKey, timestamp: int, broker: int) -> JudgeListed:
    """An `OnListOffsets` for runs without a white box."""
    return lambda offset, leader_epoch, found_timestamp: None


@dataclass(frozen=True)
class Surroundings:
    """The run's objects that all its workloads share."""

    cluster: SimulatedCluster
    topics: Mapping[str, TopicSpec]
    history: History
    verdicts: Verdicts
    decoder: Decoder
    on_acknowledged: OnAcknowledged
    explains: Explains
    on_list_offsets: OnListOffsets = unjudged
    run_time_configs: Mapping[str, str] = field(default_factory=dict)
    """Configs set on all brokers once they run."""
    groups: WatchesGroups = field(default_factory=Unwatched)
    transactions: WatchesTransactions = field(default_factory=UnwatchedTransactions)
    board: GroupBoard = field(default_factory=GroupBoard)
    """Where members of groups tell where they stand."""

    @property
    def now_s(self) -> float:
        return self.cluster.simulation.now

    def waits_for_flushes(self, topic: str) -> bool:
        """Whether a leader may be deposed between an append and its answer, with acks=1, too."""
        return (
            "flush.messages" in self.topics[topic].configs
            or "log.flush.interval.messages" in self.cluster.properties
        )

    def surprise(self, who: str, broker: int, text: str) -> None:
        """Reports a broker's answer that a correct client must never get."""
        process = self.cluster.hosts[broker].process
        if process is None or not self.cluster.is_excused(process.incarnation.name):
            self.verdicts.violated("unexpected-answer", f"{who}, by node {broker}: {text}")


class Workload(ABC):
    """One entry of a scenario's workloads while it runs."""

    may_crash = True
    keeps_writing = False
    """Whether it sends to all its partitions repeatedly."""

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        self.around = around
        self.spec = spec
        self.name = f"{spec.kind}#{spec.stream}"
        self.rng: random.Random = around.cluster.simulation.stream(f"workload/{self.name}")
        self.topics = [spec.topic] if spec.topic else list(around.topics)
        self.stopping = False
        self.is_calm = False
        self.drained = False
        """Whether none of its operations is open, and none will begin."""
        self.acknowledged = 0
        self.newest_write_s: dict[PartitionName, float] = {}
        """By partition: when the newest acknowledged acks=-1 send began."""
        self.newest_read_s: dict[PartitionName, float] = {}
        """By partition: when records were read last."""
        self.begun = 0
        self.lives = 0
        self._host: Host | None = None

    # -- life

    def start(self) -> None:
        """Boots the workload's host."""
        self._host = self.around.cluster.simulation.add_host(self.name)
        self._begin_life()

    def stop(self) -> None:
        """Begins no new operation; brings open ones to their ends."""
        self.stopping = True

    def calm(self) -> None:
        """The faults are over. Those whose peers wait for them no longer fail of themselves."""
        self.is_calm = True

    def _begin_life(self) -> None:
        assert self._host is not None, "start gives it a host"
        self.lives += 1
        self._host.start(self._live)
        if self.may_crash and self.spec.crashes and self.rng.random() < CRASHING_SHARE:
            looks = self.rng.choice((0, LOOKS_MAX))
            self.around.cluster.simulation.call_later(self.rng.uniform(*LIFE_S), self._crash, looks)

    async def _live(self, process: Process) -> None:
        client = Client(
            self.around.cluster.addresses,
            self.rng,
            self.topics,
            self._on_surprise,
            credentials=self.credentials,
        )
        await self.run(process, client)
        self.drained = True

    def _crash(self, looks_left: int) -> None:
        """Kills the client (as kill -9), at once or when it has an operation under way, whose outcome is then
        unknown."""
        assert self._host is not None, "start gives it a host"
        if self.stopping or not self._host.alive:
            return
        if looks_left and not self.has_open_operations:
            self.around.cluster.simulation.call_later(LOOK_EVERY_S, self._crash, looks_left - 1)
            return
        self.around.verdicts.happened(CLIENT_CRASH, self.process_name)
        self._host.kill()
        self.abandon("the client crashed")
        self.around.cluster.simulation.call_later(self.rng.uniform(*DEATH_S), self._come_back)

    def _come_back(self) -> None:
        if self.stopping and not self.must_come_back:
            self.drained = True
        else:
            self._begin_life()

    def unserved_since(self, since_s: float) -> list[PartitionName]:
        """The partitions that it writes with acks=-1, without an acknowledged send begun after `since_s`."""
        if not self.keeps_writing or self.spec.acks != -1 or self.is_over:
            return []
        return self.silent_since(self.newest_write_s, since_s)

    def unread_since(self, since_s: float) -> list[PartitionName]:
        """The partitions that it follows and has read nothing of since."""
        return []

    # -- for the kinds of workloads

    @property
    def credentials(self) -> Credentials | None:
        """What its client says who it is with, if it has to."""
        return self.around.cluster.credentials

    @abstractmethod
    async def run(self, process: Process, client: Client) -> None:
        """The program of one life; it returns when it is stopping and no operation is open."""

    @abstractmethod
    def abandon(self, why: str) -> None:
        """Completes the open operations of an ended life as unknown."""

    @property
    def must_come_back(self) -> bool:
        """Whether a crashed life left work that only another life can finish."""
        return False

    @property
    def has_open_operations(self) -> bool:
        """Whether one of its requests has no answer yet."""
        return False

    @property
    def process_name(self) -> str:
        """The name of this life in the history."""
        return f"{self.name}.{self.lives}"

    @property
    def is_over(self) -> bool:
        """Whether no further operation may begin."""
        most = self.spec.operations_max
        return self.stopping or (most is not None and self.begun >= most)

    def is_beyond_repair(self, name: PartitionName) -> bool:
        """Whether every copy of a partition that counts is damaged: only an operator can help then."""
        return self.around.cluster.is_beyond_repair(*name)

    def silent_since(self, newest_s: Mapping[PartitionName, float], since_s: float) -> list[PartitionName]:
        """The partitions that have nothing newer than `since_s`, and are not beyond repair."""
        return [
            name
            for name in self.partitions()
            if newest_s.get(name, -1.0) <= since_s and not self.is_beyond_repair(name)
        ]

    def pause_s(self, operations: int) -> float:
        """The wait after so many operations that keeps the workload's rate."""
        return min(PAUSE_MAX_S, operations / self.spec.per_second * self.rng.uniform(0.2, 1.8))

    def partitions(self) -> list[tuple[str, int]]:
        """All partitions of the workload's topics."""
        return [(topic, n) for topic in self.topics for n in range(self.around.topics[topic].partitions)]

    def draw_values(self, topic: str, partition: int, first: int) -> tuple[Value, ...]:
        """This life's next values for a partition, numbered from `first` on; keyed if the topic is compacted."""
        draw = draw_keyed_values if self.around.topics[topic].is_compacted else draw_values
        return draw(self.rng, f"{topic}-{partition}/{self.process_name}", first)

    def invoke_send(
        self, key: TopicKey, topic: str, values: Sequence[Value], *, acks: int = -1, idempotent: bool = False
    ) -> Operation:
        """Begins a send of this life."""
        self.begun += 1
        return self.around.history.invoke(
            self.process_name,
            OperationKind.SEND,
            self.around.now_s,
            key=key,
            topic=topic,
            acks=acks,
            idempotent=idempotent,
            values=values,
        )

    def invoke_admin(self, kind: OperationKind, topic: str) -> Operation:
        """Begins to create or delete a topic."""
        self.begun += 1
        return self.around.history.invoke(self.process_name, kind, self.around.now_s, topic=topic)

    def complete(
        self, operation: Operation, status: OperationStatus, *, base_offset: int = -1, error: str = ""
    ) -> None:
        """Ends an operation; the white box hears of an acknowledged send with acks=-1."""
        self.around.history.complete(
            operation, status, self.around.now_s, base_offset=base_offset, error=error
        )
        if status is not OperationStatus.OK:
            return
        self.acknowledged += 1
        if operation.kind is OperationKind.SEND and operation.acks == -1 and operation.key is not None:
            name = operation.topic, operation.key[1]
            self.newest_write_s[name] = max(operation.invoked_s, self.newest_write_s.get(name, -1.0))
            self.around.on_acknowledged(operation.key, base_offset, operation.values)

    def record_poll(
        self,
        name: tuple[str, int],
        topic_id: bytes,
        began_s: float,
        position: int,
        records: Sequence[tuple[int, Value]],
        next_offset: int,
        *,
        sought: bool = False,
        final: bool = False,
        markers: Sequence[int] = (),
    ) -> None:
        """Enters a poll that is over, with its beginning: most polls find nothing and are not entered."""
        self.begun += 1
        now_s, history = self.around.now_s, self.around.history
        poll = history.invoke(
            self.process_name,
            OperationKind.POLL,
            began_s,
            key=(topic_id, name[1]),
            topic=name[0],
            position=position,
            final=final,
            sought=sought,
        )
        history.complete(
            poll, OperationStatus.OK, now_s, records=records, next_offset=next_offset, markers=markers
        )
        if records:
            self.acknowledged += 1
            self.newest_read_s[name] = now_s

    def _on_surprise(self, broker: int, text: str) -> None:
        self.around.surprise(self.process_name, broker, text)
