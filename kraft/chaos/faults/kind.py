"""What a fault is: a name that people ask for, and how it strikes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from kraft.chaos.faults.context import FaultContext

Strike = Callable[[FaultContext, random.Random], None]
"""Draws a target and a size, does it, says so (`FaultContext.happened`) and sees to its end. Where it makes
no sense in the state of the cluster it does nothing, and says nothing."""


@dataclass(frozen=True)
class FaultKind:
    """One fault of `kraft.chaos.faults.FAULTS`."""

    name: str
    doc: str
    """One line for people."""
    by_default: bool
    """Whether it belongs to the default swarm: the defence against it is built."""
    strike: Strike
    disturbs: bool = False
    """It takes a node down, or cuts it off, so that ISRs shrink and leaders change."""


def fault(
    name: str, doc: str, *, by_default: bool = True, disturbs: bool = False
) -> Callable[[Strike], FaultKind]:
    """Makes a fault of a function."""
    return lambda strike: FaultKind(name, doc, by_default, strike, disturbs)
