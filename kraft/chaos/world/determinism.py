"""Makes one Python process deterministic for the length of a simulated run, and guards it.

`Determinism.installed()` replaces the process's clocks, its entropy, the orders that depend on memory
addresses, and the garbage collector's timing; it puts all of it back afterwards. Inside `guarding()`,
that is while simulated code runs, reaching for a thread, a real socket or name server, a subprocess, a signal, a
real sleep or a file or folder, also one only read or looked at, raises GuardError and fails the run, whether or not
the code catches it; only the import system may look for modules.

What cannot be replaced is banned by the linter instead: `datetime.now()` and its like (a type of C), and what a
module copies from `time`, `os` or `select` at import, other than the known copies listed here.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import gc
import os
import random
import select
import socket
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import aiohttp.connector
import aiohttp.helpers
from aiohttp._websocket import writer as aiohttp_websocket

from kraft.chaos.world.sockets import bind_socket_class
from kraft.chaos.world.tasks import hash_of_gathering

EPOCH_S = 1_700_000_000.0
"""Wall-clock time at virtual instant 0."""

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CODE_SUFFIXES = (".py", ".pyc", ".so")
_IMPORT_SYSTEM = frozenset(("importlib._bootstrap_external", "_frozen_importlib_external", "zipimport"))
_FORBIDDEN_EVENTS = frozenset(
    (
        "fcntl.fcntl",
        "fcntl.flock",
        "fcntl.ioctl",
        "fcntl.lockf",
        "os.chdir",
        "os.chmod",
        "os.chown",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.getxattr",
        "os.kill",
        "os.killpg",
        "os.link",
        "os.listdir",
        "os.listxattr",
        "os.lockf",
        "os.mkdir",
        "os.posix_spawn",
        "os.remove",
        "os.removexattr",
        "os.rename",
        "os.rmdir",
        "os.scandir",
        "os.setxattr",
        "os.symlink",
        "os.system",
        "os.truncate",
        "os.utime",
        "shutil.rmtree",
        "signal.pthread_kill",
        "socket.__new__",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyaddr",
        "socket.gethostbyname",
        "socket.gethostname",
        "socket.getnameinfo",
        "socket.getservbyname",
        "socket.getservbyport",
        "socket.sethostname",
        "sqlite3.connect",
        "subprocess.Popen",
    )
)
_UNAUDITED: Mapping[types.ModuleType, tuple[str, ...]] = {
    os: (
        "access",
        "eventfd",
        "getloadavg",
        "getrandom",
        "lstat",
        "memfd_create",
        "mkfifo",
        "mknod",
        "pipe",
        "pipe2",
        "readlink",
        "stat",
        "statvfs",
        "times",
    ),
    select: ("epoll", "poll", "select"),
    uuid: ("getnode", "uuid1"),
}
"""Ways to the real world that raise no audit event."""


class GuardError(RuntimeError):
    """Code under simulation reached for the real world."""


class OrderedSet(dict[Any, None]):
    """Stands for `set` in modules that iterate over sets of objects hashed by address."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__((item, None) for item in items)

    def add(self, item: Any) -> None:
        self[item] = None

    def discard(self, item: Any) -> None:
        self.pop(item, None)

    def remove(self, item: Any) -> None:
        del self[item]

    def copy(self) -> OrderedSet:
        return OrderedSet(self)


_audited: list[Determinism] = []
"""The run that is guarded now, if any. A process's audit hook can never be removed, so there is one for
the life of the process, which asks here."""
_hook_installed: list[bool] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _audited and (event == "open" or event in _FORBIDDEN_EVENTS):
        _audited[-1].audit(event, args)


