"""Hands committed commands to the state machine, those too large for one step of the lane in several.

Guarantees: entries are applied in order, each once; no step applies more than the limit, but for the rest of the
entry that reaches it, so that a leader's heartbeats leave in time however large proposals are. What was begun of
a large entry counts for nothing until its last step, and is given up for a snapshot that covers it. Owned by the
driver; `node.py` asks how far it may apply.
"""

from __future__ import annotations

from collections.abc import Callable

from quorum.raft.messages import PROPOSAL
from quorum.raft.state_machine import Applied, StateMachine
from quorum.steps import Steps

IsReady = Callable[[bytes, int, int], bool]
"""(command, index, term) of the next entry, if it is large: takes one step; whether it can be applied now."""


class Applying:
    """Of one voter."""

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        self._index = 0
        self._steps: Steps[Applied] | None = None
        self._applied: Applied | None = None

    def is_ready(self, command: bytes, index: int, term: int) -> bool:
        """One step of applying the next entry, a large one; true once all are taken, and `apply` is to follow."""
        if self._steps is None or self._index != index:
            self._index = index
            self._steps = self._machine.apply_steps(command[len(PROPOSAL) :], index, term)
        try:
            next(self._steps)
        except StopIteration as end:
            self._applied = end.value
            return True
        return False

    def apply(self, command: bytes, index: int, term: int) -> Applied:
        """Applies an entry, or takes over what its steps have come to."""
        applied, is_its = self._applied, self._index == index
        self.forget()
        if applied is not None:
            assert is_its, f"entry {self._index} was applied in steps, and {index} follows"
            return applied
        return self._machine.apply(command[len(PROPOSAL) :], index, term)

    def forget(self) -> None:
        """A snapshot's state takes the place of what was being applied."""
        self._steps = self._applied = None
