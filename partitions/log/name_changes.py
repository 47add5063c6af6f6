"""Changes of names in a folder, made in a job beside the event loop, or at once by a log that cannot wait for it.

Guarantees: the changes are made in their order and each once, by the job or by the log. Once the log has taken over,
the job makes no more: the log waits for one change at most, and then none is half made. What failed is not tried
again: it fails for the log as well, for an fsync that is repeated lies. Only what found no free descriptor has changed
nothing, and may be.

A change of a name waits for the file system's journal, and for all others that write to it: a rename can take as long
as an fsync. The lock here is the one thing that a job shares with its log's lane: a cleaning's, and one that writes
leader epochs.
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
        self._is_taken_over = False
        self._lock = threading.Lock()

    def make(self) -> None:
        """In a job: makes all that are left, until the log takes over. Raises OSError, and may be called again
        where descriptors are wanting."""
        while self._make_next(for_job=True):
            pass

    def take_over(self) -> None:
        """On the log's lane, before `make_rest` or `drop`. Raises the OSError that a job met."""
        self._is_taken_over = True  # before the lock: the job, which would have it again at once, sees it
        with self._lock:
            if self._failure is not None:
                raise self._failure

    def make_rest(self) -> None:
        """Makes all that are left. Raises OSError, and may be called again where descriptors are wanting."""
        while self._make_next(for_job=False):
            pass

    def drop(self) -> None:
        """None of those that are left is made any more."""
        self._is_taken_over = True
        with self._lock:
            self._left.clear()

    def _make_next(self, *, for_job: bool) -> bool:
        with self._lock, self._failing_for_good():
            if self._left and not (for_job and self._is_taken_over):
                self._left[0]()
                self._left.popleft()
                return True
            return False

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
