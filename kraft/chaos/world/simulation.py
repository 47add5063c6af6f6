"""A simulated world: hosts, network and time, all decided by one seed.

    with Simulation(seed=7) as simulation:
        host = simulation.add_host("broker-1")
        host.start(program)
        simulation.run_for(10.0)
        print(simulation.digest())

Inside the `with` block the Python process is deterministic and its real clocks are hidden; while
`run_until` runs, the real world is out of reach. Two runs of one seed have equal digests, in the same
process or in another, whatever PYTHONHASHSEED is.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
from collections.abc import Callable, Iterable
from typing import IO, Any, NamedTuple

from kraft.chaos.world.determinism import Determinism
from kraft.chaos.world.host import Host, Process
from kraft.chaos.world.network import LAN_LATENCY, Latency, Network
from kraft.chaos.world.scheduler import STEP_COST_S, KernelEvent, Scheduler
from kraft.chaos.world.trace import Trace

HOSTS_MAX = 250

_morgue: list[object] = []
"""Remains of closed runs. Freeing a suspended coroutine runs its `finally` blocks, outside of any
simulation, so what was killed is kept, even while the interpreter shuts down: hence the reference that
nobody gives back. Runs of many seeds fork for each."""
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_morgue))


class UnhandledError(NamedTuple):
    """Something that nobody in a process handled."""

    process: str
    message: str
    error: BaseException | None


class Simulation:
    """One run. Not reusable."""

    def __init__(
        self,
        seed: int,
        *,
        trace: bool = True,
        timeline: IO[str] | None = None,
        latency: Latency = LAN_LATENCY,
        step_cost_s: float = STEP_COST_S,
    ) -> None:
        """`timeline`: an open text file for the whole story; without `trace` there is no digest."""
        self.seed = seed
        self.trace = Trace(enabled=trace, timeline=timeline)
        self.scheduler = Scheduler(self.trace, step_cost_s=step_cost_s)
        self.network = Network(self.scheduler, self.stream("network"), latency=latency)
        self.hosts: dict[str, Host] = {}
        self.errors: list[UnhandledError] = []
        self._determinism = Determinism(seed, lambda: self.scheduler.now, self.scheduler.fail)
        self._stack = contextlib.ExitStack()
        self._graveyard: list[object] = []

    def __enter__(self) -> Simulation:
        self._stack.enter_context(self._determinism.installed())
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            if host.alive:
                host.kill()
        self._stack.close()
        _morgue.append((self._graveyard, self.scheduler, self.hosts))

    # -- the world

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.scheduler.now

    def stream(self, name: str) -> random.Random:
        """A random stream of this seed for one purpose."""
        return random.Random(f"{self.seed}/{name}")

    def add_host(self, name: str | None = None) -> Host:
        """A further machine, at the next address 10.0.0.N, resolvable as `name` (default host-N)."""
        number = len(self.hosts) + 1
        if number > HOSTS_MAX:
            raise ValueError(f"a simulation has at most {HOSTS_MAX} hosts")
        address = f"10.0.0.{number}"
        name = name or f"host-{number}"
        if name in self.hosts:
            raise ValueError(f"there is already a host named {name}")
        self.network.names[name] = address
        self.hosts[name] = host = Host(self, address, name)
        return host

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> KernelEvent:
        """The world itself does something (a fault, a check) in `delay_s` virtual seconds."""
        return self.scheduler.call_kernel(delay_s, callback, *args)

    # -- running

    def run_until(self, until_s: float) -> None:
        """Runs to a virtual instant. Raises SimulationFailed if a guard was hit."""
        with self._determinism.guarding():
            self.scheduler.run(until_s)

    def run_for(self, duration_s: float) -> None:
        """Runs for some virtual seconds."""
        self.run_until(self.now + duration_s)

    def run_until_true(self, condition: Callable[[], bool], within_s: float, every_s: float = 0.01) -> bool:
        """Runs until `condition()` holds, looking every `every_s`; false if it does not within `within_s`."""
        deadline_s = self.now + within_s
        while not condition():
            if self.now >= deadline_s:
                return False
            self.run_until(min(self.now + every_s, deadline_s))
        return True

    def digest(self) -> str:
        """The hash of everything that happened so far."""
        return self.trace.digest()

    # -- what processes leave

    def report(self, process: str, message: str, error: BaseException | None) -> None:
        """Collects an error that nobody handled."""
        self.note("error", process, type(error).__name__)
        self.errors.append(UnhandledError(process, message, error))

    def bury(self, process: Process, tasks: Iterable[object], handles: Iterable[object]) -> None:
        """Keeps a killed process as it was, so that nothing of it is ever finalized."""
        self._graveyard.append((process, list(tasks), list(handles)))

    def note(self, *words: object) -> None:
        """Writes into the trace."""
        self.trace.note(self.now, *words)
