"""A small simulated cluster with workloads on it, and what its disks hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.history import History, Operation, OperationKind, OperationStatus, TopicKey
from kraft.chaos.logs import NodeLogs, judge_processes
from kraft.chaos.node_folders import DATA
from kraft.chaos.scenario import NodeSpec, Scenario, TopicSpec, WorkloadSpec
from kraft.chaos.verdict import Verdicts
from kraft.chaos.workload import Workloads
from kraft.chaos.workload.base import OnListOffsets, unjudged
from kraft.chaos.world.simulation import Simulation
from partitions.records.batch import decode_records, iter_batches

TOPIC = TopicSpec("orders", 3, 3, {"min.insync.replicas": "2"})
WITHIN_S = 30.0


@dataclass
class Stage:
    """One run, while it goes on and afterwards."""

    simulation: Simulation
    cluster: SimulatedCluster
    verdicts: Verdicts
    history: History
    workloads: Workloads
    logs: NodeLogs
    topics: Sequence[TopicSpec]
    told: list[tuple[TopicKey, int, Sequence[bytes]]] = field(default_factory=list)
    """What was acknowledged to the white box."""

    def wait(self, condition: Callable[[], bool]) -> None:
        """Runs until the condition holds."""
        assert self.simulation.run_until_true(condition, WITHIN_S, 0.05), self.ailments()

    def ailments(self) -> list[str]:
        return self.cluster.ailments([topic.name for topic in self.topics])

    def finish(self) -> None:
        """The workloads end, the cluster becomes whole, everything is read."""
        self.workloads.stop()
        self.wait(lambda: not self.workloads.undrained)
        self.wait(lambda: not self.ailments())
        self.simulation.run_for(1.0)
        self.workloads.read_everything()
        self.wait(lambda: self.workloads.read)
        judge_processes(self.cluster, self.verdicts)

    def operations(self, kind: OperationKind, status: OperationStatus | None = None) -> list[Operation]:
        """Of one kind, and perhaps one status."""
        return [
            operation
            for operation in self.history.operations
            if operation.kind is kind and status in (None, operation.status)
        ]

    @property
    def sends(self) -> list[Operation]:
        return self.operations(OperationKind.SEND)

    @property
    def polls(self) -> list[Operation]:
        """Those of workloads, not of the final phase."""
        return [poll for poll in self.operations(OperationKind.POLL) if not poll.final]

    @property
    def oracles(self) -> set[str]:
        """Those that were violated."""
        return {violation.oracle for violation in self.verdicts.violations}

    def on_disk(self, node_id: int | None = None) -> dict[tuple[str, int], dict[int, bytes]]:
        """By topic and partition: offset and value of every record on a node's disk, by default the leader's."""
        found = {}
        for topic in self.topics:
            for number in range(topic.partitions):
                holder = node_id or self.cluster.leader_of(topic.name, number)
                found[topic.name, number] = self._records(holder, f"{DATA}/{topic.name}-{number}/")
        return found

    def _records(self, node_id: int, folder: str) -> dict[int, bytes]:
        return {
            record.offset: record.value or b""
            for path, data in self.cluster.hosts[node_id].storage.files().items()
            if path.startswith(folder) and path.endswith(".log")
            for position, header in iter_batches(data)
            for record in decode_records(data, position, header, max_decompressed_bytes=1 << 20)
        }


def acknowledged(sends: Sequence[Operation]) -> dict[tuple[str, int], dict[int, bytes]]:
    """By topic and partition: offset and value of all that has an offset."""
    found: dict[tuple[str, int], dict[int, bytes]] = {}
    for send in sends:
        assert send.key is not None
        if send.status is OperationStatus.OK:
            log = found.setdefault((send.topic, send.key[1]), {})
            log.update(enumerate(send.values, send.base_offset))
    return found


@contextmanager
def staged(
    *workloads: WorkloadSpec,
    seed: int = 1,
    nodes: Sequence[NodeSpec] = tuple(NodeSpec(n) for n in (1, 2, 3)),
    topics: Sequence[TopicSpec] = (TOPIC,),
    properties: Mapping[str, str] | None = None,
    explains: Callable[[TopicKey, int, bytes], bool] = lambda key, offset, value: False,
    on_list_offsets: OnListOffsets = unjudged,
    run_time_configs: Mapping[str, str] | None = None,
) -> Iterator[Stage]:
    """A whole cluster on which the workloads have just started."""
    scenario = Scenario(
        seed,
        10.0,
        tuple(nodes),
        tuple(topics),
        workloads,
        properties=properties or {},
        run_time_configs=run_time_configs or {},
    )
    with Simulation(seed) as simulation:
        cluster = SimulatedCluster(simulation, scenario.nodes, scenario.properties)
        verdicts, history = Verdicts(simulation.scheduler), History()
        told: list[tuple[TopicKey, int, Sequence[bytes]]] = []
        clients = Workloads(
            cluster,
            scenario,
            history,
            verdicts,
            on_acknowledged=lambda key, base, values: told.append((key, base, values)),
            explains=explains,
            on_list_offsets=on_list_offsets,
        )
        logs = NodeLogs(cluster, verdicts)
        stage = Stage(simulation, cluster, verdicts, history, clients, logs, topics, told)
        with logs.installed():
            cluster.start()
            clients.create_topics()
            stage.wait(lambda: clients.topics_created and not stage.ailments())
            clients.start()
            yield stage
