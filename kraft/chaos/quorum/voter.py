"""One simulated voter: a machine of `kraft.chaos.world`, whose processes are a driver, its lane and a controller.

The lane has its own pace: a step takes as long as its fsyncs, what it returns leaves only then (a crash in
between takes it along), and the controller hears of it later still. Owned by `quorum`, whose faults strike the machine.
"""

from __future__ import annotations

import base64
import traceback
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any, NoReturn, Protocol

from kraft.chaos.node_folders import DATA, format_if_empty
from kraft.chaos.quorum import counters
from kraft.chaos.quorum.controller import Controller, OnAnswer
from kraft.chaos.quorum.folders import Place, check_refuses_wrong_folder, open_driver
from kraft.chaos.quorum.judge import Violation
from kraft.chaos.quorum.machine import INNER, Application, WatchedMachine
from kraft.chaos.quorum.sessions import Sessions
from kraft.chaos.quorum.strangers import insult
from kraft.chaos.quorum.witness import Judged, Witness
from kraft.chaos.world.host import Host, Process
from kraft.chaos.world.scheduler import AnyHandle, LaneTimer
from partitions.log.errors import LogStorageError
from partitions.log.node_logs.meta_properties import read_meta_properties
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.raft.driver import RaftDriver
from quorum.raft.events import Propose, RaftEffect, RaftEvent, SendToPeer
from quorum.raft.storage import RaftStorageError

CONTROLLER_TICK_S = 0.1


class World(Place, Judged, Protocol):
    """What a voter needs of the world around it."""

    sessions: Sessions

    def may_end(self, process: Process) -> bool:
        """Whether a fault lets the process refuse to start, or halt."""

    def replace_rotten(self, voter: Voter) -> bool:
        """Gives the voter, which has ended, a new disk if a bit of its own has rotted; false if none has."""


