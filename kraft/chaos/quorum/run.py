"""Plays one seed of the quorum: from a number to an outcome. Deterministic, in any process.

Called by `campaign` in forked processes, by tests and by the mutations of the judges.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from structlog.testing import capture_logs

from kraft.chaos.quorum import counters
from kraft.chaos.quorum.judge import Violation
from kraft.chaos.quorum.quorum import Quorum
from kraft.chaos.quorum.settings import Settings, drawn


@dataclass
class QuorumOutcome:
    """What became of one seed."""

    seed: int
    voters: int
    oracle: str = ""
    """Of the first broken promise; empty if all held."""
    text: str = ""
    at_s: float = 0.0
    """The virtual instant at which it was seen."""
    steps: int = 0
    """Of all Raft lanes."""
    acknowledged: int = 0
    """Proposals."""
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    """Of its whole process, where a campaign gave it one."""
    digest: str = ""
    coverage: dict[str, int] = field(default_factory=dict)


def play(seed: int, settings: Settings | None = None) -> QuorumOutcome:
    """Plays a seed's own scenario, or the given one."""
    settings = settings or drawn(seed)
    quorum = Quorum(seed, settings)
    outcome = QuorumOutcome(seed, settings.voters)
    try:
        with capture_logs():  # what dying voters log is nobody's output
            quorum.play()
    except Violation as violation:
        outcome.oracle, outcome.text, outcome.at_s = violation.oracle, str(violation), quorum.now_s
    outcome.steps = sum(voter.steps for voter in quorum.voters.values())
    outcome.acknowledged = quorum.coverage[counters.ACKNOWLEDGED]
    outcome.virtual_s = quorum.now_s
    outcome.digest = quorum.scheduler.trace.digest()
    outcome.coverage = dict(sorted(quorum.coverage.items()))
    return outcome
