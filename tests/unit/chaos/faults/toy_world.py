"""A small world for faults: three toy nodes that write, sync and talk, and a client that talks to them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kraft.chaos.faults import FaultContext, strike
from kraft.chaos.scenario import FaultSpec, TopicSpec
from kraft.chaos.verdict import Verdicts
from kraft.chaos.world.host import Host, Process
from kraft.chaos.world.simulation import Simulation

LOG = "/var/lib/kraft/t-0/00000000000000000000.log"
JOURNAL_LOG = "/var/lib/kraft/__cluster_metadata-0/00000000000000000000.log"
METADATA_POSITION = "/var/lib/kraft/metadata-position-checkpoint"
PORT = 9


class Echo(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class ToyCluster:
    """What faults ask of a cluster, over nodes that do next to nothing. Node 1 leads and controls."""

    def __init__(self, simulation: Simulation, nodes: int) -> None:
        self.simulation = simulation
        self.hosts: dict[int, Host] = {n: simulation.add_host(f"node-{n}") for n in range(1, nodes + 1)}
        self.client = simulation.add_host("client")
        self.excused: list[str] = []
        self.ailing: list[str] = []
        self.directories: tuple[str, ...] = ("/var/lib/kraft",)
        self.controller_ids = tuple(self.hosts)
        self.started = True
        self.leader = self.controller = 1
        self.isr = list(self.hosts)
        self.dedicated: set[int] = set()
        self.stops: dict[int, asyncio.Event] = {}
        self.stopping: set[str] = set()
        self.answered = 0
        self.halting = True
        for node_id in self.hosts:
            self.start_node(node_id)
        self.client.start(self.ask)

    # -- as SimulatedCluster

    @property
    def running(self) -> list[int]:
        return [node_id for node_id, host in self.hosts.items() if host.alive]

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(n for n in self.hosts if n not in self.dedicated)

    def start_node(self, node_id: int) -> None:
        self.hosts[node_id].start(lambda process: self.serve(node_id, process))

    def stop_node(self, node_id: int) -> None:
        process = self.hosts[node_id].process
        assert process is not None
        self.stopping.add(process.incarnation.name)
        process.loop.call_soon_threadsafe(self.stops[node_id].set)

    def is_stopping(self, node_id: int) -> bool:
        process = self.hosts[node_id].process
        return process is not None and process.incarnation.name in self.stopping

    def leader_of(self, topic: str, partition: int) -> int:
        return self.leader

    def active_controller(self) -> int | None:
        return self.controller if self.controller in self.running else None

    def image(self) -> Any:
        state = SimpleNamespace(isr=self.isr, elr=(), replicas=list(self.hosts))
        topic = SimpleNamespace(name="t", partitions=[state])
        return SimpleNamespace(topics={b"t": topic}, topic=lambda name: topic if name == "t" else None)

    def log_dirs_of(self, node_id: int) -> tuple[str, ...]:
        return self.directories

    def has_started(self, node_id: int) -> bool:
        return self.started

    def is_damaged(self, node_id: int, topic: str, partition: int) -> bool:
        return self.hosts[node_id].storage.is_rotten(f"/var/lib/kraft/{topic}-{partition}")

    def ailments(self, topics: list[str]) -> list[str]:
        return [f"node {n} is down" for n in self.hosts if n not in self.running]

    def excuse(self, node_id: int, *, may_halt: bool = True) -> None:
        process = self.hosts[node_id].process
        excused = self.excused if may_halt else self.ailing
        if process is not None and process.incarnation.name not in excused:
            excused.append(process.incarnation.name)

    # -- the programs

    async def serve(self, node_id: int, process: Process) -> None:
        self.stops[node_id] = stop = asyncio.Event()
        await asyncio.get_running_loop().create_server(Echo, "0.0.0.0", PORT)
        writing = asyncio.ensure_future(self.write(process))
        await stop.wait()
        await asyncio.sleep(0.5)
        writing.cancel()

    async def write(self, process: Process) -> None:
        disk = process.disk
        disk.make_dirs("/var/lib/kraft/t-0")
        disk.make_dirs("/var/lib/kraft/__cluster_metadata-0")
        journal = disk.open(JOURNAL_LOG, create=True)
        journal.append([b"y"])
        journal.sync()
        position = disk.open(METADATA_POSITION, create=True)
        position.append([b"z"])
        position.sync()
        for folder in ("/", "/var", "/var/lib", "/var/lib/kraft", "/var/lib/kraft/__cluster_metadata-0"):
            disk.sync_dir(folder)
        log = disk.open(LOG, create=True)
        disk.sync_dir("/var/lib/kraft/t-0")
        while True:
            try:
                log.append([b"x" * 1000])
                await process.executor.run(log.sync)
            except OSError as error:
                if self.halting:
                    process.halt(f"disk: {error.errno}")
            await asyncio.sleep(0.1)

    async def ask(self, process: Process) -> None:
        await asyncio.gather(*(self.ask_node(host.address) for host in self.hosts.values()))

    async def ask_node(self, address: str) -> None:
        while True:
            try:
                reader, writer = await asyncio.wait_for(asyncio.open_connection(address, PORT), 1)
                while True:
                    writer.write(b"?" * 100)
                    await asyncio.wait_for(reader.readexactly(100), 1)
                    self.answered += 1
                    await asyncio.sleep(0.1)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.05)


class World:
    """The toy cluster and its faults."""

    def __init__(self, simulation: Simulation, nodes: int) -> None:
        self.simulation = simulation
        self.cluster: Any = ToyCluster(simulation, nodes)
        self.verdicts = Verdicts(simulation.scheduler)
        self.damage: list[tuple[float, int, str]] = []
        self.context = FaultContext(
            self.cluster,
            self.verdicts,
            [TopicSpec("t", 1, 3)],
            lambda node_id, kind: self.damage.append((simulation.now, node_id, kind)),
        )
        self.context.guard.reckless = False
        self._strikes = 0
        simulation.run_for(1.0)

    def strike(self, name: str) -> bool:
        """Whether the fault says that it happened, at once."""
        before = self.count(name)
        self._strikes += 1
        strike(self.context, FaultSpec(name, 0.0, self._strikes))
        return self.count(name) > before

    def strike_until_it_happens(self, name: str, tries: int = 100) -> None:
        """Also for faults that wait for something; runs on a little after each try."""
        before = self.count(name)
        for _ in range(tries):
            self.strike(name)
            for _ in range(40):
                if self.count(name) > before:
                    return
                self.simulation.run_for(0.1)
        raise AssertionError(f"{name} never happened")

    def end_faults(self) -> None:
        """As `FaultContext.end_all`, but others may strike afterwards."""
        self.context.end_all()
        self.context._over = False
        self.simulation.run_for(0.3)

    def count(self, name: str) -> int:
        return self.verdicts.coverage[f"fault: {name}"]

    def lives(self) -> dict[int, int]:
        """How many processes each node has had."""
        return {node_id: host._lives for node_id, host in self.cluster.hosts.items()}

    def armed(self) -> list[str]:
        """What is not as it is without faults."""
        found = []
        for name, host in self.simulation.hosts.items():
            storage = host.storage
            found += [f"{name}: a hook"] * (storage.before_operation is not None)
            found += [f"{name}: fsync"] * (storage.sync_failure is not None)
            found += [f"{name}: full"] * (storage.free_bytes is not None or storage.on_refused is not None)
            found += [f"{name}: slow"] * (storage.timing != type(storage.timing)())
            found += [f"{name}: skew"] * (host.clock.drift != 0)
            found += [f"{name}: {'paused' if host.alive else 'dead'}"] * (host.paused or not host.alive)
            found += [f"{name}: silence"] * any(endpoint.silent for endpoint in host.kernel.endpoints)
        for ends, link in self.simulation.network._links.items():
            found += [f"{ends}: held"] * bool(link.impeded or link.held or link.stops or link._impairments)
        return found
