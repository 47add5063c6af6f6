"""The faults of real clusters by the names of experiment files, what they need, and why this host may not have one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from kraft.chaos.experiments.document import NAMESPACES, Experiment, Step
from kraft.chaos.real import namespaces
from kraft.chaos.real.cluster import can_mount
from kraft.chaos.real.faults.fault import Aim, Fault, Proof
from kraft.chaos.real.faults.hosts import CpuPressure, DiskFull
from kraft.chaos.real.faults.networks import network_fault
from kraft.chaos.real.faults.packets import cut, packet_loss
from kraft.chaos.real.faults.packets import refusal as packet_loss_refusal
from kraft.chaos.real.faults.ports import WORDS as PORT_WORDS
from kraft.chaos.real.faults.ports import PortFault
from kraft.chaos.real.faults.processes import BitRot, Down, Pause, RollingRestart, Truncate, Wipe


def _disk_full(aim: Aim) -> Fault:
    """A file system without room, where each node has one of its own; else the node's disk says so."""
    return DiskFull(aim) if aim.cluster.has_disks else PortFault("disk-full", aim)


def _cut(name: str, aim: Aim) -> Fault:
    """At the switch between namespaces, where there is one; else by relays."""
    return cut(aim) or network_fault(name, aim)


BY_RELAYS: Final = frozenset(("half-open", "reset", "latency", "bandwidth"))
"""Faults that cannot be played where nodes are in network namespaces."""
FAULTS: Final[Mapping[str, Callable[[Aim], Fault]]] = {
    "kill": Down,
    "stop": partial(Down, in_order=True),
    "pause": Pause,
    "rolling-restart": RollingRestart,
    "wipe": Wipe,
    "bit-rot": BitRot,
    "truncate": Truncate,
    "disk-full": _disk_full,
    "cpu-pressure": CpuPressure,
    "packet-loss": packet_loss,
    "cut-off": partial(_cut, "cut-off"),
    "stall": partial(_cut, "stall"),
    **{name: partial(PortFault, name) for name in ("failing-disk", "slow-disk", "clock-offset")},
    **{name: partial(network_fault, name) for name in BY_RELAYS},
}
MAY_END: Final = frozenset(("disk-full", "failing-disk"))
"""Faults that a node may end of, also a while after they are over."""


def needs_disks(experiment: Experiment) -> bool:
    """Whether each node should have a file system of its own, and this host can give it."""
    return can_mount() and any(step.fault == "disk-full" for step in experiment.method)


def needs_doors(experiment: Experiment) -> bool:
    """Whether nodes must take faults of disk and clock from outside (`chaos.enable`)."""
    names = {step.fault for step in experiment.method} & set(PORT_WORDS)
    return bool(names - {"disk-full"}) or (bool(names) and not needs_disks(experiment))


def refusals(experiment: Experiment) -> list[str]:
    """Why this host, or this world, cannot play an experiment: a sentence for each reason."""
    told = [
        _refusal(step, in_namespaces=experiment.cluster.network == NAMESPACES) for step in experiment.method
    ]
    if experiment.cluster.network == NAMESPACES:
        told.append(namespaces.refusal())
    return [one for one in told if one]


def _refusal(step: Step, *, in_namespaces: bool) -> str:
    if step.fault not in FAULTS:
        return f"the fault {step.fault} cannot be played on real nodes yet; try --backend sim"
    if in_namespaces and step.fault in BY_RELAYS:
        return f"the fault {step.fault} is played by relays: take `network: namespaces` out of the file"
    if step.fault == "packet-loss" and not in_namespaces:
        return packet_loss_refusal()
    return ""


__all__ = ["FAULTS", "MAY_END", "Aim", "Fault", "Proof", "needs_disks", "needs_doors", "refusals"]
