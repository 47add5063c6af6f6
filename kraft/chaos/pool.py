"""A pool of forked processes, bounded in number: no piece of work is lost, and none outlives the pool.

Every piece of work has a process and a pipe of its own, so that seeds cannot influence each other. The process ends
without cleaning up, since the `finally` blocks of coroutines that a killed node left suspended must not run.
However it ends (answer, exception, crash, too much CPU time, memory, wall time or output), the pool reports the end
with the reason: a seed that hangs or crashes is one failed seed. A process that sticks says where: its stack is
dumped when its CPU time is over. Leaving the pool kills the remaining processes, and only those. The caller has no
threads, since a fork takes none along. `kraft.chaos.campaign` plays its seeds through it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pickle
import resource
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self, TypeVar

Work = Callable[[int], None]
"""Runs in the forked process; writes its answer to the file descriptor, or replaces the process."""

TICK_S = 0.25
CHUNK_BYTES = 1 << 20
OUTPUT_MAX_BYTES = 64 << 20
STACK_MAX_CHARACTERS = 8000
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


Piece = TypeVar("Piece")
End = TypeVar("End")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Limits:
    """The limits at which a process is ended."""

    cpu_s: int
    wall_s: float
    memory_bytes: int


ISOLATED = Limits(cpu_s=3_600, wall_s=7_200.0, memory_bytes=8 << 30)


@dataclass(frozen=True)
class Ended:
    """One piece of work that is over."""

    key: int
    answer: bytes
    """All its output, if it ended well."""
    failure: str
    """Why there is no answer, in a sentence with the end of its output; empty if there is one."""
    cpu_s: float
    wall_s: float


@dataclass
class _Running:
    key: int
    pid: int
    readable: int
    limits: Limits
    began_s: float
    output: bytearray = field(default_factory=bytearray)
    killed_for: str = ""


class ProcessPool:
    """A context; `start` needs a free place, `wait` returns the work that has ended."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._running: dict[int, _Running] = {}
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kills the remaining processes."""
        with interrupts_held():
            for key in list(self._running):
                self.end(key)
            self._selector.close()

    @property
    def free(self) -> int:
        """How many more processes may be started now."""
        return self._size - len(self._running)

    @property
    def keys(self) -> list[int]:
        """The keys of the running work."""
        return list(self._running)

    def start(self, key: int, work: Work, limits: Limits) -> None:
        """Forks a process that does the work. `key` names it until it has ended."""
        assert self.free > 0, "the pool is full"
        assert key not in self._running, "a key names one piece of work"
        sys.stdout.flush()
        sys.stderr.flush()
        with interrupts_held():
            readable, writable = os.pipe()
            pid = os.fork()
            if pid == 0:
                _become(work, writable, limits)
            os.close(writable)
            running = _Running(key, pid, readable, limits, time.monotonic())
            self._running[key] = running
            self._selector.register(readable, selectors.EVENT_READ, running)

    def wait(self, timeout_s: float) -> list[Ended]:
        """Waits until some work has ended, at most `timeout_s`; [] if none has."""
        ended = []
        for selected, _ in self._selector.select(timeout_s):
            running: _Running = selected.data
            chunk = os.read(running.readable, CHUNK_BYTES)
            running.output += chunk
            if len(running.output) > OUTPUT_MAX_BYTES:
                self._kill(running, f"the run wrote more than {OUTPUT_MAX_BYTES} bytes")
            if not chunk:
                ended.append(self._reap(running))
        now_s = time.monotonic()
        for running in self._running.values():
            if now_s - running.began_s > running.limits.wall_s:
                self._kill(running, f"the run took more than {running.limits.wall_s:g} s")
        return ended

    def end(self, key: int) -> None:
        """Kills the work under this key, and reports nothing of it."""
        running = self._running[key]
        self._kill(running, "ended")
        self._reap(running)

    @staticmethod
    def _kill(running: _Running, why: str) -> None:
        if not running.killed_for:
            running.killed_for = why
            os.kill(running.pid, signal.SIGKILL)  # its own child, not yet waited for: the pid is no other's

    def _reap(self, running: _Running) -> Ended:
        with interrupts_held():
            self._selector.unregister(running.readable)
            os.close(running.readable)
            _, status, usage = os.wait4(running.pid, 0)
            del self._running[running.key]
        failure = running.killed_for or _failure(os.waitstatus_to_exitcode(status), running.limits)
        if failure and running.output:
            written = running.output.decode(errors="replace").strip()
            failure = f"{failure}\n{written[-STACK_MAX_CHARACTERS:]}"
        return Ended(
            key=running.key,
            answer=b"" if failure else bytes(running.output),
            failure=failure,
            cpu_s=usage.ru_utime + usage.ru_stime,
            wall_s=time.monotonic() - running.began_s,
        )


def in_turn(
    pool: ProcessPool,
    waiting: Iterable[Piece],
    begin: Callable[[int, Piece], object],
    ended: Callable[[], list[End]],
) -> Iterator[list[End]]:
    """Begins one piece of work after another, numbered from 0, while the pool has room; yields what has `ended`.

    It yields whenever `ended` returns, with [] too, until all have ended.
    """
    numbered, is_over = enumerate(waiting), False
    while True:
        while pool.free and not is_over:
            following = next(numbered, None)
            if following is None:
                is_over = True
            else:
                begin(*following)
        if is_over and not pool.keys:
            return
        yield ended()


class IsolatedRunError(RuntimeError):
    """The isolated function raised, or its process died. The message says how."""


def run_isolated(function: Callable[[], Value]) -> Value:
    """The value of `function()`, computed in a forked process; it must be picklable.

    Call it outside of any simulation. Raises IsolatedRunError with the traceback of the other process.
    """

    def work(descriptor: int) -> None:
        write_all(descriptor, pickle.dumps(function()))

    with ProcessPool(1) as pool:
        pool.start(0, work, ISOLATED)
        while not (ended := pool.wait(TICK_S)):
            pass
    if ended[0].failure:
        raise IsolatedRunError(ended[0].failure)
    value: Value = pickle.loads(ended[0].answer)
    return value


def _failure(code: int, limits: Limits) -> str:
    if code == 0:
        return ""
    if code == -signal.SIGXCPU:
        return f"the run took more than {limits.cpu_s} s of CPU time"
    if code < 0:
        return f"the process of the run died of {signal.Signals(-code).name}"
    return f"the process of the run ended with code {code}"


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Delays signals that end the program until the block is over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def dump_stack_at_cpu_limit(descriptor: int) -> None:
    """Has this process write its stack to the descriptor, and die, when its CPU time is over."""
    faulthandler.register(signal.SIGXCPU, file=descriptor, all_threads=False, chain=True)


def _become(work: Work, writable: int, limits: Limits) -> None:
    """The life of the forked process; it ends without clean-up, since it owns nothing."""
    code = 1
    # A run collects no garbage; a collection among the objects from before the fork would copy their pages.
    gc.disable()
    gc.freeze()
    try:
        # Ctrl-C at a terminal reaches every process of the group; it is the pool that ends this one.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
        os.dup2(2, 1)  # standard output belongs to the caller's result
        sys.stdout = sys.stderr
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, hard))
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, hard))
        dump_stack_at_cpu_limit(writable)
        try:
            work(writable)
            code = 0
        except BaseException:  # noqa: BLE001 - the parent reports it
            write_all(writable, traceback.format_exc().encode())
    finally:
        os._exit(code)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of it; a pipe takes a part at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
