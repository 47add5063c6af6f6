"""What may come between an operation on a simulated disk and its effect: hooks, a torn end, errors."""

from __future__ import annotations

import os
from collections.abc import Callable

OperationHook = Callable[[str, str], None]
"""Called with (operation, path) before it takes effect. It may raise OSError or `TornOperation`, or kill
the process."""

SyncFailure = Callable[[str], int]
"""Called with the path before each fsync of a file or folder; not 0: the errno with which it fails."""


class TornOperation(Exception):
    """Raised by an `OperationHook` to end a process in the middle of an operation.

    Of a write, the first `fraction` of the bytes reaches the page cache, and of the removal of a tree so
    much is gone; of anything else, nothing happens. Then `end` is called, which must end the process.
    """

    def __init__(self, fraction: float, end: Callable[[], None]) -> None:
        super().__init__(f"the operation ends after {fraction:.0%}")
        self.fraction = fraction
        self.end = end


def os_error(number: int, path: str) -> OSError:
    """The OSError subclass that the real file system would raise."""
    return OSError(number, os.strerror(number), path)
