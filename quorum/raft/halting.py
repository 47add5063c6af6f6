"""The end of a voter that can no longer keep Raft's promises.

`Halting.halt` calls the node's halt port, notes the reason and raises RaftHaltedError. The library swallows
exceptions in places, so the driver looks at `reason` after every call into it.
"""

from __future__ import annotations

from typing import NoReturn

from partitions.ports import Halt


class RaftHaltedError(Exception):
    """The voter has been halted; nothing it was about to say may leave it."""


class Halting:
    """The halt port, and the reason of its first use."""

    def __init__(self, port: Halt) -> None:
        self._port = port
        self.reason: str | None = None

    def halt(self, reason: str) -> NoReturn:
        """Halts the node (once) and raises RaftHaltedError where the port returns."""
        self.note(reason)
        raise RaftHaltedError(reason)

    def note(self, reason: str) -> None:
        """Halts the node (once) and returns where the port does; the caller raises its own error."""
        if self.reason is None:
            self.reason = reason
            self._port(reason)

    def check(self) -> None:
        """Raises RaftHaltedError if the node was halted and the library went on regardless."""
        if self.reason is not None:
            raise RaftHaltedError(self.reason)
