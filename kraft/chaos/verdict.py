"""The verdicts of a run, collected while it goes on: violations, excuses, and counts of events.

Oracles and checkers report here; the run turns the verdicts into its outcome. A violation is kept with the step at
which it was seen and the last events before it, the first of each oracle with a text of its own. Who tells a run's
story listens here.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from kraft.chaos.outcome import Violation
from kraft.chaos.world.scheduler import Scheduler

VIOLATIONS_MAX = 50
EVENTS_KEPT = 40


class Listener:
    """Who hears of all that is counted and judged, as it comes; this one does nothing."""

    def happened(self, what: str, text: str, times: int) -> None:
        """Something was counted."""

    def violated(self, oracle: str, text: str) -> None:
        """A promise was broken."""

    def excused(self, text: str) -> None:
        """A loss is explained by injected faults."""


@dataclass
class Verdicts:
    """The judges' notebook of one run."""

    scheduler: Scheduler
    violations: list[Violation] = field(default_factory=list)
    last_events: list[str] = field(default_factory=list)
    """The events before the first violation."""
    excuses: dict[str, None] = field(default_factory=dict)
    """Losses that injected faults fully explain; a seed with any is counted as excused."""
    coverage: Counter[str] = field(default_factory=Counter)
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    listener: Listener = field(default_factory=Listener)
    _known: set[tuple[str, str]] = field(default_factory=set)

    def violated(self, oracle: str, text: str) -> None:
        """Notes a broken promise; the same text of the same oracle counts once."""
        if (oracle, text) in self._known or len(self.violations) >= VIOLATIONS_MAX:
            return
        self._known.add((oracle, text))
        if not self.violations:
            self.last_events = list(self.recent)
        scheduler = self.scheduler
        scheduler.trace.note(scheduler.now, "violation", oracle, text)
        self.violations.append(Violation(oracle, scheduler.steps, scheduler.now, text))
        self.listener.violated(oracle, text)

    def excused(self, text: str) -> None:
        """Notes a loss that injected faults explain completely."""
        if text not in self.excuses:
            self.scheduler.trace.note(self.scheduler.now, "excused", text)
            self.excuses[text] = None
            self.listener.excused(text)

    def happened(self, what: str, text: str = "", times: int = 1) -> None:
        """Counts an event, and keeps its text among the last ones."""
        self.recent.append(f"{self.scheduler.now:.6f} step {self.scheduler.steps}: {what} {text}".rstrip())
        self.counted(what, text, times)

    def counted(self, what: str, text: str = "", times: int = 1) -> None:
        """Counts an event that is too frequent to be one of the last ones."""
        self.coverage[what] += times
        self.listener.happened(what, text, times)

    def declare(self, names: Iterable[str]) -> None:
        """Declares counters that are shown even if they stay at zero."""
        for name in names:
            self.coverage[name] += 0
