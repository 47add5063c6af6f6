"""Faults of the machine below the nodes: a disk without room, a CPU that others use."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from kraft.chaos.real.cluster import end_group
from kraft.chaos.real.faults.fault import Aim, Proof, all_of, until
from kraft.chaos.real.faults.processes import serves_again
from kraft.chaos.real.watch import cpu_times
from kraft.local_cluster.node_process import process_stat

FILLING: Final = "chaos-filling"
"""The file that takes all the room of a disk."""
FILLING_CHUNK: Final = b"\0" * (1 << 20)
CPU_SHARE_MIN: Final = 0.5
"""The part of the wanted CPU time that burners must have got, unless the machine had none left to give."""
BUSY_MIN: Final = 0.95
BURNER: Final = """
import sys, time
share, period_s = float(sys.argv[1]), 0.05
while True:
    end_s = time.monotonic() + period_s * share
    while time.monotonic() < end_s:
        pass
    time.sleep(period_s * (1 - share))
"""


class DiskFull:
    """A file takes all the room of the node's disk, which is a file system of its own (tmpfs)."""

    def __init__(self, aim: Aim) -> None:
        self.aim = aim

    def begin(self) -> None:
        for node in self.aim.nodes:
            self._fill(node)

    def _fill(self, node: int) -> None:
        chunk = FILLING_CHUNK
        with self._file(node).open("ab", buffering=0) as file:
            while chunk:
                try:
                    file.write(chunk)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    chunk = chunk[: len(chunk) // 2]

    def _file(self, node: int) -> Path:
        return self.aim.cluster.data_dir(node) / FILLING

    def grow(self, share: float) -> None:
        """A disk is full or not."""

    def proof(self) -> Proof:
        return all_of([self._proof_of(node) for node in self.aim.nodes])

    def _proof_of(self, node: int) -> Proof:
        self._fill(node)  # a node may have dropped files meanwhile
        free = _free_bytes(self.aim.cluster.data_dir(node))
        return Proof(free == 0, f"the disk of node {node} has {free} bytes free")

    def end(self) -> None:
        local = self.aim.cluster.local
        for node in self.aim.nodes:
            self._file(node).unlink(missing_ok=True)
            if local.pid(node) is None:  # it ended by itself: what it could not write was its metadata
                local.spawn(node)

    def heal_proof(self) -> Proof:
        proofs = []
        for node in self.aim.nodes:
            free = _free_bytes(self.aim.cluster.data_dir(node))
            proofs += [Proof(free > 0, f"the disk of node {node} has {free} bytes free")]
            proofs += [serves_again(self.aim, node)]
        return all_of(proofs)


def _free_bytes(folder: Path) -> int:
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


class CpuPressure:
    """Processes that compute for nothing, one a core, each for `share` of the time."""

    def __init__(self, aim: Aim) -> None:
        self.aim = aim
        self._burners: list[subprocess.Popen[bytes]] = []
        self._began_s = 0.0
        self._before = 0.0, 0.0
        self._share = aim.number("share", 1.0)

    def begin(self) -> None:
        self._began_s = time.monotonic()
        self._before = cpu_times()
        for number in range(os.cpu_count() or 1):
            command = [sys.executable, "-c", BURNER, str(min(self._share, 1.0))]
            self._burners.append(start_helper(self.aim.helpers, f"burner-{id(self):x}-{number}", command))

    def grow(self, share: float) -> None:
        """A file that needs it names two faults."""

    def proof(self) -> Proof:
        """By the CPU time that the burners have had, of what they were to have; less will do on a machine that was busy
        all the time with them."""
        elapsed_s = time.monotonic() - self._began_s
        stats = [process_stat(burner.pid) for burner in self._burners]
        used_s = sum(stat.cpu_s for stat in stats if stat is not None)
        wanted_s = elapsed_s * self._share * len(self._burners)
        busy_s, all_s = (now - before for now, before in zip(cpu_times(), self._before, strict=True))
        text = f"{len(self._burners)} processes had {used_s:.1f} s of CPU in {elapsed_s:.1f} s, in which the CPUs were"
        text += f" busy {busy_s:.1f} s of {all_s:.1f} s"
        enough = used_s >= CPU_SHARE_MIN * wanted_s or (used_s > 0 and busy_s >= BUSY_MIN * all_s)
        return Proof(enough, text)

    def end(self) -> None:
        for burner in self._burners:
            end_group(burner.pid)
            burner.wait()

    def heal_proof(self) -> Proof:
        gone = until(lambda: all(burner.poll() is not None for burner in self._burners), self.aim.stopped)
        return Proof(gone, f"{len(self._burners)} processes are gone")


def start_helper(
    folder: Path,
    name: str,
    command: list[str],
    *,
    output: IO[bytes] | int = subprocess.DEVNULL,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a process beside the nodes, in a group of its own, and notes it for whoever cleans up after this run."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd=cwd,
        env=env,
    )
    stat = process_stat(process.pid)
    with contextlib.suppress(FileNotFoundError):  # the run's folder is gone: so is the run
        (folder / f"{name}.pid").write_text(f"{process.pid} {stat.start_time if stat else 0}\n")
    return process
