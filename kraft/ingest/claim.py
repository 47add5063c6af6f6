"""The claim of a table: one run at a time, and a dead one's ends by itself.

It is a lock of the operating system on `_kraft/claim` (flock), which the kernel drops when its process ends in whatever
way; the file's text only names the holder in the refusal. `run.py` and the maintenance of a table hold it. Hosts that
share the folder over a network file system exclude each other only if that file system passes locks on (NFSv4 does).
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kraft.ingest.folder import control_folder, make_folder
from kraft.ingest.model import TableError

_MAX_TEXT_BYTES = 4096


@contextmanager
def claimed(table: Path, run: str) -> Iterator[None]:
    """Holds the table for this process. Makes the folder. Raises TableError if another run has it, OSError."""
    folder = control_folder(table)
    make_folder(folder)
    descriptor = os.open(folder / "claim", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TableError(
                f"{table} is in use by {_holder(descriptor)}: wait until that run has ended, or stop it with SIGTERM."
            ) from None
        holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "run": run}).encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder, 0)
        yield
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    try:
        found = json.loads(os.pread(descriptor, _MAX_TEXT_BYTES, 0))
        return f"process {found['pid']} on host {found['host']} (run {found['run']})"
    except (ValueError, KeyError, TypeError):
        return "another run, which has just begun"
