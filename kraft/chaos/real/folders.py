"""The folder of a run: everything that it leaves on this host is in it, or is noted there, so that a run that was
killed is cleaned up by the next one.

A run is known by pid and start time. In its folder are its nodes' files and pid files, pid files of processes beside
the nodes, and the mount points of file systems.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kraft.chaos.real import namespaces
from kraft.chaos.real.cluster import end_group, unmount_below
from kraft.chaos.real.faults import packets
from kraft.local_cluster.cluster import LocalCluster
from kraft.local_cluster.node_process import live_pid, process_stat
from kraft.user_error import UserError

RUN: Final = "run-"
MAKING: Final = f".{RUN}"
"""Of a folder that is being made: who makes it, by pid and start time, is in its name."""
OWNER: Final = "pid"
CLUSTER: Final = "cluster"
HELPERS: Final = "helpers"
HISTORY_VARIABLE: Final = "KRAFT_CHAOS_HISTORY"
"""The environment variable that tells a program of the user's own where its history goes: below the run's folder."""
PASSES_MAX: Final = 10


def default_base() -> Path:
    """Where runs of this user have their folders."""
    return Path(tempfile.gettempdir()) / f"kraft-chaos-{os.geteuid()}"


@contextlib.contextmanager
def run_folder(base: Path) -> Iterator[Path]:
    """A folder for a run of this process; at the end nothing of it is left: no process, no mount, no file. Cleans up
    after runs that were killed, first. Raises UserError."""
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        if base.stat().st_uid != os.geteuid():
            raise UserError(f"{base} belongs to another user; set TMPDIR to a folder of your own")
        clean_up(base)
        folder = _made(base)
    except OSError as error:
        raise UserError(f"cannot use {base} for the run: {error.strerror}") from error
    try:
        yield folder
    finally:
        remove(folder)


def _made(base: Path) -> Path:
    """A folder that never was there without its owner."""
    stat = process_stat(os.getpid())
    pid, start_time, token = os.getpid(), stat.start_time if stat else "0", secrets.token_hex(4)
    making = base / f"{MAKING}{pid}-{start_time}-{token}"
    (making / HELPERS).mkdir(mode=0o700, parents=True)
    (making / OWNER).write_text(f"{pid} {start_time}\n")
    return making.rename(base / f"{RUN}{token}")


def clean_up(base: Path) -> list[str]:
    """Removes what runs left behind that live no more; returns their names."""
    left = [folder for folder in base.glob(f"{RUN}*") if live_pid(folder / OWNER) is None]
    left += [folder for folder in base.glob(f"{MAKING}*") if not _is_being_made(folder)]
    for folder in left:
        remove(folder)
    return [folder.name for folder in left]


def _is_being_made(folder: Path) -> bool:
    """Whether the process that its name tells of lives: it will give it its name in a moment."""
    pid, _, others = folder.name.removeprefix(MAKING).partition("-")
    stat = process_stat(int(pid)) if pid.isdigit() else None
    return stat is not None and not stat.is_gone and stat.start_time == others.partition("-")[0]


def remove(folder: Path) -> None:
    """Ends what a run has left and removes its folder."""
    for noted in (folder / HELPERS).glob("*.pid"):
        pid = live_pid(noted)
        if pid is not None:
            end_group(pid)
    _end_programs(folder)
    packets.delete_noted(folder / HELPERS)
    LocalCluster(folder / CLUSTER).destroy()
    namespaces.delete_noted(folder / HELPERS)  # nobody is in them any more
    unmount_below(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _end_programs(folder: Path) -> None:
    """SIGKILL for the user's programs whose parent has ended, or that have left its group: their environment names the
    history that they were to write in this folder."""
    for _ in range(PASSES_MAX):  # one may start another meanwhile
        found = list(_programs_of(folder))
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _programs_of(folder: Path) -> Iterator[int]:
    mark = f"{HISTORY_VARIABLE}={folder}/".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if any(one.startswith(mark) for one in environment.read_bytes().split(b"\0")):
                yield int(environment.parent.name)
