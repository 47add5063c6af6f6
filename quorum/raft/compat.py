"""The pinned pysyncobj, and the world (clock, randomness, poller, journal) in which the library runs.

Guarantees: the library is the version whose source was read. Every private name that the Raft layer uses exists:
an import checks this and names all that are missing. Inside `running(world)` the library takes clock, randomness,
poller and journal from that world; outside, it is as shipped. Several drivers may live in one process, in one
thread or in many, since each step runs in its own world. Pickle is shut off inside a world, so that no bytes from
outside reach it.

The library alone loses acknowledged entries on power loss, and with more than one batch in flight. Journal,
transport and snapshots are therefore ours, and rely on its private parts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from random import Random
from typing import Any, NoReturn

from pysyncobj import syncobj
from pysyncobj.config import SERIALIZER_STATE, SyncObjConf
from pysyncobj.journal import Journal
from pysyncobj.node import Node
from pysyncobj.syncobj import SyncObj
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

__all__ = [
    "Journal",
    "Node",
    "SERIALIZER_STATE",
    "SyncObj",
    "SyncObjConf",
    "Transport",
    "World",
    "running",
]

PINNED_VERSION = "0.3.17"

CLOCK_STEP_S = 2e-5
"""What each reading adds to a clock that stands still within a step: the library's sending loop ends
only when it sees time pass."""

MODULE_NAMES = (
    "PIPE_NOTIFIER_ENABLED",
    "PipeNotifier",
    "createJournal",
    "createPoller",
    "logger",
    "monotonicTime",
    "pickle",
    "random",
)
METHOD_NAMES = (
    "_SyncObj__deleteEntriesFrom",
    "_SyncObj__applyLogEntries",
    "_SyncObj__deleteEntriesTo",
    "_SyncObj__doApplyCommand",
    "_SyncObj__generateRaftTimeout",
    "_SyncObj__getCurrentLogIndex",
    "_SyncObj__getCurrentLogTerm",
    "_SyncObj__getEntries",
    "_SyncObj__loadDumpFile",
    "_SyncObj__onBecomeLeader",
    "_SyncObj__onMessageReceived",
    "_SyncObj__sendAppendEntries",
    "_SyncObj__sendNextNodeIdx",
    "_SyncObj__setCurrentTerm",
    "_SyncObj__setState",
    "_SyncObj__tryLogCompaction",
    "_applyCommand",
    "_checkCommandsToApply",
    "_getLeader",
    "_isLeader",
    "_onTick",
    "forceLogCompaction",
)
INSTANCE_NAMES = (
    "_SyncObj__connectedNodes",
    "_SyncObj__needLoadDumpFile",
    "_SyncObj__newAppendEntriesTime",
    "_SyncObj__otherNodes",
    "_SyncObj__raftCommitIndex",
    "_SyncObj__raftCurrentTerm",
    "_SyncObj__raftElectionDeadline",
    "_SyncObj__raftLastApplied",
    "_SyncObj__raftLeader",
    "_SyncObj__raftLog",
    "_SyncObj__raftMatchIndex",
    "_SyncObj__raftNextIndex",
    "_SyncObj__raftState",
    "_SyncObj__noopIDx",
    "_SyncObj__serializer",
    "_SyncObj__transport",
    "_SyncObj__votedForNodeId",
)


class IncompatibleLibraryError(ImportError):
    """The installed pysyncobj is not the one that this layer was built on."""


def missing_names() -> list[str]:
    """Names that the Raft layer relies on and the installed library lacks."""
    missing = [name for name in MODULE_NAMES if not hasattr(syncobj, name)]
    missing += [name for name in METHOD_NAMES if not hasattr(SyncObj, name)]
    assigned = SyncObj.__init__.__code__.co_names
    return missing + [name for name in INSTANCE_NAMES if name not in assigned]


def check_library() -> None:
    """Raises IncompatibleLibraryError unless the installed pysyncobj is the pinned one, name by name."""
    if VERSION != PINNED_VERSION:
        raise IncompatibleLibraryError(
            f"The controller quorum needs pysyncobj {PINNED_VERSION} exactly, but {VERSION} is installed:"
            f" run pip install pysyncobj=={PINNED_VERSION}."
        )
    missing = missing_names()
    if missing:
        raise IncompatibleLibraryError(
            f"The installed pysyncobj {VERSION} lacks {', '.join(missing)}, on which the quorum's safety"
            f" depends: reinstall it unmodified (pip install --force-reinstall pysyncobj=={PINNED_VERSION})."
        )


class World:
    """Time and chance of one driver. `now` never returns the same value twice."""

    def __init__(self, clock: Callable[[], float], rng: Random) -> None:
        self._clock = clock
        self._rng = rng
        self._last = float("-inf")

    def now(self) -> float:
        """Monotonic seconds, strictly increasing even while the clock stands still."""
        now = self._clock()
        if now <= self._last:
            now = self._last + CLOCK_STEP_S
        self._last = now
        return now

    def random(self) -> float:
        return self._rng.random()


_current: ContextVar[World | None] = ContextVar("raft_world", default=None)


class running:
    """While the block runs, the library sees this world. (Each step is one: a generator would cost more.)"""

    __slots__ = ("_token", "_world")

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> None:
        self._token = _current.set(self._world)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


class _NoPoller:
    """The lane has no sockets: there is nothing to poll."""

    def subscribe(self, *_: object) -> None: ...

    def unsubscribe(self, *_: object) -> None: ...

    def poll(self, timeout: float) -> None: ...


class _NoNotifier:
    """The lane wakes by events posted to it, not by a pipe."""

    def __init__(self, *_: object) -> None: ...

    def notify(self) -> None: ...


class _Random:
    """Stands in for the module `random`, of which the library uses this one function."""

    def __init__(self, shipped: Any) -> None:
        self._shipped = shipped

    def random(self) -> float:
        world = _current.get()
        return float(self._shipped.random()) if world is None else world.random()


class _Pickle:
    """Stands in for the library's pickle module, which has no business inside a world."""

    def __init__(self, shipped: Any) -> None:
        self._shipped = shipped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shipped, name) if _current.get() is None else self._refuse

    @staticmethod
    def _refuse(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("the Raft library tried to pickle or unpickle; nothing here may")


_SHIPPED_MONOTONIC = syncobj.monotonicTime
_SHIPPED_CREATE_POLLER = syncobj.createPoller
_SHIPPED_CREATE_JOURNAL = syncobj.createJournal
_SHIPPED_NOTIFIER = syncobj.PipeNotifier


def _monotonic() -> float:
    world = _current.get()
    return float(_SHIPPED_MONOTONIC()) if world is None else world.now()


def _create_poller(kind: str) -> Any:
    return _SHIPPED_CREATE_POLLER(kind) if _current.get() is None else _NoPoller()


def _create_journal(journal: Any = None) -> Any:
    return journal if isinstance(journal, Journal) else _SHIPPED_CREATE_JOURNAL(journal)


def _create_notifier(*arguments: Any) -> Any:
    return _SHIPPED_NOTIFIER(*arguments) if _current.get() is None else _NoNotifier()


def _is_news(record: Any) -> bool:
    """Drops the one complaint of the library that the journal makes untrue: it never truncates blindly."""
    return not str(record.msg).startswith("truncating already-applied log entries")


def _patch() -> None:
    syncobj.monotonicTime = _monotonic
    syncobj.createPoller = _create_poller
    syncobj.createJournal = _create_journal
    syncobj.PipeNotifier = _create_notifier
    syncobj.random = _Random(syncobj.random)
    syncobj.pickle = _Pickle(syncobj.pickle)
    syncobj.logger.addFilter(_is_news)


check_library()
_patch()
