"""Voters with everything around them (lane, listener, links, controller) on hosts of a simulation: virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from kraft.chaos.world.environment import simulated_environment
from kraft.chaos.world.host import Host, Process
from kraft.chaos.world.simulation import Simulation
from partitions.log.config import LogConfig
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from quorum.controller.decision import ControllerConfig
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.controller_server import ControllerServer
from quorum.controller_server_config import ControllerServerConfig
from quorum.metadata.features import supported_ranges
from quorum.metadata.records import Listener
from quorum.raft.config import RaftConfig, RaftTiming
from quorum.rpc import messages
from quorum.rpc.client import ControllerChannel, RpcClient
from quorum.rpc.message_codec import Answer, decode_response, encode

CLUSTER_ID = "kraftTestingClusterIdA"
SECRET = b"secret"
PORT = 9093
LISTENER = Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT")
Story = Callable[["QuorumWorld"], Coroutine[Any, Any, None]]


@dataclass
class QuorumWorld:
    """Some voters, and a client on a host of its own that tells the story."""

    simulation: Simulation
    hosts: dict[int, Host] = field(default_factory=dict)
    servers: dict[int, ControllerServer] = field(default_factory=dict)
    rpc: RpcClient | None = None
    channel: ControllerChannel | None = None
    ended: bool = False

    @property
    def voters(self) -> dict[int, str]:
        return {n: f"{host.address}:{PORT}" for n, host in self.hosts.items()}

    def start(self, node_id: int) -> None:
        """Starts a voter's process, or starts it again."""
        self.hosts[node_id].start(lambda process: self.run_voter(node_id, process))

    def kill(self, node_id: int) -> None:
        """As `kill -9`, at this instant, told by the client."""
        self.simulation.call_later(0.0, self.hosts[node_id].kill)

    async def run_voter(self, node_id: int, process: Process) -> None:
        environment = simulated_environment(process)
        if not environment.disk.exists("/data"):
            environment.disk.make_dirs("/data")
            environment.disk.sync_dir("/")
            write_meta_properties(
                environment.disk,
                "/data",
                MetaProperties(CLUSTER_ID, node_id, f"kraftTestingDirectory{node_id}"),
            )
        server = ControllerServer(
            ControllerServerConfig(
                raft=RaftConfig(
                    node_id=node_id,
                    voters=self.voters,
                    cluster_id=CLUSTER_ID,
                    directory="/data",
                    timing=RaftTiming(
                        election_min_s=0.25, election_max_s=0.5, heartbeat_s=0.05, leader_fallback_s=0.5
                    ),
                ),
                controller=ControllerConfig(CLUSTER_ID, session_timeout_ms=2_000),
                host=self.hosts[node_id].address,
                port=PORT,
                secret=SECRET,
            ),
            lane=environment.raft_lane_factory(),
            disk=environment.disk,
            clock=environment.monotonic_s,
            now_ms=environment.now_ms,
            rng=environment.rng,
            halt=environment.halt,
            topic_configs=LogTopicConfigs(LogConfig()),
        )
        self.servers[node_id] = server
        await server.start()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await server.close()

    async def call(self, request: Any, timeout_s: float = 5.0) -> Any:
        """A call to whoever is active."""
        return (await self.answer(request, timeout_s)).response

    async def answer(self, request: Any, timeout_s: float = 5.0) -> Answer[Any]:
        """The same, with the offset that the response was given at."""
        assert self.channel is not None
        body = await self.channel.call(
            request.RPC.method, encode(request), timeout_s=timeout_s, attempt_timeout_s=1.0
        )
        return decode_response(request, body)

    async def call_voter(self, node_id: int, request: Any, timeout_s: float = 5.0) -> Any:
        assert self.rpc is not None
        body = await self.rpc.call(self.voters[node_id], request.RPC.method, encode(request), timeout_s)
        return decode_response(request, body).response

    async def active(self) -> int:
        """The one voter that is the active controller."""
        async with asyncio.timeout(10):
            while True:
                found = [n for n, s in self.servers.items() if self.hosts[n].alive and s.is_active]
                if len(found) == 1:
                    return found[0]
                await asyncio.sleep(0.01)

    def registration(self, broker_id: int) -> messages.RegisterBrokerRequest:
        """What a broker on its own says first."""
        return messages.RegisterBrokerRequest(
            broker_id,
            bytes([broker_id]) * 16,
            CLUSTER_ID,
            (LISTENER,),
            None,
            (bytes(15) + b"\1",),
            features=supported_ranges(),
        )

    async def register(self, broker_id: int = 1) -> int:
        """Registers a broker; returns its epoch when that is committed."""
        epoch: int = (await self.call(self.registration(broker_id))).broker_epoch
        return epoch


def told(story: Story, voters: int = 1) -> Simulation:
    """Plays a story in virtual time; what fails in it fails here."""
    with Simulation(5) as simulation:
        world = QuorumWorld(simulation)
        for node_id in range(1, voters + 1):
            world.hosts[node_id] = simulation.add_host(f"voter-{node_id}")
        for node_id in world.hosts:
            world.start(node_id)

        async def client(_: Process) -> None:
            world.rpc = RpcClient(SECRET)
            world.channel = ControllerChannel(world.rpc, world.voters, random.Random(1))
            await story(world)
            await world.rpc.close()
            world.ended = True

        simulation.add_host("client").start(client)
        simulation.run_until_true(lambda: world.ended or bool(simulation.errors), 120.0, 0.1)
    for error in simulation.errors:
        raise error.error or AssertionError(error.message)
    assert world.ended, "the story did not come to its end"
    return simulation


def now() -> float:
    return asyncio.get_running_loop().time()
