"""What the demo streams: the lines of files, or this host's own operational data from /proc.

Each item has a key of its own in the run; the audit compares by it. Lines are split at \\n only: a \\r, odd bytes and
repeated lines stay as they are, and a last line without \\n counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SAMPLE_INTERVAL_S = 0.2
PROCESSES_PER_SAMPLE = 25
_CPU_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


class Item(NamedTuple):
    """One record to send; `group` is what the summary counts by."""

    group: str
    key: bytes
    value: bytes


class FileLines:
    """The lines of files, keyed `file:line` (line numbers from 1)."""

    def __init__(self, files: list[Path]) -> None:
        """Raises OSError if one of the files cannot be read; none is streamed then."""
        self._files = [(path, path.read_bytes()) for path in files]
        self.total: int | None = sum(count_lines(data) for _, data in self._files)

    def items(self) -> Iterator[Item]:
        seen: dict[str, int] = {}
        for path, data in self._files:
            name = str(path)
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > 1:  # the same file twice is two different streams of lines
                name = f"{name}#{seen[name]}"
            for number, line in enumerate(split_lines(data), start=1):
                yield Item(path.name, f"{name}:{number}".encode(), line)


def split_lines(data: bytes) -> list[bytes]:
    """The lines of a file, split at \\n only; a last line without \\n counts, an empty rest does not."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def count_lines(data: bytes) -> int:
    """How many lines `split_lines` gives."""
    return data.count(b"\n") + (0 if data.endswith(b"\n") or not data else 1)


class HostSamples:
    """Samples of /proc for some seconds: CPU, memory, disk, network and processes, as JSON documents."""

    total: int | None = None

    def __init__(self, duration_s: float, proc: Path = Path("/proc")) -> None:
        self._duration_s = duration_s
        self._proc = proc

    def items(self) -> Iterator[Item]:
        end = time.monotonic() + self._duration_s
        number = 0
        while (now := time.monotonic()) < end:
            number += 1
            yield from self.sample(number, int(time.time() * 1000))
            time.sleep(max(0.0, SAMPLE_INTERVAL_S - (time.monotonic() - now)))

    def sample(self, number: int, timestamp_ms: int) -> Iterator[Item]:
        """One sample of everything; `number` makes the keys unique."""
        readings = (self._cpu, self._memory, self._disk, self._network, self._processes)
        for read in readings:
            for kind, name, values in read():
                document = {"timestamp_ms": timestamp_ms, "kind": kind, "name": name, **values}
                key = f"{kind}:{name}:{number}".encode()
                yield Item(kind, key, json.dumps(document, separators=(",", ":")).encode())

    def _lines(self, name: str) -> list[str]:
        return (self._proc / name).read_text(errors="replace").splitlines()

    def _cpu(self) -> Iterator[tuple[str, str, dict[str, int]]]:
        for line in self._lines("stat"):
            if line.startswith("cpu"):
                name, *ticks = line.split()
                yield "cpu", name, dict(zip(_CPU_FIELDS, map(int, ticks), strict=False))

    def _memory(self) -> Iterator[tuple[str, str, dict[str, int]]]:
        fields = dict(line.split(":", 1) for line in self._lines("meminfo"))
        wanted = ("MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "Dirty", "SwapFree")
        yield "memory", "host", {f"{key}_kb": int(fields[key].split()[0]) for key in wanted if key in fields}

    def _disk(self) -> Iterator[tuple[str, str, dict[str, int]]]:
        for line in self._lines("diskstats"):
            fields = line.split()
            if len(fields) >= 14 and int(fields[3]) + int(fields[7]) > 0:
                yield (
                    "disk",
                    fields[2],
                    {
                        "reads": int(fields[3]),
                        "read_sectors": int(fields[5]),
                        "writes": int(fields[7]),
                        "written_sectors": int(fields[9]),
                        "io_ms": int(fields[12]),
                    },
                )

    def _network(self) -> Iterator[tuple[str, str, dict[str, int]]]:
        for line in self._lines("net/dev")[2:]:
            name, _, counters = line.partition(":")
            values = [int(value) for value in counters.split()]
            yield (
                "network",
                name.strip(),
                {
                    "received_bytes": values[0],
                    "received_packets": values[1],
                    "sent_bytes": values[8],
                    "sent_packets": values[9],
                },
            )

    def _processes(self) -> Iterator[tuple[str, str, dict[str, int]]]:
        pids = sorted(
            (int(entry.name) for entry in self._proc.iterdir() if entry.name.isdigit()), reverse=True
        )
        for pid in pids[:PROCESSES_PER_SAMPLE]:
            try:
                stat = (self._proc / str(pid) / "stat").read_text(errors="replace")
            except (FileNotFoundError, ProcessLookupError):  # it ended between the listing and the look
                continue
            command, _, rest = stat.partition(" (")[2].rpartition(") ")
            fields = rest.split()
            yield (
                "process",
                f"{command}/{pid}",
                {
                    "user_ticks": int(fields[11]),
                    "system_ticks": int(fields[12]),
                    "threads": int(fields[17]),
                    "rss_pages": int(fields[21]),
                },
            )
