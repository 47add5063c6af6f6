"""`kraft ingest` as a process that tests kill: itself, its JVM or its Python worker, at a moment of its commits."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kraft.ingest.model import Format
from tests.support.node_processes import until

ROOT = Path(__file__).resolve().parents[2]
START_S = 300.0
"""Until a JVM has started and the first cut is committed, on a host that is busy."""
WATCH_S = 20.0
"""So long a step of a commit is waited for; some are shorter than the eye."""
STACKS_S = 5.0
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
BEFORE, DURING, AFTER = "before", "during", "after"


class IngestProcess:
    """One run; `close` ends it and whatever it started."""

    def __init__(
        self, topic: str, folder: Path, table_format: Format, bootstrap: str, log: Path, *, continuous: bool
    ) -> None:
        self.folder = folder
        self.format = table_format
        self._log = log
        self._family: set[int] = set()
        mode = ["--continuous", "--trigger", "200ms"] if continuous else ["--available-now"]
        arguments = ["ingest", topic, "--to", str(folder), "--format", table_format, *mode]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*KRAFT, *arguments, "--bootstrap-server", bootstrap, "--master", "local[2]", "--json"],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env=os.environ | {"JDK_JAVA_OPTIONS": QUICK_START, "PYTHONFAULTHANDLER": "1"},
            )

    def close(self) -> None:
        """Kills what is left of the run: what has outlived its driver too."""
        self._family |= set(descendants(self.process.pid))
        for pid in self._family | ({self.process.pid} if self.process.poll() is None else set()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    # ---- its commits, as its folder shows them

    def commits(self) -> int:
        return len(self._entries())

    def wait_commits(self, count: int) -> None:
        """Returns when the table has so many."""

        def made() -> bool:
            assert self.process.poll() is None, self.said()
            return self.commits() >= count

        try:
            until(made, f"{count} commits", START_S)
        except AssertionError as late:
            step = self.step()
            raise AssertionError(
                f"{late}; the run is at step {step} and said:\n{self._last_words()}"
            ) from late

    def _last_words(self) -> str:
        """What the run has said, and where the threads of its JVM and its own stand: it is ended for that."""
        family = descendants(self.process.pid)
        self._family |= set(family)
        for pid in family:
            if Path(command_of(pid)[0]).name == "java":
                os.kill(pid, signal.SIGQUIT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=STACKS_S)  # what the JVM writes is kept for the next call
        self.process.send_signal(signal.SIGABRT)
        self.process.wait()
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        output, _ = self.process.communicate()
        return f"{output.decode(errors='replace')}\n{self.said()}"

    def step(self) -> str | None:
        """Of the attempt at hand: files are there and no commit names them (before), the commit is being written or
        its files wait to be moved (during), it is made and its notes are not yet removed (after); None: none is."""
        return self._parquet_step() if self.format == "parquet" else self._delta_step()

    def _log_folder(self) -> Path:
        return self.folder / ("_kraft/manifests" if self.format == "parquet" else "_delta_log")

    def _entries(self) -> list[str]:
        """The names of the commits in the log."""
        with contextlib.suppress(FileNotFoundError):
            names = os.listdir(self._log_folder())
            return [name for name in names if name[0].isdigit() and name.removesuffix(".json").isdigit()]
        return []

    def _last_entry(self) -> str:
        entries = self._entries()
        return (self._log_folder() / max(entries)).read_text() if entries else ""

    def _parquet_step(self) -> str | None:
        with contextlib.suppress(FileNotFoundError):  # moved on while we looked
            if any(name.startswith(".") for name in os.listdir(self._log_folder())):
                return DURING
            attempts = [name.removeprefix(".removed-") for name in os.listdir(self.folder / "_staging")]
            if not attempts:
                return None
            last = self._last_entry()
            is_committed = any(attempt in last for attempt in attempts)
            if any(self.folder.glob("_staging/*/**/*.parquet")):
                return DURING if is_committed else BEFORE
            return AFTER if is_committed else None
        return None

    def _delta_step(self) -> str | None:
        with contextlib.suppress(FileNotFoundError):
            notes = sorted(path.name for path in (self.folder / "_kraft/attempts").glob("[0-9]*"))
            if not notes or not any(self.folder.glob(f"{notes[-1]}-*.parquet")):
                return None
            if not (self.folder / f"_kraft/audit/{notes[-1]}.jsonl").exists():
                return BEFORE
            return AFTER if notes[-1] in self._last_entry() else DURING
        return None

    # ---- how it dies

    def kill_driver(self) -> None:
        self._family |= set(descendants(self.process.pid))
        self.process.kill()
        self.process.wait()

    def kill_jvm(self) -> None:
        """The process ends by itself then, or tries again."""
        self._kill_first(lambda words: Path(words[0]).name == "java")

    def kill_worker(self) -> None:
        """The youngest process that runs Python for Spark."""
        self._kill_first(lambda words: any("pyspark" in word and "daemon" in word for word in words))

    def kill_at(self, step: str) -> str | None:
        """Kills the driver at this step of a commit; returns the step that it was at, another one if that did not come
        or was over before the process stood still."""
        deadline_s = time.monotonic() + WATCH_S
        while time.monotonic() < deadline_s and self.process.poll() is None:
            if self.step() != step:
                continue
            self.process.send_signal(signal.SIGSTOP)
            if self.step() == step:
                break
            self.process.send_signal(signal.SIGCONT)
        reached = self.step()
        self.kill_driver()
        return reached

    def _kill_first(self, is_meant: Callable[[Sequence[str]], bool]) -> None:
        family = descendants(self.process.pid)
        self._family |= set(family)
        meant = [pid for pid in family if is_meant(command_of(pid))]
        if meant:
            with contextlib.suppress(ProcessLookupError):
                os.kill(meant[-1], signal.SIGKILL)

    def terminate(self) -> dict[str, Any]:
        """SIGTERM; returns what the run printed."""
        self.process.terminate()
        return self.result()

    def result(self) -> dict[str, Any]:
        """Waits for its end, which must be a good one."""
        output, _ = self.process.communicate(timeout=START_S)
        assert self.process.returncode == 0, self.said()
        found: dict[str, Any] = json.loads(output)
        return found


KRAFT = (sys.executable, "-m", "kraft")


def kraft(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [*KRAFT, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=START_S, check=False
    )


def descendants(pid: int) -> list[int]:
    """Children, and theirs, the older ones first."""
    parents = dict(_parents())
    found = [pid]
    for one in found:
        found += sorted(child for child, parent in parents.items() if parent == one)
    return found[1:]


def command_of(pid: int) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it has ended
        return [""]
    return words


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "stat").read_text()
            except OSError:  # it has ended
                continue
            yield int(entry.name), int(status.rpartition(")")[2].split()[1])
