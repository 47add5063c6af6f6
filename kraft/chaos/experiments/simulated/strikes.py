"""The faults of an experiment's method in the simulated world: each strikes its target for as long as the file says.

They are the simulator's own faults (`kraft.chaos.faults`) without their dice: `FaultContext` counts them, ends them
and excuses what they explain. Each notes when it began and ended, and what its own probe saw: of a cut, the packets
that it held back; of a full disk, the writes that it refused. A fault whose probe saw nothing took no effect.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kraft.chaos.experiments.document import Step
from kraft.chaos.experiments.evidence import FaultEvidence, PartitionName
from kraft.chaos.faults import FaultContext
from kraft.chaos.faults.context import Struck
from kraft.chaos.faults.disk import HALT_WITHIN_S, must_have_halted
from kraft.chaos.faults.network import GIVE_UP_S, Links, between
from kraft.chaos.faults.process import lose_power
from kraft.chaos.node_folders import JOURNAL
from kraft.chaos.world.disk_timing import DiskTiming
from kraft.chaos.world.network import Impairment, Latency
from kraft.chaos.world.paths import is_below

LOOK_EVERY_S: Final = 0.05
RAMP_STAGES: Final = 10
CHANGES: Final = frozenset(
    ("append", "write", "truncate", "reserve", "rename", "remove", "remove_tree", "make_dirs", "set_modified")
)
"""Operations on a disk that change it."""


@dataclass
class Strike:
    """One step of the method while it is carried out."""

    number: int
    planned: Step
    nodes: tuple[int, ...] = ()
    partitions: tuple[PartitionName, ...] = ()
    began_s: float | None = None
    ended_s: float | None = None
    took_effect: bool = False
    proof: str = ""
    healed: bool = False
    heal_proof: str = ""
    heal_probe: Callable[[], str] | None = None
    """What shows that it is over, in words; "" while it is not."""
    struck: Struck | None = None
    before: dict[int, object] = field(default_factory=dict)
    """By node: the process that ran when it struck."""

    def saw(self, proof: str) -> None:
        """Its probe saw that it takes effect."""
        self.took_effect, self.proof = True, proof

    def to_evidence(self) -> FaultEvidence:
        """As the verdict wants it."""
        return FaultEvidence(
            step=self.number,
            name=self.planned.fault,
            target=self.planned.target.text,
            nodes=self.nodes,
            partitions=self.partitions,
            began_s=self.began_s,
            ended_s=self.ended_s,
            took_effect=self.took_effect if self.began_s is not None else None,
            proof=self.proof,
            healed=self.healed,
            heal_proof=self.heal_proof,
        )


class Strikes:
    """Carries out strikes; their nodes are known."""

    def __init__(self, context: FaultContext, now_s: Callable[[], float], rng: random.Random) -> None:
        """`now_s`: seconds since the workload began; `rng` draws what no file says, such as which bit flips."""
        self._context = context
        self._now_s = now_s
        self._rng = rng

    def strike(self, strike: Strike) -> None:
        """Inflicts it now. It ends by itself."""
        strike.began_s = self._now_s()
        strike.before = {node: self._context.host(node).process for node in strike.nodes}
        nodes = ", ".join(map(str, strike.nodes))
        text = f"{strike.planned.target.text}: node {nodes}"
        strike.struck = self._context.happened(strike.planned.fault, text)
        STRIKES[strike.planned.fault](self, strike)

    def look(self, strike: Strike) -> None:
        """Asks its probe whether it is over, once it has ended."""
        if strike.ended_s is not None and not strike.healed and strike.heal_probe is not None:
            proof = strike.heal_probe()
            strike.healed, strike.heal_proof = bool(proof), proof or strike.heal_proof

    def _until_end(self, strike: Strike, end: Callable[[], None]) -> None:
        def over() -> None:
            end()
            strike.ended_s = self._now_s()

        self._context.until(strike.planned.for_s, over, strike.struck)

    # -- processes

    def kill(self, strike: Strike) -> None:
        self._down(strike, self._context.kill, "killed")

    def stop(self, strike: Strike) -> None:
        self._down(strike, self._context.cluster.stop_node, "stopped in order")

    def wipe(self, strike: Strike) -> None:
        def wipe(node: int) -> None:
            self._context.host(node).wipe()
            self._context.damaged(node, "wipe")

        self._down(strike, wipe, "wiped")

    def lose_power(self, strike: Strike) -> None:
        self._down(strike, lambda node: lose_power(self._context, node), "without power")

    def rot(self, strike: Strike) -> None:
        """The bit flips when the node is down."""
        self._down(strike, self._context.cluster.stop_node, "stopped in order", lambda: self._flip(strike))
        started = strike.heal_probe
        is_damaged = self._context.cluster.is_damaged

        def is_repaired() -> str:
            said = started() if started is not None else ""
            rotten = any(is_damaged(node, *name) for node in strike.nodes for name in strike.partitions)
            return f"{said}; its copy was replaced" if said and not rotten else ""

        strike.heal_probe = is_repaired

    def _flip(self, strike: Strike) -> None:
        context = self._context
        for node in strike.nodes:
            folders = {
                f"{directory}/{topic}-{number}"
                for topic, number in strike.partitions
                for directory in context.cluster.log_dirs_of(node)
            }
            where = context.host(node).storage.rot(
                self._rng,
                lambda path: path.endswith(".log") and path.rpartition("/")[0] in folders,  # noqa: B023
            )
            if where is None:
                strike.proof = f"node {node} has no byte on its disk that could rot"
                return
            context.rotted(node)
            strike.saw(f"a bit flipped at byte {where[1]} of {where[0]} on node {node}")

    def _down(
        self,
        strike: Strike,
        end_node: Callable[[int], object],
        how: str,
        when_down: Callable[[], None] | None = None,
    ) -> None:
        """Ends the nodes' processes; they start when the fault ends. It takes effect when they are gone."""
        context = self._context
        for node in strike.nodes:
            end_node(node)
        holds = [context.hold_down(node) for node in strike.nodes]
        self._when_gone(strike, how, when_down)

        def start() -> None:
            for let_go in holds:
                let_go()
            if when_down is not None:
                for node in strike.nodes:
                    context.cluster.excuse(node, may_halt=False)

        self._until_end(strike, start)
        strike.heal_probe = lambda: self._started_again(strike)

    def _when_gone(self, strike: Strike, how: str, then: Callable[[], None] | None) -> None:
        alive = [
            node
            for node in strike.nodes
            if self._context.host(node).process is strike.before[node] is not None
        ]
        if alive and strike.ended_s is None:
            self._context.simulation.call_later(LOOK_EVERY_S, self._when_gone, strike, how, then)
        elif not alive and then is not None:
            then()
        elif None in strike.before.values():
            strike.proof = "there was no process to end"
        elif not alive:
            nodes = ", ".join(map(str, strike.nodes))
            strike.saw(f"the process of node {nodes} is gone ({how})")

    def _started_again(self, strike: Strike) -> str:
        """Whether every node runs as another process, past its start."""
        for node in strike.nodes:
            process = self._context.host(node).process
            if (
                process is None
                or process is strike.before[node]
                or not self._context.cluster.has_started(node)
            ):
                return ""
        return f"node {', '.join(map(str, strike.nodes))} runs as a new process"

    def pause(self, strike: Strike) -> None:
        hosts = [self._context.host(node) for node in strike.nodes]
        for host in hosts:
            host.pause()
        if hosts and all(host.paused for host in hosts):
            strike.saw("the process is stopped (SIGSTOP)")

        def resume() -> None:
            for host in hosts:
                host.resume()

        self._until_end(strike, resume)
        strike.heal_probe = lambda: "" if any(host.paused for host in hosts) else "the process runs again"

    def roll(self, strike: Strike) -> None:
        """One node after the other: each when the cluster is whole again."""
        strike.heal_probe = lambda: self._started_again(strike)
        self._roll_next(strike, list(strike.nodes))

    def _roll_next(self, strike: Strike, left: list[int]) -> None:
        if not left:
            strike.saw(f"nodes {', '.join(map(str, strike.nodes))} were stopped and started in turn")
            strike.ended_s = self._now_s()
            return
        self._context.cluster.stop_node(left[0])
        self._roll_on(strike, left)

    def _roll_on(self, strike: Strike, left: list[int]) -> None:
        """Starts the node when it is down; goes on when the cluster is whole."""
        context, node = self._context, left[0]
        process = context.host(node).process
        if context.is_over:
            context.revive(node)
            return
        if process is None:
            context.revive(node)
        elif process is not strike.before[node] and not context.cluster.ailments(context.topics):
            self._roll_next(strike, left[1:])
            return
        context.simulation.call_later(LOOK_EVERY_S, self._roll_on, strike, left)

    # -- the network

    def _links(self, strike: Strike) -> Links:
        """From and to the targets, as `from`, `direction` and `split` say."""
        words = strike.planned.parameters
        cluster, everybody = self._context.cluster, list(self._context.simulation.hosts.values())
        mine = [self._context.host(node).address for node in strike.nodes]
        nodes = [host.address for host in cluster.hosts.values()]
        clients = [host.address for host in everybody if host.address not in nodes]
        others = {"nodes": nodes, "clients": clients}.get(str(words.get("from", "nodes")), nodes + clients)
        far = [address for address in others if address not in mine]
        inward, outward = between(far, mine), between(mine, far)
        if words.get("split") == "each":
            outward += [(a, b) for a in mine for b in mine if a != b]
        direction = words.get("direction", "both")
        return (inward if direction != "out" else []) + (outward if direction != "in" else [])

    def _pairs(self, strike: Strike) -> list[tuple[str, str]]:
        """Its links, both directions as one."""
        return list(dict.fromkeys((min(link), max(link)) for link in self._links(strike)))

    def cut(self, strike: Strike) -> None:
        network = self._context.simulation.network
        self._hold_back(strike, network.block, network.heal)

    def stall(self, strike: Strike) -> None:
        network = self._context.simulation.network
        self._hold_back(strike, network.clog, network.unclog)

    def _hold_back(
        self, strike: Strike, begin: Callable[[str, str], None], end: Callable[[str, str], None]
    ) -> None:
        network, links = self._context.simulation.network, self._links(strike)
        for link in links:
            begin(*link)

        def let_go() -> None:
            held = sum(len(network.link(*link).held) for link in links)
            if held:
                strike.saw(f"{len(links)} links were shut, and {held} packets were waiting at the end")
            else:
                strike.proof = f"{len(links)} links were shut, and nobody had sent anything over them"
            for link in links:
                end(*link)

        self._until_end(strike, let_go)
        strike.heal_probe = lambda: (
            "" if any(network.link(*one).blocked for one in links) else "all links are open"
        )

    def delay(self, strike: Strike) -> None:
        least = float(strike.planned.parameters["delay"])
        most = least + float(strike.planned.parameters.get("jitter", 0.0))
        self._impair(
            strike,
            lambda part: Impairment(latency=Latency(least * part, most * part)),
            lambda now: f"take {now.latency.min_s:g} to {now.latency.max_s:g} s",
        )

    def throttle(self, strike: Strike) -> None:
        rate = float(strike.planned.parameters["rate"])
        self._impair(
            strike,
            lambda part: Impairment(bytes_per_s=rate / part),
            lambda now: f"carry at most {now.bytes_per_s:g} bytes/s",
        )

    def _impair(
        self,
        strike: Strike,
        impairment_at: Callable[[float], Impairment],
        told: Callable[[Impairment], str],
    ) -> None:
        """`impairment_at`: the impairment at a part of its full size, above 0."""
        context, links, ramp_s = self._context, self._links(strike), strike.planned.ramp_s
        network = context.simulation.network
        now: list[Impairment] = []

        def change(to: Impairment | None) -> None:
            for link in links:
                for one in now:
                    network.relieve(*link, one)
                if to is not None:
                    network.impair(*link, to)
            now[:] = [] if to is None else [to]

        def grow(stage: int) -> None:
            if strike.ended_s is None and not context.is_over:
                change(impairment_at(stage / RAMP_STAGES))
                strike.saw(f"{len(links)} links {told(now[0])}")
                if stage < RAMP_STAGES:
                    context.simulation.call_later(ramp_s / RAMP_STAGES, grow, stage + 1)

        grow(1 if ramp_s else RAMP_STAGES)
        self._until_end(strike, lambda: change(None))
        strike.heal_probe = lambda: "" if now else "all links are as before"

    def reset(self, strike: Strike) -> None:
        network = self._context.simulation.network
        pairs = self._pairs(strike)
        broken = sum(network.reset(*pair) for pair in pairs)
        strike.proof = f"{broken} connections broke"
        strike.took_effect = broken > 0
        strike.ended_s = self._now_s()
        strike.heal_probe = lambda: self._connected(strike)

    def silence(self, strike: Strike) -> None:
        network = self._context.simulation.network
        pairs = self._pairs(strike)
        silent = sum(network.silence(*pair, GIVE_UP_S) for pair in pairs)
        strike.proof = f"{silent} connections went silent"
        strike.took_effect = silent > 0

        def end() -> None:
            for pair in pairs:
                network.end_silence(*pair)

        self._until_end(strike, end)
        strike.heal_probe = lambda: self._connected(strike)

    def _connected(self, strike: Strike) -> str:
        """Whether each target has connections with other machines again."""
        hosts = [self._context.host(node) for node in strike.nodes]
        has_peers = all(any(address != host.address for address in host.kernel.peers()) for host in hosts)
        return "there are new connections" if has_peers else ""

    # -- disks and clocks

    def fill(self, strike: Strike) -> None:
        """The data directory, the quorum's files in it, too: the node may end itself, and starts when there is room."""
        context = self._context
        storages = [(node, context.host(node).storage) for node in strike.nodes]
        refused = 0

        def on_refused(node: int, path: str) -> None:
            nonlocal refused
            refused += 1
            context.cluster.excuse(
                node, may_halt=is_below(path, JOURNAL) or not context.cluster.has_started(node)
            )
            strike.saw(f"{refused} writes were refused (ENOSPC), the last at {path}")

        for node, storage in storages:
            storage.free_bytes, storage.full_below = 0, context.cluster.log_dirs_of(node)[0]
            storage.on_refused = lambda path, node=node: on_refused(node, path)

        def make_room() -> None:
            for node, storage in storages:
                storage.free_bytes = storage.on_refused = None
                storage.full_below = "/"
                context.revive(node)

        self._until_end(strike, make_room)
        strike.heal_probe = lambda: (
            "" if any(s.free_bytes is not None for _, s in storages) else "there is room"
        )

    def fail(self, strike: Strike) -> None:
        """The data directory: its writes are refused, and what failed fsyncs should have made durable is not. A node
        ends itself; when the fault ends its machine gets a disk that works, with its synced data alone."""
        context = self._context
        failed: dict[int, int] = {}
        ends: list[Callable[[], None]] = []

        def ail(node: int, path: str) -> None:
            if node not in failed:
                ends.append(context.hold_down(node))
                judged = (context, node, context.host(node).process, path.rpartition("/")[0], path)
                context.simulation.call_later(HALT_WITHIN_S, must_have_halted, *judged)
            failed[node] = failed.get(node, 0) + 1
            context.cluster.excuse(node, may_halt=True)
            strike.saw(f"{sum(failed.values())} writes and fsyncs failed (EIO), the last at {path}")

        for node in strike.nodes:
            directory, storage = context.cluster.log_dirs_of(node)[0], context.host(node).storage

            def refuse(operation: str, path: str, node: int = node, directory: str = directory) -> None:
                if operation in CHANGES and is_below(path, directory):
                    ail(node, path)
                    raise OSError(errno.EIO, "injected", path)

            def fail_sync(path: str, node: int = node, directory: str = directory) -> int:
                if not is_below(path, directory):
                    return 0
                ail(node, path)
                return errno.EIO

            storage.add_hook(refuse)
            storage.sync_failure = fail_sync
            ends.append(partial(storage.remove_hook, refuse))

        def replace() -> None:
            for node in strike.nodes:
                context.host(node).storage.sync_failure = None
                if node in failed:
                    context.host(node).power_loss()
                    context.damaged(node, "disk error")
            for end in ends:
                end()

        self._until_end(strike, replace)
        strike.heal_probe = lambda: self._started_again(strike)

    def slow(self, strike: Strike) -> None:
        sync_s = float(strike.planned.parameters["sync"])
        timing = DiskTiming(sync_s=(sync_s, sync_s))
        storages = [self._context.host(node).storage for node in strike.nodes]
        syncs = 0

        def count(operation: str, path: str) -> None:
            nonlocal syncs
            if "sync" in operation:
                syncs += 1
                strike.saw(f"{syncs} fsyncs took {sync_s:g} s each")

        for storage in storages:
            storage.slow_down(timing)
            storage.add_hook(count)

        def speed_up() -> None:
            for storage in storages:
                storage.speed_up(timing)
                storage.remove_hook(count)

        self._until_end(strike, speed_up)
        strike.heal_probe = lambda: "the disk is as fast as before"

    def set_clock(self, strike: Strike) -> None:
        offset_ms = round(1000 * float(strike.planned.parameters["offset"]))
        clocks = [self._context.host(node).clock for node in strike.nodes]
        for clock in clocks:
            clock.offset_ms += offset_ms
        strike.saw(f"the wall clock is wrong by {offset_ms} ms")

        def set_right() -> None:
            for clock in clocks:
                clock.offset_ms -= offset_ms

        self._until_end(strike, set_right)
        strike.heal_probe = lambda: "the wall clock is right"


STRIKES: Final[Mapping[str, Callable[[Strikes, Strike], None]]] = {
    "kill": Strikes.kill,
    "stop": Strikes.stop,
    "pause": Strikes.pause,
    "rolling-restart": Strikes.roll,
    "wipe": Strikes.wipe,
    "power-loss": Strikes.lose_power,
    "cut-off": Strikes.cut,
    "latency": Strikes.delay,
    "bandwidth": Strikes.throttle,
    "stall": Strikes.stall,
    "reset": Strikes.reset,
    "half-open": Strikes.silence,
    "disk-full": Strikes.fill,
    "slow-disk": Strikes.slow,
    "failing-disk": Strikes.fail,
    "bit-rot": Strikes.rot,
    "clock-offset": Strikes.set_clock,
}
"""By the words of the vocabulary that have the simulator as a backend; a test keeps the two equal."""
