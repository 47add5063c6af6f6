"""Changes of names: each once, in order, by a job or by whoever cannot wait for it."""

from __future__ import annotations

import errno
import threading

import pytest

from partitions.log.cleaner.name_changes import NameChanges


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
    for _ in range(2):
        with pytest.raises(OSError, match="broken"):
            changes.make()
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


@pytest.mark.parametrize("settle", [NameChanges.make, NameChanges.drop], ids=["make", "drop"])
def test_nobody_is_amid_a_change_when_the_other_goes_on(settle: object) -> None:
    """A thread is held up inside the first change; the log that settles waits for it, and for no other."""
    is_inside, may_go_on = threading.Event(), threading.Event()
    made: list[str] = []

    def slow() -> None:
        is_inside.set()
        assert may_go_on.wait(30)
        made.append("slow")

    changes = NameChanges([slow, lambda: made.append("quick")])
    job = threading.Thread(target=changes.make)
    job.start()
    assert is_inside.wait(30)
    seen: list[list[str]] = []

    def settling() -> None:
        settle(changes)  # type: ignore[operator]
        seen.append(list(made))

    lane = threading.Thread(target=settling)
    lane.start()
    assert not seen
    may_go_on.set()
    job.join(30)
    lane.join(30)
    assert seen[0][0] == "slow"
    assert made == seen[0], "nothing was changed behind the lane's back"
    if settle is NameChanges.make:
        assert made == ["slow", "quick"]
