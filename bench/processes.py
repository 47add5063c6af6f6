"""The child processes of the benchmark: workers and null brokers, started and ended by pid.

Guarantees: every wait has a timeout. A child that fails is reported with its own last words. `Child` as a context
manager leaves no process behind. Children end by themselves when the harness is killed, because their standard
input ends then.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

from bench.errors import BenchError
from bench.workers import TIMEOUT_S

ROOT = Path(__file__).resolve().parent.parent
READY_TIMEOUT_S = 60.0
RESULT_TIMEOUT_S = TIMEOUT_S + 10.0
END_TIMEOUT_S = 30.0
LAST_WORDS_BYTES = 2_000


class Child:
    """A process of `python -m MODULE ARGUMENT…` that talks in lines."""

    def __init__(self, module: str, arguments: Sequence[object]) -> None:
        self.name = f"{module.rpartition('.')[2]} {arguments[0]}"
        self._pending = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_TIMEOUT_S)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def await_ready(self) -> None:
        """Waits for the line `ready`. Raises BenchError."""
        line = self.read_line(READY_TIMEOUT_S)
        if line != "ready":
            raise BenchError(f"{self.name} said {line!r} instead of 'ready'")

    def go(self) -> None:
        """Lets a worker that is ready begin."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None

    def result(self) -> dict[str, float]:
        """A worker's report. Raises BenchError if it failed or took too long."""
        line = self.read_line(RESULT_TIMEOUT_S)
        try:
            report = json.loads(line)
        except ValueError:
            raise BenchError(f"{self.name} said {line!r} instead of a report") from None
        return {key: float(value) for key, value in report.items()}

    def read_line(self, timeout_s: float) -> str:
        """The next line of output. Raises BenchError at its end, or after `timeout_s` seconds."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline_s = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([descriptor], [], [], left_s)[0]:
                raise BenchError(f"{self.name} said nothing for {timeout_s:g} s")
            data = os.read(descriptor, 65536)
            if not data:
                raise self._died()
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode(errors="replace")

    def _died(self) -> BenchError:
        try:
            code = self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return BenchError(f"{self.name} closed its output")
        end = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, end - LAST_WORDS_BYTES))
        words = self._errors.read().decode(errors="replace").strip().splitlines()
        return BenchError(f"{self.name} ended with exit code {code}: {words[-1] if words else 'no word'}")


@contextmanager
def children(module: str, argument_lists: Sequence[Sequence[object]]) -> Iterator[list[Child]]:
    """Several children, all ready; ended on leaving."""
    with ExitStack() as stack:
        started = [stack.enter_context(Child(module, arguments)) for arguments in argument_lists]
        for child in started:
            child.await_ready()
        yield started
