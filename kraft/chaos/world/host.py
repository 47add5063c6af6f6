"""A simulated machine: its kernel, its disk, its clock, and at most one running process.

`start` boots a process, `kill` is kill -9, `power_loss` takes the page cache and the kernel with it,
`pause` and `resume` are SIGSTOP and SIGCONT. No code of a process runs because it is killed: its tasks
go to the graveyard of the run as they are.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from kraft.chaos.world.determinism import EPOCH_S
from kraft.chaos.world.disk import SimulatedDisk
from kraft.chaos.world.executor import SimulatedExecutor
from kraft.chaos.world.incarnation import Incarnation
from kraft.chaos.world.kernel import Kernel
from kraft.chaos.world.loop import SimLoop
from kraft.chaos.world.network import Network
from kraft.chaos.world.scheduler import Scheduler
from kraft.chaos.world.storage import Storage
from kraft.chaos.world.tasks import SimTask
from kraft.chaos.world.trace import Trace

SHUTDOWN_TIMEOUT_S = 10.0


class Run(Protocol):
    """What a host needs of the run that it is in (`kraft.chaos.world.simulation`)."""

    trace: Trace
    scheduler: Scheduler
    network: Network

    def stream(self, name: str) -> random.Random: ...

    def report(self, process: str, message: str, error: BaseException | None) -> None: ...

    def bury(self, process: Process, tasks: Iterable[object], handles: Iterable[object]) -> None: ...


@dataclass(frozen=True)
class Process:
    """What the world gives one process incarnation."""

    host: Host
    incarnation: Incarnation
    loop: SimLoop
    disk: SimulatedDisk
    executor: SimulatedExecutor
    rng: random.Random

    def now_ms(self) -> int:
        """Wall-clock time of this host."""
        return self.host.clock.now_ms()

    def halt(self, reason: str) -> None:
        """The process ends itself at once, without cleaning up. Returns; the caller runs to its next await."""
        if self.incarnation.alive:
            self.host.halts[self.incarnation.name] = reason
            self.host.note("halt", self.incarnation.name)
            self.host.kill()

    def stream(self, name: str) -> random.Random:
        """A random stream for one purpose, so that purposes do not disturb each other's draws."""
        return self.host.simulation.stream(f"{self.incarnation.name}/{name}")


Main = Callable[[Process], Coroutine[Any, Any, None]]
"""The program of a process. When it returns or raises, its other tasks are cancelled and the process exits."""


class Clock:
    """A host's wall clock: virtual time plus an offset, which may be changed at any time, plus a drift."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.offset_ms = 0
        self._drift = 0.0
        self._drifts_since_s = 0.0
        self._gained_s = 0.0

    @property
    def drift(self) -> float:
        """By how many seconds it gains on true time in a second; negative when it loses."""
        return self._drift

    def set_drift(self, drift: float) -> None:
        """From now on; what it has gained so far stays. Less than -1 would be a clock that runs backwards."""
        self._gained_s = self._gain_s()
        self._drift = drift
        self._drifts_since_s = self._scheduler.now

    def set_right(self) -> None:
        """It shows true time from now on, and keeps it."""
        self.offset_ms = 0
        self.set_drift(0.0)
        self._gained_s = 0.0

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as this host believes."""
        return int((EPOCH_S + self._scheduler.now + self._gain_s()) * 1000) + self.offset_ms

    def _gain_s(self) -> float:
        return self._gained_s + (self._scheduler.now - self._drifts_since_s) * self._drift


