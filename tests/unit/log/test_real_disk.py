"""The disk port over the real file system."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kraft.runtime.disk import RealDisk
from partitions.disk import Disk, File, FileSlice, write_atomically


@pytest.fixture
def disk() -> Disk:
    return RealDisk()


def test_appends_reads_and_slices(disk: Disk, tmp_path: Path) -> None:
    file: File = disk.open(f"{tmp_path}/a", create=True)
    file.append([b"one", memoryview(b"-two"), bytearray(b"-three")])
    file.append([])
    assert (file.size(), file.read(0, 99), file.read(4, 3), file.read(50, 1)) == (
        13,
        b"one-two-three",
        b"two",
        b"",
    )
    part: FileSlice = file.slice(4, 3)
    assert (part.position, part.length, part.read()) == (4, 3, b"two")
    assert os.pread(part.fileno(), 3, 4) == b"two"
    file.sync()
    disk.sync_dir(str(tmp_path))
    assert disk.read_bytes(f"{tmp_path}/a") == b"one-two-three"


def test_more_buffers_than_one_write_takes(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    buffers = [b"%04d" % number for number in range(3000)]
    file.append([b"", *buffers, b""])
    assert file.size() == 12_000
    assert file.read(0, 12_000) == b"".join(buffers)


def test_short_writes_are_continued(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def short(fd: int, buffers: list[bytes], position: int) -> int:
        return real(fd, [b"".join(buffers)[:5]], position)

    monkeypatch.setattr(os, "pwritev", short)
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append([b"abc", b"", b"defghij", b"klm"])
    file.append([b"n"])
    assert (file.size(), file.read(0, 99)) == (14, b"abcdefghijklmn")


def test_a_failed_write_tells_how_much_is_there(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwritev
    calls = []

    def fills_up(fd: int, buffers: list[bytes], position: int) -> int:
        calls.append(position)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "full")
        return real(fd, [b"".join(buffers)[:5]], position)

    file = disk.open(f"{tmp_path}/a", create=True)
    monkeypatch.setattr(os, "pwritev", fills_up)
    with pytest.raises(OSError, match="full"):
        file.append([b"abcdefgh"])
    assert (file.size(), calls) == (5, [0, 5])
    file.truncate(0)
    monkeypatch.undo()
    file.append([b"xyz"])
    assert file.read(0, 9) == b"xyz"


def test_truncate_and_write_at(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append([b"abcdef"])
    file.write_at(4, b"XYZ")
    assert (file.size(), file.read(0, 9)) == (7, b"abcdXYZ")
    file.truncate(2)
    file.append([b"!"])
    assert (file.size(), file.read(0, 9)) == (3, b"ab!")
    assert disk.open(f"{tmp_path}/a").size() == 3


def test_slices_outlive_close_and_removal(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append([b"abcdef"])
    part = file.slice(2, 3)
    fd = part.fileno()
    file.close()
    disk.remove(f"{tmp_path}/a")
    assert (part.read(), part.fileno()) == (b"cde", fd)
    with pytest.raises(ValueError, match="is closed"):
        file.read(0, 1)
    with pytest.raises(ValueError, match="is closed"):
        file.slice(0, 1)
    del part
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_slice_of_a_file_that_became_shorter_is_an_error(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append([b"abcdef"])
    part = file.slice(2, 4)
    file.truncate(3)
    with pytest.raises(EOFError, match="ends 3 bytes before"):
        part.read()


def test_names(disk: Disk, tmp_path: Path) -> None:
    root = str(tmp_path)
    disk.make_dirs(f"{root}/x/y")
    disk.make_dirs(f"{root}/x/y")
    for name in ("b", "a"):
        disk.open(f"{root}/x/{name}", create=True).close()
    assert disk.list_dir(f"{root}/x") == ["a", "b", "y"]
    disk.rename(f"{root}/x/a", f"{root}/x/b")
    disk.rename(f"{root}/x/y", f"{root}/x/z")
    assert (disk.exists(f"{root}/x/a"), disk.exists(f"{root}/x/z")) == (False, True)
    disk.remove_tree(f"{root}/x")
    assert disk.list_dir(root) == []
    for missing in (
        lambda: disk.open(f"{root}/none"),
        lambda: disk.read_bytes(f"{root}/none"),
        lambda: disk.remove(f"{root}/none"),
    ):
        with pytest.raises(FileNotFoundError):
            missing()
    write_atomically(disk, f"{root}/f", b"1")
    write_atomically(disk, f"{root}/f", b"2")
    assert (disk.list_dir(root), disk.read_bytes(f"{root}/f")) == (["f"], b"2")


def test_a_lock_excludes_and_ends_with_its_process(disk: Disk, tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    lock = disk.lock(path)
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    code = f"import fcntl, os; fcntl.flock(os.open({path!r}, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    command = [sys.executable, "-c", code]
    assert b"BlockingIOError" in subprocess.run(command, capture_output=True, check=False).stderr
    lock.release()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    disk.lock(path).release()


def test_the_time_of_the_last_change(disk: Disk, tmp_path: Path) -> None:
    path = f"{tmp_path}/f"
    file = disk.open(path, create=True)
    disk.set_modified_ms(path, 1_234_567)
    assert disk.modified_ms(path) == 1_234_567
    file.read(0, 1)
    file.sync()
    assert disk.modified_ms(path) == 1_234_567
    file.append([b"x"])
    assert disk.modified_ms(path) > 1_700_000_000_000
    with pytest.raises(FileNotFoundError):
        disk.modified_ms(f"{tmp_path}/nobody")


def test_the_room_of_a_file_system(disk: Disk, tmp_path: Path) -> None:
    space = disk.space(str(tmp_path))
    assert space.total_bytes == shutil.disk_usage(tmp_path).total
    assert 0 < space.usable_bytes <= space.total_bytes
    with pytest.raises(FileNotFoundError):
        disk.space(f"{tmp_path}/missing")
