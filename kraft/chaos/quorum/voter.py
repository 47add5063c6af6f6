"""One simulated voter: a disk that lives on, and lives that end: driver, lane and controller.

The lane has its own pace: a step takes as long as its fsyncs, what it returns leaves only then (a crash in
between takes it along), and the controller hears of it later still. Owned by `quorum`, struck by `faults`.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from kraft.chaos.quorum import counters
from kraft.chaos.quorum.controller import Controller, OnAnswer
from kraft.chaos.quorum.folders import DATA, Place, check_refuses_wrong_folder, format_folder, open_driver
from kraft.chaos.quorum.judge import Violation
from kraft.chaos.quorum.links import Links
from kraft.chaos.quorum.machine import INNER, Application, WatchedMachine
from kraft.chaos.quorum.strangers import insult
from kraft.chaos.quorum.witness import Judged, Witness
from kraft.chaos.world.disk import SimulatedDisk
from kraft.chaos.world.disk_timing import DiskTiming
from kraft.chaos.world.incarnation import Incarnation
from kraft.chaos.world.operations import TornOperation
from kraft.chaos.world.scheduler import KernelEvent
from kraft.chaos.world.storage import Storage
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.raft.config import DIRECTORY_ID_BYTES
from quorum.raft.driver import RaftDriver
from quorum.raft.events import (
    Propose,
    RaftEffect,
    RaftEvent,
    SendToPeer,
)
from quorum.raft.storage import RaftStorageError

SLOW_S = (0.1, 0.9)
CONTROLLER_TICK_S = 0.1


class World(Place, Judged, Protocol):
    """What a voter needs of the world around it."""

    links: Links

    def died(self, voter: Voter) -> None:
        """The voter's process has ended by itself; somebody starts it again."""

    def may_have_forgotten(self, voter: Voter) -> bool:
        """Whether a bit of its journal has rotted, perhaps where nobody can tell it from a torn tail."""


@dataclass
class Injury:
    """A fault of the disk that this life meets on its way: it dies of it."""

    operations_left: int | None = None
    torn: float = 0.0
    syncs_left: int | None = None
    struck: str = field(default="")


