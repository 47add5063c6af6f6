"""Faults for a simulated cluster, and plans that inflict them in mid-stream.

Every fault ends by itself: what was killed is started again, what was cut is healed. Power is lost only
while the cluster is whole, and nothing else happens until it is whole again: acks=-1 promises
replication, not fsync, so the last replica that has a record must not lose it.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator, Mapping

from kraft.chaos.world.incarnation import IncarnationGoneError
from kraft.chaos.world.network import Latency
from kraft.chaos.world.storage import DiskTiming
from tests.support.simulated_cluster import SimulatedCluster

WHOLE_WITHIN_S = 30.0
CALM_S = (0.3, 1.2)
WILD_S = 12.0


class Faults:
    """Draws faults and inflicts them. `topic` is the one whose leaders are aimed at."""

    def __init__(self, cluster: SimulatedCluster, topic: str, partitions: int, rng: random.Random) -> None:
        self._cluster = cluster
        self._simulation = cluster.simulation
        self._topic, self._partitions = topic, partitions
        self._rng = rng
        self.told: list[str] = []

    def _tell(self, text: str) -> None:
        self._simulation.note("fault", text)
        self.told.append(f"{self._simulation.now:.3f} {text}")

    def _leader(self) -> int | None:
        leader = self._cluster.leader_of(self._topic, self._rng.randrange(self._partitions))
        return leader if leader in self._cluster.running else None

    def _node(self) -> int | None:
        """A running node; every second time one that leads something."""
        running = self._cluster.running
        leader = self._leader()
        if leader is not None and self._rng.random() < 0.5:
            return leader
        return self._rng.choice(running) if running else None

    # -- processes

    def kill(self) -> None:
        """kill -9, and a restart a while later."""
        self._kill(self._node())

    def kill_leader(self) -> None:
        self._kill(self._leader() or self._node())

    def _kill(self, node_id: int | None) -> None:
        if node_id is not None:
            self._tell(f"kill node {node_id}")
            self._cluster.hosts[node_id].kill()
            self._start_later(node_id)

    def kill_in_mid_operation(self) -> None:
        """kill -9 just before one of the next operations on the disk."""
        self._at_disk_operation("kill", lambda node_id: self._cluster.hosts[node_id].kill())

    def power_loss(self) -> None:
        """The machine is off, what was not synced is gone; it is switched on again a while later."""
        node_id = self._node()
        if node_id is not None:
            self._tell(f"power loss of node {node_id}")
            self._cluster.hosts[node_id].power_loss()
            self._start_later(node_id)

    def power_loss_in_mid_operation(self) -> None:
        """The same, just before one of the next operations on the disk."""
        self._at_disk_operation("power loss", lambda node_id: self._cluster.hosts[node_id].power_loss())

    def _at_disk_operation(self, what: str, end: Callable[[int], None]) -> None:
        node_id = self._node()
        if node_id is None:
            return
        host, countdown = self._cluster.hosts[node_id], self._rng.randint(1, 40)
        victim = host.process

        def strike(operation: str, path: str) -> None:
            nonlocal countdown
            countdown -= 1
            if countdown == 0:
                host.storage.before_operation = None
                if host.process is victim and victim is not None:
                    self._tell(f"{what} of node {node_id} before {operation} {path}")
                    end(node_id)
                    self._start_later(node_id)
                    raise IncarnationGoneError(victim.incarnation.name)

        host.storage.before_operation = strike

    def disarm(self) -> None:
        """What waits for an operation on a disk does not happen any more."""
        for host in self._cluster.hosts.values():
            host.storage.before_operation = None

    def stop(self) -> None:
        """A controlled shutdown, and a restart once the process has ended."""
        node_id = self._node()
        if node_id is not None and not self._cluster.hosts[node_id].paused:
            self._tell(f"stop node {node_id}")
            self._cluster.stop_node(node_id)
            self._start_later(node_id)

    def pause(self) -> None:
        node_id, duration_s = self._node(), self._rng.uniform(0.2, 3.0)
        if node_id is not None:
            self._tell(f"pause node {node_id} for {duration_s:.3f} s")
            self._cluster.hosts[node_id].pause(duration_s)

    def _start_later(self, node_id: int) -> None:
        self._simulation.call_later(self._rng.uniform(0.05, 2.5), self._start, node_id)

    def _start(self, node_id: int) -> None:
        if not self._cluster.hosts[node_id].alive:
            self._tell(f"start node {node_id}")
            self._cluster.start_node(node_id)
        elif self._cluster.is_stopping(node_id):
            self._simulation.call_later(0.1, self._start, node_id)

    # -- network

    def partition(self) -> None:
        """Cuts one node off from some or all others (and the clients), in both directions or in one."""
        rng, cluster = self._rng, self._cluster
        node_id = rng.choice(list(cluster.hosts))
        mine = cluster.hosts[node_id].address
        others = [host.address for host in cluster.hosts.values() if host.address != mine]
        whom = rng.choice(("everybody", "all nodes", "one node"))
        if whom == "everybody":
            others = [host.address for host in self._simulation.hosts.values() if host.address != mine]
        elif whom == "one node":
            others = [rng.choice(others)]
        way, duration_s = rng.choice(("both ways", "both ways", "in", "out")), rng.uniform(0.2, 4.0)
        self._tell(f"cut off node {node_id} from {' '.join(others)} {way} for {duration_s:.3f} s")
        links = [(mine, other) for other in others if way != "in"]
        links += [(other, mine) for other in others if way != "out"]
        for source, target in links:
            self._simulation.network.block(source, target)
        self._simulation.call_later(duration_s, self._heal, links)

    def _heal(self, links: list[tuple[str, str]]) -> None:
        self._tell("heal")
        for source, target in links:
            self._simulation.network.heal(source, target)

    def reset(self) -> None:
        """Connections between two hosts break."""
        addresses = [host.address for host in self._simulation.hosts.values()]
        left, right = self._rng.sample(addresses, 2)
        self._tell(f"reset {left} {right}")
        self._simulation.network.reset(left, right)

    def slow_network(self) -> None:
        """One direction of one link takes its time."""
        source, target = self._rng.sample([host.address for host in self._simulation.hosts.values()], 2)
        link = self._simulation.network.link(source, target)
        before, most_s = self._simulation.network.latency, self._rng.uniform(0.01, 0.4)
        self._tell(f"up to {most_s:.3f} s from {source} to {target}")
        link.set_latency(Latency(most_s / 4, most_s))
        self._simulation.call_later(self._rng.uniform(0.5, 3.0), link.set_latency, before)

    # -- clock and disk

    def broken_disk(self) -> None:
        """Some of the next operations on a disk fail; the node, if it still runs, is killed for it in the end.

        What it logs meanwhile, and that it halts, is as it should be.
        """
        node_id = self._node()
        if node_id is None:
            return
        host, odds = self._cluster.hosts[node_id], self._rng.choice((0.02, 0.2, 1.0))
        victim = host.process
        assert victim is not None, "a running node has a process"
        number = self._rng.choice((errno.EIO, errno.ENOSPC))
        self._tell(f"the disk of node {node_id} fails now and then: {errno.errorcode[number]}, {odds:g}")
        self._cluster.excused.add(victim.incarnation.name)
        halts = len(host.halts)

        def fail(operation: str, path: str) -> None:
            if host.process is victim and operation not in ("exists", "list") and self._rng.random() < odds:
                self._simulation.note("disk error", node_id, operation, path)
                raise OSError(number, "the simulated disk failed", path)

        def recover() -> None:
            host.storage.before_operation = None
            if host.process is victim:
                self._tell(f"kill node {node_id} for its disk")
                host.kill()
            del host.halts[halts:]
            if not host.alive:
                self._start_later(node_id)

        host.storage.before_operation = fail
        self._simulation.call_later(self._rng.uniform(0.2, 2.0), recover)

    def clock_jump(self) -> None:
        node_id, jump_ms = self._rng.choice(list(self._cluster.hosts)), self._rng.randint(-5_000, 5_000)
        self._tell(f"the clock of node {node_id} jumps by {jump_ms} ms")
        self._cluster.hosts[node_id].clock.offset_ms += jump_ms

    def slow_disk(self) -> None:
        node_id = self._rng.choice(list(self._cluster.hosts))
        storage = self._cluster.hosts[node_id].storage
        self._tell(f"the disk of node {node_id} is slow for a while")
        storage.timing = DiskTiming(sync_s=(0.02, 0.15))

        def recover() -> None:
            storage.timing = DiskTiming()

        self._simulation.call_later(self._rng.uniform(0.5, 3.0), recover)


Plan = Callable[[SimulatedCluster, Faults, str, random.Random], Iterator[str]]
"""Inflicts faults on a cluster with a topic; yields what went wrong on the way."""


def each_fault_once(
    cluster: SimulatedCluster, faults: Faults, topic: str, rng: random.Random
) -> Iterator[str]:
    """A leader's kill, a pause, a power loss and a partition, in some order, each survived before the next."""
    plan = [faults.kill_leader, faults.pause, faults.power_loss, faults.partition]
    rng.shuffle(plan)
    for fault in plan:
        cluster.simulation.run_for(rng.uniform(*CALM_S))
        fault()
        cluster.simulation.run_for(rng.uniform(0.2, 2.0))
        for ailment in cluster.wait_whole(topic, WHOLE_WITHIN_S):
            yield f"after {faults.told[-1]}: {ailment}"


