"""The application of committed commands to the state machine, large ones in several steps of the lane.

Guarantees: entries are applied in order, each once. A step ends with the entry that reaches its limit, so that a
leader's heartbeats leave in time however large proposals are. A large entry takes effect with its last step; a
snapshot that covers it ends it before. The driver owns this; `node.py` asks how far it may apply.

A proposal may therefore be as large as a message: the failure of one broker stays one decision, and no heartbeat
waits for 10,000 partitions.
"""

from __future__ import annotations

from collections.abc import Callable

from quorum.raft.messages import PROPOSAL
from quorum.raft.state_machine import Applied, StateMachine
from quorum.steps import Steps

IsReady = Callable[[bytes, int, int], bool]
"""Takes one step of a large entry (command, index, term); true once the entry can be applied."""


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
        """Applies an entry, or adopts the result of its steps."""
        applied, is_its = self._applied, self._index == index
        self.forget()
        if applied is not None:
            assert is_its, f"entry {self._index} was applied in steps, and {index} follows"
            return applied
        return self._machine.apply(command[len(PROPOSAL) :], index, term)

    def forget(self) -> None:
        """Drops the steps under way, since a snapshot's state takes their place."""
        self._steps = self._applied = None
