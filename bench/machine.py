"""The machine under the numbers, and the costs of processes, both from the operating system.

`cpu_seconds` reads processes' clocks, `resident_bytes` /proc; `facts` describes the machine. `bare_file` measures the
kernel's price for storing bytes in a new file: the part of a produce that the null broker leaves out and no real one
can. It varies: on a virtual machine whose host takes free memory back, the first touch of a page of the page cache is a
fault in the host, charged to the writer, and makes storing ten times as expensive as in memory that the guest still
holds.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

LIBRARIES = ("kraft", "uvloop", "confluent-kafka", "aiohttp", "pysyncobj", "crc32c", "msgpack")
_PROCESS_CLOCK = 2
"""CPUCLOCK_SCHED: the kernel's clock of a whole process, with the process's id above these three bits."""
_PIECE_BYTES = 1024 * 1024
GIVEN_BACK_BYTES = 320 * 1024 * 1024
"""Above the memory that the workers of a run and its topic leave behind."""
QUIET_SHARE = 0.15
"""CPU seconds per second below which brokers count as having nothing left to do."""
QUIET_S = 0.3
SETTLE_TIMEOUT_S = 20.0


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of the processes so far, to the nanosecond: their CPU clocks (clock_getcpuclockid(3))."""
    return sum(time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK) for pid in pids) / 1e9


def resident_bytes(pid: int) -> int:
    """The process's memory in RAM (VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{pid}/status has no VmRSS")


def settle(pids: Iterable[int]) -> None:
    """Returns when the processes have little left to do, or after `SETTLE_TIMEOUT_S`."""
    pids = list(pids)
    deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
    before = cpu_seconds(pids)
    while time.monotonic() < deadline_s:
        time.sleep(QUIET_S)
        now = cpu_seconds(pids)
        if now - before < QUIET_SHARE * QUIET_S:
            return
        before = now


@contextmanager
def bare_file(size_bytes: int, directory: Path) -> Iterator[float]:
    """Writes a new file a megabyte at a time and keeps it for the duration; yields the CPU seconds it took: the
    price of storing as many bytes for the barest of writers, here and now.

    Memory that processes have just given back is filled first, unmeasured: it is cheaper than the memory that the
    broker will get later.
    """
    data = bytes(_PIECE_BYTES)
    path = directory / "bare-file"
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(GIVEN_BACK_BYTES // _PIECE_BYTES if size_bytes else 0):
                file.write(data)
            before = resource.getrusage(resource.RUSAGE_SELF)
            for _ in range(-(-size_bytes // _PIECE_BYTES)):
                file.write(data)
            after = resource.getrusage(resource.RUSAGE_SELF)
        yield after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    finally:
        path.unlink(missing_ok=True)


def facts() -> dict[str, Any]:
    """Cores, CPU, kernel, versions, and the machine's load before the run.

    Of the interpreter its build too: the same version built with profile-guided optimization runs this
    project's code an eighth faster than one built without.
    """
    import confluent_kafka

    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {' '.join(sys.version.split())}",
        "libraries": {name: version(name) for name in LIBRARIES}
        | {"librdkafka": confluent_kafka.libversion()[0]},
        "load_before": round(os.getloadavg()[0], 2),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
