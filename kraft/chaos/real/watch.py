"""Who watches a run: the cluster's state again and again, connections that go around the relays, nodes that end by
themselves, and whether the run itself gets the time that it needs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from kraft.chaos.experiments.evidence import Reading, Starvation
from kraft.chaos.real.cluster import NO_NODE, ChaosCluster, Health

LOOK_EVERY_S: Final = 0.3
BYPASSES_EVERY: Final = 5
"""Looks; the kernel remembers a connection for a minute."""
TICK_S: Final = 0.02
LATE_S: Final = 0.1
"""A tick that comes later than this is time in which the run was starved."""
AILMENTS_SHOWN: Final = 3


class ClusterWatch(threading.Thread):
    """Looks at the cluster until it is stopped."""

    def __init__(self, cluster: ChaosCluster, now_s: Callable[[], float]) -> None:
        super().__init__(name="chaos-watch", daemon=True)
        self._cluster = cluster
        self._now_s = now_s
        self.stopping = threading.Event()
        self.readings: list[Reading] = []
        self.controllers: dict[int, int] = {}
        """By epoch, who was seen active."""
        self.bypasses: dict[str, None] = {}
        self.ended: dict[int, float] = {}
        """Nodes that had no process though nobody is known to have ended it, and when that was seen first."""
        self.may_be_down: Callable[[], Collection[int]] = tuple
        """Who is struck now."""
        self.memory_mb = 0
        """The most that one node's process had of the host's memory."""
        self.problem = ""
        """Why it looks no more, though it should."""

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.look()
                self.stopping.wait(LOOK_EVERY_S)
        except Exception as error:  # noqa: BLE001 - whatever ends it, the run is not watched any more
            self.problem = f"the watch of the cluster ended: {type(error).__name__}: {error}"

    def look(self) -> Health:
        """Looks once."""
        struck = set(self.may_be_down())
        health = self._cluster.health()
        now_s = self._now_s()
        ailments = health.ailments
        self.readings.append(
            Reading(
                now_s,
                len(ailments),
                health.leaderless,
                health.under_replicated,
                "; ".join(ailments[:AILMENTS_SHOWN]),
            )
        )
        if health.controller != NO_NODE:
            self.controllers.setdefault(health.controller_epoch, health.controller)
        for node in health.down:
            if node not in struck and node not in self.may_be_down():
                self.ended.setdefault(node, now_s)
        if len(self.readings) % BYPASSES_EVERY == 1:
            self.look_for_bypasses()
            pids = map(self._cluster.local.pid, self._cluster.node_ids)
            self.memory_mb = max([self.memory_mb, *(memory_mb(pid) for pid in pids if pid is not None)])
        return health

    def look_for_bypasses(self) -> None:
        """Notes connections that go around the relays."""
        self.bypasses.update(dict.fromkeys(self._cluster.bypasses()))


class StarvationWatch(threading.Thread):
    """Measures how late this process gets the CPU, and what of the machine is used."""

    def __init__(self) -> None:
        super().__init__(name="chaos-starvation", daemon=True)
        self.stopping = threading.Event()
        self._lag_s_max = 0.0
        self._starved_s = 0.0
        self._cpu_began = cpu_times()

    def run(self) -> None:
        before_s = time.monotonic()
        while not self.stopping.wait(TICK_S):
            now_s = time.monotonic()
            lag_s = now_s - before_s - TICK_S
            before_s = now_s
            self._lag_s_max = max(self._lag_s_max, lag_s)
            if lag_s > LATE_S:
                self._starved_s += lag_s

    def result(self) -> Starvation:
        busy, total = (now - began for now, began in zip(cpu_times(), self._cpu_began, strict=True))
        return Starvation(1000 * self._lag_s_max, self._starved_s, min(1.0, busy / total) if total else None)


def memory_mb(pid: int) -> int:
    """What a process has of the host's memory, the page cache aside; 0 if it is gone."""
    try:
        resident_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0
    return resident_pages * os.sysconf("SC_PAGE_SIZE") // 1_000_000


def cpu_times() -> tuple[float, float]:
    """Of all CPUs since the host started: busy and all, in seconds."""
    first = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    ticks = [int(one) for one in first]
    hertz = os.sysconf("SC_CLK_TCK")
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / hertz, sum(ticks) / hertz