class Host:
    """A machine with one address. It keeps its disk for the whole run."""

    def __init__(self, simulation: Run, address: str, name: str) -> None:
        self.simulation = simulation
        self.address = address
        self.name = name
        self.clock = Clock(simulation.scheduler)
        self.kernel = Kernel(simulation.network, address)
        self.storage = Storage(simulation.stream(f"{address}/storage"), now_ms=self.clock.now_ms)
        if simulation.trace.enabled:
            self.storage.on_changed = simulation.trace.written
        self.process: Process | None = None
        self.halts: dict[str, str] = {}
        """Why processes ended themselves, by incarnation."""
        self._lives = 0
        self._main: Main | None = None

    @property
    def alive(self) -> bool:
        """True while a process exists, paused or not."""
        return self.process is not None

    @property
    def paused(self) -> bool:
        return self.process is not None and self.process.incarnation.paused

    def start(self, main: Main) -> Process:
        """Boots the host if it had no power, and starts a process that runs `main`."""
        self._main = main
        process = self.boot()
        process.loop.call_soon(self._run_main, process, main, context=contextvars.Context())
        return process

    def boot(self) -> Process:
        """As `start`, with a process that does what the world makes its lanes do."""
        assert self.process is None, f"{self.name} already runs a process"
        self._lives += 1
        self.kernel.power_restored()
        scheduler = self.simulation.scheduler
        incarnation = Incarnation(scheduler, self.address, self._lives)
        loop = SimLoop(incarnation, self.kernel, self.simulation.report)  # type: ignore[abstract]  # see there
        stream = self.simulation.stream
        disk = SimulatedDisk(self.storage, incarnation, stream(f"{incarnation.name}/sync").uniform)
        disk.on_blocked = loop.lane.stall
        executor = SimulatedExecutor(incarnation, loop, disk, stream(f"{incarnation.name}/executor"))
        loop.executor = executor
        rng = stream(f"{incarnation.name}/process")
        self.process = process = Process(self, incarnation, loop, disk, executor, rng)
        self.note("start", incarnation.name)
        return process

    def restart(self) -> Process:
        """Starts the program that ran last."""
        assert self._main is not None, f"{self.name} never ran anything"
        return self.start(self._main)

    def kill(self) -> None:
        """kill -9: memory is gone, the disk keeps what was written, peers get resets."""
        self._end("kill")
        self.kernel.process_killed()

    def power_loss(self) -> None:
        """The machine is off: unsynced writes may be lost, peers hear nothing. `start` boots it again."""
        if self.process is not None:
            self._end("power loss")
        self.kernel.power_lost()
        self.storage.lose_power()

    def wipe(self, spares: Callable[[str], bool] = lambda path: False) -> None:
        """The machine loses its power and comes back with a disk that is empty but for the files that were spared."""
        self.power_loss()
        self.note("wipe")
        self.storage.wipe(spares)

    def pause(self, duration_s: float | None = None) -> None:
        """SIGSTOP, and SIGCONT after `duration_s` if given. The kernel goes on accepting and receiving."""
        process = self.process
        if process is None:
            return
        self.note("pause", process.incarnation.name)
        process.incarnation.pause()
        if duration_s is not None:
            self.simulation.scheduler.call_kernel(duration_s, self._resume, process)

    def resume(self) -> None:
        """SIGCONT: timers that passed are due at once."""
        if self.process is not None:
            self._resume(self.process)

    def note(self, *words: object) -> None:
        """Writes into the trace of the run."""
        scheduler = self.simulation.scheduler
        scheduler.trace.note(scheduler.now, self.name, *words)

    def _resume(self, process: Process) -> None:
        if process.incarnation.paused:
            self.note("resume", process.incarnation.name)
            process.incarnation.resume()

    def _end(self, how: str) -> None:
        process = self.process
        assert process is not None, f"{self.name} runs no process"
        self.note(how, process.incarnation.name)
        self.process = None
        self.simulation.bury(process, asyncio.all_tasks(process.loop), process.incarnation.end())

    def _run_main(self, process: Process, main: Main) -> None:
        task = process.loop.create_task(_run_and_clean_up(process, main), name="main")
        task.add_done_callback(lambda done: self._exited(process, done))

    def _exited(self, process: Process, done: asyncio.Task[Any]) -> None:
        if not process.incarnation.alive:
            return
        if not done.cancelled() and (error := done.exception()) is not None:
            self.simulation.report(process.incarnation.name, "the program failed", error)
        self.note("exit", process.incarnation.name)
        self.kill()


async def _run_and_clean_up(process: Process, main: Main) -> None:
    """As `asyncio.run`: the tasks that a program leaves behind are cancelled and awaited."""
    try:
        await main(process)
    finally:
        me = asyncio.current_task()
        others = [
            task for task in asyncio.all_tasks(process.loop) if task is not me and isinstance(task, SimTask)
        ]
        others.sort(key=lambda task: task.serial)
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=SHUTDOWN_TIMEOUT_S)
