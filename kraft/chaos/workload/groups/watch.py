"""What members of groups tell the white box, and ask it: the port of `kraft.chaos.oracles.probes_groups`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kraft.chaos.group_history import NO_EPOCH, GroupHistory


class WatchesGroups(Protocol):
    """The white box, as members know it."""

    history: GroupHistory

    def epoch_of(self, group: str, broker: int) -> int:
        """The leader epoch in which that broker coordinates the group now; NO_EPOCH: it does not."""

    def told(self, group: str, tag: str, what: str) -> None:
        """A client was told of the commit with that text, just now."""

    def is_excused(self, group: str) -> bool:
        """Whether what is known of the group lost committed records, and may."""

    def is_beyond_repair(self, group: str) -> bool:
        """Whether every copy of what is known of the group is damaged: only an operator can help then."""


@dataclass
class Unwatched:
    """For runs without a white box."""

    history: GroupHistory = field(default_factory=GroupHistory)

    def epoch_of(self, group: str, broker: int) -> int:
        return NO_EPOCH

    def told(self, group: str, tag: str, what: str) -> None:
        """Nobody judges."""

    def is_excused(self, group: str) -> bool:
        return False

    def is_beyond_repair(self, group: str) -> bool:
        return False
