"""Three Raft drivers in their simulated lanes, joined by framed connections, under faults.

`python raft_toy.py SECONDS SEED…` prints what became of each seed. Each voter applies entries to a hash
chain; two voters that have applied up to the same offset must have equal chains, and a proposal that was
acknowledged must be in the chain where it was acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import struct
from collections.abc import Coroutine
from typing import Any

from kraft.chaos.pool import run_isolated
from kraft.chaos.world.environment import simulated_environment
from kraft.chaos.world.host import Host, Process
from kraft.chaos.world.simulation import Simulation
from partitions.log.node_logs.meta_properties import MetaProperties, write_meta_properties
from quorum.raft.config import FAST_TIMING, RaftConfig
from quorum.raft.driver import RaftDriver
from quorum.raft.events import (
    Committed,
    LeaderChanged,
    PeerConnected,
    PeerDisconnected,
    PeerMessage,
    ProposalOutcome,
    Propose,
    SendToPeer,
)
from quorum.raft.state_machine import Applied
from quorum.steps import Steps
from tests.support.chain_machine import in_steps

PORT = 9093
VOTERS = (1, 2, 3)


class ChainMachine:
    """Its image is (offset, hash over everything applied in order)."""

    def __init__(self) -> None:
        self.image = (1, b"")

    def apply(self, data: bytes, offset: int, epoch: int) -> Applied:
        self.advance(offset, epoch, data)
        return Applied(True, (data,))

    def advance(self, offset: int, epoch: int, data: bytes = b"") -> None:
        assert offset == self.image[0] + 1
        chain = hashlib.blake2b(self.image[1] + struct.pack(">QQ", offset, epoch) + data, digest_size=16)
        self.image = (offset, chain.digest())

    def snapshot_steps(self) -> Steps[bytes]:
        return in_steps(struct.pack(">Q", self.image[0]) + self.image[1])

    def decode_steps(self, data: bytes) -> Steps[tuple[int, bytes]]:
        return in_steps((struct.unpack_from(">Q", data)[0], data[8:]))

    def adopt(self, state: tuple[int, bytes]) -> None:
        self.image = state


class Judge:
    """Collects what voters say, and notices contradictions."""

    def __init__(self) -> None:
        self.chains: dict[int, bytes] = {}
        self.entries: dict[int, bytes] = {}
        self.leaders: dict[int, int] = {}
        self.acknowledged: dict[bytes, int] = {}
        self.outcomes: dict[str, int] = {}
        self.violations: list[str] = []

    def applied(self, offset: int, chain: bytes) -> None:
        if self.chains.setdefault(offset, chain) != chain:
            self.violations.append(f"forked at {offset}")

    def committed(self, offset: int, data: bytes) -> None:
        if self.entries.setdefault(offset, data) != data:
            self.violations.append(f"two entries at {offset}")

    def leads(self, node: int, epoch: int) -> None:
        if self.leaders.setdefault(epoch, node) != node:
            self.violations.append(f"two leaders in epoch {epoch}")

    def outcome(self, proposal: bytes, outcome: ProposalOutcome) -> None:
        name = outcome.error or "COMMITTED"
        self.outcomes[name] = self.outcomes.get(name, 0) + 1
        if outcome.offset is not None:
            self.acknowledged[proposal] = outcome.offset

    def final(self) -> list[str]:
        lost = [o for proposal, o in self.acknowledged.items() if self.entries.get(o, proposal) != proposal]
        return self.violations + [f"acknowledged proposal lost at {offset}" for offset in lost]


class Link(asyncio.Protocol):
    """Frames: a length and a body; the first body is the sender's id."""

    def __init__(self, voter: Voter, peer: int | None) -> None:
        self.voter, self.peer, self.buffer = voter, peer, bytearray()
        self.session = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.send(bytes([self.voter.node]))

    def send(self, body: bytes) -> None:
        self.transport.write(struct.pack(">I", len(body)) + body)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4:
            end = 4 + struct.unpack_from(">I", self.buffer)[0]
            if len(self.buffer) < end:
                return
            body = bytes(self.buffer[4:end])
            del self.buffer[:end]
            if self.session == 0:
                self.peer = body[0]
                self.session = self.voter.linked(self.peer, self)
            else:
                assert self.peer is not None
                self.voter.lane.post(PeerMessage(self.peer, self.session, body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.session and self.peer is not None:
            self.voter.unlinked(self.peer, self)


class Voter:
    """One node: its lane, its links, and a client that proposes while it leads."""

    def __init__(self, process: Process, node: int, judge: Judge) -> None:
        self.process, self.node, self.judge = process, node, judge
        self.environment = simulated_environment(process)
        self.lane = self.environment.raft_lane_factory()
        self.links: dict[int, Link] = {}
        self.sessions = 0
        self.active = False
        self.proposals: dict[int, bytes] = {}

    async def run(self) -> None:
        environment, loop = self.environment, asyncio.get_running_loop()
        identity = MetaProperties("cluster", self.node, f"directory-{self.node}")
        if not environment.disk.exists("/data/meta.properties"):
            environment.disk.make_dirs("/data")
            environment.disk.sync_dir("/")
            write_meta_properties(environment.disk, "/data", identity)
        config = RaftConfig(
            node_id=self.node,
            voters={voter: f"host-{voter}:{PORT}" for voter in VOTERS},
            cluster_id="cluster",
            directory="/data",
            timing=FAST_TIMING,
            snapshot_every_entries=200,
        )

        def new_driver() -> RaftDriver:
            return RaftDriver(
                config=config,
                disk=environment.disk,
                clock=environment.monotonic_s,
                wall_ms=environment.now_ms,
                rng=environment.rng,
                halt=environment.halt,
                state_machine=ChainMachine(),
            )

        self.lane.start(new_driver, self.deliver)
        await loop.create_server(lambda: Link(self, None), "0.0.0.0", PORT)
        async with asyncio.TaskGroup() as group:
            for peer in VOTERS:
                if peer > self.node:
                    group.create_task(self.keep_connected(peer))
            group.create_task(self.propose())

    async def keep_connected(self, peer: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if peer not in self.links:
                try:
                    async with asyncio.timeout(0.5):
                        await loop.create_connection(lambda: Link(self, peer), f"host-{peer}", PORT)
                except (OSError, TimeoutError):
                    self.process.host.note("no link to", peer)
            await asyncio.sleep(0.1)

    def linked(self, peer: int, link: Link) -> int:
        previous = self.links.get(peer)
        if previous is not None:
            previous.transport.abort()
            self.lane.post(PeerDisconnected(peer, previous.session))
        self.sessions += 1
        self.links[peer] = link
        self.lane.post(PeerConnected(peer, self.sessions))
        return self.sessions

    def unlinked(self, peer: int, link: Link) -> None:
        if self.links.get(peer) is link:
            del self.links[peer]
            self.lane.post(PeerDisconnected(peer, link.session))

    async def propose(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(0.01)
            if self.active:
                number += 1
                proposal = f"{self.process.incarnation.name} {number}".encode()
                self.proposals[number] = proposal
                self.lane.post(Propose(number, proposal))

    def deliver(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, SendToPeer):
                link = self.links.get(effect.peer_id)
                if link is not None and link.session == effect.session:
                    link.send(effect.data)
            elif isinstance(effect, Committed):
                self.judge.applied(*effect.image)
                for entry in effect.entries:
                    self.judge.committed(entry.offset, b"".join(entry.records))
            elif isinstance(effect, LeaderChanged):
                self.active = effect.active
                if effect.active:
                    self.judge.leads(self.node, effect.epoch)
                    self.process.host.note("leads", effect.epoch)
            elif isinstance(effect, ProposalOutcome):
                self.judge.outcome(self.proposals.pop(effect.request_id), effect)


def cause_faults(simulation: Simulation, hosts: list[Host], until_s: float) -> None:
    rng = simulation.stream("faults")

    def act() -> None:
        host, other = rng.sample(hosts, 2)
        fault = rng.choice(("kill", "power loss", "pause", "block"))
        if fault in ("kill", "power loss") and host.alive:
            host.kill() if fault == "kill" else host.power_loss()
            simulation.call_later(rng.uniform(0.05, 1.0), host.restart)
        elif fault == "pause":
            host.pause(rng.uniform(0.05, 1.0))
        elif fault == "block":
            network = simulation.network
            network.block(host.address, other.address)
            simulation.call_later(rng.uniform(0.05, 1.5), network.heal, host.address, other.address)
        if simulation.now < until_s:
            simulation.call_later(rng.uniform(0.1, 1.0), act)

    simulation.call_later(1.0, act)


def run(seed: int, seconds: float) -> dict[str, Any]:
    """What became of one seed: faults for its first part, quiet for the last 4 virtual seconds."""
    judge = Judge()
    with Simulation(seed) as simulation:
        hosts = [simulation.add_host() for _ in VOTERS]

        def program(node: int) -> Any:
            def main(process: Process) -> Coroutine[Any, Any, None]:
                return Voter(process, node, judge).run()

            return main

        for node, host in zip(VOTERS, hosts, strict=True):
            host.start(program(node))
        cause_faults(simulation, hosts, seconds - 4.0)
        simulation.run_until(seconds - 1.0)
        committed = len(judge.entries)
        simulation.run_until(seconds)
        return {
            "digest": simulation.digest(),
            "steps": simulation.scheduler.steps,
            "epochs": len(judge.leaders),
            "outcomes": judge.outcomes,
            "violations": judge.final(),
            "live": len(judge.entries) > committed,
            "halts": [halt for host in hosts for halt in host.halts.values()],
            "errors": [f"{e.process} {e.message} {e.error!r}" for e in simulation.errors],
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=float)
    parser.add_argument("seeds", type=int, nargs="+")
    args = parser.parse_args()
    print(json.dumps([run_isolated(lambda seed=seed: run(seed, args.seconds)) for seed in args.seeds]))
