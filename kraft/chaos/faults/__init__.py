"""Faults by name: what can happen to processes, machines, the network, disks and clocks of a cluster.

A scenario names a fault, an instant and a random stream (`kraft.chaos.scenario.FaultSpec`); `strike` draws the
target and the size from that stream and does it. Every fault ends by itself. The families are in `process.py`,
`network.py`, `disk.py`, `rot.py` and `clock.py`; what they share is in `context.py`, and when they may destroy data
in `damage.py`. `registry.py` knows them all, and none of them knows it.
"""

from kraft.chaos.faults.context import FaultContext
from kraft.chaos.faults.kind import FaultKind
from kraft.chaos.faults.registry import DEFAULT_FAULTS, FAULTS, strike

__all__ = ["DEFAULT_FAULTS", "FAULTS", "FaultContext", "FaultKind", "strike"]