def quiet(cluster: SimulatedCluster, faults: Faults, topic: str, rng: random.Random) -> Iterator[str]:
    """Nothing happens, and nothing may: no leader changes and no replica falls behind."""
    before = cluster.image()
    cluster.simulation.run_for(WILD_S)
    after = cluster.image()
    assert before is not None, "a whole cluster has metadata"
    assert after is not None, "and keeps it"
    if before.topic(topic) != after.topic(topic) or before.epoch != after.epoch:
        yield f"leaders or ISRs changed without a reason: {before.topic(topic)} became {after.topic(topic)}"


def broken_disks(cluster: SimulatedCluster, faults: Faults, topic: str, rng: random.Random) -> Iterator[str]:
    """Disks that fail, with other faults around them."""
    kinds = [faults.broken_disk, faults.broken_disk, faults.kill, faults.pause, faults.partition, faults.stop]
    mean_s = rng.choice((0.5, 1.0, 2.0))
    end_s = cluster.simulation.now + WILD_S
    while cluster.simulation.now < end_s:
        rng.choice(kinds)()
        cluster.simulation.run_for(rng.expovariate(1 / mean_s))
    yield from ()


def wild(cluster: SimulatedCluster, faults: Faults, topic: str, rng: random.Random) -> Iterator[str]:
    """Faults of all kinds on top of each other, more or less densely."""
    losses = [faults.power_loss, faults.power_loss_in_mid_operation]
    kinds = [faults.kill, faults.kill_leader, faults.kill_in_mid_operation, faults.stop, faults.pause]
    kinds += [faults.partition, faults.partition, faults.reset, faults.slow_network]
    kinds += [faults.clock_jump, faults.slow_disk, *losses]
    kinds = rng.sample(kinds, rng.randint(2, len(kinds)))
    simulation = cluster.simulation
    mean_s = rng.choice((0.15, 0.5, 1.0, 2.0))
    end_s = simulation.now + WILD_S
    while simulation.now < end_s:
        fault = rng.choice(kinds)
        if fault in losses:
            yield from cluster.wait_whole(topic, WHOLE_WITHIN_S)
        fault()
        if fault in losses:
            simulation.run_for(1.0)
            faults.disarm()
            yield from cluster.wait_whole(topic, WHOLE_WITHIN_S)
        simulation.run_for(rng.expovariate(1 / mean_s))
    faults.disarm()


def retention(cluster: SimulatedCluster, faults: Faults, topic: str, rng: random.Random) -> Iterator[str]:
    """Wild or broken disks, while logs are deleted from their start almost to their end."""
    yield from (wild if rng.random() < 0.7 else broken_disks)(cluster, faults, topic, rng)


PLANS: Mapping[str, Plan] = {
    "each-fault-once": each_fault_once,
    "wild": wild,
    "quiet": quiet,
    "broken-disks": broken_disks,
    "retention": retention,
}
TOPIC_CONFIGS_OF: Mapping[Plan, Mapping[str, str]] = {
    retention: {"retention.ms": "300", "segment.bytes": "16384"}
}
"""What a plan's topic is configured with, beyond what every topic is."""
