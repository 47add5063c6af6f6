"""The nodes of a scenario in a simulated world: `kraft.node.Node` unmodified, each on a host of its own.

This module configures, formats and starts the nodes and looks into them. It notes which incarnations a fault has
excused: those may complain. Faults go through the hosts and the network of the simulation. An empty disk (a new or a
wiped one) is formatted as an operator would format it, with new directory ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kraft.chaos import security
from kraft.chaos.node_folders import DATA, format_if_empty
from kraft.chaos.scenario import NodeSpec
from kraft.chaos.world.environment import simulated_environment
from kraft.chaos.world.host import Host, Process
from kraft.chaos.world.incarnation import process_of
from kraft.chaos.world.simulation import Simulation
from kraft.config import BROKER_ROLE, CONTROLLER_ROLE, load_config
from kraft.environment import Environment
from kraft.node import STARTUP_ERRORS, Node
from kraft.security.mechanisms import Credentials
from quorum.controller.topic_names import is_internal
from quorum.metadata.image import MetadataImage, PartitionImage

CLIENT_PORT, CONTROLLER_PORT, NODES_PORT, HTTP_PORT = 9092, 9093, 9094, 8080
PROPERTIES: Mapping[str, str] = {
    "controller.listener.names": "CONTROLLER",
    "controller.listener.secret": "of the simulation",
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "330",
    "broker.session.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controlled.shutdown.timeout.ms": "3000",
    "replica.fetch.backoff.ms": "100",
    "replica.lag.time.max.ms": "1500",
    "replica.socket.timeout.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.retention.check.interval.ms": "1000",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "65536",
    "offsets.commit.timeout.ms": "1500",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.segment.bytes": "65536",
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "300",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "400",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
"""Short timers, so that much happens in a virtual minute; a scenario's properties override them."""
INTERNAL_REPLICAS_MAX = 3
"""Replicas of internal topics where there are so many brokers."""
METADATA_LAG_MAX = 8
"""Entries that a node may lack and still be whole: while topics come and go, some are always on their way."""


class HaltedNode(NamedTuple):
    """A node that ended itself."""

    process: str
    node_id: int
    reason: str


