"""All faults by name, and how one of them strikes."""

from __future__ import annotations

from collections.abc import Mapping

from kraft.chaos.faults import clock, disk, network, process, rot
from kraft.chaos.faults.context import FaultContext
from kraft.chaos.faults.kind import FaultKind
from kraft.chaos.outcome import FAULT_PREFIX
from kraft.chaos.scenario import FaultSpec

FAULTS: Mapping[str, FaultKind] = {
    kind.name: kind
    for family in (process, network, disk, rot, clock)
    for kind in vars(family).values()
    if isinstance(kind, FaultKind)
}
"""Family by family, each in the order of its module."""
DEFAULT_FAULTS: tuple[str, ...] = tuple(name for name, kind in FAULTS.items() if kind.by_default)


def strike(context: FaultContext, spec: FaultSpec, kinds: Mapping[str, FaultKind] = FAULTS) -> None:
    """Inflicts one fault, if the state of the cluster lets it. Raises KeyError for an unknown name."""
    kind = kinds[spec.name]
    context.verdicts.declare([FAULT_PREFIX + kind.name])
    rng = context.simulation.stream(f"fault/{spec.stream}")
    if not context.is_over and not (kind.disturbs and context.guard.holds_back(rng, context.topics)):
        kind.strike(context, rng)
