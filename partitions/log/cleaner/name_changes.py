"""Changes of names in a folder, made in a job beside the event loop, or at once by a log that cannot wait for it.

Guarantees: the changes are made in their order and each once, by whichever of the two comes to it; when `make` or
`drop` has returned, nobody is in the middle of one. What failed is not tried again: it fails for whoever comes next
as well, for an fsync that is repeated lies. Only what found no free descriptor has changed nothing, and may be.

A change of a name waits for the file system's journal, whoever else is writing to that: a rename can take as long as
an fsync. The lock here is the one thing that a job of a cleaning shares with the log's lane, which waits for one
change at most.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from partitions.log.storage import is_out_of_descriptors

Change = Callable[[], object]


class NameChanges:
    """What is left to be changed."""

    def __init__(self, changes: Iterable[Change] = ()) -> None:
        """Nothing is changed yet."""
        self._left = deque(changes)
        self._failure: OSError | None = None
        self._lock = threading.Lock()

    def make(self) -> None:
        """Makes all that are left; nothing if there are none. Raises OSError, and may be called again where
        descriptors are wanting."""
        while self._make_next():
            pass

    def _make_next(self) -> bool:
        with self._lock, self._failing_for_good():
            if self._left:
                self._left[0]()
                self._left.popleft()
            return bool(self._left)

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except OSError as error:
            if not is_out_of_descriptors(error):
                self._failure = error
            raise

    def drop(self) -> None:
        """None of those that are left is made any more."""
        with self._lock:
            self._left.clear()
