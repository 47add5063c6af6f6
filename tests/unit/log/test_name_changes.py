"""Changes of names: each once, in order, by a job or by whoever cannot wait for it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from functools import partial

import pytest

from partitions.log.name_changes import NameChanges


def test_all_are_made_once_in_order() -> None:
    made: list[int] = []
    changes = NameChanges([lambda: made.append(1), lambda: made.append(2)])
    changes.make()
    changes.make()
    assert made == [1, 2]


def test_none_is_made_once_they_are_dropped() -> None:
    made: list[int] = []
    changes = NameChanges([lambda: made.append(1)])
    changes.drop()
    changes.make()
    assert made == []


def test_what_failed_fails_for_good() -> None:
    """Another try may succeed and be a lie: of an fsync, for one."""
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise OSError(errno.EIO, "broken")

    changes = NameChanges([fail, lambda: calls.append(2)])
    for call in (changes.make, changes.make, changes.take_over, changes.make_rest):
        with pytest.raises(OSError, match="broken"):
            call()
    assert calls == [1]


def test_want_of_a_descriptor_is_no_failure() -> None:
    calls: list[int] = []

    def scarce() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise OSError(errno.EMFILE, "no descriptor")

    changes = NameChanges([scarce, lambda: calls.append(2)])
    with pytest.raises(OSError, match="no descriptor"):
        changes.make()
    changes.make()
    assert calls == [1, 1, 2]


class NotedLock:
    """A lock that says when somebody wants it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.wanted = threading.Semaphore(0)

    def __enter__(self) -> None:
        self.wanted.release()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("settle", [NameChanges.make_rest, NameChanges.drop])
def test_who_takes_over_waits_for_one_change_and_no_more(
    settle: Callable[[NameChanges], None], number: int
) -> None:
    """The log's lane comes while a thread is amid the change of that number."""
    is_amid = threading.Event()
    lock = NotedLock()
    made: list[tuple[int, bool]] = []

    def change(index: int) -> None:
        in_job = threading.current_thread() is job
        if in_job and index == number:
            while lock.wanted.acquire(blocking=False):
                pass
            is_amid.set()
            assert lock.wanted.acquire(timeout=30), "the lane wants its turn"
        made.append((index, in_job))

    changes = NameChanges([partial(change, index) for index in range(5)])
    changes._lock = lock  # type: ignore[assignment]
    job = threading.Thread(target=changes.make)
    job.start()
    assert is_amid.wait(30)
    changes.take_over()
    assert made == [(index, True) for index in range(number + 1)]
    settle(changes)
    job.join(30)
    assert not job.is_alive()
    rest = range(number + 1, 5) if settle is NameChanges.make_rest else ()
    assert made == [(index, True) for index in range(number + 1)] + [(index, False) for index in rest]
