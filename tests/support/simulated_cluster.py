"""Whole nodes in a simulated world: three brokers that are voters too, each on a host of its own.

The nodes are `kraft.node.Node`, unmodified, over `simulated_environment`; this module configures,
formats and starts them, looks into them, and judges what they hold. Faults go through the hosts and
the network of the simulation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kraft.chaos.world.environment import simulated_environment
from kraft.chaos.world.host import Host, Process
from kraft.chaos.world.simulation import Simulation
from kraft.config import load_config
from kraft.node import Node
from kraft.testing.cluster import CLUSTER_ID, FAST_TIMERS
from partitions.log.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from partitions.records.batch import iter_batches
from partitions.topic_partition import TopicPartition
from quorum.metadata.image import MetadataImage

DATA = "/var/lib/kraft"
CLIENT_PORT, CONTROLLER_PORT, HTTP_PORT = 9092, 9093, 8080
LOOK_EVERY_S = 0.05


class SimulatedCluster:
    """Nodes 1 to `nodes` at 10.0.0.1 and so on."""

    def __init__(
        self, simulation: Simulation, nodes: int = 3, properties: Mapping[str, str] | None = None
    ) -> None:
        self.simulation = simulation
        self._properties = dict(properties or {})
        self.hosts: dict[int, Host] = {n: simulation.add_host(f"node-{n}") for n in range(1, nodes + 1)}
        self.nodes: dict[int, Node] = {}
        self.violations: dict[str, None] = {}
        self.excused: set[str] = set()
        """Incarnations of nodes that may log errors and halt, for what was done to them."""
        self._stopping: dict[int, asyncio.Event] = {}
        self._leaders: dict[tuple[bytes, TopicPartition, int], int] = {}
        self._high_watermarks: dict[tuple[bytes, TopicPartition, int], int] = {}

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Where clients connect."""
        return {n: (host.address, CLIENT_PORT) for n, host in self.hosts.items()}

    def properties_of(self, node_id: int) -> str:
        """A node's server.properties."""
        host = self.hosts[node_id].address
        voters = ",".join(f"{n}@{other.address}:{CONTROLLER_PORT}" for n, other in self.hosts.items())
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{host}:{CLIENT_PORT},CONTROLLER://{host}:{CONTROLLER_PORT}",
            "controller.listener.names": "CONTROLLER",
            "controller.listener.secret": "of the test",
            "http.listener": f"{host}:{HTTP_PORT}",
            "log.dirs": DATA,
            **FAST_TIMERS,
            "replica.lag.time.max.ms": "1500",
            "replica.socket.timeout.ms": "2000",
            "replica.high.watermark.checkpoint.interval.ms": "1000",
            "log.flush.offset.checkpoint.interval.ms": "3000",
            "log.retention.check.interval.ms": "1000",
            **self._properties,
        }
        return "".join(f"{key}={value}\n" for key, value in lines.items())

    # -- life

    def start(self) -> None:
        """Starts all nodes, and begins to look after them."""
        for node_id in self.hosts:
            self.start_node(node_id)
        self.simulation.call_later(LOOK_EVERY_S, self._look)

    def start_node(self, node_id: int) -> None:
        """Boots a node's host and its process."""
        self.hosts[node_id].start(lambda process: self._run_node(node_id, process))

    async def _run_node(self, node_id: int, process: Process) -> None:
        environment = simulated_environment(process)
        disk = environment.disk
        if not disk.exists(DATA) or read_meta_properties(disk, DATA) is None:
            disk.make_dirs(DATA)
            for folder in ("/", "/var", "/var/lib"):
                disk.sync_dir(folder)
            identity = MetaProperties(CLUSTER_ID, node_id, f"kraftTestingDirectory{node_id % 10}")
            write_meta_properties(disk, DATA, identity)
        node = Node(load_config(self.properties_of(node_id)), environment)
        self.nodes[node_id] = node
        self._stopping[node_id] = stopping = asyncio.Event()
        await node.start()
        await stopping.wait()
        await node.stop()

    def stop_node(self, node_id: int) -> None:
        """Asks a running node for a controlled shutdown, as SIGTERM does; its process ends by itself."""
        process, stopping = self.hosts[node_id].process, self._stopping.get(node_id)
        if process is not None and stopping is not None:
            process.loop.call_soon_threadsafe(stopping.set)

    def is_stopping(self, node_id: int) -> bool:
        """Whether the node was asked to shut down and has not ended yet."""
        return self.hosts[node_id].alive and self._stopping[node_id].is_set()

    # -- looking in

    @property
    def running(self) -> list[int]:
        """The nodes that have a process, paused ones included."""
        return [node_id for node_id, host in self.hosts.items() if host.alive]

    def image(self) -> MetadataImage | None:
        """The newest metadata that any running node knows."""
        images = [
            self.nodes[node_id].controller.image  # type: ignore[union-attr]
            for node_id in self.running
            if node_id in self.nodes and self.nodes[node_id].controller is not None
        ]
        return max(images, key=lambda image: image.offset, default=None)

    def leader_of(self, topic: str, partition: int) -> int:
        """By the newest metadata; -1 while there is none."""
        image = self.image()
        known = None if image is None else image.topic(topic)
        return -1 if known is None else known.partitions[partition].leader

    def ailments(self, topic: str) -> list[str]:
        """What keeps the cluster from being whole; empty when nothing does."""
        found = [f"node {n} is not running" for n, host in self.hosts.items() if not host.alive]
        found += [f"node {n} is paused" for n, host in self.hosts.items() if host.paused]
        image = self.image()
        if found or image is None:
            return found or ["nobody knows any metadata"]
        for node_id, node in self.nodes.items():
            found += [f"node {node_id}: {reason}" for reason in node.unready_reasons()]
            broker = image.brokers.get(node_id)
            if broker is None or broker.fenced:
                found.append(f"broker {node_id} is fenced")
        known = image.topic(topic)
        if known is None:
            return [*found, f"there is no topic {topic}"]
        for number, state in enumerate(known.partitions):
            if sorted(state.isr) != sorted(state.replicas) or state.leader < 0:
                found.append(f"{topic}-{number}: leader {state.leader}, ISR {list(state.isr)}")
        return found

    def wait_whole(self, topic: str, within_s: float) -> list[str]:
        """Runs until nothing ails the cluster; what still does after `within_s`."""
        self.simulation.run_until_true(lambda: not self.ailments(topic), within_s, LOOK_EVERY_S)
        return self.ailments(topic)

    # -- invariants

    def _look(self) -> None:
        """One leader per partition and epoch; high watermarks never go back in one; nobody halts."""
        for node_id in self.running:
            node = self.nodes.get(node_id)
            if node is None or node.broker is None:
                continue
            for partition in node.broker.replicas.partitions():
                if not partition.is_leader:
                    continue
                key = (partition.topic_id, partition.topic_partition, partition.leader_epoch)
                if self._leaders.setdefault(key, node_id) != node_id:
                    self.violations[f"two leaders of {key[1]} in epoch {key[2]}"] = None
                before = self._high_watermarks.get(key, 0)
                if partition.high_watermark < before:
                    self.violations[f"the high watermark of {key[1]} went back in epoch {key[2]}"] = None
                self._high_watermarks[key] = partition.high_watermark
        self.simulation.call_later(LOOK_EVERY_S, self._look)

    def batches(self, node_id: int, key: TopicPartition) -> dict[int, bytes]:
        """All batches of one replica, by base offset, as its disk has them."""
        prefix = f"{DATA}/{key}/"
        files = self.hosts[node_id].storage.files()
        return {
            header.base_offset: data[position : position + header.size_bytes]
            for path, data in files.items()
            if path.startswith(prefix) and path.endswith(".log")
            for position, header in iter_batches(data)
        }

    def start_offset(self, key: TopicPartition) -> int:
        """Below it some replica has deleted what had to be kept no longer."""
        nodes = [node for node in self.nodes.values() if node.broker is not None]
        return max(node.broker.replicas.partition(key).log_start_offset for node in nodes if node.broker)

    def disagreements(self, topic: str, partitions: int) -> list[str]:
        """Differences between replicas; to be asked when nothing is being produced any more."""
        found = []
        for number in range(partitions):
            key = TopicPartition(topic, number)
            start, leader = self.start_offset(key), self.leader_of(topic, number)
            logs = {
                node_id: {
                    offset: batch for offset, batch in self.batches(node_id, key).items() if offset >= start
                }
                for node_id in self.hosts
            }
            for node_id, log in logs.items():
                if log != logs[leader]:
                    found.append(f"{key}: the logs of node {node_id} and of its leader {leader} differ")
                broker = self.nodes[node_id].broker
                assert broker is not None, f"node {node_id} has no broker"
                replica = broker.replicas.partition(key)
                if replica.high_watermark != replica.log_end_offset:
                    found.append(
                        f"{key}: node {node_id} ends at {replica.log_end_offset},"
                        f" its high watermark is {replica.high_watermark}"
                    )
        return found

    def strays(self) -> list[str]:
        """Folders of logs on disks that belong to no partition of the newest metadata."""
        image, found = self.image(), []
        assert image is not None
        known = {f"{t.name}-{n}" for t in image.topics.values() for n in range(len(t.partitions))}
        for node_id, host in self.hosts.items():
            folders = {
                path.removeprefix(f"{DATA}/").split("/")[0]
                for path in host.storage.files()
                if path.endswith(".log")
            }
            strays = sorted(name for name in folders if not name.startswith("__") and name not in known)
            if strays:
                found.append(f"node {node_id} keeps {', '.join(strays)}, which is gone")
        return found
