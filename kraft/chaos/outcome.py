"""The outcome of one run in plain values, which travel between processes; whatever the kind of its cluster.

Runs fill it (`kraft.chaos.run`, `kraft.chaos.quorum.run`), campaigns add it up, reports tell it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Final

FAULT_PREFIX: Final = "fault: "
"""What the names of faults' counters begin with."""
RUN_FAILED: Final = "run-failed"
"""The oracle named for a run that did not come to its end."""


@dataclass(frozen=True)
class Violation:
    """A promise that was broken."""

    oracle: str
    step: int
    """The scheduler's step during which it was seen."""
    at_s: float
    text: str


@dataclass
class Outcome:
    """The outcome of one run."""

    seed: int
    digest: str = ""
    violations: list[Violation] = field(default_factory=list)
    last_events: list[str] = field(default_factory=list)
    """The last events before the first violation."""
    excused: list[str] = field(default_factory=list)
    """Losses that injected faults fully explain."""
    undecided: str = ""
    """Why the history proves nothing, if it does not."""
    untold: str = ""
    """Why the requested story or timeline is not whole."""
    coverage: dict[str, int] = field(default_factory=dict)
    history: dict[str, int] = field(default_factory=dict)
    """Counts of the history: sends by acks and outcome, judged records, lost records that no promise covered."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """By workload: acknowledged operations."""
    operations: int = 0
    """Client operations that completed, one way or the other."""
    virtual_s: float = 0.0
    steps: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    error: str = ""
    """The run itself failed: code under simulation reached for the real world, or a judge broke."""

    @property
    def first_violations(self) -> list[Violation]:
        """The first violation of each oracle; a run that failed itself is one at step -1."""
        found = [Violation(RUN_FAILED, -1, -1.0, self.error)] if self.error else []
        first: dict[str, Violation] = {}
        for violation in found + self.violations:
            first.setdefault(violation.oracle, violation)
        return list(first.values())

    @property
    def oracles(self) -> list[str]:
        """The oracles that the run failed, in the order of their first violations."""
        return [violation.oracle for violation in self.first_violations]

    def encoded(self) -> bytes:
        """One line of JSON; `decoded` makes an equal outcome of it."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decoded(cls, output: bytes) -> Outcome:
        """The outcome in the last line of a run's output."""
        document = json.loads(output.splitlines()[-1])
        violations = [Violation(**violation) for violation in document.pop("violations")]
        return cls(**document, violations=violations)
