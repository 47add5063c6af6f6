"""One life of a node's process: what ends at once, and for good, when it is killed.

Everything that acts for a process (its event loop, Raft lane, executor, view of the disk, open
connections) asks its incarnation whether it is still alive. A killed process is not cancelled: its
tasks stay suspended for ever in the graveyard, so that no `finally` block and no destructor of it
runs. Code that kills its own process runs on to its next await, against a fenced disk and network.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from kraft.chaos.world.scheduler import AnyHandle, Lane, Scheduler


class IncarnationGoneError(OSError):
    """An operation by a process that was killed. Nobody sees it but code on its way to its next await."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.EIO, f"the process {name} was killed")


def process_of(lane: str) -> str:
    """The incarnation that a lane belongs to: "10.0.0.1#2" of "10.0.0.1#2.raft"."""
    address, _, life = lane.partition("#")
    return f"{address}#{life.partition('.')[0]}"


class Incarnation:
    """The process number `number` on a host; `name` is unique in a run and the same in every replay."""

    def __init__(self, scheduler: Scheduler, address: str, number: int) -> None:
        self.scheduler = scheduler
        self.address = address
        self.number = number
        self.name = f"{address}#{number}"
        self.alive = True
        self.paused = False
        self.lanes: list[Lane] = []

    def add_lane(self, name: str, on_error: Callable[[BaseException, AnyHandle], None]) -> Lane:
        """A further thread of control; paused and killed together with the others."""
        lane = Lane(self.scheduler, f"{self.name}.{name}" if name else self.name, on_error)
        if not self.alive:
            lane.end()
        elif self.paused:
            lane.hold()
        self.lanes.append(lane)
        return lane

    def check_alive(self) -> None:
        """Raises IncarnationGoneError once the process was killed."""
        if not self.alive:
            raise IncarnationGoneError(self.name)

    def pause(self) -> None:
        """As SIGSTOP does. Without effect on a paused process."""
        if self.alive and not self.paused:
            self.paused = True
            for lane in self.lanes:
                lane.hold()

    def resume(self) -> None:
        """As SIGCONT does. Without effect on a running process."""
        if self.alive and self.paused:
            self.paused = False
            for lane in self.lanes:
                lane.release()

    def end(self) -> list[AnyHandle]:
        """The process is gone. Returns the callbacks that waited, to be kept in the graveyard."""
        self.alive = False
        return [handle for lane in self.lanes for handle in lane.end()]
