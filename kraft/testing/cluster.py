"""Nodes inside one process, on the running event loop. See `kraft.testing`."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from kraft.chaos.real.relay import Condition, Passage
from kraft.config import load_config
from kraft.environment import Environment
from kraft.local_cluster.credentials import scram_users, write_certificates
from kraft.local_cluster.identities import LISTENER, Identities, write_client_files
from kraft.node import Node
from kraft.runtime.executor import ThreadExecutor
from kraft.runtime.real import real_environment
from kraft.testing.network import Direct, Direction, Hurt, Peers, Protocols, Relayed
from partitions.log.node_logs.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from quorum.bootstrap_checkpoint import Bootstrap, write_bootstrap
from quorum.metadata.records import UserScramCredential

CLUSTER_ID = "kraftTestingClusterIdA"
FAST_TIMERS: Mapping[str, str] = {
    "broker.heartbeat.interval.ms": "50",
    "broker.session.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "600",
    "controlled.shutdown.timeout.ms": "3000",
    "replica.fetch.backoff.ms": "100",
    "replica.lag.time.max.ms": "10000",
}


class NodeHalted(Exception):
    """A node of the cluster halted itself; the message is its reason."""


class Cluster:
    """Some nodes, each broker and controller, with ids from 1."""

    def __init__(
        self,
        directory: Path,
        nodes: int,
        properties: Mapping[str, str],
        racks: Mapping[int, str] | None = None,
        *,
        behind_relays: bool = False,
        secure: bool = False,
    ) -> None:
        """`behind_relays`: all connections go through relays, so that the faults of the network can be had. `secure`:
        TLS, users by SCRAM, and ACLs."""
        self.directory = directory
        self._racks = dict(racks or {})
        self._properties = dict(properties)
        listener = LISTENER if secure else "PLAINTEXT"
        protocols = Protocols("SASL_SSL", "SSL") if secure else Protocols()
        self._network = Relayed(nodes, listener, protocols) if behind_relays else Direct(nodes, listener)
        self.ports = self._network.ports
        """By node: the port that clients dial."""
        self._identities = Identities.new() if secure else None
        self._users: tuple[UserScramCredential, ...] = ()
        if self._identities is not None:
            self._make_identities(self._identities)
        self.nodes: dict[int, Node] = {}
        self._executors: dict[int, ThreadExecutor] = {}
        self.halted: dict[int, str] = {}

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, comma-separated."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    def client_settings(self) -> dict[str, str]:
        """librdkafka's properties of a client: where the brokers are and, in a secured cluster, how it is the admin,
        who may everything."""
        security = {} if self._identities is None else self._identities.client_settings(self.directory)
        return {"bootstrap.servers": self.bootstrap_servers, **security}

    def _make_identities(self, identities: Identities) -> None:
        """Certificates, users to begin with, and the files for clients that `kraft cluster start --secure` writes."""
        folders = {node_id: self._identity_directory(node_id) for node_id in self.ports}
        for folder in folders.values():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_certificates(self.directory, folders, time.time())
        write_client_files(identities, self.directory, self.bootstrap_servers)
        self._users = tuple(scram_users(identities))

    def _identity_directory(self, node_id: int) -> Path:
        return self.directory / f"identity-{node_id}"

    def _security_of(self, node_id: int, network: Mapping[str, str]) -> dict[str, str]:
        if self._identities is None:
            return {}
        settings = self._identities.node_settings(self.directory, self._identity_directory(node_id))
        login = self._identities.broker_login(network.get("inter.broker.listener.name", LISTENER))
        return {**settings, **login}

    def properties_of(self, node_id: int) -> str:
        """A node's server.properties."""
        network = self._network.properties_of(node_id)
        lines = {
            **self._security_of(node_id, network),
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            **network,
            "controller.listener.names": "CONTROLLER",
            "controller.listener.secret": "of the test",
            "log.dirs": str(self.data_directory(node_id)),
            **FAST_TIMERS,
            **self._properties,
        }
        if node_id in self._racks:
            lines["broker.rack"] = self._racks[node_id]
        return "".join(f"{key}={value}\n" for key, value in lines.items())

    def data_directory(self, node_id: int) -> Path:
        """Where a node's logs are."""
        return self.directory / f"node-{node_id}"

    async def start_node(self, node_id: int) -> Node:
        """Starts a node, for the first time or again; returns when its broker is unfenced."""
        assert node_id not in self.nodes, f"node {node_id} is running"
        executor = ThreadExecutor()
        environment = self._environment(node_id, executor)
        folder = str(self.data_directory(node_id))
        if read_meta_properties(environment.disk, folder) is None:
            environment.disk.make_dirs(folder)
            if self._users:
                write_bootstrap(environment.disk, folder, Bootstrap({}, self._users))
            identity = MetaProperties(CLUSTER_ID, node_id, f"kraftTestingDirectory{node_id % 10}")
            write_meta_properties(environment.disk, folder, identity)
        node = Node(load_config(self.properties_of(node_id)), environment)
        self.nodes[node_id], self._executors[node_id] = node, executor
        try:
            await node.start()
            await node.wait_ready()
        except BaseException:
            await self.kill_node(node_id)
            raise
        return node

    def _environment(self, node_id: int, executor: ThreadExecutor) -> Environment:
        def halt(reason: str) -> None:
            self.halted.setdefault(node_id, reason)
            raise NodeHalted(f"node {node_id}: {reason}")

        return real_environment(halt=halt, executor=executor)

    async def stop_node(self, node_id: int) -> None:
        """Controlled shutdown of one node."""
        node = self.nodes.pop(node_id)
        await node.stop()
        await self._executors.pop(node_id).close()

    async def kill_node(self, node_id: int) -> None:
        """Ends one node without warning: its leaderships move when the controller misses it."""
        node = self.nodes.pop(node_id)
        await node.abort()
        await self._executors.pop(node_id).close()

    # -- faults, each for as long as its block lasts

    @contextlib.asynccontextmanager
    async def killed(self, node_id: int) -> AsyncIterator[None]:
        """The node is ended without warning, and started again behind the block, with the files that it had. Nothing
        of its page cache is lost: only a machine's power takes that along."""
        await self.kill_node(node_id)
        try:
            yield
        finally:
            await self.start_node(node_id)

    @contextlib.asynccontextmanager
    async def stopped(self, node_id: int) -> AsyncIterator[None]:
        """The node has shut down in order, and is started again behind the block."""
        await self.stop_node(node_id)
        try:
            yield
        finally:
            await self.start_node(node_id)

    def cut_off(
        self, *node_ids: int, peers: Peers = "nodes", direction: Direction = "both"
    ) -> AbstractAsyncContextManager[Hurt]:
        """No byte passes between these nodes, which stay together, and `peers`: the other "nodes", the "clients", or
        "everybody". What was sent meanwhile arrives afterwards, unless its sender has given up.

        `direction`, as these nodes see it: "in": they hear nothing, "out": nobody hears them. A relay acknowledges
        what it holds back, so the sender's TCP sees a slow peer; and no new connection is made in either direction.
        """
        return self._network.hurt(node_ids, Condition(Passage.STALLED), peers, direction)

    def paused(self, *node_ids: int) -> AbstractAsyncContextManager[Hurt]:
        """Each of these nodes is silent for everybody, as others see a process that is stopped (SIGSTOP).

        Inside they run on: their timers go off, and they know how late it is. A process that is truly stopped wakes up
        as what it was; for that, `kraft chaos run paused-leader` has real processes.
        """
        return self._network.hurt(node_ids, Condition(Passage.STALLED), "everybody", "both", each=True)

    def half_open(
        self, *node_ids: int, peers: Peers = "nodes", direction: Direction = "both"
    ) -> AbstractAsyncContextManager[Hurt]:
        """What passes between these nodes and `peers` is taken and never arrives; behind the block, the connections
        that lost something are reset."""
        return self._network.hurt(node_ids, Condition(Passage.HALF_OPEN), peers, direction)

    def latency(
        self,
        *node_ids: int,
        delay_s: float,
        jitter_s: float = 0.0,
        peers: Peers = "nodes",
        direction: Direction = "both",
    ) -> AbstractAsyncContextManager[Hurt]:
        """All between these nodes and `peers` takes `delay_s` longer in each direction, and up to `jitter_s` more; the
        bytes of a connection stay in order."""
        condition = Condition(latency_s=delay_s, jitter_s=jitter_s)
        return self._network.hurt(node_ids, condition, peers, direction)

    def bandwidth(
        self, *node_ids: int, bytes_per_s: float, peers: Peers = "nodes", direction: Direction = "both"
    ) -> AbstractAsyncContextManager[Hurt]:
        """Each connection between these nodes and `peers` carries so much a second, in each direction."""
        return self._network.hurt(node_ids, Condition(bytes_per_s=bytes_per_s), peers, direction)

    def resetting(self, *node_ids: int, peers: Peers = "nodes") -> AbstractAsyncContextManager[Hurt]:
        """Every connection between these nodes and `peers` is reset, those that are made meanwhile, too."""
        return self._network.hurt(node_ids, Condition(Passage.RESET), peers, "both")

    async def start(self) -> None:
        """Starts all nodes; returns when all brokers are unfenced."""
        await asyncio.gather(*(self.start_node(node_id) for node_id in self.ports))

    async def stop(self) -> None:
        """Stops the nodes that run. Raises NodeHalted if one halted itself on the way."""
        try:
            await asyncio.gather(*(self.stop_node(node_id) for node_id in list(self.nodes)))
        finally:
            self._network.close()
        if self.halted:
            raise NodeHalted(
                "; ".join(f"node {node_id}: {reason}" for node_id, reason in self.halted.items())
            )


@contextlib.asynccontextmanager
async def cluster(
    nodes: int = 3,
    properties: Mapping[str, str] | None = None,
    directory: Path | None = None,
    *,
    racks: Mapping[int, str] | None = None,
    behind_relays: bool = False,
    secure: bool = False,
) -> AsyncIterator[Cluster]:
    """A running cluster of `nodes` nodes; gone, with its files, at the end (files in `directory` stay).

    `properties` are added to every node's server.properties; `racks` are those of nodes, by id. `behind_relays`: all
    connections go through relays in this process, so that `cut_off` and the other faults of the network can be had.
    `secure`: with TLS, users by SCRAM, and ACLs; `client_settings` are the admin's.
    """
    with contextlib.ExitStack() as stack:
        folder = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kraft-")))
        made = Cluster(folder, nodes, properties or {}, racks, behind_relays=behind_relays, secure=secure)
        try:
            await made.start()
            yield made
        finally:
            await made.stop()
