"""A node's process as the operating system sees it: whether it lives, how much CPU it had, where it stands.

Nothing here ends a process, not even one that cannot be asked for its stacks yet. It reads /proc, so it is for Linux.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOG_LINES: Final = 12
LOG_TAIL_BYTES: Final = 64 * 1024
STACK_LINES: Final = 16
"""Of the main thread, where a node starts and where its event loop runs."""
ALL_STACKS_LINES: Final = 120
MAIN_THREAD: Final = "Current thread "
"""How its stack begins: it is the one that signals go to."""
IMPORTING: Final = "<frozen importlib"
"""The five frames between a module and one that it imports; they tell nothing."""
STACKS_WAIT_S: Final = 2.0
"""So long a process may take to print them; one that is stopped or starved does not get to it."""
STACKS_QUIET_S: Final = 0.3
"""They are there when nothing has been added for so long: a line is a write."""
POLL_S: Final = 0.05
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_STATES: Final = {
    "R": "runs, or waits for a CPU",
    "S": "waits",
    "D": "waits for the disk",
    "T": "is stopped (SIGSTOP)",
    "t": "is held by a debugger",
    "Z": "has ended",
}


@dataclass(frozen=True)
class ProcessStat:
    """A line of /proc/PID/stat."""

    state: str
    start_time: str
    """Clock ticks since the host started: with the pid, it tells a process from all others."""
    threads: int
    cpu_s: float
    """That all its threads have had of the CPUs."""

    @property
    def is_gone(self) -> bool:
        """A zombie without threads: until then its ports may still be in use."""
        return self.state == "Z" and self.threads <= 1

    @property
    def age_s(self) -> float:
        """Since it was started, suspended hosts included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(self.start_time) / _TICKS_PER_S

    def __str__(self) -> str:
        """As words that follow the process's name."""
        threads = "1 thread has" if self.threads == 1 else f"{self.threads} threads have"
        state = _STATES.get(self.state, self.state)
        return f"{state}; {threads} had {self.cpu_s:.1f} s of CPU in {self.age_s:.1f} s"


def process_stat(pid: int) -> ProcessStat | None:
    """What /proc says of a process; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ProcessStat(fields[0], fields[19], int(fields[17]), ticks / _TICKS_PER_S)


def live_pid(pid_file: Path) -> int | None:
    """The pid of the process that such a file (pid, start time) tells of; None if it lives no more, or there is no
    file."""
    try:
        pid_text, start_text = pid_file.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    stat = process_stat(int(pid_text))
    is_alive = stat is not None and stat.start_time == start_text and not stat.is_gone
    return int(pid_text) if is_alive else None


def how_it_ended(returncode: int | None) -> str:
    """The exit code, or the signal, as words in brackets; nothing if it is not known."""
    if returncode is None:
        return ""
    if returncode >= 0:
        return f" (exit code {returncode})"
    try:
        return f" (by {signal.Signals(-returncode).name})"
    except ValueError:  # most of the real-time signals have no name
        return f" (by signal {-returncode})"


def log_tail(log: Path, lines: int = LOG_LINES, *, since: int = 0) -> str:
    """The last lines of a node's log, of what stands from byte `since` on."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:])


def evidence(
    name: str, pid: int | None, log: Path, *, since: int | None = None, all_threads: bool = False
) -> str:
    """Why a process may not do what it should, as far as it can be seen from outside: lines about the process and
    the machine, the end of its log, the stack of its main thread or of all. Takes up to STACKS_WAIT_S. `since` is
    the byte of the log where the process begins, if that is known."""
    stat = None if pid is None else process_stat(pid)
    if pid is None or stat is None:
        return f"{name}: there is no such process any more; its log ends\n{log_tail(log, since=since or 0)}"
    load = os.getloadavg()[0]
    if since is not None and _size_bytes(log) <= since:
        printed = "it has printed nothing yet"
    elif since is not None or _has_grown_for(log, stat.age_s):
        printed = f"its log ends\n{log_tail(log, since=since or 0)}"
    else:
        printed = f"it has printed nothing yet, an earlier one\n{log_tail(log)}"
    return (
        f"{name}: process {pid} {stat}; the load average is {load:.1f} on {os.cpu_count()} CPUs;"
        f" {printed}\n{_stacks(pid, log, all_threads=all_threads)}"
    )


def _stacks(pid: int, log: Path, *, all_threads: bool) -> str:
    """What the process prints to its log when it is asked for its stacks (`kraft.runtime.stacks`)."""
    if not _catches(pid, signal.SIGQUIT):
        return "(it has not got so far that it could print its stacks)"
    begin = _size_bytes(log)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGQUIT)
    if _settled_size_bytes(log, begin) == begin:
        return "(it was asked for its stacks, and does not get to print them)"
    with log.open("rb") as file:
        file.seek(begin)
        stacks = file.read().decode(errors="replace")
    _, header, main = stacks.rpartition(MAIN_THREAD)
    lines = (stacks if all_threads else header + main).splitlines()
    told = [line for line in lines if IMPORTING not in line]
    return "\n".join(told[: ALL_STACKS_LINES if all_threads else STACK_LINES])


def _has_grown_for(log: Path, age_s: float) -> bool:
    """Whether anything was printed in the last `age_s` seconds, which is since the process began."""
    try:
        return log.stat().st_mtime > time.time() - age_s
    except FileNotFoundError:
        return False


def _size_bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _settled_size_bytes(log: Path, begin: int) -> int:
    """The size of the log when nothing was added for a while to what has come since `begin`."""
    size, changed_s = begin, time.monotonic()
    deadline_s = changed_s + STACKS_WAIT_S
    while (now_s := time.monotonic()) < deadline_s and (size == begin or now_s - changed_s < STACKS_QUIET_S):
        time.sleep(POLL_S)
        before, size = size, _size_bytes(log)
        if size != before:
            changed_s = time.monotonic()
    return size


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal, which would end it otherwise."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    caught = next((line for line in status.splitlines() if line.startswith("SigCgt:")), "SigCgt: 0")
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