class SimulatedCluster:
    """The nodes of a scenario, by node id. Made inside a simulation; `start` boots them."""

    def __init__(
        self, simulation: Simulation, nodes: Sequence[NodeSpec], properties: Mapping[str, str] | None = None
    ) -> None:
        """`properties` are added to every node's server.properties, over `PROPERTIES`."""
        self.simulation = simulation
        self.specs = {spec.node_id: spec for spec in nodes}
        self.hosts: dict[int, Host] = {n: simulation.add_host(f"node-{n}") for n in self.specs}
        self.nodes: dict[int, Node] = {}
        """The newest incarnation of each node, also after its end; none while it boots."""
        self.excused: set[str] = set()
        """Incarnations that may log errors, raise and halt, because a fault struck them."""
        self.ailing: set[str] = set()
        """Incarnations that may log errors but have to live on."""
        self.failed_starts: list[tuple[int, str]] = []
        """Node id and error of every start that ended in an error of `STARTUP_ERRORS`."""
        self.controller_ids = tuple(n for n, spec in self.specs.items() if CONTROLLER_ROLE in spec.roles)
        self.broker_ids = tuple(n for n, spec in self.specs.items() if BROKER_ROLE in spec.roles)
        internal_replicas = min(INTERNAL_REPLICAS_MAX, len(self.broker_ids))
        self.properties = {
            **PROPERTIES,
            "offsets.topic.replication.factor": str(max(1, internal_replicas)),
            "transaction.state.log.replication.factor": str(max(1, internal_replicas)),
            "transaction.state.log.min.isr": str(min(2, max(1, internal_replicas))),
            **(properties or {}),
        }
        self._by_name = {host.name: n for n, host in self.hosts.items()}
        self._by_name.update((host.address, n) for n, host in self.hosts.items())
        self._directory_ids = {n: simulation.stream(f"directory ids of node {n}") for n in self.specs}
        self._stopping: dict[int, asyncio.Event] = {}
        self._asked_to_stop: set[str] = set()

    @property
    def credentials(self) -> Credentials | None:
        """What the clients of a workload say who they are with, if they have to."""
        return security.ADMINISTRATOR if security.is_secured(self.properties) else None

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Where clients connect to brokers."""
        return {n: (self.hosts[n].address, CLIENT_PORT) for n in self.broker_ids}

    def properties_of(self, node_id: int) -> str:
        """A node's server.properties."""
        spec, host = self.specs[node_id], self.hosts[node_id].address
        listeners = []
        if BROKER_ROLE in spec.roles:
            if self.credentials is None:
                listeners.append(f"PLAINTEXT://{host}:{CLIENT_PORT}")
            else:
                listeners.append(f"{security.CLIENTS}://{host}:{CLIENT_PORT}")
                listeners.append(f"{security.NODES}://{host}:{NODES_PORT}")
        if CONTROLLER_ROLE in spec.roles:
            listeners.append(f"CONTROLLER://{host}:{CONTROLLER_PORT}")
        lines = {
            "process.roles": ",".join(spec.roles),
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(
                f"{n}@{self.hosts[n].address}:{CONTROLLER_PORT}" for n in self.controller_ids
            ),
            "listeners": ",".join(listeners),
            "http.listener": f"{host}:{HTTP_PORT}",
            "http.authentication": "none",
            "log.dirs": ",".join(self.log_dirs_of(node_id)),
            **({"broker.rack": spec.rack} if spec.rack else {}),
            **self.properties,
        }
        return "".join(f"{key}={value}\n" for key, value in lines.items())

    def log_dirs_of(self, node_id: int) -> tuple[str, ...]:
        """A node's data directories; the first one is its metadata.log.dir, too."""
        count = self.specs[node_id].log_dirs
        return (DATA, *(f"{DATA}-{number}" for number in range(2, count + 1)))

    # -- life

    def start(self) -> None:
        """Starts all nodes."""
        for node_id in self.specs:
            self.start_node(node_id)

    def start_node(self, node_id: int) -> None:
        """Boots a node's host and its process, which must not be running."""
        self.nodes.pop(node_id, None)
        self._stopping[node_id] = stopping = asyncio.Event()
        self.hosts[node_id].start(lambda process: self._run_node(node_id, process, stopping))

    async def _run_node(self, node_id: int, process: Process, stopping: asyncio.Event) -> None:
        """The program of a node's host: as `kraft server`, after a format where one is due."""
        name = process.incarnation.name
        environment = simulated_environment(process)
        try:
            for directory in self.log_dirs_of(node_id):
                format_if_empty(environment.disk, directory, node_id, self._directory_ids[node_id])
            await self._serve(node_id, environment, stopping)
        except STARTUP_ERRORS as error:
            self.failed_starts.append((node_id, f"{type(error).__name__}: {error}"))
            if name not in self.excused:
                raise

    async def _serve(self, node_id: int, environment: Environment, stopping: asyncio.Event) -> None:
        """Starts the node, stops it when it is asked to, even during the start."""
        self.nodes[node_id] = node = Node(load_config(self.properties_of(node_id)), environment)
        stop, start = asyncio.ensure_future(stopping.wait()), asyncio.ensure_future(node.start())
        await asyncio.wait((stop, start), return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
            await stop
        else:
            start.cancel()
            await asyncio.gather(start, return_exceptions=True)
        await node.stop()

    def stop_node(self, node_id: int) -> None:
        """Asks a running node for a controlled shutdown, as SIGTERM does; its process ends by itself."""
        process = self.hosts[node_id].process
        if process is not None:
            self._asked_to_stop.add(process.incarnation.name)
            process.loop.call_soon_threadsafe(self._stopping[node_id].set)

    def has_started(self, node_id: int) -> bool:
        """Whether the node's process has got past the point where a failing disk ends its start."""
        node = self.nodes.get(node_id)
        return node is not None and not {"starting", "not started"}.intersection(node.unready_reasons())

    def is_stopping(self, node_id: int) -> bool:
        """Whether the node was asked to shut down and has not ended yet."""
        process = self.hosts[node_id].process
        return process is not None and process.incarnation.name in self._asked_to_stop

    # -- who is who

    @property
    def running(self) -> list[int]:
        """The nodes that have a process, paused ones included."""
        return [node_id for node_id, host in self.hosts.items() if host.alive]

    def node_id_of(self, name: str) -> int | None:
        """The node of a lane, a process, an address or a host: "10.0.0.1#2.raft" is node 1's."""
        return self._by_name.get(name.partition("#")[0])

    def excuse(self, node_id: int, *, may_halt: bool = True) -> None:
        """Lets the node's present process complain, and perhaps end, since a fault struck it."""
        process = self.hosts[node_id].process
        if process is not None:
            (self.excused if may_halt else self.ailing).add(process.incarnation.name)

    def is_excused(self, name: str) -> bool:
        """Whether a process, or the process of a lane, may complain."""
        return self.may_end(name) or process_of(name) in self.ailing

    def may_end(self, name: str) -> bool:
        """Whether a process, or the process of a lane, may halt, and fail as a program."""
        return process_of(name) in self.excused

    @property
    def halts(self) -> list[HaltedNode]:
        """Every node that ended itself: its incarnation, and the reason."""
        return [
            HaltedNode(process, node_id, reason)
            for node_id, host in self.hosts.items()
            for process, reason in host.halts.items()
        ]

    # -- looking in

    def image(self) -> MetadataImage | None:
        """The newest metadata that any running node knows."""
        newest: MetadataImage | None = None
        for node_id in self.running:
            node = self.nodes.get(node_id)
            if node is None:
                continue
            controller, broker = node.controller, node.broker
            if controller is not None and (newest is None or controller.image.offset > newest.offset):
                newest = controller.image
            if broker is not None and (newest is None or broker.metadata.image.offset > newest.offset):
                newest = broker.metadata.image
        return newest

    def leader_of(self, topic: str, partition: int) -> int:
        """By the newest metadata; -1 while there is none."""
        image = self.image()
        known = None if image is None else image.topic(topic)
        return -1 if known is None else known.partitions[partition].leader

    def active_controller(self) -> int | None:
        """The running node that believes itself to be the active controller, in the newest epoch."""
        active = [
            (controller.epoch, node_id)
            for node_id in self.running
            if (node := self.nodes.get(node_id)) is not None
            and (controller := node.controller) is not None
            and controller.is_active
        ]
        return max(active)[1] if active else None

    def ailments(self, topics: Sequence[str]) -> list[str]:
        """The reasons why the cluster is not whole; empty if it is.

        Whole: every node runs, is ready and has about all metadata; brokers are unfenced; the topics exist. Each of
        their partitions, and of internal topics', has a leader, all its replicas in the ISR and no reassignment under
        way, or is beyond repair.
        """
        found = [f"node {n} is not running" for n, host in self.hosts.items() if not host.alive]
        found += [f"node {n} is paused" for n, host in self.hosts.items() if host.paused]
        image = self.image()
        if found or image is None:
            return found or ["nobody knows any metadata"]
        for node_id in self.specs:
            node = self.nodes.get(node_id)
            reasons = ["not started"] if node is None else [*node.unready_reasons(), *_behind(node, image)]
            found += [f"node {node_id}: {reason}" for reason in reasons]
        for node_id in self.broker_ids:
            broker = image.brokers.get(node_id)
            if broker is None or broker.fenced:
                found.append(f"broker {node_id} is fenced")
        internal = [topic for topic in image.topic_ids if is_internal(topic)]
        for topic in (*topics, *internal):
            found += self._ailments_of(image, topic)
        return found

    def _ailments_of(self, image: MetadataImage, topic: str) -> list[str]:
        known = image.topic(topic)
        if known is None:
            return [f"there is no topic {topic}"]
        return [
            f"{topic}-{number}: leader {state.leader}, ISR {list(state.isr)} of {list(state.replicas)}"
            + " in a reassignment" * state.is_reassigning
            for number, state in enumerate(known.partitions)
            if (state.leader < 0 or state.is_reassigning or sorted(state.isr) != sorted(state.replicas))
            and not self._has_only_damaged_copies(topic, number, state)
        ]

    # -- damage beyond the product's power

    def is_beyond_repair(self, topic: str, partition: int) -> bool:
        """Whether every replica that may lead is offline, because its copy is damaged on its disk.

        The members of ISR and ELR may lead; if there are none, the last known leader. Only an operator can then choose
        which records to give up: the one excuse from liveness.
        """
        image = self.image()
        known = None if image is None else image.topic(topic)
        return known is not None and self._has_only_damaged_copies(
            topic, partition, known.partitions[partition]
        )

    def _has_only_damaged_copies(self, topic: str, partition: int, state: PartitionImage) -> bool:
        members = (*state.isr, *state.elr) or state.last_known_elr
        return (
            state.leader < 0
            and bool(members)
            and all(
                member in state.offline_replicas and self.is_damaged(member, topic, partition)
                for member in members
            )
        )

    @property
    def has_damage(self) -> bool:
        """Whether a bit that an injected fault flipped on some disk is still there."""
        return any(host.storage.is_rotten("/") for host in self.hosts.values())

    def is_damaged(self, node_id: int, topic: str, partition: int) -> bool:
        """Whether a bit that an injected fault flipped in that replica is still there."""
        storage = self.hosts[node_id].storage
        return any(
            storage.is_rotten(f"{directory}/{topic}-{partition}") for directory in self.log_dirs_of(node_id)
        )


def _behind(node: Node, newest: MetadataImage) -> list[str]:
    """Says how far a node is behind with the metadata, if by more than is always on its way."""
    if node.config.is_controller and node.controller is None:
        return ["its controller has not started"]
    held = {}
    if node.controller is not None:
        held["controller"] = node.controller.image.offset
    if node.broker is not None:
        held["broker"] = node.broker.loader.image.offset
    return [
        f"its {role} has metadata up to {offset} of {newest.offset}"
        for role, offset in held.items()
        if newest.offset - offset > METADATA_LAG_MAX or (offset < 0 <= newest.offset)
    ]
