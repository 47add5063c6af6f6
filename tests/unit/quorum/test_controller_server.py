"""A voter assembled over the simulated world: calls, long polls, changes of leader, defects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from kraft.chaos.world.environment import simulated_environment
from kraft.chaos.world.host import Host, Process
from kraft.chaos.world.simulation import Simulation
from partitions.log.config import LogConfig
from partitions.log.meta_properties import MetaProperties, write_meta_properties
from quorum.controller.decision import ControllerConfig
from quorum.controller.topic_configs import LogTopicConfigs
from quorum.controller_server import ControllerServer
from quorum.controller_server_config import ControllerServerConfig
from quorum.metadata.features import supported_ranges
from quorum.metadata.records import Listener
from quorum.raft.config import RaftConfig, RaftTiming
from quorum.rpc import messages
from quorum.rpc.admin_messages import DescribeQuorumRequest
from quorum.rpc.client import ControllerChannel, RpcClient
from quorum.rpc.envelope import RpcError, RpcUnavailable
from quorum.rpc.message_codec import decode, encode

CLUSTER_ID = "kraftTestingClusterIdA"
SECRET = b"secret"
PORT = 9093
LISTENER = Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT")
Story = Callable[["World"], Coroutine[Any, Any, None]]


@dataclass
class World:
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
        assert self.channel is not None
        method = messages.METHOD_OF[type(request)]
        body = await self.channel.call(method, encode(request), timeout_s=timeout_s, attempt_timeout_s=1.0)
        return decode(messages.METHODS[method][1], body)

    async def call_voter(self, node_id: int, request: Any, timeout_s: float = 5.0) -> Any:
        assert self.rpc is not None
        method = messages.METHOD_OF[type(request)]
        body = await self.rpc.call(self.voters[node_id], method, encode(request), timeout_s)
        return decode(messages.METHODS[method][1], body)

    async def active(self) -> int:
        """The one voter that is the active controller."""
        async with asyncio.timeout(10):
            while True:
                found = [n for n, s in self.servers.items() if self.hosts[n].alive and s.is_active]
                if len(found) == 1:
                    return found[0]
                await asyncio.sleep(0.01)

    async def register(self, broker_id: int = 1) -> int:
        request = messages.RegisterBrokerRequest(
            broker_id,
            bytes([broker_id]) * 16,
            CLUSTER_ID,
            (LISTENER,),
            None,
            (bytes(15) + b"\1",),
            features=supported_ranges(),
        )
        epoch: int = (await self.call(request)).broker_epoch
        return epoch


def told(story: Story, voters: int = 1) -> Simulation:
    """Plays a story in virtual time; what fails in it fails here."""
    with Simulation(5) as simulation:
        world = World(simulation)
        for node_id in range(1, voters + 1):
            world.hosts[node_id] = simulation.add_host(f"voter-{node_id}")
        for node_id, host in world.hosts.items():
            host.start(lambda process, n=node_id: world.run_voter(n, process))

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


def fetch(
    offset: int, epoch: int = 0, wait_ms: int = 0, max_bytes: int = 1 << 20
) -> messages.FetchMetadataRequest:
    return messages.FetchMetadataRequest(1, epoch, offset, wait_ms, max_bytes)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_registration_is_committed_and_followed() -> None:
    async def story(world: World) -> None:
        epoch = await world.register()
        response = await world.call(fetch(-1))
        assert response.committed_offset >= epoch
        assert response.leader_id == 1
        assert world.servers[1].image.brokers[1].epoch == epoch

    told(story)


def test_a_long_poll_ends_with_a_commit_or_with_its_time() -> None:
    async def story(world: World) -> None:
        await world.register()
        known = (await world.call(fetch(-1))).committed_offset
        begun_s = now()
        response = await world.call_voter(1, fetch(known, 1, wait_ms=500))
        assert 0.5 <= now() - begun_s < 0.6
        assert (response.entries, response.snapshot) == ((), None)
        polling = asyncio.ensure_future(world.call_voter(1, fetch(known, 1, wait_ms=9_000), 10))
        await asyncio.sleep(0.2)
        begun_s = now()
        await world.register(2)
        response = await polling
        assert now() - begun_s < 0.2
        assert response.committed_offset > known

    told(story)


def test_history_comes_in_pieces_without_a_gap() -> None:
    async def story(world: World) -> None:
        for broker_id in range(1, 8):
            await world.register(broker_id)
        first = await world.call(fetch(-1, max_bytes=1))
        if first.snapshot is not None:  # the quorum's own numbering may begin later than our -1
            return
        offsets = [entry.offset for entry in first.entries]
        while offsets[-1] < first.committed_offset:
            last = first.entries[-1]
            first = await world.call(fetch(last.offset, last.epoch, max_bytes=1))
            offsets += [entry.offset for entry in first.entries]
        assert offsets == list(range(offsets[0], offsets[-1] + 1))

    told(story)


def test_refusals_are_typed() -> None:
    async def story(world: World) -> None:
        await world.active()
        with pytest.raises(RpcError) as caught:
            await world.call(messages.AllocateProducerIdsRequest(1, 1))
        assert caught.value.code == "STALE_BROKER_EPOCH"
        assert world.rpc is not None
        for method, body in (("heartbeat", {}), ("no_such_method", {}), ("fetch_metadata", {"offset": "x"})):
            with pytest.raises(RpcError) as caught:
                await world.rpc.call(world.voters[1], method, body, 1)
            assert caught.value.code == "INVALID_REQUEST"

    told(story)


def test_only_the_active_one_answers_and_the_others_point_at_it() -> None:
    async def story(world: World) -> None:
        leader = await world.active()
        await world.register()
        for voter in world.voters:
            if voter != leader:
                for request in (fetch(-1), messages.AllocateProducerIdsRequest(1, 1)):
                    with pytest.raises(RpcError) as caught:
                        await world.call_voter(voter, request)
                    assert (caught.value.code, caught.value.leader_id) == ("NOT_CONTROLLER", leader)

    told(story, 3)


def test_sessions_run_out_and_a_new_controller_gives_whole_ones() -> None:
    async def story(world: World) -> None:
        epoch = await world.register()

        async def beat() -> messages.HeartbeatResponse:
            request = messages.HeartbeatRequest(1, epoch, epoch, want_fence=False, want_shutdown=False)
            answer: messages.HeartbeatResponse = await world.call(request)
            return answer

        assert not (await beat()).is_fenced
        leader = await world.active()
        world.simulation.call_later(0.1, world.hosts[leader].kill)
        await asyncio.sleep(0.5)
        successor = await world.active()
        assert successor != leader
        assert not world.servers[successor].image.brokers[1].fenced
        await asyncio.sleep(1.5)
        assert not world.servers[successor].image.brokers[1].fenced
        await asyncio.sleep(2.5)
        assert world.servers[successor].image.brokers[1].fenced

    told(story, 3)


def test_the_active_one_describes_the_quorum() -> None:
    """Voters as its Raft lane knows them, and whoever follows the metadata."""

    async def story(world: World) -> None:
        active = await world.active()
        broker_id = 9
        await world.call(messages.FetchMetadataRequest(broker_id, 0, -1, 500))
        while True:  # until the followers have acknowledged everything, and the broker has it
            everything = world.servers[active].image.offset
            await world.call(messages.FetchMetadataRequest(broker_id, 0, everything, 100))
            described = await world.call(DescribeQuorumRequest())
            if {voter.log_end_offset for voter in described.voters} == {everything + 1}:
                break
        assert (described.leader_id, described.leader_epoch) == (active, world.servers[active].epoch)
        assert described.high_watermark == everything + 1
        assert [voter.replica_id for voter in described.voters] == [1, 2, 3]
        (observer,) = described.observers
        assert (observer.replica_id, observer.log_end_offset) == (broker_id, everything + 1)
        assert observer.last_caught_up_ms == observer.last_fetch_ms > 0
        passive = next(node_id for node_id in world.servers if node_id != active)
        with pytest.raises(RpcError) as refused:
            await world.call_voter(passive, DescribeQuorumRequest())
        assert (refused.value.code, refused.value.leader_id) == ("NOT_CONTROLLER", active)

    told(story, voters=3)


def test_a_deposed_controller_ends_its_long_polls() -> None:
    async def story(world: World) -> None:
        await world.register()
        leader = await world.active()
        known = world.servers[leader].image.offset
        polling = asyncio.ensure_future(world.call_voter(leader, fetch(known, 1, wait_ms=9_000), 10))
        await asyncio.sleep(0.1)
        for other in world.voters:
            if other != leader:
                world.simulation.call_later(0.0, world.hosts[other].kill)
        begun_s = now()
        with pytest.raises(RpcError, match="NOT_CONTROLLER"):
            await polling
        assert now() - begun_s < 3
        with pytest.raises(RpcUnavailable):
            await world.call(fetch(known), timeout_s=1)

    told(story, 3)


def test_a_stop_hands_over_first() -> None:
    async def story(world: World) -> None:
        await world.register()
        leader = await world.active()
        server = world.servers[leader]

        def hand_over() -> None:
            handing.append(server._loop.create_task(server.hand_over()))

        handing: list[asyncio.Task[None]] = []
        server._loop.call_soon_threadsafe(hand_over)
        begun_s = now()
        await asyncio.sleep(0.2)  # shorter than any election timeout
        assert await world.active() != leader
        assert now() - begun_s < 0.25

    told(story, 3)


@pytest.mark.parametrize("half_decided", [False, True])
def test_a_defect_costs_the_controller_only_when_it_left_something_half_decided(half_decided: bool) -> None:
    async def story(world: World) -> None:
        await world.register()
        leader = await world.active()
        server = world.servers[leader]
        handle = server._state.handle
        broken = [True]

        def defect(*arguments: Any) -> Any:
            if broken:
                if half_decided:
                    handle(*arguments)
                broken.clear()
                raise KeyError("a defect")
            return handle(*arguments)

        server._state.handle = defect  # type: ignore[method-assign]
        if half_decided:
            await world.register(2)  # by a successor
            assert await world.active() != leader
            assert len(world.hosts[leader].halts) == 1
        else:
            with pytest.raises(RpcError, match="UNKNOWN_SERVER_ERROR"):
                await world.register(2)
            await world.register(2)
            assert await world.active() == leader
            assert world.hosts[leader].halts == []

    told(story, 3)


@pytest.mark.parametrize("where", ["_on_committed", "_tick"])
def test_a_voter_that_cannot_take_in_what_happened_halts(where: str) -> None:
    async def story(world: World) -> None:
        await world.register()
        server = world.servers[1]
        target = server._state if where == "_tick" else server

        def defect(*_: Any) -> Any:
            raise KeyError("a defect")

        setattr(target, "tick" if where == "_tick" else where, defect)
        registering = asyncio.ensure_future(world.register(2))
        await asyncio.sleep(10)
        await asyncio.gather(registering, return_exceptions=True)
        assert len(world.hosts[1].halts) == 1

    told(story)
