"""Faults that are injected into a node's disk and clock: what they refuse was not done, and what they did is
counted."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kraft.runtime.injected_faults as injected
from kraft.runtime.disk import RealDisk
from kraft.runtime.injected_faults import Counts, FaultFile, Faults, FaultyDisk, with_injected_faults
from kraft.user_error import UserError


@pytest.fixture
def door(tmp_path: Path) -> Iterator[FaultFile]:
    made = FaultFile.make(str(tmp_path / "door"))
    yield made
    made.close()


@pytest.fixture
def disk(door: FaultFile) -> Iterator[FaultyDisk]:
    """The node's side of the door is a descriptor of its own."""
    opened = FaultFile.open(door.path)
    yield FaultyDisk(RealDisk(), opened)
    opened.close()


def failing_with(number: int, operation: Callable[[], object]) -> None:
    with pytest.raises(OSError, match=os.strerror(number)) as error:
        operation()
    assert error.value.errno == number


def test_without_faults_all_passes_and_nothing_is_counted(
    disk: FaultyDisk, door: FaultFile, tmp_path: Path
) -> None:
    file = disk.open(str(tmp_path / "log"), create=True)
    file.append([b"one", b"two"])
    file.write_at(3, b"TWO")
    file.sync()
    disk.sync_dir(str(tmp_path))
    disk.make_dirs(str(tmp_path / "a/b"))
    disk.rename(str(tmp_path / "log"), str(tmp_path / "a/b/log"))
    assert disk.read_bytes(str(tmp_path / "a/b/log")) == b"oneTWO"
    assert file.slice(0, 3).read() == b"one"
    disk.remove_tree(str(tmp_path / "a"))
    assert door.counts() == Counts()


def test_a_full_disk_refuses_what_needs_room_and_nothing_else(
    disk: FaultyDisk, door: FaultFile, tmp_path: Path
) -> None:
    path = str(tmp_path / "log")
    file = disk.open(path, create=True)
    file.append([b"before"])
    file.reserve(10)
    door.impose(Faults(is_full=1))
    for refused in (
        lambda: file.append([b"too much"]),
        lambda: file.write_at(8, b"too much"),
        lambda: file.reserve(100),
        lambda: disk.open(str(tmp_path / "new"), create=True),
        lambda: disk.make_dirs(str(tmp_path / "folder")),
    ):
        failing_with(errno.ENOSPC, refused)
    assert sorted(os.listdir(tmp_path)) == ["door", "log"]
    assert disk.space(str(tmp_path)).usable_bytes == 0
    file.append([b"room"])  # was reserved
    file.write_at(0, b"BEFORE")
    file.sync()
    disk.open(path, create=True).close()
    disk.make_dirs(str(tmp_path))
    file.truncate(6)
    failing_with(errno.ENOSPC, lambda: file.append([b"room"]))  # was given back
    disk.remove(path)
    assert door.counts() == Counts(refused=6)
    door.impose(Faults())
    disk.open(path, create=True).append([b"after"])
    assert disk.space(str(tmp_path)).usable_bytes > 0


def test_a_failing_disk_fails_every_write_and_fsync(
    disk: FaultyDisk, door: FaultFile, tmp_path: Path
) -> None:
    path = str(tmp_path / "log")
    file = disk.open(path, create=True)
    file.append([b"before"])
    door.impose(Faults(is_failing=1, is_full=1))
    operations: list[Callable[[], object]] = [
        lambda: file.append([b"x"]),
        lambda: file.write_at(0, b"x"),
        lambda: file.truncate(0),
        lambda: file.reserve(0),
        file.sync,
        lambda: disk.sync_dir(str(tmp_path)),
        lambda: disk.rename(path, path + "2"),
        lambda: disk.remove(path),
        lambda: disk.set_modified_ms(path, 0),
    ]
    for operation in operations:
        failing_with(errno.EIO, operation)
    assert file.read(0, 10) == b"before"
    assert door.counts() == Counts(failed=len(operations))


def test_a_slow_disk_takes_its_time_and_makes_the_fsync(
    disk: FaultyDisk, door: FaultFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    synced: list[int] = []
    monkeypatch.setattr(injected, "time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(os, "fdatasync", synced.append)
    file = disk.open(str(tmp_path / "log"), create=True)
    file.sync()
    door.impose(Faults(sync_us=250_000))
    file.sync()
    disk.sync_dir(str(tmp_path))
    assert (slept, len(synced)) == ([0.25, 0.25], 2)
    assert door.counts() == Counts(slowed=2)


def test_the_wall_clock_is_wrong_and_measured_time_is_not(door: FaultFile) -> None:
    environment = injected_environment(door)
    assert (environment.now_ms(), environment.monotonic_s()) == (1_000_000, 7.0)
    door.impose(Faults(clock_offset_ms=-60_000))
    assert (environment.now_ms(), environment.monotonic_s()) == (940_000, 7.0)
    door.impose(Faults())
    assert environment.now_ms() == 1_000_000
    assert door.counts() == Counts(told_wrong=1)


def injected_environment(door: FaultFile) -> Any:
    ports: dict[str, Any] = dict.fromkeys(injected.Environment.__dataclass_fields__)
    right = {"disk": RealDisk(), "now_ms": lambda: 1_000_000, "monotonic_s": lambda: 7.0}
    return with_injected_faults(injected.Environment(**ports | right), door)


def test_what_a_process_counted_outlives_it(door: FaultFile) -> None:
    for _ in range(2):
        process = FaultFile.open(door.path)
        process.count("failed")
        process.close()
    assert door.counts() == Counts(failed=2)


def test_only_a_file_of_this_user_alone_is_a_door(tmp_path: Path, door: FaultFile) -> None:
    assert stat.S_IMODE(os.stat(door.path).st_mode) == 0o600
    with pytest.raises(FileExistsError):
        FaultFile.make(door.path)
    link, other, pipe = tmp_path / "link", tmp_path / "other", tmp_path / "pipe"
    link.symlink_to(door.path)
    other.touch(mode=0o600)
    os.mkfifo(pipe, mode=0o600)
    for path, said in (
        (tmp_path / "none", "cannot be opened: No such file"),
        (link, "cannot be opened: Too many levels"),
        (pipe, "only this user can use"),
        (other, "is none of this version"),
    ):
        with pytest.raises(UserError, match=said):
            FaultFile.open(str(path))
    os.chmod(door.path, 0o620)
    with pytest.raises(UserError, match="only this user can use"):
        FaultFile.open(door.path)
