"""The loggers of a node, whose levels can be changed while it runs: a port, its names and levels, and one in memory.

`kraft.broker.handlers.broker_loggers` reads and sets levels through it (KIP-412). Names are those of the modules that
log, and of the packages around them: a level counts for all below it that have none of their own. "root" is above all.
`kraft.runtime.loggers` is the real one; nodes under simulation have `MemoryLoggers`, since their log is judged and not
read. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

ROOT: Final = "root"
PACKAGES: Final = ("fetcher", "kraft", "leader_epoch", "partitions", "quorum")
"""The packages that a node is made of: loggers that are always there."""
LEVELS: Final[Mapping[str, int]] = {
    "FATAL": 50,
    "ERROR": 40,
    "WARN": 30,
    "INFO": 20,
    "DEBUG": 10,
    "TRACE": 5,
}
"""Kafka's levels, the least talkative first, as Python counts them."""


class Loggers(Protocol):
    """The loggers of a process."""

    def levels(self) -> Mapping[str, str]:
        """The level that counts for each logger, by name: the root first, then in alphabetical order."""

    def exists(self, name: str) -> bool:
        """Whether there is such a logger; some are made only when they are used."""

    def set_level(self, name: str, level: str | None) -> None:
        """Sets one of `LEVELS` for a logger that exists; None takes its own away (never that of the root)."""


class MemoryLoggers:
    """Levels that are kept and told, and that nothing is written by."""

    def __init__(self) -> None:
        self._own: dict[str, str] = {ROOT: "INFO"}

    def levels(self) -> Mapping[str, str]:
        return {name: self._level(name) for name in (ROOT, *PACKAGES)}

    def exists(self, name: str) -> bool:
        return name == ROOT or name in PACKAGES

    def set_level(self, name: str, level: str | None) -> None:
        if level is None:
            self._own.pop(name, None)
        else:
            self._own[name] = level

    def _level(self, name: str) -> str:
        return self._own.get(name, self._own[ROOT])
