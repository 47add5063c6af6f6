"""The log lines, unhandled exceptions and halts of the nodes during a run: counted, traced and judged.

A line of level error or above is a violation, unless its process was excused or is already over: after its crash a
process runs on to its next await, and meets a disk that is no longer its own. Level and text enter the trace.
Values do not, since they may hold anything; they are for the timeline and for people.
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import structlog

from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.verdict import Verdicts

ERRORS = frozenset(("error", "exception", "critical"))
LEADS_UNCLEANLY = "leads after an unclean election"
JUDGED_ELSEWHERE = frozenset(("truncated", "unclean leader election", LEADS_UNCLEANLY))
"""A replica that is cut below its high watermark logs an error, and so do a leader that may lack records and the
controller that elected it. The oracle of elections judges that leader; the oracles of replication judge the loss,
record by record, with the excuse."""
VALUES_MAX_CHARACTERS = 2_000


class NodeLogs:
    """The collector of log lines. `installed()` directs all logging to it."""

    def __init__(
        self, cluster: SimulatedCluster, verdicts: Verdicts, timeline: IO[str] | None = None
    ) -> None:
        """`timeline`: an open text file for every line with its values."""
        self._cluster = cluster
        self._simulation = cluster.simulation
        self._verdicts = verdicts
        self._timeline = timeline
        self.counts: Counter[str] = Counter()
        """Lines by text."""
        self.unclean_leaders: dict[tuple[str, int], int] = {}
        """By partition and epoch: the offset from which on a leader reported other logs' records as lost."""
        self.on_line: Callable[[str, str, str, str], None] = lambda who, level, text, values: None
        """Hears of every line: its lane, level, text and values."""
        self._last: dict[str, str] = {}
        """By lane: its last text."""

    def __call__(self, _logger: object, level: str, event: structlog.typing.EventDict) -> str:
        """The last processor of structlog."""
        self.take(level, str(event.pop("event")), event)
        raise structlog.DropEvent

    def take(self, level: str, text: str, values: Mapping[str, Any], *, unformatted: bool = False) -> None:
        """Takes one line from the process that runs now.

        The last events before a violation leave out libraries' warnings and repeated lines.
        """
        simulation = self._simulation
        lane = simulation.scheduler.current
        who = lane.name if lane else "-"
        self.counts[text] += 1
        if text == LEADS_UNCLEANLY:
            self.unclean_leaders[values["partition"], values["epoch"]] = values["end"]
        simulation.note("log", who, level, text)
        shown = " ".join(f"{key}={value}" for key, value in values.items())[:VALUES_MAX_CHARACTERS]
        self.on_line(who, level, text, shown)
        is_chatter = unformatted or self._last.get(who) == text
        if level in ERRORS or not is_chatter:
            self._verdicts.recent.append(
                f"{simulation.now:.6f} step {simulation.scheduler.steps}: {who} {level} {text} {shown}"
            )
        if not unformatted:
            self._last[who] = text
        if self._timeline is not None:
            self._timeline.write(f"{simulation.now:.9f} LOG {who} {level} {text} {shown}\n")
        is_over = lane is not None and not lane.alive
        is_error = level in ERRORS and text not in JUDGED_ELSEWHERE
        if is_error and not is_over and not self._cluster.is_excused(who):
            self._verdicts.violated("unexpected-error", f"{who} logged: {text} {shown}".rstrip())

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Takes the place of all logging, the standard library's included; from level info on."""
        before, level = structlog.get_config(), logging.root.level
        structlog.configure(
            processors=[structlog.processors.format_exc_info, self],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            cache_logger_on_first_use=False,
        )
        handler = _LibraryHandler(self)
        logging.root.addHandler(handler)
        logging.root.setLevel(logging.WARNING)
        try:
            yield
        finally:
            logging.root.setLevel(level)
            logging.root.removeHandler(handler)
            structlog.configure(**before)


class _LibraryHandler(logging.Handler):
    """Takes the lines of libraries, with unformatted texts: arguments may hold addresses."""

    def __init__(self, log: NodeLogs) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        values = {} if error is None else {"exception": "".join(traceback.format_exception(error))}
        self._log.take(record.levelname.lower(), f"{record.name}: {record.msg}", values, unformatted=True)


def judge_processes(cluster: SimulatedCluster, verdicts: Verdicts) -> None:
    """Judges, at the end of a run, every halt and every unhandled exception without an excuse."""
    for halt in cluster.halts:
        if not cluster.may_end(halt.process):
            verdicts.violated("halted", f"node {halt.node_id} ({halt.process}) halted: {halt.reason}")
    for error in cluster.simulation.errors:
        if not cluster.may_end(error.process):
            verdicts.violated("unexpected-error", f"{error.process}: {error.message}: {error.error!r}")