class Voter:
    """See the module's text."""

    def __init__(self, world: World, node_id: int, host: Host) -> None:
        self.world = world
        self.node_id = node_id
        self.host = host
        self.rng = Random(f"{world.seed}/voter {node_id}")
        self.mishaps = Random(f"{world.seed}/mishaps {node_id}")
        self.directory_id = b""
        self._driver: RaftDriver | None = None
        self.controller: Controller | None = None
        self._process: Process | None = None
        self._schedule = world.scheduler.schedule
        self._leads = False
        self.applied = 1
        self.steps = 0
        self.pending: dict[int, bytes] = {}

    # -- life

    @property
    def driver(self) -> RaftDriver | None:
        """None while the voter does not run, or has not opened its folder."""
        return self._driver if self._process is self.host.process else None

    @property
    def is_up(self) -> bool:
        return self.driver is not None

    @property
    def active(self) -> bool:
        """Whether it believes itself to be the active controller."""
        return self._leads and self.is_up

    @active.setter
    def active(self, leads: bool) -> None:
        self._leads = leads

    @property
    def image(self) -> MetadataImage:
        """What this voter has applied; empty for bare bytes."""
        image = self._machine.image[2]
        return image if isinstance(image, MetadataImage) else EMPTY

    @property
    def log_end(self) -> int:
        """Index of the last entry in its log; 0 while it is down."""
        driver = self.driver
        return 0 if driver is None else driver._node.log_end()

    def start(self) -> None:
        """A new process, which opens the folder as soon as it runs."""
        self._process = process = self.host.boot()
        self._lane = process.incarnation.add_lane("raft", _raise)
        self._context = Context()
        self._machine = WatchedMachine(INNER[self.world.settings.workload]())
        self._inbox: list[RaftEvent] = []
        self._witness = Witness(self.world, self)
        self._busy = False
        self._told_s = self._posted_s = 0.0
        self._next_step: LaneTimer | None = None
        self._halted = ""
        self._is_insulted = False
        self._driver = self.controller = None
        self.active = False
        self.applied = 1
        self.pending.clear()
        self._at(0.0, self._begin, process)

    def _begin(self, process: Process) -> None:
        """Opens the folder. A process that refuses ends; one that was struck has ended."""
        world, before = self.world, self._journal_bytes()
        try:
            format_if_empty(process.disk, DATA, self.node_id, self.rng)
            driver = self._open(process)
        except (OSError, RaftStorageError) as error:
            if process is not self.host.process:
                world.happened(counters.RECOVERY_CUT_SHORT, f"voter {self.node_id}")
                return
            self.host.kill()
            if not world.may_end(process) and not world.replace_rotten(self):
                raise Violation("halted", f"voter {self.node_id} cannot start: {error}") from error
            world.happened(counters.REFUSED_START, f"voter {self.node_id}")
            return
        if self._journal_bytes() < before:
            world.happened(counters.TORN_TAIL, f"voter {self.node_id}")
        self._driver = driver
        node, journal = driver._node, driver._journal
        world.judge.restarted(self.node_id, node.term(), journal.getVotedForNodeId(), journal)
        if world.settings.workload == "topics":
            self.controller = Controller(
                process.stream("controller"),
                world.metadata,
                self._propose_later,
                lambda: int(self.world.scheduler.now * 1000),
                world.happened,
                f"voter {self.node_id}",
            )
            self._at(CONTROLLER_TICK_S, self._tick_controller)
        self._wake_in(0.0)

    def _open(self, process: Process) -> RaftDriver:
        disk, rng = process.disk, process.stream("raft")
        found = read_meta_properties(disk, DATA)
        assert found is not None, "it is there, or was written just now"
        self.directory_id = base64.urlsafe_b64decode(found.directory_id + "==")
        place = (self.world, self.node_id, self.directory_id, disk)
        return open_driver(*place, self._machine, self._halt, rng, process.now_ms)

    def meet_wrong_folder(self) -> None:
        """Somebody starts it on a disk that is not its own; that is no life. Raises Violation."""
        machine = WatchedMachine(INNER[self.world.settings.workload]())
        check_refuses_wrong_folder(self.world, self.node_id, self.directory_id, machine, self.mishaps)

    def be_insulted(self) -> None:
        """Before its next step a peer says something that it must not."""
        self._is_insulted = True

    def stop(self) -> None:
        """A controlled shutdown."""
        driver, process = self.driver, self._process
        try:
            if driver is not None:
                driver.close()
        except (OSError, LogStorageError):
            if process is self.host.process and not (process and self.world.may_end(process)):
                raise
        if self.host.alive:
            self.host.kill()

    def _journal_bytes(self) -> int:
        return sum(len(data) for path, data in self.host.storage.files().items() if path.endswith(".log"))

    def _halt(self, reason: str) -> None:
        self._halted = self._halted or reason

    # -- the lane

    def post(self, event: RaftEvent) -> None:
        """Puts an event into the lane's inbox; without effect on a voter that is down."""
        if self._driver is not None and self._process is self.host.process:
            self._inbox.append(event)
            if not self._busy and self._next_step is not None:
                self._wake_in(0.0)

    def _at(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """In this life only, and not while the process stands still."""
        self._at_instant(self.world.scheduler.now + delay_s, call, *arguments)

    def _at_instant(self, when_s: float, call: Callable[..., None], *arguments: Any) -> LaneTimer:
        """As `_at`; what is due at the same instant keeps its order, which rounded delays would not."""
        timer = LaneTimer(when_s, self._lane, call, arguments, self._context)
        self._schedule(when_s, timer)
        return timer

    def _wake_in(self, delay_s: float) -> None:
        when_s = self.world.scheduler.now + delay_s
        if self._next_step is not None:
            if self._next_step.when() <= when_s:
                return
            self._next_step.cancel()
        self._next_step = self._at_instant(when_s, self._step)

    def _step(self) -> None:
        self._next_step = None
        driver, process = self.driver, self._process
        assert driver is not None
        assert process is not None
        events, self._inbox = self._inbox, []
        self.steps += 1
        if self._is_insulted:
            self._is_insulted = False
            insult(driver, self.mishaps)
        refused = driver._transport.dropped_messages
        with process.disk.accounting() as account:
            effects = driver.step(events)
        self._watch(driver, refused)
        if self._has_ended(driver, process):
            return
        self._busy = True
        step_s = account.seconds + self._machine.take_step_seconds() + 0.000_05
        self._at(step_s, self._leave, effects, self._machine.take_applications())

    def _has_ended(self, driver: RaftDriver, process: Process) -> bool:
        """Whether this step was this life's last: struck, it may; of itself, it must not."""
        if process is not self.host.process:
            return True
        if not self._halted:
            return False
        process.halt(self._halted)
        name = f"voter {self.node_id}"
        if driver._quorum_state.void is not None and self.world.replace_rotten(self):
            self.world.happened(counters.FORGOTTEN, name)
        elif self.world.may_end(process):
            self.world.happened(counters.HALTED, name)
        else:
            raise Violation("halted", f"{name} halted: {self._halted}")
        return True

    def _watch(self, driver: RaftDriver, refused: int) -> None:
        """What the step did to the log; it is judged as it is on this voter, sent or not."""
        world = self.world
        if self._machine.gap:
            raise Violation("applied-prefix", f"voter {self.node_id}: {self._machine.gap}")
        too_much = self._machine.take_too_much(world.settings.apply_bytes)
        if too_much:
            raise Violation("short-steps", f"voter {self.node_id}: {too_much}")
        whole_step = self.is_up and not self._halted
        if world.judge.looked_at(self.node_id, driver._journal, whole_step=whole_step):
            world.happened(counters.CONFLICT, f"voter {self.node_id}")
        if driver._transport.dropped_messages > refused:
            world.happened(counters.STALE_DROPPED, times=driver._transport.dropped_messages - refused)
        if self._machine.snapshots_taken:
            world.happened(counters.SNAPSHOT, times=self._machine.snapshots_taken)
            self._machine.snapshots_taken = 0
        if self._machine.large_entries:
            world.happened(counters.LARGE_ENTRY, times=self._machine.large_entries)
            self._machine.large_entries = 0

    def _leave(self, effects: list[RaftEffect], applications: list[Application]) -> None:
        """The step's fsyncs are over: what it promised goes out."""
        driver = self.driver
        assert driver is not None, "its lane has ended"
        self._busy = False
        self._witness.see(effects, applications, driver)
        for effect in effects:
            if isinstance(effect, SendToPeer):
                self.world.sessions.send(self.node_id, effect)
        told = [effect for effect in effects if not isinstance(effect, SendToPeer)]
        if self.controller is not None and told:
            self._told_s = self._in_order(self._told_s, self._tell, self.controller, told)
        self._wake_in(0.0 if self._inbox else driver.tick_interval_s)

    def _tell(self, controller: Controller, effects: list[RaftEffect]) -> None:
        """As in production, a controller that cannot take in what the quorum did halts its node."""
        try:
            controller.take(effects)
        except (AssertionError, LookupError) as error:
            if isinstance(error, Violation):
                raise
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise Violation(
                "halted", f"the controller of voter {self.node_id} failed at {where.name}: {error!r}"
            ) from error

    def _in_order(self, last_s: float, call: Callable[..., None], *arguments: Any) -> float:
        """Calls after a queue's delay, not before what was queued earlier. Returns when."""
        now_s = self.world.scheduler.now
        when_s = max(last_s, now_s + self.rng.uniform(*self.world.settings.queue_s))
        self._at_instant(when_s, call, *arguments)
        return when_s

    # -- the controller

    def propose(self, request_id: int, data: bytes) -> None:
        """Hands a proposal to the lane now. Request ids are the caller's, and unique in this life."""
        self.world.judge.proposed(data)
        self.pending[request_id] = data
        self.post(Propose(request_id, data))

    def _propose_later(self, request_id: int, data: bytes) -> None:
        self._posted_s = self._in_order(self._posted_s, self.propose, request_id, data)

    def _tick_controller(self) -> None:
        if self.controller is not None:
            self.controller.tick()
            self._at(CONTROLLER_TICK_S, self._tick_controller)

    def ask(self, request: Any, answer: OnAnswer) -> None:
        """A request for the controller; nobody answers while the voter is down."""
        if self.is_up:
            self._at(0.0, self._asked, request, answer)

    def _asked(self, request: Any, answer: OnAnswer) -> None:
        if self.controller is not None:
            self.controller.request(request, answer)


def _raise(error: BaseException, handle: AnyHandle) -> NoReturn:
    """A lane whose step fails, or was judged, ends the run."""
    raise error
