"""The verdicts of a run, collected while it goes on: violations, excuses, and counts of events.

Oracles and checkers report here; the run turns the verdicts into its outcome. A violation is kept with the step at
which it was seen and the last events before it, the first of each oracle with a text of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from kraft.chaos.world.simulation import Simulation

VIOLATIONS_MAX = 50
EVENTS_KEPT = 40


@dataclass(frozen=True)
class Violation:
    """A promise that was broken."""

    oracle: str
    step: int
    """The scheduler's step during which it was seen."""
    at_s: float
    text: str


@dataclass
class Verdicts:
    """The judges' notebook of one run."""

    simulation: Simulation
    violations: list[Violation] = field(default_factory=list)
    last_events: list[str] = field(default_factory=list)
    """The events before the first violation."""
    excuses: dict[str, None] = field(default_factory=dict)
    """Losses that injected faults fully explain; a seed with any is counted as excused."""
    coverage: Counter[str] = field(default_factory=Counter)
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    _known: set[tuple[str, str]] = field(default_factory=set)

    def violated(self, oracle: str, text: str) -> None:
        """Notes a broken promise; the same text of the same oracle counts once."""
        if (oracle, text) in self._known or len(self.violations) >= VIOLATIONS_MAX:
            return
        self._known.add((oracle, text))
        if not self.violations:
            self.last_events = list(self.recent)
        simulation = self.simulation
        simulation.note("violation", oracle, text)
        self.violations.append(Violation(oracle, simulation.scheduler.steps, simulation.now, text))

    def excused(self, text: str) -> None:
        """Notes a loss that injected faults explain completely."""
        if text not in self.excuses:
            self.simulation.note("excused", text)
            self.excuses[text] = None

    def happened(self, what: str, text: str = "", times: int = 1) -> None:
        """Counts an event, and keeps its text among the last ones."""
        self.coverage[what] += times
        self.recent.append(
            f"{self.simulation.now:.6f} step {self.simulation.scheduler.steps}: {what} {text}".rstrip()
        )

    def declare(self, names: Iterable[str]) -> None:
        """Declares counters that are shown even if they stay at zero."""
        for name in names:
            self.coverage[name] += 0