class Determinism:
    """The determinism of one run: `now` gives virtual seconds, `fail` ends the run with a reason."""

    def __init__(self, seed: int, now: Callable[[], float], fail: Callable[[str], None]) -> None:
        self._seed = seed
        self._now = now
        self._fail = fail
        self._entropy = random.Random(f"{seed}/entropy")
        self._undo: list[Callable[[], object]] = []

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """The process is deterministic inside, and as it was before afterwards."""
        if not _hook_installed:
            sys.addaudithook(_audit)
            _hook_installed.append(True)
        try:
            self._install()
            yield
        finally:
            while self._undo:
                self._undo.pop()()

    @contextlib.contextmanager
    def guarding(self) -> Iterator[None]:
        """The real world is out of reach inside."""
        _audited.append(self)
        try:
            yield
        finally:
            _audited.remove(self)

    def violation(self, what: str) -> NoReturn:
        """Fails the run and the code that did it."""
        message = f"code under simulation used {what}: it must go through a port"
        self._fail(message)
        raise GuardError(message)

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Called for every audited event while guarding."""
        if event == "open":
            path, _, flags = args
            if flags & _WRITE_FLAGS or not _is_code(path):
                self.violation(f"the real file {path!r}")
        elif event != "os.listdir" or not _is_import(sys._getframe(2)):
            self.violation(f"{event}{args[:1]!r}")

    # -- patches

    def _install(self) -> None:
        self._install_clocks()
        self._install_entropy()
        self._install_orders()
        self._install_refusals()
        self._patch(sys, "dont_write_bytecode", True)
        if gc.isenabled():
            self._undo.append(gc.enable)
        gc.collect()
        gc.disable()

    def _patch(self, owner: Any, name: str, value: object) -> None:
        missing = object()
        before = owner.__dict__.get(name, missing)
        if before is missing:
            self._undo.append(lambda: delattr(owner, name))
        else:
            self._undo.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)

    def _install_clocks(self) -> None:
        now = self._now
        for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
            self._patch(time, name, now)
            self._patch(time, f"{name}_ns", lambda: int(now() * 1e9))
        for shipped in (time.localtime, time.gmtime, time.ctime):
            self._patch(time, shipped.__name__, _at_virtual_time(shipped, now))
        for name in ("clock_gettime", "clock_gettime_ns", "sleep"):
            self._patch(time, name, lambda _, name=name: self.violation(f"time.{name}"))
        asctime, strftime = time.asctime, time.strftime
        self._patch(time, "asctime", lambda of=None: asctime(time.localtime() if of is None else of))
        self._patch(
            time,
            "strftime",
            lambda pattern, of=None: strftime(pattern, time.localtime() if of is None else of),
        )
        self._patch(time, "time", lambda: EPOCH_S + now())
        self._patch(time, "time_ns", lambda: int((EPOCH_S + now()) * 1e9))
        self._patch(aiohttp.connector, "monotonic", now)

    def _install_entropy(self) -> None:
        entropy, shipped_seed = self._entropy, random.Random.seed

        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            shipped_seed(generator, entropy.getrandbits(128) if a is None else a, version)

        state = random.getstate()
        self._undo.append(lambda: random.setstate(state))
        random.seed(f"{self._seed}/global")
        self._patch(random.Random, "seed", seed)
        self._patch(os, "urandom", entropy.randbytes)
        self._patch(random, "_urandom", entropy.randbytes)
        for generator in _default_generators(aiohttp_websocket.WebSocketWriter.__init__):
            before = generator.getstate()
            self._undo.append(lambda g=generator, s=before: g.setstate(s))  # type: ignore[misc]
            generator.seed(f"{self._seed}/websocket")

    def _install_orders(self) -> None:
        self._patch(aiohttp.connector, "set", OrderedSet)
        self._patch(aiohttp.helpers, "set", OrderedSet)
        gathering = asyncio.tasks._GatheringFuture  # type: ignore[attr-defined]
        self._patch(gathering, "__hash__", hash_of_gathering)

    def _install_refusals(self) -> None:
        self._patch(socket, "socket", bind_socket_class(self.violation))
        self._patch(threading.Thread, "start", lambda _: self.violation("threading.Thread"))
        self._patch(_thread, "start_new_thread", lambda *_: self.violation("a thread"))
        for module, names in _UNAUDITED.items():
            for name in names:
                self._patch(module, name, self._guarded(f"{module.__name__}.{name}", getattr(module, name)))

    def _guarded(self, name: str, shipped: Callable[..., Any]) -> Callable[..., Any]:
        """A function that only code outside of the simulation may call, or one that looks for code."""

        def guarded(*args: Any, **options: Any) -> Any:
            if _audited and not (args and _is_code(args[0])):
                self.violation(f"{name}{args[:1]!r}")
            return shipped(*args, **options)

        return guarded


def _at_virtual_time(shipped: Callable[[float], object], now: Callable[[], float]) -> Callable[..., object]:
    """A function of a wall-clock time, which is the virtual one if none is given."""
    return lambda at_s=None: shipped(EPOCH_S + now() if at_s is None else at_s)


def _is_code(path: object) -> bool:
    """Whether a file holds code, which is also read for tracebacks."""
    return isinstance(path, str) and path.endswith(_CODE_SUFFIXES)


def _is_import(frame: types.FrameType) -> bool:
    return frame.f_globals.get("__name__") in _IMPORT_SYSTEM


def _default_generators(function: Any) -> list[random.Random]:
    """Generators that a function holds as default arguments, seeded by the system at import."""
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [value for value in defaults if isinstance(value, random.Random)]
