"""What people see of an ingestion, on standard error: a line that changes on a terminal, else one now and then."""

from __future__ import annotations

import time
from types import TracebackType

from rich.markup import escape
from rich.status import Status

from kraft.cli.shared.output import console
from kraft.ingest.plan import Cut
from kraft.ingest.progress import Progress
from kraft.spark.errors import ConnectorError

LINE_EVERY_S = 10.0
"""Where standard error is no terminal."""


class Display:
    """A `Watcher` of the run; use it as a context manager."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self._status: Status | None = None
        self._last_line_s = float("-inf")

    def __enter__(self) -> Display:
        if console.is_terminal:
            self._status = console.status("asking the brokers what is new")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def begun(self, progress: Progress) -> None:
        self.progress = progress

    def planned(self, cut: Cut) -> None:
        if self._status is not None:
            slices = f"{len(cut.slices):,} slice{'' if len(cut.slices) == 1 else 's'}"
            self._status.update(f"{self._line(None)}; writing {cut.offsets:,} offsets in {slices}")

    def committed(self, next_commit_s: float | None) -> None:
        now_s = time.monotonic()
        if self._status is not None:
            self._status.update(self._line(next_commit_s))
        elif now_s - self._last_line_s >= LINE_EVERY_S:
            self._last_line_s = now_s
            self.told(self._line(next_commit_s))

    def failed(self, error: ConnectorError, retry_s: float) -> None:
        self.told(f"{error} Trying again in {retry_s:g} s.")

    def told(self, sentence: str) -> None:
        console.print(f"[dim]{escape(sentence)}[/dim]", soft_wrap=True)

    def _line(self, next_commit_s: float | None) -> str:
        assert self.progress is not None
        return self.progress.line(time.monotonic(), next_commit_s=next_commit_s)