class Voter:
    """See the module's text."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.rng = Random(f"{world.seed}/voter {node_id}")
        self._mishaps = Random(f"{world.seed}/mishaps {node_id}")
        timing = DiskTiming(hiccup_odds=world.settings.faults.slow_fsync, hiccup_s=SLOW_S)
        self.storage = Storage(Random(f"{world.seed}/disk {node_id}"), timing=timing)
        self.storage.before_operation = self._before_operation
        self.storage.sync_failure = self._sync_failure
        self.directory_id = b""
        self.incarnation = 0
        self.driver: RaftDriver | None = None
        self.controller: Controller | None = None
        self.active = False
        self.applied = 1
        self.steps = 0
        self.injury = Injury()
        self.has_forgotten = False
        """Whether a leader has found that this disk lacks what was acknowledged with it."""
        self.paused_until_s = 0.0
        self.pending: dict[int, bytes] = {}
        self.format()

    # -- life

    @property
    def is_up(self) -> bool:
        return self.driver is not None

    @property
    def image(self) -> MetadataImage:
        """What this voter has applied; empty for bare bytes."""
        image = self._machine.image[2]
        return image if isinstance(image, MetadataImage) else EMPTY

    @property
    def log_end(self) -> int:
        """Index of the last entry in its log; 0 while it is down."""
        return 0 if self.driver is None else self.driver._node.log_end()

    def format(self) -> None:
        """An empty, formatted disk, as an operator prepares it for a new voter."""
        self.has_forgotten = False
        self.storage.wipe()
        self.directory_id = self.rng.randbytes(DIRECTORY_ID_BYTES)
        self.storage.make_dirs(DATA)
        life = Incarnation(self.world.scheduler, f"format-{self.node_id}", self.incarnation)
        injury, self.injury = self.injury, Injury()
        format_folder(self._disk(life), self.node_id, self.directory_id)
        self.storage.sync_everything()
        self.injury = injury

    def _disk(self, life: Incarnation) -> SimulatedDisk:
        return SimulatedDisk(self.storage, life, self.rng.uniform)

    def start(self) -> None:
        """A new life. Raises RaftStorageError if it refuses to begin; with an injury it may end at once."""
        world, self.incarnation = self.world, self.incarnation + 1
        self._life = Incarnation(world.scheduler, f"voter-{self.node_id}", self.incarnation)
        self._journal_disk = self._disk(self._life)
        self._machine = WatchedMachine(INNER[world.settings.workload]())
        self._inbox: list[RaftEvent] = []
        self._witness = Witness(self.world, self)
        self._busy = False
        self._due_s = self._told_s = self._posted_s = 0.0
        self._halted = ""
        self._insulted = False
        self.paused_until_s = 0.0
        self.active = False
        self.applied = 1
        before = self._journal_bytes()
        try:
            driver = self._open()
        except (OSError, RaftStorageError):
            if not self.injury.struck:
                raise
            world.happened(counters.RECOVERY_CUT_SHORT, f"voter {self.node_id}")
            world.died(self)
            return
        if self._journal_bytes() < before:
            world.happened(counters.TORN_TAIL, f"voter {self.node_id}")
        self.driver = driver
        node, journal = driver._node, driver._journal
        world.judge.restarted(self.node_id, node.term(), journal.getVotedForNodeId(), journal)
        self.controller = None
        if world.settings.workload == "topics":
            self.controller = Controller(
                Random(f"{world.seed}/controller {self.node_id}.{self.incarnation}"),
                world.metadata,
                self._propose_later,
                lambda: int(world.scheduler.now * 1000),
                world.happened,
                f"voter {self.node_id}",
            )
            self._at(CONTROLLER_TICK_S, self._tick_controller)
        self._wake_in(0.0)

    def _open(self) -> RaftDriver:
        rng = Random(f"{self.world.seed}/raft {self.node_id}.{self.incarnation}")
        return open_driver(
            self.world, self.node_id, self.directory_id, self._journal_disk, self._machine, self._halt, rng
        )

    def meet_wrong_folder(self) -> None:
        """Before its next life somebody may start it on a disk that is not its own; that is no life."""
        world, rng = self.world, self._mishaps
        if rng.random() < world.settings.faults.wrong_folder:
            machine = WatchedMachine(INNER[world.settings.workload]())
            check_refuses_wrong_folder(world, self.node_id, self.directory_id, machine, rng)
            world.happened(counters.WRONG_FOLDER, f"voter {self.node_id}, which refused")

    def be_insulted(self) -> None:
        """Before its next step a peer says something that it must not."""
        self._insulted = True

    def _journal_bytes(self) -> int:
        return sum(len(data) for path, data in self.storage.files().items() if path.endswith(".log"))

    def end(self, *, power_loss: bool) -> None:
        """The process is gone, and with `power_loss` what no fsync had covered."""
        self._life.end()
        self.driver = self.controller = None
        self.active = False
        self.injury = Injury()
        self.pending.clear()
        if power_loss:
            self.storage.lose_power()

    def pause(self, duration_s: float) -> None:
        """The process stands still, at least for so long. Never for less than it was to: what waits for the end
        of the pause would come after what happens before."""
        self.paused_until_s = max(self.paused_until_s, self.world.scheduler.now + duration_s)

    def calm_down(self) -> None:
        """Nothing that was about to strike this voter does; a pause has its time."""
        if not self.injury.struck:
            self.injury = Injury()
        self.storage.timing = DiskTiming()

    def _halt(self, reason: str) -> None:
        self._halted = self._halted or reason

    # -- faults of the disk

    def _before_operation(self, kind: str, path: str) -> None:
        injury = self.injury
        if injury.operations_left is None or kind in ("read", "exists", "list", "lock"):
            return
        injury.operations_left -= 1
        if injury.operations_left < 0:
            injury.struck = counters.CUT_SHORT
            if injury.torn and kind in ("append", "write"):
                self.world.happened(counters.TORN_WRITE, f"voter {self.node_id}")
                raise TornOperation(injury.torn, self._end_life)
            self._end_life()

    def _end_life(self) -> None:
        self._life.end()

    def _sync_failure(self, path: str) -> int:
        injury = self.injury
        if injury.syncs_left is None or injury.struck:
            return 0
        injury.syncs_left -= 1
        if injury.syncs_left >= 0:
            return 0
        injury.struck = counters.FSYNC_ERROR
        return errno.EIO

    # -- the lane

    def post(self, event: RaftEvent) -> None:
        """Puts an event into the lane's inbox; without effect on a voter that is down."""
        if self.driver is not None:
            self._inbox.append(event)
            if not self._busy:
                self._wake_in(0.0)

    def _at(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """In this life only, and not while the process stands still."""
        self._at_instant(self.world.scheduler.now + delay_s, call, *arguments)

    def _at_instant(self, when_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """As `_at`; what is due at the same instant keeps its order, which rounded delays would not."""
        event = KernelEvent(self._if_alive, (self.incarnation, call, arguments))
        self.world.scheduler.schedule(when_s, event)

    def _if_alive(self, incarnation: int, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self.driver is None or incarnation != self.incarnation:
            return
        if self.paused_until_s > self.world.scheduler.now:
            self._at_instant(self.paused_until_s, call, *arguments)
        else:
            call(*arguments)

    def _wake_in(self, delay_s: float) -> None:
        self._due_s = self.world.scheduler.now + delay_s
        self._at(delay_s, self._step, self._due_s)

    def _step(self, due_s: float) -> None:
        driver = self.driver
        if self._busy or due_s != self._due_s or driver is None:
            return
        events, self._inbox = self._inbox, []
        self.steps += 1
        if self._insulted:
            self._insulted = False
            self.world.happened(counters.INSULTED, times=insult(driver, self._mishaps))
        refused = driver._transport.dropped_messages
        with self._journal_disk.accounting() as account:
            effects = driver.step(events)
        self._watch(driver, refused)
        if self._has_ended():
            return
        if account.seconds >= SLOW_S[0]:
            self.world.happened(counters.SLOW_FSYNC)
        self._busy = True
        step_s = account.seconds + self._machine.take_step_seconds() + 0.000_05
        self._at(step_s, self._leave, effects, self._machine.take_applications())

    def _has_ended(self) -> bool:
        """Whether this step was this life's last: injured, it may; of itself, it must not."""
        if not self.injury.struck and not self._halted:
            return False
        if self.injury.struck == counters.FSYNC_ERROR and not self._halted:
            raise Violation("not-halted", f"voter {self.node_id} goes on after an fsync that failed")
        if not self.injury.struck:
            assert self.driver is not None
            self.has_forgotten = self.driver._quorum_state.void is not None
            if not self.has_forgotten or not self.world.may_have_forgotten(self):
                raise Violation("halted", f"voter {self.node_id} halted: {self._halted}")
        self.world.happened(self.injury.struck or counters.FORGOTTEN, f"voter {self.node_id}")
        self.world.died(self)
        return True

    def _watch(self, driver: RaftDriver, refused: int) -> None:
        """What the step did to the log; it is judged as it is on this voter, sent or not."""
        world = self.world
        if self._machine.gap:
            raise Violation("applied-prefix", f"voter {self.node_id}: {self._machine.gap}")
        too_much = self._machine.take_too_much(world.settings.apply_bytes)
        if too_much:
            raise Violation("short-steps", f"voter {self.node_id}: {too_much}")
        whole_step = not self.injury.struck
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
        assert driver is not None
        self._busy = False
        self._witness.see(effects, applications, driver)
        for effect in effects:
            if isinstance(effect, SendToPeer):
                self.world.links.send(self.node_id, effect)
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
        self._at(0.0, self._asked, request, answer)

    def _asked(self, request: Any, answer: OnAnswer) -> None:
        if self.controller is not None:
            self.controller.request(request, answer)
