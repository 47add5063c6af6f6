"""All faults by name."""

from __future__ import annotations

from collections.abc import Mapping

from kraft.chaos.faults import clock, disk, network, process, rot
from kraft.chaos.faults.kind import FaultKind

FAULTS: Mapping[str, FaultKind] = {
    kind.name: kind for kind in (*process.KINDS, *network.KINDS, *disk.KINDS, *rot.KINDS, *clock.KINDS)
}
DEFAULT_FAULTS: tuple[str, ...] = tuple(name for name, kind in FAULTS.items() if kind.by_default)
