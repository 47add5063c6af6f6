"""Tells the story of a quorum's run: what strikes voters, who leads, what becomes of proposals, the verdict.

It listens to the verdicts of the run. What `counters.OFTEN` lists is told in bunches.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraft.chaos.faults.context import STARTED_AGAIN
from kraft.chaos.outcome import FAULT_PREFIX
from kraft.chaos.quorum import counters
from kraft.chaos.quorum.settings import QuorumScenario
from kraft.chaos.story import Story
from kraft.chaos.verdict import Listener

WORDS = {
    counters.ELECTED: "leader",
    counters.DEPOSED: "deposed",
    STARTED_AGAIN: "starts",
    counters.ACTIVATED: "active",
}
"""Of counters whose word says it all: who it is follows."""


class Narrator(Listener):
    """The listener of one run that writes its story."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def happened(self, what: str, text: str, times: int) -> None:
        kind, _, name = what.partition(": ")
        is_fault = what.startswith(FAULT_PREFIX)
        if what in counters.OFTEN:
            self._story.bunch("faults" if is_fault else kind, name, times)
        elif is_fault:
            self._story.tell("FAULT", f"{name}: {text}")
        elif what in WORDS:
            self._story.tell(WORDS[what], text)
        else:
            self._story.tell(kind, f"{name}: {text}" if text else name)

    def violated(self, oracle: str, text: str) -> None:
        self._story.tell("ANOMALY", f"{oracle}: {text}")


def headline(scenario: QuorumScenario) -> Iterator[str]:
    """What is played."""
    settings = scenario.settings
    work = (
        f"operators who create and delete topics: {settings.clients}"
        if settings.workload == "topics"
        else "bytes are proposed to the leader"
    )
    off = [name for name, rate in settings.faults.items() if not rate]
    yield f"Seed {scenario.seed}: {scenario.seconds:g} s of faults against {scenario.shape}; {work}."
    yield f"Faults that are off: {', '.join(off) or 'none'}."
    yield "Times are virtual seconds since the voters started."
